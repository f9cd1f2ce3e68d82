package main

import (
	"context"
	"encoding/json"
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

// fixedTrace is a report of traces with figures that do not change.
func fixedTrace(model string) traceReport {
	const us = time.Microsecond
	memory := traceMemory{}
	tensor := func(dims ...int) device.Tensor { return device.NewTensor(&memory, 0, device.F32, dims...) }
	unit := func(layer, pass int, start, took time.Duration, c device.Cost, calls ...device.Call) engine.Unit {
		u := engine.Unit{Start: start, Time: took, Cost: c}
		for _, c := range calls {
			u.Calls = append(u.Calls, engine.TracedCall{Call: c, Layer: layer, Pass: pass})
		}
		return u
	}
	attend := &device.Attend{Q: tensor(1, 4, 16)}
	units := []engine.Unit{
		unit(-1, 0, 0, 2*us, device.Cost{Bytes: 512}, &device.Embed{Dst: tensor(1, 64)}),
		unit(0, 0, 2*us, 90*us, device.Cost{Bytes: 2_000_000, Ops: 4_000_000, Int8: 4_000_000},
			&device.RMSNorm{Dst: tensor(1, 64)}, &device.MatMul{W: tensor(96, 64)}, &device.Discard{T: tensor(1, 64)}),
		unit(0, 0, 95*us, 25*us, device.Cost{Bytes: 250_000, Ops: 1_000_000}, attend),
		unit(1, 0, 120*us, 10*us, device.Cost{Bytes: 125_000, Ops: 500_000}, attend),
		unit(-1, 0, 131*us, 100*time.Nanosecond, device.Cost{}, &device.Gather{}),
	}
	units[1].Pattern = "norm, products"
	peaks := device.Roofline{Read: 25e9, Int8: 800e9, Float: 100e9, How: "by hand"}
	r := newBenchReport(model, []string{"dense"}, 1, eval.Machine{CPU: "a processor", Cores: 2, Device: "cpu (2 threads)", Roofline: peaks}, nil)
	return newTraceReport(r, []eval.Trace{
		{Task: eval.Task{Phase: eval.Decode, Len: 128}, Units: units, Untraced: 118 * us, Captured: true, Peaks: peaks},
		{Task: eval.Task{Phase: eval.Prefill, Len: 1}, Units: append(units[:1:1], unit(0, 1, 5*us, us, device.Cost{}, &device.Add{})), Untraced: 1500 * us},
	})
}

// traceMemory holds nothing.
type traceMemory struct{}

func (*traceMemory) Size() int { return 1 << 20 }

// TestTraceForms: each form, and names of files that a terminal would obey.
func TestTraceForms(t *testing.T) {
	for name, form := range map[string]string{"bench-trace.txt.golden": "a.txt", "bench-trace.json.golden": "a.json", "bench-trace-perfetto.json.golden": "A.TRACE.JSON"} {
		f, err := traceFormOf(form)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := f.write(&out, fixedTrace("a\x1b[31m\u202e\n.gguf")); err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, name, out.String())
		if strings.ContainsAny(out.String(), "\x1b\u202e") {
			t.Errorf("%s: a name reaches the terminal: %q", form, out.String())
		}
	}
}

// TestTraceOfAModel: rows add up, and slices lie in each other.
func TestTraceOfAModel(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	path := filepath.Join(t.TempDir(), "a.json")
	out := ok(t, "", "bench", "-m", model, "--prefill", "100", "--decode", "70", "--steps", "1", "--reps", "1",
		"--attn", "dense", "--attn", "streaming(sink=4,window=8)", "--density=false", "--trace", path)
	if !strings.Contains(out, "decode") {
		t.Errorf("the benchmark is gone: %q", out)
	}
	r := clitest.Decode[traceReport](t, clitest.ReadFile(t, path))
	titles := []string{}
	for i := range r.Traces {
		titles = append(titles, r.Traces[i].What)
		checkTrace(t, &r.Traces[i])
	}
	if want := []string{
		"a prefill of 100 tokens, attention dense", "a prefill of 100 tokens, attention streaming(sink=4,window=8)",
		"a decode step of 1 sequence behind 70 tokens, attention dense", "a decode step of 1 sequence behind 70 tokens, attention streaming(sink=4,window=8)",
	}; !slices.Equal(titles, want) {
		t.Errorf("traces %q, want %q", titles, want)
	}
	var events strings.Builder
	if err := writePerfetto(&events, r); err != nil {
		t.Fatal(err)
	}
	checkSlices(t, events.String(), len(titles))
}

