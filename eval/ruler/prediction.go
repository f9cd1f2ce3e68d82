package ruler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/gollm/gollm/eval/jsonl"
	"github.com/gollm/gollm/eval/metric"
)

// Prediction is an answer to a row, in the form that the official scorer reads.
type Prediction struct {
	Index      int             `json:"index"`
	Pred       string          `json:"pred"`
	Input      string          `json:"input"` // the prompt, prefix included
	Outputs    []string        `json:"outputs"`
	Others     json.RawMessage `json:"others"` // an object; the official scorer fails without it
	Truncation int             `json:"truncation"`
	Length     int             `json:"length"`
}

// Predict makes the prediction row of an answer. keep is how many bytes of the
// prompt stay in it; below 0 is all.
func (r *Row) Predict(answer string, keep int) Prediction {
	p := Prediction{Index: r.Index, Pred: answer, Input: r.Prompt(), Outputs: r.Outputs, Truncation: -1, Length: r.Length}
	if keep >= 0 && keep < len(p.Input) {
		for keep > 0 && p.Input[keep]&0xc0 == 0x80 { // not in the middle of a character
			keep--
		}
		p.Input = p.Input[:keep]
	}
	others := r.Others
	if others == nil {
		others = map[string]json.RawMessage{}
	}
	p.Others, _ = json.Marshal(others) // of raw values that were read: cannot fail
	return p
}

// Grader is how answers are compared with references.
type Grader string

// The graders.
const (
	Official Grader = "official"
	Santa    Grader = "santa" // that of the SANTA paper, for several values
)

// Grade is the score of one answer, from 0 to 1.
func (t Task) Grade(answer string, references []string, g Grader) float64 {
	answer = metric.Clean(answer)
	switch {
	case t.Part:
		return metric.ContainsAny(answer, references)
	case g == Santa && t.Kind == Needle && t.Values > 1:
		return metric.FirstIntegers(answer, references)
	}
	return metric.ContainsAll(answer, references)
}

// Scored is the scores of a file of predictions.
type Scored struct {
	Task    string    `json:"task"`
	Score   float64   `json:"score"` // of 100, two decimals
	Nulls   int       `json:"nulls"` // empty answers
	Samples []float64 `json:"-"`     // by line, from 0 to 1
	IDs     []string  `json:"-"`     // by line: others.id, or the index
	Answers []string  `json:"-"`     // by line, cleaned
}

// answered is the fields that scoring needs.
type answered struct {
	Pred    *string         `json:"pred"`
	Outputs jsonl.Texts     `json:"outputs"`
	Output  *string         `json:"output"`
	Index   json.RawMessage `json:"index"`
	Others  struct {
		ID json.RawMessage `json:"id"`
	} `json:"others"`
}

// ScoreFile scores a file of predictions of a task, as the official scorer does.
// name is what errors call the file.
func ScoreFile(name string, r io.Reader, t Task, g Grader) (Scored, error) {
	s := Scored{Task: t.Name}
	in := jsonl.NewReader(r)
	for {
		line, number, err := in.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = s.add(line, t, g)
		}
		if err != nil {
			return s, fmt.Errorf("ruler: %s:%d: %w", name, number, err)
		}
	}
	if len(s.Samples) == 0 {
		return s, fmt.Errorf("ruler: %s has no predictions", name)
	}
	sum := 0.0
	for _, x := range s.Samples {
		sum += x
	}
	s.Score = metric.Round(sum/float64(len(s.Samples))*100, 2)
	return s, nil
}

// readAnswer reads a line of predictions.
func readAnswer(line []byte) (a answered, err error) {
	if err := jsonl.Decode(line, &a); err != nil {
		return a, jsonl.Explain(line, err)
	}
	if a.Pred == nil {
		return a, jsonl.Missing(line, "pred", "the answer as a string; want a line of pred and outputs")
	}
	if a.Outputs == nil && a.Output != nil {
		a.Outputs = []string{*a.Output}
	}
	if len(a.Outputs) == 0 {
		return a, fmt.Errorf("no field outputs with one reference or more")
	}
	return a, nil
}

// GradeLine is the score, from 0 to 1, of a line of predictions, and whether its answer
// is empty.
func (t Task) GradeLine(line []byte, g Grader) (score float64, null bool, err error) {
	a, err := readAnswer(line)
	if err != nil {
		return 0, false, err
	}
	return t.Grade(*a.Pred, a.Outputs, g), metric.Clean(*a.Pred) == "", nil
}

// add scores a line; an empty one is none.
func (s *Scored) add(line []byte, t Task, g Grader) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	a, err := readAnswer(line)
	if err != nil {
		return err
	}
	answer := metric.Clean(*a.Pred)
	if answer == "" {
		s.Nulls++
	}
	id := a.Others.ID
	if id == nil {
		id = a.Index
	}
	s.Samples = append(s.Samples, t.Grade(*a.Pred, a.Outputs, g))
	s.IDs = append(s.IDs, string(bytes.Trim(id, `"`)))
	s.Answers = append(s.Answers, answer)
	return nil
}
