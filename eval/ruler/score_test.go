package ruler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

// file makes a file of predictions.
func file(t testing.TB, answers []string, references [][]string) string {
	t.Helper()
	var b strings.Builder
	for i, a := range answers {
		line, err := json.Marshal(Prediction{Index: 7, Pred: a, Outputs: references[i], Others: json.RawMessage("{}")})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// TestScoreFile holds scores against those of the official scorer.
func TestScoreFile(t *testing.T) {
	for _, c := range []struct {
		task       string
		answers    []string
		references [][]string
		want       float64
	}{
		{"niah_single_1", []string{" 8090293."}, [][]string{{"8090293"}}, 100},
		{"niah_multivalue", []string{"The values are 1234567, 7654321 and 1111111"}, [][]string{{"1234567", "7654321", "1111111", "2222222"}}, 75},
		{"vt", []string{"abc def"}, [][]string{{"ABC", "x"}}, 50},
		{"vt", []string{"a", "b"}, [][]string{{"a"}, {"a"}}, 50},
		{"vt", []string{"DKYRX QHOAH\u0000LPRML", "none"}, [][]string{{"DKYRX", "QHOAH", "LPRML", "FMXUE", "CNQIV"}, {"A", "B"}}, 30},
		{"cwe", []string{"x1 x2 x3", "y1"}, [][]string{{"x1", "x2", "z"}, {"y1", "y2", "y3"}}, 50},
		{"qa_1", []string{"The Norman dynasty ruled"}, [][]string{{"Normans", "norman dynasty", "N"}}, 100},
		{"qa_1", []string{"No"}, [][]string{{"yes"}}, 0},
		{"qa_1", []string{"It was 3,677 people"}, [][]string{{"3,677 seated"}}, 0},
		{"qa_2", []string{"France.", "germany", "x"}, [][]string{{"France", "in France"}, {"Germany"}, {"y"}}, 66.67},
		{"qa_2", []string{"12345"}, [][]string{{"234"}}, 100},
	} {
		task, _ := FindTask(c.task)
		s, err := ScoreFile("p.jsonl", strings.NewReader(file(t, c.answers, c.references)), task, Official)
		if err != nil {
			t.Fatal(err)
		}
		if s.Score != c.want {
			t.Errorf("%s %q: %v, want %v", c.task, c.answers, s.Score, c.want)
		}
	}
}

func TestScoreFileSaysWhereDataIsWrong(t *testing.T) {
	good := `{"index": 0, "pred": "a", "outputs": ["a"], "others": {}}` + "\n"
	task, _ := FindTask("vt")
	for bad, want := range map[string]string{
		good + `{"index": 1, "outputs": ["a"], "others": {}}`: "p.jsonl:2: no field pred",
		good + good + `{"index": 1, "pred": "a"}`:             "p.jsonl:3: no field outputs",
		good + `{"index": 1, "pred": "a", "outp`:              "p.jsonl:2: the line ends",
		good + `{"index": 1, "pred": 5, "outputs": ["a"]}`:    "p.jsonl:2: field pred is of type number, want string",
		good + `{"index": 1, "pred": "", "outputs": [null]}`:  "p.jsonl:2: not a JSON object of the right form: want a list of strings, found [null]",
		good + `{"Pred": "a", "outputs": ["a"]}`:              "p.jsonl:2: not a JSON object of the right form: field Pred, want pred",
		good + `{"pred": "a", "OUTPUTS": ["a"]}`:              "p.jsonl:2: not a JSON object of the right form: field OUTPUTS, want outputs",
		"":                                                    "p.jsonl has no predictions",
	} {
		if _, err := ScoreFile("p.jsonl", strings.NewReader(bad), task, Official); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: error %v, want %s", bad, err, want)
		}
	}
}

// TestScoreFileTellsCapitalsApart has fields that the official scorer does not read
// beside those that it does.
func TestScoreFileTellsCapitalsApart(t *testing.T) {
	task, _ := FindTask("vt")
	line := `{"index": 3, "pred": "right", "Pred": "wrong", "outputs": ["right"], "Outputs": ["none"], "others": {"id": "x", "ID": "y"}, "Index": 4}`
	s, err := ScoreFile("p.jsonl", strings.NewReader(line), task, Official)
	if err != nil || s.Score != 100 || s.IDs[0] != "x" || s.Answers[0] != "right" {
		t.Errorf("%+v, %v", s, err)
	}
}

// BenchmarkScore scores 10,000 predictions of four values.
func BenchmarkScore(b *testing.B) {
	var answers []string
	var references [][]string
	for i := range 10000 {
		answers = append(answers, strings.Repeat("some words ", 40)+fmt.Sprint(1000000+i))
		references = append(references, []string{fmt.Sprint(1000000 + i), "2222222", "3333333", "4444444"})
	}
	data := file(b, answers, references)
	task, _ := FindTask("niah_multivalue")
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if s, err := ScoreFile("p.jsonl", strings.NewReader(data), task, Official); err != nil || s.Score != 25 {
			b.Fatal(s.Score, err)
		}
	}
}

func TestSantaGrader(t *testing.T) {
	task, _ := FindTask("niah_multivalue")
	refs := []string{"1", "2", "3", "4"}
	if got := task.Grade("9 1 1 2 8 3 4", refs, Santa); got != 0.5 {
		t.Errorf("got %v, want 0.5: only the first four different numbers count", got)
	}
}

func TestSummary(t *testing.T) {
	scored := []Scored{
		{Task: "niah_single_1", Score: 100, Samples: make([]float64, 4)},
		{Task: "vt", Score: 33.33, Nulls: 1, Samples: make([]float64, 3)},
	}
	var b bytes.Buffer
	if err := WriteSummary(&b, scored); err != nil {
		t.Fatal(err)
	}
	if want := "0,1,2\nTasks,niah_single_1,vt\nScore,100.0,33.33\nNulls,0/4,1/3\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	l := Summarize(4096, scored)
	if l.Complete || math.Abs(l.Mean-66.665) > 1e-9 || l.Categories[Tracing] != 33.33 {
		t.Errorf("%+v", l)
	}
}

// TestWeigh uses the published scores of Llama-3.1-8B.
func TestWeigh(t *testing.T) {
	var lengths []LengthScore
	for i, s := range []float64{95.5, 93.8, 91.6, 87.4, 84.7, 77.0} {
		lengths = append(lengths, LengthScore{Length: 4096 << i, Mean: s})
	}
	w := Weigh(lengths)
	for _, c := range [][2]float64{{w.Mean, 88.3}, {w.Rising, 85.4}, {w.Falling, 91.3}} {
		if math.Abs(c[0]-c[1]) > 0.05 {
			t.Errorf("got %v, want %v", c[0], c[1])
		}
	}
	if w.Effective != 32768 {
		t.Errorf("effective length %d, want 32768", w.Effective)
	}
}
