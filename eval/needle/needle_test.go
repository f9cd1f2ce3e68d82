package needle

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// letters is a tokenizer with a token for every byte.
type letters struct{}

func (letters) Encode(text string) []int32 {
	ids := make([]int32, len(text))
	for i := range ids {
		ids[i] = int32(text[i])
	}
	return ids
}

func (letters) Text(id int32) string { return string(rune(id)) }

func decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteByte(byte(id))
	}
	return b.String()
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		low, high, n int
		want         []int
	}{
		{0, 100, 10, []int{0, 11, 22, 33, 44, 56, 67, 78, 89, 100}},
		{0, 100, 9, []int{0, 12, 25, 38, 50, 62, 75, 88, 100}},
		{16000, 128000, 9, []int{16000, 30000, 44000, 58000, 72000, 86000, 100000, 114000, 128000}},
		{5, 9, 1, []int{5}},
	} {
		if got := Spread(c.low, c.high, c.n); !slices.Equal(got, c.want) {
			t.Errorf("got %v, want %v", got, c.want)
		}
	}
	if got := Spread(1000, 1000000, 15); got[1] != 72357 || got[2] != 143714 || got[13] != 928643 {
		t.Errorf("got %v", got)
	}
}

func TestMake(t *testing.T) {
	var hay strings.Builder
	for i := range 500 {
		fmt.Fprintf(&hay, "Sentence number %d is here. ", i)
	}
	g := Grid{Lengths: []int{2000}, Depths: []int{0, 50, 100}, Rounds: 2, Seed: 3}
	seen := map[string]bool{}
	for i := range g.Cases() {
		k, err := g.Make(letters{}, letters{}.Encode(hay.String()), 2000, i)
		if err != nil {
			t.Fatal(err)
		}
		text := decode(k.Prompt)
		if strings.Count(text, k.Answer) != 1 || k.Correct("it is "+k.Answer+".") != 1 || k.Correct("no") != 0 {
			t.Errorf("case %d: the needle is not there once", i)
		}
		if !strings.HasPrefix(text[k.Position:], "\nThe special magic ") {
			t.Errorf("case %d: at %d is %q, want the needle", i, k.Position, text[k.Position:k.Position+20])
		}
		if !strings.HasPrefix(text[k.Split:], "\n\nQuestion: What is the special magic ") {
			t.Errorf("case %d: the question begins with %q", i, text[k.Split:])
		}
		if n := len(k.Prompt); n > 2000+Reserved || n < 1900 {
			t.Errorf("case %d: %d tokens", i, n)
		}
		share := 100 * float64(k.Position-len(instruction)) / float64(2000-Reserved)
		if math.Abs(share-float64(k.Depth)) > 6 {
			t.Errorf("case %d: the needle is at %.0f %%, want %d", i, share, k.Depth)
		}
		if k.Depth == 50 && text[k.Position-1] != '.' {
			t.Errorf("case %d: the needle is inside a sentence", i)
		}
		again, _ := g.Make(letters{}, letters{}.Encode(hay.String()), 2000, i)
		if !slices.Equal(again.Prompt, k.Prompt) || seen[k.Answer] {
			t.Errorf("case %d: not the same again, or the answer of another", i)
		}
		seen[k.Answer] = true
	}
}

func TestGridCheck(t *testing.T) {
	good := Grid{Lengths: []int{1000}, Depths: []int{0}, Rounds: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Grid{
		{Lengths: []int{100}, Depths: []int{0}, Rounds: 1}, {Lengths: []int{1000}, Depths: []int{101}, Rounds: 1}, {Lengths: []int{1000}, Rounds: 1},
	} {
		if bad.Check() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestHeat(t *testing.T) {
	h := NewHeat(Grid{Lengths: []int{1000, 2000}, Depths: []int{0, 100}})
	h.Add(0, 0, 1)
	h.Add(0, 0, 0)
	h.Add(1, 1, 1)
	var b strings.Builder
	if err := h.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	if want := "depth_percent,1000,2000\n0,0.5000,\n100,,1.0000\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	b.Reset()
	if err := h.WriteSVG(&b, "a < b"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`fill="#ebb839"`, "a &lt; b", ">tokens</text>", ">depth</text>"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: no %s", b.String(), want)
		}
	}
	b.Reset()
	if err := h.WriteText(&b, false); err != nil || !strings.Contains(b.String(), "   0 %       50 ") {
		t.Errorf("%v: %q", err, b.String())
	}
}
