package longbench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/gollm/gollm/eval/jsonl"
	"github.com/gollm/gollm/eval/metric"
)

// Options says which of the official code's variants scores.
type Options struct {
	Code       metric.CodeBackend // empty is difflib
	RougeSteps int                // 0 is [metric.RougeSteps], below 0 no bound
	Words      *Splitter          // of Chinese; nil leaves out the data sets that need it
	E          bool               // answers to LongBench-E, which have to say how long their samples are
}

// Grade is the score of an answer, from 0 to 1: the best over the references. It
// is an error where texts are too long to be compared.
func (d Dataset) Grade(answer string, references, classes []string, o Options) (float64, error) {
	if d.FirstLine {
		answer, _, _ = strings.Cut(strings.TrimLeft(answer, "\n"), "\n")
	}
	best := 0.0
	for _, r := range references {
		x, err := d.compare(answer, r, classes, o)
		if err != nil {
			return 0, err
		}
		best = max(best, x)
	}
	return best, nil
}

// compare is the measure of the data set.
func (d Dataset) compare(answer, reference string, classes []string, o Options) (float64, error) {
	switch d.Measure {
	case F1:
		return metric.F1(answer, reference), nil
	case F1Chinese:
		return metric.F1Words(chineseWords(o.Words, answer), chineseWords(o.Words, reference)), nil
	case RougeChinese:
		return o.rouge(strings.Join(o.Words.Split(answer), " "), strings.Join(o.Words.Split(reference), " "))
	case Rouge:
		return o.rouge(answer, reference)
	case Classification:
		return metric.Classify(answer, reference, classes), nil
	case Counting:
		return metric.Count(answer, reference), nil
	case Retrieval:
		return metric.Retrieve(answer, reference), nil
	case Code:
		backend := o.Code
		if backend == "" {
			backend = metric.Difflib
		}
		return metric.CodeSimilarity(answer, reference, backend)
	}
	panic("longbench: Grade of " + d.Name + ", which is not Scorable")
}

// rouge is the official ROUGE.
func (o Options) rouge(answer, reference string) (float64, error) {
	steps := o.RougeSteps
	if steps == 0 {
		steps = metric.RougeSteps
	}
	return metric.RougeL(answer, reference, max(steps, 0))
}

// chineseWords is the words of a text, lowered, without punctuation and white space,
// and without those that were nothing else.
func chineseWords(s *Splitter, text string) []string {
	var words []string
	for _, w := range s.Split(text) {
		if w = metric.NormalizeChinese(w); w != "" {
			words = append(words, w)
		}
	}
	return words
}

// Prediction is an answer in the official form.
type Prediction struct {
	Pred       string   `json:"pred"`
	Answers    []string `json:"answers"`
	AllClasses []string `json:"all_classes"`
	Length     int      `json:"length"`
	ID         string   `json:"_id,omitempty"`
	Dataset    string   `json:"dataset,omitempty"`
}

// Scored is the scores of a file of answers.
type Scored struct {
	Dataset string    `json:"dataset"`
	Score   float64   `json:"score"` // of 100, two decimals
	Nulls   int       `json:"nulls"` // answers without text
	Samples []float64 `json:"-"`     // by line, from 0 to 1
	Lengths []int     `json:"-"`     // by line; of LongBench-E
}

// ScoreFile scores a file of answers; name is what errors call it.
func ScoreFile(name string, r io.Reader, d Dataset, o Options) (Scored, error) {
	s := Scored{Dataset: d.Name}
	if !d.Scorable(o) {
		return s, fmt.Errorf("longbench: %s is scored over the words that jieba splits Chinese into, whose tables are not there", d.Name)
	}
	answers, err := readAnswers(name, r, d, o.E)
	if err != nil {
		return s, err
	}
	classes := answers[len(answers)-1].AllClasses // those of the last line, as the official code has them
	sum := 0.0
	for _, a := range answers {
		x, err := d.Grade(*a.Pred, a.Answers, classes, o)
		if err != nil {
			return s, fmt.Errorf("longbench: %s:%d: %w", name, a.line, err)
		}
		if a.null() {
			s.Nulls++
		}
		s.Samples, s.Lengths = append(s.Samples, x), append(s.Lengths, a.Length)
		sum += x
	}
	s.Score = metric.Round(100*sum/float64(len(answers)), 2)
	return s, nil
}

// answered is the fields that scoring needs.
type answered struct {
	Pred       *string     `json:"pred"`
	Answers    jsonl.Texts `json:"answers"`
	AllClasses jsonl.Texts `json:"all_classes"`
	Length     int         `json:"length"`
	line       int         // of the file, from 1
}

// null reports whether the answer has no text.
func (a *answered) null() bool { return metric.Strip(*a.Pred) == "" }

// Graded is what a line of answers comes to.
type Graded struct {
	Score  *float64 // from 0 to 1; nil where the data set is not Scorable
	Null   bool     // the answer has no text
	Bucket string   // of [Buckets], the length of the sample
}

