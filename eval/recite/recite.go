package recite

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// List is what is asked.
type List struct {
	Lines  int
	Sorted bool // the lines are to be written sorted by their names
	Seed   uint64
}

// names are two words with a stroke between them.
var (
	adjectives = strings.Fields(`amber ancient bashful bitter brisk calm careful clumsy curious dapper dusty eager elegant faint famous
		fancy fierce gentle grumpy handy hollow honest humble icy jolly keen lively lonely mellow mighty modest nimble noisy patient
		plain polite proud quick quiet rapid rusty shiny silent sleepy sturdy timid vivid witty`)
	nouns = strings.Fields(`anchor basket beacon blanket bottle bridge bucket candle carpet castle chimney cobbler compass curtain
		dragon drawer engine feather fiddle garden goblet hammer harbor helmet island jacket kettle ladder lantern magnet marble meadow
		mirror mountain needle orchard paddle pebble pillow pocket rocket saddle shelter spider temple ticket tunnel violin wagon window`)
)

// MaxLines is how many names there are.
var MaxLines = len(adjectives) * len(nouns)

// line is a line of the list, whose value is a number of seven digits.
type line struct{ name, value string }

// head is a line up to its value.
func (l line) head() string { return "One of the special magic numbers for " + l.name + " is: " }

// Case is a prompt and its right answer.
type Case struct {
	Text   string
	Split  int    // the byte where the question begins
	Prefix string // what the answer begins with
	Right  []Part // of the answer, line by line
}

// Part is a line of the answer: what comes before its value, the value, and what ends it.
type Part struct{ Head, Value, End string }

// Text is the whole line, with its end.
func (p Part) Text() string { return p.Head + p.Value + p.End }

// Check reports what is wrong with a list.
func (l List) Check() error {
	if l.Lines < 2 || l.Lines > MaxLines {
		return fmt.Errorf("recite: %d lines, want 2 to %d: there are so many names", l.Lines, MaxLines)
	}
	return nil
}

// Make makes case i: the same list, seed and i, the same case.
func (l List) Make(i int) Case {
	r := rand.New(rand.NewPCG(l.Seed, uint64(i)<<32|uint64(l.Lines)))
	var lines []line
	for _, n := range r.Perm(MaxLines)[:l.Lines] {
		lines = append(lines, line{adjectives[n/len(nouns)] + "-" + nouns[n%len(nouns)], fmt.Sprint(1_000_000 + r.IntN(9_000_000))})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The list below has %d special magic numbers. Read it with care: it is to be written down again at the end.\n", l.Lines)
	for _, x := range lines {
		b.WriteString(x.head() + x.value + ".\n")
	}
	c := Case{Split: b.Len(), Prefix: " Answer:\n"}
	order := "in the same order"
	if l.Sorted {
		order = "sorted by their names"
		slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.name, b.name) })
	}
	c.Text = b.String() + "Question: What are the lines of the list above, " + order + "?"
	for _, x := range lines {
		c.Right = append(c.Right, Part{x.head(), x.value, ".\n"})
	}
	return c
}

// Answer is a line of answers: what was said for each line of the list. In a free answer that is
// the whole lines; where the right lines were read on the way it is the values.
type Answer struct {
	ID    int      `json:"id"`
	Truth []string `json:"truth"`
	Said  []string `json:"said"`
	// Steps are the decode steps before each line, or value, of the right answer.
	Steps []int `json:"steps"`
}

// Free is the answer in a free text: its lines that are not empty.
func Free(c *Case, text string) (truth, said []string) {
	for _, p := range c.Right {
		truth = append(truth, strings.TrimSpace(p.Text()))
	}
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" && len(said) < len(truth) {
			said = append(said, l)
		}
	}
	return truth, said
}

// Right reports for each line whether it is right: where it should be, and nothing else.
func (a *Answer) Right() []bool {
	right := make([]bool, len(a.Truth))
	for i, want := range a.Truth {
		right[i] = i < len(a.Said) && a.Said[i] == want
	}
	return right
}

// Score is the share of right lines.
func (a *Answer) Score() float64 {
	n := 0
	for _, ok := range a.Right() {
		if ok {
			n++
		}
	}
	return float64(n) / float64(max(len(a.Truth), 1))
}

// Check refuses an answer that no run writes.
func (a *Answer) Check() error {
	switch {
	case len(a.Truth) == 0:
		return fmt.Errorf("no field truth, the right lines")
	case len(a.Steps) != len(a.Truth):
		return fmt.Errorf("%d steps of %d lines", len(a.Steps), len(a.Truth))
	case len(a.Said) > len(a.Truth):
		return fmt.Errorf("%d lines were said of %d", len(a.Said), len(a.Truth))
	}
	return nil
}
