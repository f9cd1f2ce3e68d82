package ruler

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// FuzzReader reads any bytes: rows or errors come out, and a row that was read is
// read again from what is written of it.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"index": 0, "input": "a", "outputs": ["b"], "length": 1, "answer_prefix": " c"}`, `{"input": "\ud800", "output": "x"}`,
		"{\"input\": \"a\"\n}", `[]`, `{"input": "a", "outputs": [null]}`, `{"index": 1e99, "input": "", "outputs": [""]}`,
		`{"input": "é\u0000", "outputs": ["b"], "split_char": 2}`, `{"input": "a", "outputs": ["b"], "split_char": -7}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := NewReader("x", bytes.NewReader(data))
		for {
			r, err := in.Next()
			if err != nil {
				if err != io.EOF && !strings.HasPrefix(err.Error(), "ruler: x:") {
					t.Fatalf("error %q does not say where", err)
				}
				break
			}
			for _, task := range tasks {
				if at, ok := r.Split(task, nil); ok && (at < 0 || at > len(r.Input)) {
					t.Fatalf("the question begins at %d of %d", at, len(r.Input))
				}
				if x := task.Grade(r.Input, r.Outputs, Official); x < 0 || x > 1 {
					t.Fatalf("score %v", x)
				}
			}
			var b bytes.Buffer
			if err := WriteRow(&b, tasks[0], &r); err != nil {
				t.Fatal(err)
			}
			again, err := NewReader("y", &b).Next()
			if err != nil || again.Prompt() != r.Prompt() || len(again.Outputs) != len(r.Outputs) {
				t.Fatalf("%q came back as %q: %v", r.Prompt(), again.Prompt(), err)
			}
		}
	})
}

// FuzzScoreFile scores any bytes.
func FuzzScoreFile(f *testing.F) {
	f.Add([]byte(`{"index": 0, "pred": "a", "outputs": ["a"], "others": {"id": 3}}`))
	f.Add([]byte(`{"index": "x", "pred": "", "output": "a", "others": null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, task := range []Task{tasks[0], tasks[11]} {
			s, err := ScoreFile("x", bytes.NewReader(data), task, Official)
			if err == nil && (s.Score < 0 || s.Score > 100 || len(s.IDs) != len(s.Samples)) {
				t.Fatalf("%+v", s)
			}
		}
	})
}
