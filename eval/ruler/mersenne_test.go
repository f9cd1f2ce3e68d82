package ruler

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The expected numbers are those of CPython 3 and NumPy.

func TestRandomDrawsWhatPythonDraws(t *testing.T) {
	r := newRandom(42)
	for _, want := range []uint32{2746317213, 478163327, 107420369} {
		if got := r.next(); got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	}
	r = newRandom(42)
	for _, want := range []int{2867825, 1419610} {
		if got := r.between(1000000, 9999999); got != want {
			t.Errorf("between: %d, want %d", got, want)
		}
	}
	r = newRandom(42)
	for _, want := range []string{"bdd640fb-0667-4ad1-9c80-317fa3b1799d", "23b8c1e9-3924-46de-beb1-3b9046685257"} {
		if got := uuid(r); got != want {
			t.Errorf("uuid %s, want %s", got, want)
		}
	}
	r = newRandom(42)
	got := fmt.Sprint(r.letters("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 5), " ", r.sample(100, 5), r.sample(1000, 6), r.below(3))
	if want := "QAHFT [86 94 69 11 75] [432 32 30 95 223 238] 2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	list := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	shuffle(newRandom(42), list)
	if want := []int{7, 3, 2, 8, 5, 6, 9, 4, 0, 1}; !slices.Equal(list, want) {
		t.Errorf("shuffled to %v, want %v", list, want)
	}
	order := []int{0, 1, 2, 3}
	shuffle(newRandom(42), order)
	if want := []int{2, 1, 3, 0}; !slices.Equal(order, want) {
		t.Errorf("four needles in order %v, want %v", order, want)
	}
}

func TestRandomOfLongSeeds(t *testing.T) {
	if got, want := newRandom(1<<32+5).next(), uint32(675479763); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}

func TestLegacyDrawsWhatNumPyDraws(t *testing.T) {
	l := newLegacy(42)
	for _, want := range []int{25795, 10860, 86820, 64886} {
		if got := l.between(10000, 99999); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}

func TestSampleIsDistinct(t *testing.T) {
	r := newRandom(1)
	for _, c := range [][2]int{{0, 0}, {1, 1}, {21, 5}, {22, 5}, {40, 40}, {200, 6}, {5000, 1000}} {
		got := r.sample(c[0], c[1])
		slices.Sort(got)
		if len(slices.Compact(got)) != c[1] {
			t.Errorf("sample(%d, %d) repeats", c[0], c[1])
		}
		if c[1] > 0 && (got[0] < 0 || got[c[1]-1] >= c[0]) {
			t.Errorf("sample(%d, %d) leaves its range", c[0], c[1])
		}
	}
}

func TestKeyTableIsTheSortedList(t *testing.T) {
	adjectives := []string{"wide", "blue", "blue-eyed", "bluer", "x", "ad hoc", "blue"}
	nouns := []string{"sky", "end", "zoo", "ex-wife", "e"}
	var want []string
	for _, a := range adjectives {
		for _, n := range nouns {
			want = append(want, a+"-"+n)
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	table := newKeyTable(adjectives, nouns)
	if table.total != len(want) {
		t.Fatalf("%d keys, want %d", table.total, len(want))
	}
	for i, w := range want {
		if got := table.at(i); got != w {
			t.Errorf("key %d is %s, want %s", i, got, w)
		}
	}
}

func TestWordLists(t *testing.T) {
	if WordsVersion != "wonderwords 2.2.0" {
		t.Errorf("%s: the hashes below are of another release", WordsVersion)
	}
	for text, want := range map[string]string{ // those of the package's files
		adjectiveText: "66814d46b7e292c83e839d12fe2fa083c8f66779b14b294e1be4e1342c5d4131",
		nounText:      "0778f51872f2aa89e0745c0cc37471a13e3d2161a79fcfdc03b6390b10604a55",
		verbText:      "9fbf5e4e69b8869aebd88e6d545312ff9f878a747327ede5f6dbbba5c27b08ad",
	} {
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); got != want {
			t.Errorf("a list of words, %.20q, has SHA-256 %s, want %s", text, got, want)
		}
	}
	if keys().total != 6175260 || len(singles()) != 8169 {
		t.Fatalf("%d keys and %d words, want 6175260 and 8169", keys().total, len(singles()))
	}
	for i := 1; i < keys().total; i += 997 {
		if a, b := keys().at(i-1), keys().at(i); strings.Compare(a, b) >= 0 {
			t.Fatalf("key %d, %q, is not after %q", i, b, a)
		}
	}
}