// GradeLine scores a line of answers, with the classes of its own.
func (d Dataset) GradeLine(line []byte, o Options) (Graded, error) {
	all, err := appendAnswer(nil, line, d, o.E)
	if err != nil {
		return Graded{}, err
	}
	a := all[0]
	g := Graded{Null: a.null(), Bucket: Buckets[bucketOf(a.Length)]}
	if d.Scorable(o) {
		x, err := d.Grade(*a.Pred, a.Answers, a.AllClasses, o)
		if err != nil {
			return g, err
		}
		g.Score = &x
	}
	return g, nil
}

// readAnswers reads a file of answers to d; e says that they are of LongBench-E.
func readAnswers(name string, r io.Reader, d Dataset, e bool) ([]answered, error) {
	var all []answered
	in := jsonl.NewReader(r)
	for {
		line, number, err := in.Next()
		if err == io.EOF && len(all) == 0 {
			return nil, fmt.Errorf("longbench: %s has no answers", name)
		}
		if err == io.EOF {
			return all, nil
		}
		if err == nil {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			all, err = appendAnswer(all, line, d, e)
		}
		if err == nil {
			all[len(all)-1].line = number
		}
		if err != nil {
			return nil, fmt.Errorf("longbench: %s:%d: %w", name, number, err)
		}
	}
}

// appendAnswer reads a line.
func appendAnswer(all []answered, line []byte, d Dataset, e bool) ([]answered, error) {
	var a answered
	if err := jsonl.Decode(line, &a); err != nil {
		return nil, jsonl.Explain(line, err)
	}
	if a.Pred == nil {
		return nil, jsonl.Missing(line, "pred", "the answer as a string")
	}
	if e && !has(line, "length") {
		return nil, errNoLength
	}
	return append(all, a), d.checkFields(a.Answers, a.AllClasses, a.Length)
}

// errNoLength refuses a row of LongBench-E that would be taken for a short one.
var errNoLength = errors.New("no field length, the words of the sample, by which LongBench-E is scored")

// has reports whether a JSON object has a field that is not null.
func has(object []byte, field string) bool {
	var fields map[string]json.RawMessage
	return json.Unmarshal(object, &fields) == nil && len(fields[field]) > 0 && string(fields[field]) != "null"
}

// checkFields reports what of a sample or of its answer cannot be scored.
func (d Dataset) checkFields(references, classes []string, length int) error {
	switch {
	case len(references) == 0:
		return fmt.Errorf("no field answers with one reference or more")
	case d.Measure == Classification && len(classes) == 0:
		return fmt.Errorf("no field all_classes with the names of the classes, of which %s wants one", d.Name)
	case length < 0:
		return fmt.Errorf("the field length is %d, want 0 words or more", length)
	}
	return nil
}

// Buckets are the lengths of LongBench-E, in words.
var Buckets = []string{"0-4k", "4-8k", "8k+"}

// bucketOf is the bucket of a length.
func bucketOf(length int) int {
	switch {
	case length < 4000:
		return 0
	case length < 8000:
		return 1
	}
	return 2
}

// ByLength is the scores of 100 of the buckets, NaN for one without samples.
func (s *Scored) ByLength() [3]float64 {
	var samples [3][]float64
	for i, x := range s.Samples {
		b := bucketOf(s.Lengths[i])
		samples[b] = append(samples[b], x)
	}
	var scores [3]float64
	for b, x := range samples {
		// NumPy's mean and round: this is where the official code uses them.
		scores[b] = math.RoundToEven(100*(pairwise(x)/float64(len(x)))*100) / 100
	}
	return scores
}

// pairwise is NumPy's sum of a list, which adds in blocks.
func pairwise(x []float64) float64 {
	n := len(x)
	if n < 8 {
		sum := 0.0
		for _, v := range x {
			sum += v
		}
		return sum
	}
	if n > 128 {
		half := n / 2
		half -= half % 8
		return pairwise(x[:half]) + pairwise(x[half:])
	}
	var r [8]float64
	copy(r[:], x)
	i := 8
	for ; i < n-n%8; i += 8 {
		for j := range r {
			r[j] += x[i+j]
		}
	}
	sum := ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]))
	for ; i < n; i++ {
		sum += x[i]
	}
	return sum
}

// Averages are the figures that publications call the average; each is the mean
// of what was scored, and Complete tells whether that is all of it.
type Averages struct {
	English      float64            `json:"english"`       // mean of the sixteen English data sets
	WithoutCount float64            `json:"without_count"` // the same without passage_count
	Categories   map[string]float64 `json:"categories"`
	ByCategory   float64            `json:"by_category"` // mean of the categories, as the official table has it
	Complete     bool               `json:"complete"`    // all sixteen were scored
}

// Average averages scores of data sets.
func Average(scored []Scored) Averages {
	a := Averages{Categories: map[string]float64{}}
	count := map[string]int{}
	var english, without int
	for _, s := range scored {
		d, err := Find(s.Dataset)
		if err != nil {
			continue
		}
		a.Categories[d.Category] += s.Score
		count[d.Category]++
		if d.Chinese {
			continue
		}
		a.English += s.Score
		english++
		if d.Measure != Counting {
			a.WithoutCount += s.Score
			without++
		}
	}
	a.English /= float64(max(english, 1))
	a.WithoutCount /= float64(max(without, 1))
	for c, n := range count {
		a.Categories[c] /= float64(n)
		a.ByCategory += a.Categories[c] / float64(len(count))
	}
	a.Complete = english == 16
	return a
}
