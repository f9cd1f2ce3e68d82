package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gollm/gollm/eval/recite"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/tokenizer"
)

// The recipes beside the names of RULER's tasks, which stand for the tasks as they
// are.
const (
	recipeNeedles = "needles" // any haystack, several keys, some of several values
	recipeCommon  = "common"  // lists of common words with other repeats
	recipeText    = "text"    // sentences and no question
	recipeRecite  = "recite"  // a list to be written down again, of eval/recite
)

// maker makes documents.
type maker struct {
	tok     *tokenizer.Tokenizer
	rng     *rand.Rand
	words   []string
	perByte map[string]float64 // tokens per byte of a recipe's texts
}

// newMaker makes a maker and measures the texts of the recipes.
func newMaker(v tokenizer.Vocab, recipes []share) (*maker, error) {
	tok, err := tokenizer.New(v)
	if err != nil {
		return nil, err
	}
	m := &maker{tok: tok, words: ruler.WordList(), perByte: map[string]float64{}, rng: rand.New(rand.NewPCG(0, 0))}
	for _, r := range recipes {
		m.perByte[r.name] = usualPerByte
		var tokens, bytes float64
		for range 8 {
			d, err := m.try(r.name, 1024, 1024)
			if err != nil {
				continue
			}
			tokens += float64(len(d.ids))
			bytes += float64(len(tok.Decode(d.ids, decodePlain)))
		}
		if bytes > 0 {
			m.perByte[r.name] = tokens / bytes
		}
	}
	return m, nil
}

// usualPerByte is about the tokens per byte of an English text.
const usualPerByte = 0.3

// count is about the tokens of a recipe's text.
func (m *maker) count(recipe, text string) int {
	perByte, measured := m.perByte[recipe]
	if !measured {
		perByte = usualPerByte
	}
	return int(float64(len(text))*perByte) + 1
}

var decodePlain = tokenizer.DecodeOptions{}

// pick draws a number from weights.
func (m *maker) pick(shares []share) int {
	var sum float64
	for _, s := range shares {
		sum += s.weight
	}
	x := m.rng.Float64() * sum
	for i, s := range shares {
		if x -= s.weight; x < 0 {
			return i
		}
	}
	return len(shares) - 1
}

// tries bounds how often a row that came out too long is made again.
const tries = 300

// make makes rows of at most length tokens.
func (m *maker) make(recipe string, length, rows int) ([]*document, error) {
	var all []*document
	room := float64(length)
	for failed := 0; len(all) < rows; {
		d, err := m.try(recipe, int(room*(0.6+0.4*m.rng.Float64())), length)
		if err == nil && len(d.ids) <= length {
			all = append(all, d)
			continue
		}
		if failed++; failed == tries {
			return nil, fmt.Errorf("%s does not fit %d tokens: %v", recipe, length, err)
		}
		if room = max(0.7*float64(length), room*0.95); err != nil {
			room = float64(length)
		}
	}
	return all, nil
}

// try makes a row of about fill tokens. Its error is often one of luck.
func (m *maker) try(recipe string, fill, length int) (*document, error) {
	d := &document{tok: m.tok}
	d.ids, d.classes = []int32{m.tok.BOS()}, []uint8{classNone}
	switch recipe {
	case recipeCommon:
		m.common(d, fill)
		return d, nil
	case recipeRecite:
		m.recite(d, fill)
		return d, nil
	case recipeText:
		d.add(m.text(fill), classText)
		d.cut(length)
		return d, nil
	}
	o := ruler.Options{
		Length: max(fill, 200), Seed: m.rng.Uint64()>>32 + 43,
		Fine:  length < 1024 || m.rng.IntN(2) == 0,
		Count: func(text string) int { return m.count(recipe, text) },
	}
	var err error
	if recipe == recipeNeedles {
		o.Task = m.needles(fill)
	} else if o.Task, err = ruler.FindTask(recipe); err != nil {
		return nil, err
	}
	o.Task.NewToken = answerRoom(&o.Task)
	if o.Task.Haystack == ruler.Essay {
		o.Text = m.text(fill)
	}
	row, err := first(o)
	if err != nil && !o.Fine { // a step may be more than fits
		o.Fine = true
		row, err = first(o)
	}
	if err != nil {
		return nil, err
	}
	m.answer(d, &o.Task, &row, length)
	return d, nil
}

// recite writes a list and once more the list, in its order. The name of a line says which it
// is; its first token is the item.
func (m *maker) recite(d *document, fill int) {
	const perLine, around = 18, 60
	most := min(max(2, (fill-around)/(2*perLine)), recite.MaxLines)
	c := recite.List{Lines: 2 + m.rng.IntN(most-1), Seed: m.rng.Uint64()>>32 + 43}.Make(0)
	d.add(c.Text+c.Prefix, classText)
	for _, p := range c.Right {
		at := len(d.ids)
		d.add(p.Text(), classAnswer)
		d.classes[at+recitedName] = classItem
	}
	d.end()
}

