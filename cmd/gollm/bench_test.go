package main

import (
	"context"
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/golden"
	"github.com/gollm/gollm/model/modeltest"
)

func TestBenchJSON(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	args := []string{"bench", "-m", model, "--prefill", "16,100", "--decode", "10,70", "--steps", "3", "--reps", "2"}
	j := clitest.Decode[benchReport](t, ok(t, "", append(args, "--json")...))
	if j.Model != model || !slices.Equal(j.Attn, []string{"dense"}) || j.Machine.Cores < 1 || j.Machine.CPU == "" || !strings.HasPrefix(j.Machine.Device, "cpu") {
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
	return newBenchReport("model.gguf", []string{"dense"}, 1, eval.Machine{CPU: "a processor", Cores: 2, Device: "cpu (2 threads)"}, []eval.Speed{
		{Task: eval.Task{Phase: eval.Prefill, Len: 512}, Runs: []float64{400, 420, 410}, TokS: 410, LimitS: 500, Fraction: 0.82, Bound: "compute", Select: 20 * time.Millisecond, Attend: 345678 * time.Microsecond,
			Work:      eval.Achieved{Work: eval.Work{Bytes: 2e9, IntOps: 1e12, FloatOps: 2e11}, Seconds: 1.25, OfRead: 0.05, OfProduct: 0.82},
			Attention: eval.Achieved{Work: eval.Work{FloatOps: 1e11}, Seconds: 0.365678, OfProduct: 0.3, LimitSeconds: 0.11}},
		{Task: eval.Task{Phase: eval.Decode, Len: 8192}, Runs: []float64{7.1}, TokS: 7.1},
	})
}

// comparedBench is a report of two settings.
func comparedBench() benchReport {
	decode := eval.Task{Phase: eval.Decode, Len: 32768}
	return newBenchReport("model.gguf", []string{"dense", "sketchwalk(density=0.1)"}, 1, eval.Machine{CPU: "a processor", Cores: 2, Device: "cpu (2 threads)"}, []eval.Speed{
		{Task: decode, Runs: []float64{10, 10.2}, TokS: 10.1, LimitS: 12, Fraction: 0.84, Bound: "memory", Attend: 60 * time.Millisecond, KVBytes: 1 << 30},
		{Task: decode, Side: 1, Runs: []float64{20.2}, TokS: 20.2, LimitS: 12, Fraction: 1.68, Bound: "memory", Select: time.Millisecond, Attend: 8 * time.Millisecond, KVBytes: 1 << 30,
			Read: &engine.AuditCell{Density: 0.1, KRead: 0.31, VRead: 0.3}},
		{Task: eval.Task{Phase: eval.Prefill, Len: 8}, Side: 1, Runs: []float64{5}, TokS: 5, Attend: time.Second},
	})
}

func TestBenchCompares(t *testing.T) {
	r := comparedBench()
	if d := r.Rows[0]; d.TimesDense != 0 || d.Density != nil {
		t.Errorf("dense beside itself: %+v", d)
	}
	if s := r.Rows[1]; s.TimesDense != 2 || s.TimesAttend != 7.5 || s.TimesBoth != 6.667 || *s.Density != 0.1 || *s.KRead != 0.31 {
		t.Errorf("beside dense: %+v", s)
	}
	if s := r.Rows[2]; s.TimesDense != 0 || s.TTFTMS != 1600 {
		t.Errorf("with no dense row of its task: %+v", s)
	}
	for name, b := range map[string]benchFlags{"bench-attn.golden": {}, "bench-attn-json.golden": {json: true}} {
		var out strings.Builder
		if err := b.print(&out, r); err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, name, out.String())
	}
}

// TestBenchRunsSettingsInTurns runs two settings on one model, each with a
// cache of its own.
func TestBenchRunsSettingsInTurns(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	j := clitest.Decode[benchReport](t, ok(t, "", "bench", "-m", model, "--prefill", "0", "--decode", "1k", "--steps", "2", "--reps", "2",
		"--attn", "dense", "--attn", "streaming(sink=4,window=60)", "--json"))
	if len(j.Rows) != 2 {
		t.Fatalf("%d rows, want 2", len(j.Rows))
	}
	d, s := j.Rows[0], j.Rows[1]
	if d.Attn != "dense" || d.Density != nil || d.Depth != 1024 || len(d.Runs) != 2 {
		t.Errorf("%+v", d)
	}
	if want := 64 / 1026.; s.Density == nil || math.Abs(*s.Density-want) > 1e-6 || s.TimesDense <= 0 || s.TimesAttend <= 0 || len(s.Runs) != 2 {
		t.Errorf("%+v, want density %v", s, want)
	}
}

