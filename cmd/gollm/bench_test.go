package main

import (
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/golden"
	"github.com/gollm/gollm/model/modeltest"
)

func TestBenchJSON(t *testing.T) {
	model := randomModel(t, modeltest.Shape{})
	args := []string{"bench", "-m", model, "--prefill", "16,100", "--decode", "10,70", "--steps", "3", "--reps", "2"}
	j := decode[benchReport](t, ok(t, "", append(args, "--json")...))
	if j.Model != model || j.Attn != "dense" || j.Machine.Cores < 1 || j.Machine.CPU == "" || !strings.HasPrefix(j.Machine.Device, "cpu") {
		t.Errorf("%+v", j)
	}
	if len(j.Rows) != 4 {
		t.Fatalf("%d rows, want 4", len(j.Rows))
	}
	for i, want := range []benchRow{{Phase: "prefill", Tokens: 16}, {Phase: "prefill", Tokens: 100}, {Phase: "decode", Depth: 10}, {Phase: "decode", Depth: 70}} {
		r := j.Rows[i]
		if r.Phase != want.Phase || r.Tokens != want.Tokens || r.Depth != want.Depth || r.TokS <= 0 || r.AttendMS <= 0 || len(r.Runs) != 2 {
			t.Errorf("row %d: %+v, want %+v with two runs", i, r, want)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(ok(t, "", append(args, "--csv")...))).ReadAll()
	if err != nil || len(rows) != 5 {
		t.Errorf("CSV %v: %v, want a head and 4 rows", rows, err)
	}
}

// fixedBench is a report with figures that do not change.
func fixedBench() benchReport {
	return newBenchReport("model.gguf", "dense", eval.Machine{CPU: "a processor", Cores: 2, Device: "cpu (2 threads)"}, []eval.Speed{
		{Task: eval.Task{Phase: eval.Prefill, Len: 512}, Runs: []float64{400, 420, 410}, TokS: 410, FloorS: 500, Fraction: 0.82, Limit: "compute", Choose: 20 * time.Millisecond, Attend: 345678 * time.Microsecond},
		{Task: eval.Task{Phase: eval.Decode, Len: 8192}, Runs: []float64{7.1}, TokS: 7.1},
	})
}

func TestBenchForms(t *testing.T) {
	for name, b := range map[string]benchFlags{
		"bench.golden": {}, "bench-csv.golden": {csv: true}, "bench-markdown.golden": {markdown: true}, "bench-json.golden": {json: true},
	} {
		var out strings.Builder
		if err := b.print(&out, fixedBench()); err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, name, out.String())
	}
}