// recitedName is the token of a line with which its name begins.
const recitedName = 7

// first is the first row of a file.
func first(o ruler.Options) (ruler.Row, error) {
	g, err := ruler.NewGenerator(o)
	if err != nil {
		return ruler.Row{}, err
	}
	return g.Next()
}

// answerRoom is about the tokens of an answer.
func answerRoom(t *ruler.Task) int {
	switch t.Kind {
	case ruler.Needle:
		size := 24
		if t.Value == "uuids" || t.KeyType == "uuids" {
			size = 48
		}
		return size * t.Queries * t.Values
	case ruler.Common:
		return 70
	}
	return 24
}

// needles draws the parameters of a needle task.
func (m *maker) needles(fill int) ruler.Task {
	t := ruler.Task{
		Name: recipeNeedles, Kind: ruler.Needle, Haystack: ruler.Needles,
		KeyType: "words", Value: "numbers", Keys: 1, Values: 1, Queries: 1,
	}
	switch m.rng.IntN(6) {
	case 0:
		t.Haystack = ruler.Noise
	case 1, 2:
		t.Haystack = ruler.Essay
	}
	uuids := m.rng.IntN(4) == 0
	if uuids {
		t.Value = "uuids"
		if m.rng.IntN(2) == 0 {
			t.KeyType = "uuids"
		}
	}
	if t.Haystack == ruler.Needles {
		if m.rng.IntN(3) == 0 && !uuids {
			t.Keys, t.Values = 1+m.rng.IntN(3), 2+m.rng.IntN(4)
		}
		return t
	}
	t.Keys = 1 + m.rng.IntN(min(8, 1+fill/100))
	t.Queries = 1 + m.rng.IntN(min(4, t.Keys))
	if m.rng.IntN(3) == 0 && !uuids {
		t.Queries, t.Values = 1, 1+m.rng.IntN(5)
		t.Keys = min(t.Keys, 4)
	}
	return t
}

// text is sentences for about fill tokens: the built-in ones of the evaluation,
// from another seed, or words in no order.
func (m *maker) text(fill int) string {
	if m.rng.IntN(4) > 0 {
		return ruler.Filler(m.rng.Uint64()>>32+43, fill)
	}
	var b strings.Builder
	for count := 0; count < fill; {
		n := 4 + m.rng.IntN(12)
		for i := range n {
			w := m.words[m.rng.IntN(len(m.words))]
			if i == 0 {
				w = strings.ToUpper(w[:1]) + w[1:]
			} else {
				b.WriteString([]string{" ", " ", " ", " ", " ", " ", " the ", ", "}[m.rng.IntN(8)])
			}
			b.WriteString(w)
		}
		b.WriteString([]string{". ", ". ", ". ", "? ", "! "}[m.rng.IntN(5)])
		count += n
	}
	return strings.TrimSpace(b.String())
}

// common writes a list of common words, with or without a worked example, of other
// sizes and repeats than those of the task.
func (m *maker) common(d *document, fill int) {
	often, seldom := 3+m.rng.IntN(6), 1
	if fill > 700 && m.rng.IntN(2) == 0 {
		often, seldom = 10+m.rng.IntN(25), 2+m.rng.IntN(2)
	}
	const perEntry, around = 5, 90
	entries := (fill - around) / perEntry
	text := ""
	if fill > 500 && m.rng.IntN(2) == 0 {
		list, told := m.list(20, 3, 1)
		text = commonText(list) + " " + numbered(told) + "\n"
		entries -= 40 + (around+60)/perEntry
	}
	often = max(3, min(often, (entries-5*seldom)/ruler.CommonWords))
	others := max(3, (entries-often*ruler.CommonWords)/seldom)
	list, answers := m.list(ruler.CommonWords+others, often, seldom)
	d.add(text+commonText(list), classText)
	m.answerCommon(d, answers)
}

// commonText is the prompt for a list.
func commonText(list string) string {
	text := ruler.Native.Text[ruler.Common]
	return strings.Replace(text.Template, "{context}", list, 1) + text.Prefix
}

// list is n different words, ten of them often and the others seldom.
func (m *maker) list(n, often, seldom int) (list string, common []string) {
	var picked []string
	for _, i := range m.rng.Perm(len(m.words))[:min(n, len(m.words))] {
		picked = append(picked, m.words[i])
	}
	all := append(slices.Repeat(picked[:ruler.CommonWords], often), slices.Repeat(picked[ruler.CommonWords:], seldom)...)
	m.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return numbered(all), picked[:ruler.CommonWords]
}

// numbered is "1. a 2. b".
func numbered(words []string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d. %s", i+1, w)
	}
	return b.String()
}