func TestLengths(t *testing.T) {
	for text, want := range map[string]string{"512": "512", "512,8k": "512,8192", "0": "0", " 1K , 2": "1024,2", "1M": "1048576", "2m,1k": "2097152,1024"} {
		var l lengths
		if err := l.Set(text); err != nil || l.String() != want {
			t.Errorf("%q: %v, %v, want %s", text, l, err, want)
		}
	}
	for _, text := range []string{"", "k", "1,", "-1", "1.5k", "0,1", "99999999999999999999", "9223372036854775807k", "M", "1M5", "524289M"} {
		if err := new(lengths).Set(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
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

// A speed above the limit is explained where the limit is that of memory.
func TestBenchNotes(t *testing.T) {
	share := 0.1
	for _, tt := range []struct {
		row  benchRow
		want string
	}{
		{benchRow{Fraction: 2.44, Bound: "memory"}, "processor's cache"},
		{benchRow{Fraction: 1.68, Bound: "memory", Density: &share}, "processor's cache"},
		{benchRow{Fraction: 1.004, Bound: "memory"}, ""},
		{benchRow{Fraction: 1.1, Bound: "compute"}, ""},
	} {
		note := benchReport{Rows: []benchRow{tt.row}}.notes("")
		if !strings.Contains(note, tt.want) || (tt.want == "") != (note == "") || strings.Count(note, "\n") > 1 {
			t.Errorf("%+v: %q, want one note with %q", tt.row, note, tt.want)
		}
	}
}

// TestBenchStoryCutShort: a line for each length that was measured to the end, and no
// table without lines.
func TestBenchStoryCutShort(t *testing.T) {
	r := benchReport{Model: "model.gguf", Attn: []string{"dense"}, lengths: true, Rows: []benchRow{
		{Phase: eval.Prefill, Tokens: 128, Attn: "dense", TTFTMS: 3}, {Phase: eval.Decode, Depth: 128, Attn: "dense", TokS: 7, Bound: "memory", Fraction: 2.4},
		{Phase: eval.Prefill, Tokens: 256, Attn: "dense", TTFTMS: 6},
	}}
	r.Story = newStory(r.Rows)
	var one, none strings.Builder
	if err := new(benchFlags).print(&one, r); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(one.String(), "\n"); len(lines) != 5 || !strings.Contains(lines[2], "first token ms") || !strings.Contains(lines[3], "7.00") {
		t.Errorf("one length of two, and no column that is explained:\n%s", one.String())
	}
	r.Story, r.Rows = nil, r.Rows[:1]
	if err := new(benchFlags).print(&none, r); err != nil {
		t.Fatal(err)
	}
	if want := "model.gguf; ; ; attention dense\n\nnothing was measured to the end\n"; none.String() != want {
		t.Errorf("%q, want %q", none.String(), want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs strings.Builder
	args := []string{"bench", "-m", clitest.RandomModel(t, modeltest.Shape{}), "--ctx", "128", "--csv"}
	if code := testProgram(ctx, args, strings.NewReader(""), &out, &errs); code != console.ExitInterrupted || !strings.HasPrefix(out.String(), "tokens,attention,first token ms") {
		t.Errorf("%v: exit code %d, %q and %q", args, code, out.String(), errs.String())
	}
}

// TestBenchHeadLine: a device with one rate for all products has one figure.
func TestBenchHeadLine(t *testing.T) {
	for want, p := range map[string]device.Roofline{
		"reads 4022.0 GB/s, computes 704 TFLOP/s (a product in bfloat16)":                {Read: 4.022e12, Int8: 703625e9, Float: 703625e9, How: "a product in bfloat16"},
		"reads 4.7 GB/s, computes 762 int8 GOP/s and 159 float GFLOP/s (on all threads)": {Read: 4.7e9, Int8: 762e9, Float: 159e9, How: "on all threads"},
	} {
		if line := newBenchReport("a", []string{"dense"}, 1, eval.Machine{Roofline: p}, nil).headLine(); !strings.HasSuffix(line, "; "+want) {
			t.Errorf("%q, want %q at its end", line, want)
		}
	}
}

// TestBenchStory measures two settings at two lengths and looks at all forms.
func TestBenchStory(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	out := filepath.Join(t.TempDir(), "bench.html")
	args := []string{"bench", "-m", model, "--ctx", "128,256", "--steps", "2", "--reps", "1", "--attn", "dense", "--attn", "streaming(sink=4,window=60)"}
	j := clitest.Decode[benchReport](t, ok(t, "", append(args, "--json", "--html", out)...))
	if len(j.Rows) != 8 || len(j.Story) != 4 {
		t.Fatalf("%d rows and %d lines, want 8 and 4", len(j.Rows), len(j.Story))
	}
	for i, s := range j.Story {
		first := j.Rows[i/2*4+i%2]
		step := j.Rows[i/2*4+i%2+2]
		if s.Tokens != 128<<(i/2) || s.Attn != j.Attn[i%2] || s.TTFTMS <= 0 || s.TTFTMS != first.TTFTMS || s.TokS != step.TokS || s.Memory <= 0 {
			t.Errorf("line %d: %+v", i, s)
		}
		if sparse := i%2 == 1; (s.Step.Density != nil) != sparse || (s.Step.Both > 0) != sparse || (s.First.Times > 0) != sparse {
			t.Errorf("line %d: density %v, attention %v and prompt %v times faster", i, s.Step.Density, s.Step.Both, s.First.Times)
		}
	}
	if want := 64 / 258.; math.Abs(*j.Story[3].Step.Density-want) > 1e-6 {
		t.Errorf("density %v, want %v", *j.Story[3].Step.Density, want)
	}
	rows, err := csv.NewReader(strings.NewReader(ok(t, "", append(args, "--csv")...))).ReadAll()
	if err != nil || len(rows) != 5 || len(rows[0]) != len(storyColumns) {
		t.Errorf("CSV %v: %v, want a head and 4 lines", rows, err)
	}
	html, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for what, n := range map[string]int{`<svg class="plot"`: 4, `<tr><td`: 4, `<path class="dot s1"`: 11, "http": 0} {
		if got := strings.Count(string(html), what); got != n {
			t.Errorf("%d of %q on the page, want %d", got, what, n)
		}
	}
}

// TestBenchBatch steps three sequences at once.
func TestBenchBatch(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	args := []string{"bench", "-m", model, "--prefill", "0", "--decode", "128", "--steps", "2", "--reps", "1", "--json"}
	one := clitest.Decode[benchReport](t, ok(t, "", args...)).Rows[0]
	three := clitest.Decode[benchReport](t, ok(t, "", append(args, "--batch", "3")...))
	r := three.Rows[0]
	if three.Batch != 3 || r.KVBytes != 3*one.KVBytes || r.Attention.Bytes != 3*one.Attention.Bytes || r.Bytes >= 3*one.Bytes || r.Bytes <= one.Bytes {
		t.Errorf("three sequences %+v, one %+v", r, one)
	}
}

// TestBenchBetweenPages: attention that keeps sums beside whole pages cannot go back to
// any other number of tokens.
func TestBenchBetweenPages(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	j := clitest.Decode[benchReport](t, ok(t, "", "bench", "-m", model, "--prefill", "0", "--decode", "1,63,64,100", "--steps", "2", "--reps", "2",
		"--batch", "2", "--attn", "dense", "--attn", "quest", "--attn", "sketchwalk", "--json"))
	if len(j.Rows) != 12 {
		t.Fatalf("%d rows, want 12", len(j.Rows))
	}
	for i, r := range j.Rows {
		if want := []int{1, 63, 64, 100}[i/3]; r.Depth != want || r.TokS <= 0 || len(r.Runs) != 2 {
			t.Errorf("%+v, want steps behind %d tokens", r, want)
		}
	}
}
