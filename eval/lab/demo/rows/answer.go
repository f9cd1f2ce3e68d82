package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/tokenizer"
)

// What a token is for the loss.
const (
	classNone   = 0 // cannot be known, or padding
	classText   = 1 // text
	classAnswer = 2 // an answer
	classItem   = 3 // the token of an answer that decides which item of a list it is
)

// document is the tokens of one row while it is written.
type document struct {
	tok     *tokenizer.Tokenizer
	ids     []int32
	classes []uint8
	choices [][2]uint16 // position and token that is right there too
}

// add appends a text, which must be cut from the one before it where the
// pre-tokenizer cuts too.
func (d *document) add(text string, class uint8) {
	for _, id := range d.tok.Encode(text, tokenizer.EncodeOptions{}) {
		d.ids, d.classes = append(d.ids, id), append(d.classes, class)
	}
}

// end appends EOS.
func (d *document) end() {
	d.ids, d.classes = append(d.ids, d.tok.EOS()), append(d.classes, classAnswer)
}

// cut drops what is beyond length tokens.
func (d *document) cut(length int) {
	if len(d.ids) > length {
		d.ids, d.classes = d.ids[:length], d.classes[:length]
	}
}

// addItem appends one item of a list in any order: others would have been right as
// well.
func (d *document) addItem(text string, others []string) {
	at := len(d.ids)
	d.add(text, classAnswer)
	d.classes[at] = classItem
	seen := []int32{d.ids[at]}
	for _, other := range others {
		id := d.tok.Encode(other, tokenizer.EncodeOptions{})[0]
		if !slices.Contains(seen, id) && len(d.choices) < maxChoices {
			d.choices = append(d.choices, [2]uint16{uint16(at), uint16(id)})
			seen = append(seen, id)
		}
	}
}

// answer writes a prompt of RULER and its answer, and after a needle task further
// questions about the same text while they fit.
func (m *maker) answer(d *document, t *ruler.Task, row *ruler.Row, length int) {
	d.add(row.Prompt(), classText)
	switch t.Kind {
	case ruler.Chain:
		for _, name := range row.Outputs {
			d.addItem(" "+name, nil)
		}
		d.end()
	case ruler.Common:
		m.answerCommon(d, row.Outputs)
	case ruler.Frequent:
		answerFrequent(d, row.Outputs)
	case ruler.Needle:
		m.answerNeedles(d, t, row, length)
	}
}

// answerCommon names the words of a list with numbers, in any order.
func (m *maker) answerCommon(d *document, words []string) {
	var items []string
	for _, i := range m.rng.Perm(len(words)) {
		items = append(items, " "+words[i])
	}
	for i, item := range items {
		d.add(fmt.Sprintf(" %d.", i+1), classAnswer)
		d.addItem(item, items[i+1:])
	}
	d.end()
}

// answerFrequent names the words of a coded text, the most frequent first.
func answerFrequent(d *document, words []string) {
	for i, w := range words {
		if i > 0 {
			d.add(",", classAnswer)
		}
		d.addItem(" "+w, nil)
	}
	d.add(".", classAnswer)
	d.end()
}

// found is the needles of a text: keys in the order of their first needle, and the
// values of each in theirs.
type found struct {
	kind   string
	keys   []string
	values map[string][]string
}

// needlePattern is a needle as eval/ruler writes it.
var needlePattern = regexp.MustCompile(`One of the special magic (\w+) for ([^:.]+) is: ([^.\s]+)\.`)

func findNeedles(text string) *found {
	f := &found{values: map[string][]string{}}
	for _, match := range needlePattern.FindAllStringSubmatch(text, -1) {
		key := match[2]
		f.kind = match[1]
		if f.values[key] == nil {
			f.keys = append(f.keys, key)
		}
		f.values[key] = append(f.values[key], match[3])
	}
	return f
}

// answerNeedles answers the question of a needle task and asks others.
func (m *maker) answerNeedles(d *document, t *ruler.Task, row *ruler.Row, length int) {
	f := findNeedles(row.Input)
	asked := f.asked(row)
	f.answer(d, asked)
	for range m.rng.IntN(9) {
		asked = f.draw(m, asked, t.Queries)
		if asked == nil {
			return
		}
		ids, classes, choices := len(d.ids), len(d.classes), len(d.choices)
		f.ask(d, asked)
		f.answer(d, asked)
		if len(d.ids) > length {
			d.ids, d.classes, d.choices = d.ids[:ids], d.classes[:classes], d.choices[:choices]
			return
		}
	}
}

// asked is the keys of the question, in its order: those whose values are the
// answers.
func (f *found) asked(row *ruler.Row) []string {
	var asked []string
	for _, output := range row.Outputs {
		for key, values := range f.values {
			if slices.Contains(values, output) && strings.Contains(row.AnswerPrefix, key) && !slices.Contains(asked, key) {
				asked = append(asked, key)
			}
		}
	}
	return asked
}

// draw picks keys for a further question. None is asked for twice: a second answer
// would be a copy of the first.
func (f *found) draw(m *maker, last []string, most int) []string {
	f.keys = slices.DeleteFunc(f.keys, func(k string) bool { return slices.Contains(last, k) })
	most = min(most, len(f.keys))
	if most == 0 {
		return nil
	}
	m.rng.Shuffle(len(f.keys), func(i, j int) { f.keys[i], f.keys[j] = f.keys[j], f.keys[i] })
	if len(f.values[f.keys[0]]) > 1 {
		return slices.Clone(f.keys[:1])
	}
	var asked []string
	for _, key := range f.keys {
		if len(f.values[key]) == 1 && len(asked) < most {
			asked = append(asked, key)
		}
	}
	return asked
}

// ask writes a question.
func (f *found) ask(d *document, asked []string) {
	text, kind := ruler.Native.Text[ruler.Needle], f.kind
	if len(asked) == 1 && len(f.values[asked[0]]) == 1 {
		text, kind = ruler.Native.One, strings.TrimSuffix(kind, "s")
	}
	_, question, _ := strings.Cut(text.Template, "{context}")
	slots := strings.NewReplacer("{type_needle_v}", kind, "{query}", joinKeys(asked))
	d.add(slots.Replace(question+text.Prefix), classText)
}

// joinKeys is "a", or "a, b, and c".
func joinKeys(keys []string) string {
	last := len(keys) - 1
	if last == 0 {
		return keys[0]
	}
	return strings.Join(keys[:last], ", ") + ", and " + keys[last]
}

// answer writes ": a is: 1, b is: 2." The key is said again because the model then
// finds the value as it finds any repeat of a text, and while it decodes. Several
// values of a key stand in the order of the text: had any been right that is not
// said yet, the last one would always be.
func (f *found) answer(d *document, asked []string) {
	mark := ":"
	for _, key := range asked {
		values := f.values[key]
		for _, v := range values {
			d.add(mark, classAnswer)
			d.add(" "+key+" is:", classAnswer)
			at := len(d.ids)
			d.add(" "+v, classAnswer)
			if v[0] <= '9' {
				at++ // the blank is a token of its own
			}
			d.classes[at] = classItem
			mark = ","
		}
	}
	d.add(".", classAnswer)
	d.end()
}
