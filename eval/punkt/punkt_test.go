package punkt

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval/metric"
)

// nltkFile is more of what scripts/punkt-vectors.py writes.
var nltkFile = flag.String("nltk", "", "a file of scripts/punkt-vectors.py, whose texts are then cut too")

// cutText is a text and its sentences by NLTK.
type cutText struct {
	Text      string
	Sentences []string
}

// readCuts reads a file of scripts/punkt-vectors.py.
func readCuts(t *testing.T, path string) (release Release, cuts []cutText) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bufio.NewReader(bytes.NewReader(b)))
	var head struct{ NLTK string }
	if err := d.Decode(&head); err != nil {
		t.Fatal(path, err)
	}
	for {
		var c cutText
		if err := d.Decode(&c); err == io.EOF {
			return releaseOf(t, head.NLTK), cuts
		} else if err != nil {
			t.Fatal(path, err)
		}
		cuts = append(cuts, c)
	}
}

// releaseOf is the release whose rules a version of NLTK has.
func releaseOf(t *testing.T, version string) Release {
	t.Helper()
	switch {
	case strings.HasPrefix(version, "3.8.") || strings.HasPrefix(version, "3.9.") || version == "3.10.0" || version == "3.10.1":
		return NLTK3101
	case version == "3.10.4":
		return NLTK3104
	}
	t.Fatalf("NLTK %s: nobody looked at its rules", version)
	return ""
}

// TestSentencesAreThoseOfNLTK compares texts with what the official code made of them.
func TestSentencesAreThoseOfNLTK(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	if *nltkFile != "" {
		files = append(files, *nltkFile)
	}
	for _, path := range files {
		release, cuts := readCuts(t, path)
		differ, sentences := 0, 0
		for _, c := range cuts {
			got := Sentences(c.Text, release)
			sentences += len(got)
			if !slices.Equal(got, c.Sentences) {
				if differ++; differ <= 5 {
					t.Errorf("%s: %.300q:\n%.300q, want\n%.300q", path, c.Text, got, c.Sentences)
				}
			}
		}
		t.Logf("%s: %d texts, %d sentences, %d texts differ", path, len(cuts), sentences, differ)
		if len(cuts) < 300 || sentences < 2*len(cuts) {
			t.Errorf("%s: %d texts of %d sentences tell little", path, len(cuts), sentences)
		}
	}
}

// TestTablesAreWhole counts what was learned of English.
func TestTablesAreWhole(t *testing.T) {
	m := english()
	if len(m.abbrevs) != 156 || len(m.pairs) != 37 || len(m.starters) != 39 || len(m.contexts) != 20366 {
		t.Errorf("%d abbreviations, %d pairs, %d starters, %d contexts, want 156, 37, 39, 20366", len(m.abbrevs), len(m.pairs), len(m.starters), len(m.contexts))
	}
	if !m.abbrevs[". . "] || !m.pairs[[2]string{number, "cooper"}] || m.contexts["a&m"] == 0 {
		t.Error("a word is missing")
	}
}

func TestDamagedTables(t *testing.T) {
	packed := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for name, file := range map[string]string{
		"no gzip": "abbreviations", "cut short": packed("starters\ta\n")[:20], "a name": packed("others\ta\n"), "flags": packed("128\ta\n"),
	} {
		if _, err := readModel(file); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParseRelease(t *testing.T) {
	for _, r := range Releases() {
		if got, err := ParseRelease(string(r)); got != r || err != nil {
			t.Errorf("%s: %s, %v", r, got, err)
		}
	}
	if _, err := ParseRelease("3.8.1"); err == nil || !strings.Contains(err.Error(), "3.10.1") {
		t.Errorf("3.8.1: %v", err)
	}
}

// FuzzSentences cuts any bytes: sentences are pieces of the text in its order, none of
// them empty, and only white space is in none.
func FuzzSentences(f *testing.F) {
	for _, seed := range []string{"", " \n", "A b. C d.", "x.\x1c", ".\x1c", "\xff. \xfe", "a.\n\x1c\n\x1c x", `He said "Go." (I.e. now.) -- "Yes`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, release := range Releases() {
			rest := text
			for _, s := range Sentences(text, release) {
				between, after, found := strings.Cut(rest, s)
				if s == "" || !found || metric.Strip(between) != "" {
					t.Fatalf("%s: %q after %q of %q", release, s, between, text)
				}
				rest = after
			}
			if metric.Strip(rest) != "" {
				t.Fatalf("%s: %q of %q is in no sentence", release, rest, text)
			}
		}
	})
}

// BenchmarkSentences cuts texts of two sizes; the speed is that of both.
func BenchmarkSentences(b *testing.B) {
	for name, unit := range map[string]string{
		"prose": "Mr. Smith of the U.S. Senate paid 3.5 million in Jan. 1996. \"Why?\" asked J. Bach (who had none). He left... ",
		"dots":  ".", "marks": "?!", "spaced": ". ", "wide": ".\u00a0", "no blanks": "a.)", "commas": "a,,", "dashes": "-", "blanks": " ", "closers": "x.\"'",
	} {
		for _, size := range []int{1 << 18, 1 << 20} {
			text := strings.Repeat(unit, size/len(unit))
			b.Run(fmt.Sprintf("%s/%dk", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					Sentences(text, NLTK3101)
				}
			})
		}
	}
}
