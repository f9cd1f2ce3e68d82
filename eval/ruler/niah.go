package ruler

import (
	"fmt"
	"math"
	"strings"

	"github.com/gollm/gollm/eval/metric"
	"github.com/gollm/gollm/eval/punkt"
)

// Needle tasks: values that stand under keys in a text, in the lines below.
const (
	needleLine = "One of the special magic {type} for {key} is: {value}."
	noiseLine  = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
)

// needleMaker makes needle prompts.
type needleMaker struct {
	g     *Generator
	words []string // of the essay

	sentences []string // of the first so many words
	cut       int      // how many
}

func (g *Generator) startNeedle() error {
	m := &needleMaker{g: g}
	if g.o.Task.single() {
		if one := g.o.Wording.One; one != (Text{}) {
			g.body = one
			g.text = strings.Replace(g.o.Template, "{t}", one.Template, 1) + one.Prefix
		} else {
			g.text = singular(g.text)
		}
	}
	g.maker, g.step = m, 25
	switch {
	case g.o.Task.Haystack == Essay:
		g.step = 500
		if m.words = strings.Split(collapse(g.o.Text), " "); strings.TrimSpace(g.o.Text) == "" {
			return fmt.Errorf("ruler: %s hides needles in a text, but there is none; give one (--haystack FILE)", g.o.Task.Name)
		}
	case g.o.Length < 4096:
		g.step = 5
	}
	trial := g.step
	g.least = g.step
	if g.o.Fine {
		g.step, g.least = 1, max(1, g.o.Task.Keys*g.o.Task.Values)
	}
	return g.fit(trial, g.o.Task.NewToken)
}

// single reports whether it is a needle task with one answer.
func (t Task) single() bool { return t.Kind == Needle && t.Queries*t.Values == 1 }

// collapse makes a blank of every run of white space, as Python sees it.
func collapse(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	blank := false
	for _, c := range text {
		if metric.IsSpace(c) {
			if !blank {
				b.WriteByte(' ')
			}
			blank = true
			continue
		}
		blank = false
		b.WriteRune(c)
	}
	return b.String()
}

func (m *needleMaker) example(text string) string { return text }

// make draws keys and values, then the haystack, then which keys are asked for.
func (m *needleMaker) make(n int) (prompt, bool, error) {
	t := &m.g.o.Task
	r := m.g.rng
	keys, values := make([]string, t.Keys), make([][]string, t.Keys)
	var needles []string
	for k := range keys {
		keys[k] = drawItem(r, t.KeyType)
		for range t.Values {
			v := drawItem(r, t.Value)
			values[k] = append(values[k], v)
			needles = append(needles, needleText(t.Value, keys[k], v))
		}
	}
	shuffle(newRandom(m.g.o.Seed), needles)
	var context string
	if n < len(needles) {
		return prompt{}, true, nil
	}
	if t.Haystack == Essay {
		context = m.hideInEssay(n, needles)
	} else {
		context = m.hideInLines(n, needles)
	}
	var asked, answers []string
	for _, k := range r.sample(t.Keys, t.Queries) {
		asked = append(asked, keys[k])
		answers = append(answers, values[k]...)
	}
	return m.fill(context, joinQuery(asked), answers), false, nil
}

// fill puts the draws into the template.
func (m *needleMaker) fill(context, query string, answers []string) prompt {
	kind := m.g.o.Task.Value
	prefix := m.g.body.Prefix
	if m.g.o.Task.single() {
		kind = strings.TrimSuffix(kind, "s")
		if m.g.o.Wording.One == (Text{}) {
			prefix = singular(prefix)
		}
	}
	slots := []string{"{type_needle_v}", kind, "{query}", query, "{context}", context}
	return prompt{text: fill(m.g.text, slots...), prefix: fill(prefix, slots...), answers: answers}
}

// needleText is the line of a needle. Its type is a plural always.
func needleText(kind, key, value string) string {
	return fill(needleLine, "{type}", kind, "{key}", key, "{value}", value)
}

// drawItem draws a key or a value.
func drawItem(r *random, kind string) string {
	switch kind {
	case "numbers":
		return fmt.Sprint(r.between(1000000, 9999999))
	case "uuids":
		return uuid(r)
	}
	table := keys()
	return table.at(r.below(table.total))
}

// uuid draws a random UUID of version 4: the lowest word first.
func uuid(r *random) string {
	d, c, b, a := r.next(), r.next(), r.next(), r.next()
	b = b&^0xf000 | 0x4000
	c = c&^0xc0000000 | 0x80000000
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%04x%08x", a, b>>16, b&0xffff, c>>16, c&0xffff, d)
}

// joinQuery is "a", or "a, b, c, and d".
func joinQuery(asked []string) string {
	last := len(asked) - 1
	if last == 0 {
		return asked[0]
	}
	return strings.Join(asked[:last], ", ") + ", and " + asked[last]
}

// hideInLines puts the needles among n lines, each at a place of its own.
func (m *needleMaker) hideInLines(n int, needles []string) string {
	r, t := m.g.rng, &m.g.o.Task
	lines := make([]string, n, n+len(needles))
	for i := range lines {
		lines[i] = noiseLine
		if t.Haystack == Needles {
			key := drawItem(r, t.KeyType)
			lines[i] = needleText(t.Value, key, drawItem(r, t.Value))
		}
	}
	places := descending(r.sample(n, len(needles)))
	for i, at := range places {
		lines = insert(lines, at, needles[i])
	}
	return strings.Join(lines, "\n")
}

// depths are the forty places of needles in an essay, in percent.
const depths = 40

// depthAt is depth number i of 0 to 39.
func depthAt(i int) float64 { return math.RoundToEven(100 * float64(i) / (depths - 1)) }

// hideInEssay puts the needles between the sentences of the first n words.
func (m *needleMaker) hideInEssay(n int, needles []string) string {
	sentences := m.sentencesOf(n)
	places := m.g.rng.sample(depths, len(needles))
	for i, p := range places {
		places[i] = int(float64(len(sentences)) * (depthAt(p) / 100))
	}
	places = ascending(places)
	var parts []string
	last := 0
	for i, at := range places {
		parts = append(parts, strings.Join(sentences[last:at], " "), needles[i])
		last = at
	}
	parts = append(parts, strings.Join(sentences[last:], " "))
	return strings.Join(parts, " ")
}

// sentencesOf is the sentences of the first n words. Most rows have as many as the one
// before.
func (m *needleMaker) sentencesOf(n int) []string {
	if n != m.cut {
		m.sentences, m.cut = punkt.Sentences(metric.Strip(m.first(n)), m.g.o.NLTK), n
	}
	return m.sentences
}

// first is the first n words of the essay, which begins again at its end.
func (m *needleMaker) first(n int) string {
	if n <= len(m.words) {
		return strings.Join(m.words[:n], " ")
	}
	all := make([]string, 0, n)
	for len(all) < n {
		all = append(all, m.words[:min(len(m.words), n-len(all))]...)
	}
	return strings.Join(all, " ")
}
