package ruler

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gollm/gollm/eval/jsonl"
)

// Corpus is questions and the documents among which their answers are.
type Corpus struct {
	Docs      []string // sorted, different
	Questions []Asked
}

// Asked is a question with its answers and, by their numbers, the documents that
// answer it and others of the same article.
type Asked struct {
	Query   string
	Answers []string
	Gold    []int
	Near    []int
}

// LoadCorpus reads the questions of a task from the official file: dev-v2.0.json
// of SQuAD or hotpot_dev_distractor_v1.json of HotpotQA.
func LoadCorpus(t Task, path string) (*Corpus, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("ruler: %s: %w", t.Name, err)
	}
	defer f.Close()
	c, err := readCorpus(t, f)
	if err != nil {
		return nil, fmt.Errorf("ruler: %s: %s is not the %s file of the official release: %w", t.Name, path, t.Data, err)
	}
	return c, nil
}

func readCorpus(t Task, r io.Reader) (*Corpus, error) {
	var c *Corpus
	var err error
	if t.Data == "squad" {
		c, err = readSquad(r)
	} else {
		c, err = readHotpot(r)
	}
	if err == nil && (len(c.Docs) == 0 || len(c.Questions) == 0) {
		err = fmt.Errorf("it has %d documents and %d questions that can be answered", len(c.Docs), len(c.Questions))
	}
	return c, err
}

// squadFile is the part of SQuAD that is read.
type squadFile struct {
	Data []struct {
		Paragraphs []struct {
			Context string `json:"context"`
			Qas     []struct {
				Question   string `json:"question"`
				Impossible bool   `json:"is_impossible"`
				Answers    []struct {
					Text string `json:"text"`
				} `json:"answers"`
			} `json:"qas"`
		} `json:"paragraphs"`
	} `json:"data"`
}

// readJSON reads a file of one JSON value.
func readJSON(r io.Reader, v any) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return jsonl.Plain(jsonl.Decode(b, v))
}

func readSquad(r io.Reader) (*Corpus, error) {
	var file squadFile
	if err := readJSON(r, &file); err != nil {
		return nil, err
	}
	c := new(Corpus)
	for _, article := range file.Data {
		for _, p := range article.Paragraphs {
			c.Docs = append(c.Docs, p.Context)
		}
	}
	number := c.index()
	for _, article := range file.Data {
		var all []int
		for _, p := range article.Paragraphs {
			all = append(all, number[p.Context])
		}
		for i, p := range article.Paragraphs {
			near := slices.DeleteFunc(slices.Clone(all), func(d int) bool { return d == all[i] })
			for _, q := range p.Qas {
				if q.Impossible {
					continue
				}
				a := Asked{Query: q.Question, Gold: []int{all[i]}, Near: near}
				for _, text := range q.Answers {
					a.Answers = append(a.Answers, text.Text)
				}
				c.Questions = append(c.Questions, a)
			}
		}
	}
	return c, nil
}

// index sorts the documents, drops repeats and numbers them.
func (c *Corpus) index() map[string]int {
	c.Docs = distinct(c.Docs)
	number := make(map[string]int, len(c.Docs))
	for i, d := range c.Docs {
		number[d] = i
	}
	return number
}

// hotpotItem is the part of HotpotQA that is read.
type hotpotItem struct {
	Question string      `json:"question"`
	Answer   string      `json:"answer"`
	Context  []hotpotDoc `json:"context"`
}

// hotpotDoc is a title and its sentences, written as a list of two.
type hotpotDoc string

// UnmarshalJSON joins title and sentences.
func (d *hotpotDoc) UnmarshalJSON(b []byte) error {
	var title string
	var sentences []string
	pair := []any{&title, &sentences}
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	*d = hotpotDoc(title + "\n" + strings.Join(sentences, ""))
	return nil
}

func readHotpot(r io.Reader) (*Corpus, error) {
	var items []hotpotItem
	if err := readJSON(r, &items); err != nil {
		return nil, err
	}
	c := new(Corpus)
	for _, item := range items {
		for _, d := range item.Context {
			c.Docs = append(c.Docs, string(d))
		}
	}
	number := c.index()
	for _, item := range items {
		a := Asked{Query: item.Question, Answers: []string{item.Answer}}
		for _, d := range item.Context {
			a.Gold = append(a.Gold, number[string(d)])
		}
		c.Questions = append(c.Questions, a)
	}
	return c, nil
}

// questionMaker makes prompts of questions. Question i is that of row i; trials
// of a length take the first.
type questionMaker struct {
	g *Generator
	c *Corpus
}

func (g *Generator) startQuestion() error {
	if g.o.Corpus == nil {
		return fmt.Errorf("ruler: %s asks about documents of %s, but there is no file; give one (--squad or --hotpotqa FILE)", g.o.Task.Name, g.o.Task.Data)
	}
	g.maker, g.step, g.least = &questionMaker{g, g.o.Corpus}, 10, 10
	if g.o.Fine {
		g.step, g.least = 1, max(1, len(g.o.Corpus.Questions[0].Gold))
	}
	return g.fit(10, g.o.Task.NewToken)
}

func (m *questionMaker) example(text string) string { return text }

// make draws the documents around those that answer the question.
func (m *questionMaker) make(n int) (prompt, bool, error) {
	if m.g.rows >= len(m.c.Questions) {
		return prompt{}, false, fmt.Errorf("ruler: %s has %d questions; ask for no more rows", m.g.o.Task.Name, len(m.c.Questions))
	}
	q := &m.c.Questions[m.g.rows]
	if n < len(q.Gold) {
		return prompt{}, true, nil
	}
	docs := m.pick(q, n)
	shuffle(newRandom(m.g.o.Seed), docs)
	var b strings.Builder
	for i, d := range docs {
		if i > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "Document %d:\n%s", i+1, m.c.Docs[d])
	}
	slots := []string{"{context}", b.String(), "{query}", q.Query}
	return prompt{text: fill(m.g.text, slots...), prefix: m.g.body.Prefix, answers: q.Answers}, false, nil
}

// pick chooses n documents: the answering ones, then others of the article, then
// any; or all again and again where there are not so many.
func (m *questionMaker) pick(q *Asked, n int) []int {
	r, all := m.g.rng, len(m.c.Docs)
	docs := slices.Clone(q.Gold)
	switch rest := n - len(q.Gold); {
	case n >= all:
		docs = docs[:0]
		for len(docs) < n {
			docs = append(docs, len(docs)%all)
		}
	case rest > len(q.Near):
		docs = append(docs, q.Near...)
		others := m.others(docs)
		for _, i := range r.sample(len(others), max(0, n-len(q.Gold)-len(q.Near))) {
			docs = append(docs, others[i])
		}
	default:
		for _, i := range r.sample(len(q.Near), rest) {
			docs = append(docs, q.Near[i])
		}
	}
	return docs
}

// others is the documents that are not among docs.
func (m *questionMaker) others(docs []int) []int {
	taken := make(map[int]bool, len(docs))
	for _, d := range docs {
		taken[d] = true
	}
	var list []int
	for d := range m.c.Docs {
		if !taken[d] {
			list = append(list, d)
		}
	}
	return list
}
