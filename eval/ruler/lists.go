package ruler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CommonWords is how many words a list repeats more often, all of them asked for.
const CommonWords = 10

// commonMaker makes prompts of common words: a numbered list, after a worked
// example.
type commonMaker struct {
	g     *Generator
	words []string
	short bool // few repeats, for lengths below 4096
}

func (g *Generator) startCommon() error {
	m := &commonMaker{g: g, words: slices.Clone(singles()), short: g.o.Length < 4096}
	shuffle(newRandom(g.o.Seed), m.words)
	g.maker, g.step, g.least = m, 10, 10
	if g.o.Fine {
		g.step, g.least = 1, CommonWords+1
	}
	if err := g.fit(4096, g.o.Task.NewToken); err != nil {
		return err
	}
	if g.units == m.most() {
		g.notes = append(g.notes, fmt.Sprintf("cwe-capped: the word list ends at %d words, fewer than %d tokens hold; --cwe-words adds more", m.most(), g.o.Length))
	}
	return nil
}

// most is how many words there are.
func (m *commonMaker) most() int { return max(len(m.words), len(m.g.o.MoreWords)) }

func (m *commonMaker) example(text string) string { return text }

// make draws the example and the list. The example stands in the whole template
// again, chat markup included.
func (m *commonMaker) make(n int) (prompt, bool, error) {
	var shown, list string
	var told, answers []string
	if m.short {
		shown, told = m.list(20, 3, 1)
		list, answers = m.list(n, 6, 1)
	} else {
		shown, told = m.list(40, 10, 3)
		list, answers = m.list(n, 30, 3)
	}
	text := fill(m.g.text, "{context}", shown, "{query}", "") + " " + numbered(told) + "\n" +
		fill(m.g.text, "{context}", list, "{query}", "")
	return prompt{text: text, prefix: m.g.body.Prefix, answers: answers}, false, nil
}

// list is n different words, the first ten of them common and the others not.
func (m *commonMaker) list(n, common, others int) (text string, answers []string) {
	words := m.words
	if n > len(words) {
		words = m.g.o.MoreWords
	}
	picked := make([]string, n)
	for i, at := range m.g.rng.sample(len(words), n) {
		picked[i] = words[at]
	}
	ten := min(CommonWords, n)
	all := append(slices.Repeat(picked[:ten], common), slices.Repeat(picked[ten:], others)...)
	shuffle(newRandom(m.g.o.Seed), all)
	return numbered(all), picked[:ten]
}

// numbered is "1. a 2. b".
func numbered(words []string) string {
	var b []byte
	for i, w := range words {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(strconv.AppendInt(b, int64(i+1), 10), ". "...)
		b = append(b, w...)
	}
	return string(b)
}

// The coded text of frequent words: the word of rank k appears as often as k to
// the minus two has a share, and the first rank is noise.
const (
	codedLen = 6
	lower    = "abcdefghijklmnopqrstuvwxyz"
	zetaOf2  = 1.6449340668482266
	asked    = 3
)

// frequentMaker makes prompts of frequent words. Its unit is a drawn word.
type frequentMaker struct {
	g     *Generator
	room  int // tokens of a prompt
	coded int // different words
}

// startFrequent fits the words by adding to them. It is not the search of the
// other kinds: a trial keeps its vocabulary.
func (g *Generator) startFrequent() error {
	room := g.o.Length - g.o.Task.NewToken
	m := &frequentMaker{g: g, room: room, coded: room / 50}
	if m.coded <= asked {
		return fmt.Errorf("ruler: %s needs %d tokens at least, not %d: a fiftieth of them is its vocabulary, of which %d words are asked for",
			g.o.Task.Name, 50*(asked+1)+g.o.Task.NewToken, g.o.Length, asked)
	}
	g.maker, g.step, g.least = m, room/32, 1
	words := m.vocabulary()
	n := room / codedLen
	for g.o.Count(m.text(words, n)) < room {
		n += g.step
	}
	n -= g.step
	if g.o.Fine {
		n, g.step = m.finest(words, n, n+g.step), 1
	}
	g.units = n
	return nil
}

// finest is the largest number of words from low to high that fits.
func (m *frequentMaker) finest(words []string, low, high int) int {
	for low < high {
		mid := (low + high + 1) / 2
		if m.g.o.Count(m.text(words, mid)) <= m.room {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// vocabulary draws the coded words; the first stands for noise.
func (m *frequentMaker) vocabulary() []string {
	seen := make(map[string]bool, m.coded)
	var words []string
	for len(seen) < m.coded {
		w := m.g.rng.letters(lower, codedLen)
		if !seen[w] {
			words, seen[w] = append(words, w), true
		}
	}
	slices.Sort(words)
	shuffle(newRandom(m.g.o.Seed), words)
	words[0] = "..."
	return words
}

// text is the prompt of about n words.
func (m *frequentMaker) text(words []string, n int) string {
	var all []string
	for i, w := range words {
		k := float64(i + 1)
		all = append(all, slices.Repeat([]string{w}, int(float64(n)*(1/(k*k))/zetaOf2))...)
	}
	shuffle(newRandom(m.g.o.Seed), all)
	return fill(m.g.text, "{context}", strings.Join(all, " "), "{query}", "")
}

// make draws a vocabulary and shortens the text until it fits, with the same
// vocabulary.
func (m *frequentMaker) make(n int) (prompt, bool, error) {
	words := m.vocabulary()
	if m.g.o.Fine {
		n = m.finest(words, 0, n)
	}
	text := m.text(words, n)
	for count := m.g.o.Count(text); count > m.room; count = m.g.o.Count(text) {
		if n -= m.g.step; n <= 0 {
			return prompt{}, false, m.g.misfit(count + m.g.o.Task.NewToken)
		}
		text = m.text(words, n)
	}
	return prompt{text: text, prefix: m.g.body.Prefix, answers: words[1 : 1+asked]}, false, nil
}

func (m *frequentMaker) example(text string) string { return text }
