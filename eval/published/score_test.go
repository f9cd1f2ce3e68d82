package published

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"testing"

	"github.com/gollm/gollm/eval/metric"
)

// vector is a prediction and what the official code gives it.
type vector struct {
	Suite string  `json:"suite"`
	Task  string  `json:"task"`
	Score float64 `json:"score"`
	Answer
}

// vectors are those that scripts/suites.py made.
func vectors(t *testing.T) []vector {
	file, err := os.Open("testdata/scores.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestOfficialScores holds the scores of 500 predictions of every metric to those of the
// official code, to the last bit; KVPress rounds to hundredths of a percent.
func TestOfficialScores(t *testing.T) {
	counts, middle := map[string]int{}, map[string]int{}
	for i, v := range vectors(t) {
		d, err := Find(v.Suite).Set(v.Task)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Grade(&v.Answer)
		if v.Suite == "kvpress-ruler" {
			got = metric.Round(100*got, 2)
		}
		if err != nil || got != v.Score {
			t.Errorf("line %d, %s %s: %v and %v, the official code %v: %q to %s", i+1, v.Suite, v.Task, got, err, v.Score, v.Prediction, v.Truth)
		}
		counts[v.Suite+" "+v.Task]++
		if v.Score > 0 {
			middle[v.Suite+" "+v.Task]++
		}
	}
	if len(counts) != 24 {
		t.Errorf("%d tasks have scores, want 24", len(counts))
	}
	for name, n := range counts {
		if right := middle[name]; n != 500 || right < 50 || right == n {
			t.Errorf("%s has %d predictions, %d of them above 0, want 500, and of both kinds", name, n, right)
		}
	}
}