// checkTrace: groups are the units, whose times are those of the whole.
func checkTrace(t *testing.T, r *traceOf) {
	t.Helper()
	counted, took, share, bytes := 0, 0., 0., map[string]int64{}
	for _, g := range r.Groups {
		counted += g.Count
		took += g.TimeUS
		share += g.Share
		bytes[g.Name] = g.Bytes
	}
	off := func(x, y float64) bool { return x < y-0.1 || x > y+0.1 }
	if counted != len(r.Units) || counted == 0 || off(took, r.SumUS) || off(share, 1) || r.SumUS > r.SpanUS+0.1 || r.UntracedUS <= 0 {
		t.Errorf("%s: %d of %d units in groups, %v of %v µs, shares of %v, of a span of %v µs and %v without a trace", r.What, counted, len(r.Units), took, r.SumUS, share, r.SpanUS, r.UntracedUS)
	}
	for _, u := range r.Units {
		bytes[u.Name] -= u.Bytes
		if u.Bytes <= 0 || u.LimitUS <= 0 || u.Bound == "" || len(u.Calls) == 0 || len(u.Calls[0].Operands) == 0 {
			t.Errorf("%s: %+v, want bytes, a limit and calls", r.What, u)
		}
	}
	for name, n := range bytes {
		if n != 0 {
			t.Errorf("%s: bytes of group %s are not those of its units", r.What, name)
		}
	}
}

// checkSlices: events are inside of, or beside each other.
func checkSlices(t *testing.T, text string, traces int) {
	t.Helper()
	var p struct {
		TraceEvents []struct {
			Name     string
			Ph       string
			Ts, Dur  float64
			PID, TID int
		}
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	processes := map[int]bool{}
	var open [][2]float64 // that the next event may lie in, the outer ones first
	for _, e := range p.TraceEvents {
		if e.Ph == "M" {
			processes[e.PID], open = true, nil
			continue
		}
		for len(open) > 0 && e.Ts >= open[len(open)-1][1]-1e-6 {
			open = open[:len(open)-1]
		}
		if n := len(open); e.Ph != "X" || e.Dur < 0 || n > 0 && (e.Ts < open[n-1][0]-1e-6 || e.Ts+e.Dur > open[n-1][1]+1e-6) || n > 2 || !processes[e.PID] {
			t.Errorf("%+v in %v", e, open)
		}
		open = append(open, [2]float64{e.Ts, e.Ts + e.Dur})
	}
	if len(processes) != traces {
		t.Errorf("%d processes, want one for each of %d traces", len(processes), traces)
	}
}

// TestTraceErrors: names that say no form, and files that cannot be written, are known before
// anything is measured; an interrupted run leaves no file.
func TestTraceErrors(t *testing.T) {
	model, dir := clitest.RandomModel(t, modeltest.Shape{}), t.TempDir()
	bench := func(path string) []string {
		return []string{"bench", "-m", model, "--prefill", "0", "--decode", "10", "--steps", "1", "--reps", "1", "--trace", path}
	}
	for _, name := range []string{"step.csv", "-", "step", "txt"} {
		fails(t, console.ExitUsage, []string{"--trace " + name, ".trace.json (for ui.perfetto.dev)", ".txt (a table)"}, "", bench(name)...)
	}
	missing := filepath.Join(dir, "missing", "step.txt")
	fails(t, console.ExitFailure, []string{"--trace " + missing, "a file that can be written"}, "", bench(missing)...)
	page := filepath.Join(dir, "page.txt")
	fails(t, console.ExitUsage, []string{"--trace", "--html"}, "", "bench", "-m", model, "--ctx", "64", "--html", page, "--trace", page)
	fails(t, console.ExitUsage, []string{`--trace ""`}, "", "bench", "-m", model, "--ctx", "64", "--trace", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs strings.Builder
	if code := testProgram(ctx, bench(filepath.Join(dir, "step.txt")), strings.NewReader(""), &out, &errs); code != console.ExitInterrupted {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("an interrupted run leaves %v, %v", left, err)
	}
}
