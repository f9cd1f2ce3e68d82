package main

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/tokenizer"
)

const vocabFile = "../ruler-vocab.json"

// testMaker is a maker with the vocabulary of the model.
func testMaker(t *testing.T, recipes ...string) *maker {
	t.Helper()
	v, err := loadVocab(vocabFile)
	if err != nil {
		t.Fatal(err)
	}
	var shares []share
	for _, r := range recipes {
		shares = append(shares, share{r, 1})
	}
	m, err := newMaker(v, shares)
	if err != nil {
		t.Fatal(err)
	}
	m.rng = rand.New(rand.NewPCG(1, 2))
	return m
}

// split takes a row with one question apart.
func split(m *maker, d *document) (prompt, answer string) {
	at := slices.IndexFunc(d.classes, func(c uint8) bool { return c >= classAnswer })
	end := len(d.ids)
	if d.ids[end-1] == m.tok.EOS() {
		end--
	}
	return m.tok.Decode(d.ids[1:at], decodePlain), m.tok.Decode(d.ids[at:end], decodePlain)
}

// rows makes some rows.
func rows(t *testing.T, m *maker, recipe string, length, n int) []*document {
	t.Helper()
	all, err := m.make(recipe, length, n)
	if err != nil {
		t.Fatalf("%s: %v", recipe, err)
	}
	for _, d := range all {
		if len(d.ids) > length || len(d.ids) != len(d.classes) {
			t.Fatalf("%s: %d tokens and %d classes, want at most %d of both", recipe, len(d.ids), len(d.classes), length)
		}
	}
	return all
}

// TestNeedlesAreInTheText checks that whatever an answer says stands in the text
// before it, and that all values of a key are said in their order.
func TestNeedlesAreInTheText(t *testing.T) {
	names := []string{"needles", "niah_single_1", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3", "niah_multivalue", "niah_multiquery"}
	m := testMaker(t, names...)
	said := regexp.MustCompile(`(?:above (?:is|are):|,) ([^:,.]+) is: ([^,.\s]+)`)
	for _, name := range names {
		for _, d := range rows(t, m, name, 1024, 6) {
			text := m.tok.Decode(d.ids[1:], decodePlain)
			at := strings.Index(text, "\nQuestion:")
			f, got := findNeedles(text[:at]), map[string][]string{}
			for _, match := range said.FindAllStringSubmatch(text[at:], -1) {
				got[match[1]] = append(got[match[1]], match[2])
			}
			if len(got) == 0 {
				t.Errorf("%s: no answer in %q", name, text[at:])
			}
			for key, values := range got {
				if !slices.Equal(values, f.values[key]) {
					t.Errorf("%s: said %q of %q, the text has %q", name, values, key, f.values[key])
				}
			}
		}
	}
}

// TestListsAreCounted checks the answers about lists by counting.
func TestListsAreCounted(t *testing.T) {
	m := testMaker(t, "cwe", "common", "fwe")
	word := regexp.MustCompile(`[a-z]+(?:[- ][a-z]+)*`)
	for _, name := range []string{"cwe", "common", "fwe"} {
		for _, d := range rows(t, m, name, 1024, 6) {
			prompt, answer := split(m, d)
			list := prompt[:strings.LastIndex(prompt, "\nQuestion:")]
			if name == "fwe" {
				_, list, _ = strings.Cut(list, "Count the coded words. ")
			} else {
				list = list[strings.LastIndex(list, "most.\n"):]
			}
			counts := map[string]int{}
			for _, w := range word.FindAllString(list, -1) {
				for part := range strings.FieldsSeq(w) {
					counts[part]++
				}
			}
			least := 1 << 30
			named := word.FindAllString(answer, -1)
			for _, w := range named {
				n := counts[w]
				if strings.Contains(w, " ") {
					continue // a word with a blank in it, counted in parts
				}
				if name == "fwe" && n > least || n == 0 {
					t.Errorf("%s: %q is there %d times, after one of %d", name, w, n, least)
				}
				least = min(least, n)
			}
			for w, n := range counts {
				if n > least && !strings.Contains(answer, w) {
					t.Errorf("%s: %q is there %d times, but %q has one of %d", name, w, n, answer, least)
				}
			}
		}
	}
}

// TestListsAreRecited checks that a list is written again as it is, in the tokens that the
// list has, and that the item of a line is the first token of its name.
func TestListsAreRecited(t *testing.T) {
	m := testMaker(t, "recite")
	name := regexp.MustCompile(`for (\w+)-`)
	for _, d := range rows(t, m, "recite", 1024, 6) {
		prompt, answer := split(m, d)
		if strings.Count(answer, "\n") < 2 || !strings.Contains(prompt, "\n"+answer+"Question:") {
			t.Errorf("the answer to %q is %q", prompt, answer)
		}
		at := slices.IndexFunc(d.classes, func(c uint8) bool { return c >= classAnswer })
		if ids := m.tok.Encode(answer, tokenizer.EncodeOptions{}); !slices.Equal(ids, d.ids[at:len(d.ids)-1]) {
			t.Errorf("%q is %v, and is cut into %v", answer, d.ids[at:], ids)
		}
		names := name.FindAllStringSubmatch(answer, -1)
		for i := range d.ids {
			if d.classes[i] != classItem {
				continue
			}
			if said := strings.TrimSpace(m.tok.Decode(d.ids[i:i+1], decodePlain)); said == "" || !strings.HasPrefix(names[0][1], said) {
				t.Errorf("the item is %q, the name %q", said, names[0][1])
			}
			names = names[1:]
		}
		if len(names) > 0 {
			t.Errorf("no item for %q", names)
		}
	}
}

// TestChoicesAreLaterItems checks that what is right beside an item comes later in
// the answer.
func TestChoicesAreLaterItems(t *testing.T) {
	m := testMaker(t, "cwe")
	for _, d := range rows(t, m, "cwe", 1024, 3) {
		if len(d.choices) < 30 {
			t.Fatalf("%d choices, want about 45", len(d.choices))
		}
		for _, c := range d.choices {
			if d.classes[c[0]] != classItem || !slices.Contains(d.ids[c[0]+1:], int32(c[1])) {
				t.Fatalf("token %d is a choice at %d, of class %d", c[1], c[0], d.classes[c[0]])
			}
		}
	}
}

// TestWorkersDoNotMatter checks that the batches are those of the seed.
func TestWorkersDoNotMatter(t *testing.T) {
	make := func(workers int, seed uint64) []byte {
		o := options{
			vocab: vocabFile, tokens: 2048, count: 5, workers: workers, seed: seed,
			lengths: []share{{"512", 1}, {"1024", 1}}, recipes: []share{{"needles", 2}, {"fwe", 1}},
		}
		var b bytes.Buffer
		if err := o.writeBatches(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	one := make(1, 1)
	if !bytes.Equal(one, make(3, 1)) {
		t.Error("three workers make other batches than one")
	}
	if bytes.Equal(one, make(1, 2)) {
		t.Error("two seeds make the same batches")
	}
}
