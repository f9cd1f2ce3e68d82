package published

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gollm/gollm/eval/jsonl"
	"github.com/gollm/gollm/eval/metric"
)

// Suite is a suite and its data sets.
type Suite struct {
	Name    string // of the command and of a run
	Title   string
	Sets    []Set
	Subsets []string // what the answers to a set are also averaged in
}

// Set is a data set, or the questions of one kind in it.
type Set struct {
	Name  string // of the task
	File  string // of the data: see [table.Files]
	Group string // of tasks that average together
	// Unscored says why answers are kept without a score; "" where they have one.
	Unscored string

	questions func(s Set, row []byte, o *Options) ([]Question, error)
	score     func(a *Answer, gold label) (float64, error)
}

// of is a score of what was answered.
func of(score scorer) func(*Answer, label) (float64, error) {
	return func(a *Answer, gold label) (float64, error) { return score(a.Prediction, gold) }
}

// Options say how questions are asked.
type Options struct {
	Wording *Wording // the texts around the data; nil where the data has them
	Turns   int      // of a row of SCBench that are asked; 0 is all
	Apart   bool     // SCBench: each question by itself, of a text that was read before it was known
	Known   bool     // KVPress: the question is read with the text
}

// Question is a prompt and its right answer.
type Question struct {
	// Text is the prompt without a chat template. Its question begins at byte Split.
	Text  string
	Split int
	// Talk is the conversation for a chat template, whose question begins at the beginning
	// of message number From. Nil is one message of the user, Text.
	Talk []Message
	From int
	// Hidden is true where the question is not known while what is before it is read, so that
	// it is read like what the model writes: token by token, with the attention of decode steps.
	Hidden bool
	// Prefix is what the answer begins with, behind the chat template where there is one;
	// TalkPrefix is that of Talk alone.
	Prefix, TalkPrefix string
	Most               int    // tokens of an answer
	Answer             Answer // all of its line but the answer
}

// Message is one of a conversation.
type Message struct{ Role, Content string }

// Answer is a line of answers. Fields have the official names where there is such a form.
type Answer struct {
	ID         int             `json:"id"` // of the row, from 0
	Turn       *int            `json:"turn_idx,omitempty"`
	Prediction string          `json:"prediction"`
	Truth      json.RawMessage `json:"ground_truth"`
	Task       string          `json:"task,omitempty"`
	Language   string          `json:"lang,omitempty"`
	Repository string          `json:"repo,omitempty"`
	Function   string          `json:"func_name,omitempty"`
	Marker     *string         `json:"random_string_to_prepend,omitempty"`
	Needles    int             `json:"n_needles,omitempty"`
	Tokens     int             `json:"prompt_and_answer_tokens,omitempty"` // that a bin is made of
}

// suites are all there are.
var suites = []*Suite{mrcr, scbench, infinitebench, kvpress}

// Find is the suite of that name, nil where there is none.
func Find(name string) *Suite {
	if i := slices.IndexFunc(suites, func(s *Suite) bool { return s.Name == name }); i >= 0 {
		return suites[i]
	}
	return nil
}

// Names lists the suites.
func Names() []string {
	var names []string
	for _, s := range suites {
		names = append(names, s.Name)
	}
	return names
}

// SetNames lists the data sets.
func (s *Suite) SetNames() []string {
	var names []string
	for _, d := range s.Sets {
		names = append(names, d.Name)
	}
	return names
}

// Set is the data set of that name.
func (s *Suite) Set(name string) (Set, error) {
	if i := slices.IndexFunc(s.Sets, func(d Set) bool { return d.Name == name }); i >= 0 {
		return s.Sets[i], nil
	}
	return Set{}, fmt.Errorf("published: %s has no data set %q; want one of %s", s.Title, name, strings.Join(s.SetNames(), ", "))
}

// Pick is the data sets of a list of names with commas, or of all.
func (s *Suite) Pick(names string) ([]Set, error) {
	if names == "all" {
		return s.Sets, nil
	}
	var list []Set
	for name := range strings.SplitSeq(names, ",") {
		found := slices.DeleteFunc(slices.Clone(s.Sets), func(d Set) bool { return d.Name != name && d.File != name })
		if len(found) == 0 {
			return nil, fmt.Errorf("published: %s has no data set %q; want all, or some of %s with commas between them", s.Title, name, strings.Join(s.SetNames(), ", "))
		}
		list = append(list, found...)
	}
	return list, nil
}

// Questions are those of a row, which is an object; id is its number in the set, from 0. A row
// may have none of the set.
func (d Set) Questions(row []byte, id int, o *Options) ([]Question, error) {
	all, err := d.questions(d, row, o)
	if err != nil {
		return nil, jsonl.Plain(err)
	}
	for i := range all {
		all[i].Answer.ID = id
		if d.Unscored == "" {
			if _, err := d.Grade(&all[i].Answer); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// Grade is the score of an answer, from 0 to 1. It is an error where the right answer is not
// what the task is scored by, or texts are too long to be compared.
func (d Set) Grade(a *Answer) (float64, error) {
	gold, err := readLabel(a.Truth)
	if err != nil {
		return 0, err
	}
	return d.score(a, gold)
}

// GradeLine scores a line of answers. Null tells that nothing was answered.
func (d Set) GradeLine(line []byte) (a Answer, score float64, null bool, err error) {
	if err := jsonl.Decode(line, &a); err != nil {
		return a, 0, false, jsonl.Explain(line, err)
	}
	if len(a.Truth) == 0 {
		return a, 0, false, jsonl.Missing(line, "ground_truth", "the right answer")
	}
	if d.Unscored == "" {
		score, err = d.Grade(&a)
	}
	return a, score, metric.Strip(a.Prediction) == "", err
}

// Wording is the texts around the data of a suite, by data set: a text with slots in braces,
// and more such texts where a set has several.
type Wording struct {
	Name string // what a report calls it
	Text map[string][]string
}

// loadWording reads dictionaries out of a file of a checkout. hash is the SHA-256 of that file
// at the commit that this package follows.
func loadWording(checkout, file, hash string, names ...string) (*Wording, error) {
	path := filepath.Join(checkout, file)
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("published: %s has no %s: %w", checkout, file, err)
	}
	w := &Wording{Name: "official", Text: map[string][]string{}}
	sum := sha256.Sum256(source)
	if found := hex.EncodeToString(sum[:]); found != hash {
		w.Name = fmt.Sprintf("of a checkout, %s with SHA-256 %s", filepath.Base(file), found[:12])
	}
	for _, name := range names {
		texts, err := pyDict(string(source), name)
		if err != nil {
			return nil, fmt.Errorf("published: %s: %w; the file is not one that this version can read", path, err)
		}
		for key, list := range texts {
			w.Text[key] = append(w.Text[key], list...)
		}
	}
	return w, nil
}

// texts is the n texts of a data set.
func (w *Wording) texts(set string, n int) ([]string, error) {
	list := w.Text[set]
	if len(list) < n {
		return nil, fmt.Errorf("published: the wording %s has %d texts for %s, want %d", w.Name, len(list), set, n)
	}
	return list, nil
}

// fill puts values into the slots of a text, in one pass: braces in a value are text. values
// are pairs of a slot, with its braces, and what goes there.
func fill(text string, values ...string) string { return strings.NewReplacer(values...).Replace(text) }
