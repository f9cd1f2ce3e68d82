package ruler

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/gollm/gollm/eval/punkt"
)

// Options says what a generator makes.
type Options struct {
	Task   Task
	Length int    // tokens of prompt and answer together
	Seed   uint64 // the official files have 42
	// Count is the number of tokens of a text, without those that a tokenizer adds.
	Count   func(text string) int
	Wording *Wording // nil is Native
	// Template is the chat template around the task, with {t} where it goes; empty
	// is the task alone.
	Template string
	// Text is what essay tasks hide needles in, between its sentences.
	Text string
	// NLTK is the release of NLTK that cuts Text into sentences; empty is the first of
	// [punkt.Releases], which is what published rows were made with.
	NLTK punkt.Release
	// Corpus has the questions and documents of question tasks.
	Corpus *Corpus
	// MoreWords are for lists of common words that need more than [Words].
	MoreWords []string
	// Fine fits the length to one unit (a word, line or document), not to the
	// official steps, which need not fit a short context at all and leave a share
	// of a long one unused. The texts are then not the official ones.
	Fine bool
}

// Generator makes the rows of one file: one task at one length.
type Generator struct {
	o     Options
	text  string // template of the prompt, prefix included
	body  Text   // template and prefix before they were joined
	rng   *random
	numpy *legacy
	maker maker
	step  int // units that a sample loses at a time until it fits
	least int // units that there must be
	units int
	rows  int
	notes []string
}

// maker makes the prompts of a kind. Every call draws random numbers.
type maker interface {
	// make is a prompt of n units. again is a draw that the official generator
	// fails on and repeats, with fewer units where it can.
	make(n int) (p prompt, again bool, err error)
	// example is what only the samples have, not the trials of a length.
	example(text string) string
}

// prompt is a filled template.
type prompt struct {
	text    string // prefix included
	prefix  string // the end of text
	answers []string
}

// NewGenerator finds how many units (lines, words or documents) fit.
func NewGenerator(o Options) (*Generator, error) {
	if o.Wording == nil {
		o.Wording = Native
	}
	if o.NLTK == "" {
		o.NLTK = punkt.Releases()[0]
	}
	if o.Template == "" {
		o.Template = "{t}"
	}
	if strings.Count(o.Template, "{t}") != 1 {
		return nil, fmt.Errorf("ruler: the chat template has %d slots {t}, want one", strings.Count(o.Template, "{t}"))
	}
	if o.Length < 1 || o.Length > maxLength {
		return nil, fmt.Errorf("ruler: a length of %d tokens, want 1 to %d", o.Length, maxLength)
	}
	g := &Generator{o: o, rng: newRandom(o.Seed), numpy: newLegacy(o.Seed)}
	g.body = o.Wording.Text[o.Task.Kind]
	g.text = strings.Replace(o.Template, "{t}", g.body.Template, 1) + g.body.Prefix
	if err := g.start(); err != nil {
		return nil, err
	}
	return g, nil
}

// maxLength bounds what a mistyped length can allocate.
const maxLength = 1 << 25

// start makes the maker of the task and fits the length.
func (g *Generator) start() error {
	switch g.o.Task.Kind {
	case Needle:
		return g.startNeedle()
	case Chain:
		return g.startChain()
	case Common:
		return g.startCommon()
	case Frequent:
		return g.startFrequent()
	}
	return g.startQuestion()
}

// Units is the lines, words or documents of a context.
func (g *Generator) Units() int { return g.units }

// Notes are what a report must say about the rows: deviations from the official
// data, by name.
func (g *Generator) Notes() []string { return g.notes }

// fit searches the largest number of units whose prompt fits, as the official
// generator does: every trial draws. extra are tokens beside the prompt's own.
func (g *Generator) fit(trial, extra int) error {
	p, err := g.draw(trial)
	if err != nil {
		return err
	}
	perUnit := float64(g.o.Count(p.text)) / float64(trial)
	length := float64(g.o.Length)
	high := int(length / perUnit * 3)
	if g.o.Task.Kind == Common {
		high = int((length-math.Mod(length, perUnit))/perUnit) * 2
	}
	return g.search(max(high, 2*g.step), extra)
}

// search halves the range between the least and high.
func (g *Generator) search(high, extra int) error {
	low, best := g.least, 0
	if capped, ok := g.maker.(interface{ most() int }); ok {
		high = min(high, capped.most())
	}
	for low <= high {
		mid := (low + high) / 2
		p, err := g.draw(mid)
		if err != nil {
			return err
		}
		if g.o.Count(p.text)+extra <= g.o.Length {
			best, low = mid, mid+1
		} else {
			high = mid - 1
		}
	}
	if best == 0 {
		best = g.least
	}
	g.units = best
	return nil
}

// draws bounds how often a failed draw is repeated; one in a thousand fails at
// the worst.
const draws = 100

// draw makes a prompt, again where a draw failed.
func (g *Generator) draw(n int) (prompt, error) {
	for range draws {
		p, again, err := g.maker.make(n)
		if err != nil || !again {
			return p, err
		}
	}
	return prompt{}, fmt.Errorf("ruler: %s at %d tokens: %d draws with %d units all failed", g.o.Task.Name, g.o.Length, draws, n)
}

// Next makes the next row.
func (g *Generator) Next() (Row, error) {
	p, length, err := g.sample()
	if err != nil {
		return Row{}, err
	}
	return g.row(p, length), nil
}

// sample makes a prompt that fits, with a step fewer units each time that it
// does not. length is its tokens and those of the answer.
func (g *Generator) sample() (p prompt, length int, err error) {
	for used, failed := g.units, 0; ; {
		p, again, err := g.maker.make(used)
		if err != nil {
			return p, 0, err
		}
		if !again {
			p.text = g.maker.example(p.text)
			if length = g.o.Count(p.text) + g.o.Task.NewToken; length <= g.o.Length {
				return p, length, nil
			}
		}
		if used > g.step && (!g.o.Fine || used-g.step >= g.least) {
			used -= g.step
			continue
		}
		if failed++; failed == draws {
			return p, length, g.misfit(length)
		}
	}
}

// misfit is the error of a length that even the smallest context exceeds.
func (g *Generator) misfit(length int) error {
	hint := "use a longer length"
	if !g.o.Fine {
		hint += ", or a fine fit (--fit fine)"
	}
	return &MisfitError{Task: g.o.Task.Name, Length: g.o.Length, Least: length, hint: hint}
}

// MisfitError is a length that even the smallest prompt of a task exceeds.
type MisfitError struct {
	Task   string
	Length int // tokens asked for
	Least  int // tokens of the smallest prompt and its answer
	hint   string
}

func (e *MisfitError) Error() string {
	return fmt.Sprintf("ruler: %s does not fit %d tokens: its smallest prompt has %d with room for the answer; %s", e.Task, e.Length, e.Least, e.hint)
}

// row takes a prompt apart.
func (g *Generator) row(p prompt, length int) Row {
	input := strings.TrimSuffix(p.text, p.prefix)
	r := Row{
		Index: g.rows, Input: input, Outputs: p.answers, Length: length, LengthTemplate: length,
		AnswerPrefix: p.prefix, hasPrefix: true,
	}
	if g.o.Task.Kind == Needle {
		at := strings.Index(input, p.answers[0])
		if at >= 0 {
			r.Index = utf8.RuneCountInString(input[:at])
			r.AnswerToken = g.o.Count(input[:at])
		}
	}
	g.rows++
	return r
}
