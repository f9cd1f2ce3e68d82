package eval

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
)

// fixedTrace is a trace whose figures are known.
func fixedTrace() *Trace {
	unit := func(pattern string, start, took time.Duration, c device.Cost, calls ...engine.TracedCall) engine.Unit {
		return engine.Unit{Pattern: pattern, Start: start, Time: took, Cost: c, Calls: calls}
	}
	const ms = time.Millisecond
	norm, product := engine.TracedCall{Call: &device.RMSNorm{}}, engine.TracedCall{Call: &device.MatMul{}}
	return &Trace{Peaks: device.Roofline{Read: 1 << 30, Int8: 100e9, Float: 10e9}, Units: []engine.Unit{
		unit("", 2*ms, ms, device.Cost{Bytes: 1 << 18, Ops: 1e3}, norm),
		unit("products", 4*ms, 5*ms, device.Cost{Bytes: 2 << 20, Ops: 1e8, Int8: 1e8}, product, product),
		unit("products", 9*ms, ms, device.Cost{Bytes: 1e3, Ops: 5e6}, product),
		unit("", 10*ms, 3*ms, device.Cost{Bytes: 1 << 19}, norm),
	}}
}

// TestTraceGroups: units of one name are together, those that took longest first; a pattern
// of one call has the name of the call.
func TestTraceGroups(t *testing.T) {
	const ms = time.Millisecond
	trace := fixedTrace()
	want := []TraceGroup{
		{Name: "products", Count: 1, Time: 5 * ms, Cost: device.Cost{Bytes: 2 << 20, Ops: 1e8, Int8: 1e8}, Limit: 2. / 1024},
		{Name: "RMSNorm", Count: 2, Time: 4 * ms, Cost: device.Cost{Bytes: 3 << 18, Ops: 1e3}, Limit: 3. / 4096},
		{Name: "MatMul", Count: 1, Time: ms, Cost: device.Cost{Bytes: 1e3, Ops: 5e6}, Limit: 0.0005},
	}
	if got := trace.Groups(); !reflect.DeepEqual(got, want) {
		t.Errorf("groups %+v\nwant %+v", got, want)
	}
	if trace.Sum() != 10*ms || trace.Span() != 11*ms {
		t.Errorf("sum %v and span %v, want 10ms and 11ms", trace.Sum(), trace.Span())
	}
}

// TestTraceLimit: the roofline is the larger of both, with integer products at their own
// rate, and nothing where the rates are unknown.
func TestTraceLimit(t *testing.T) {
	trace := fixedTrace()
	for _, c := range []struct {
		cost    device.Cost
		seconds float64
		bound   string
	}{
		{device.Cost{Bytes: 2 << 30, Ops: 1e9}, 2, "memory"},
		{device.Cost{Bytes: 1e9, Ops: 30e9}, 3, "compute"},
		{device.Cost{}, 0, ""},
		{device.Cost{Bytes: 1e9, Ops: 230e9, Int8: 200e9}, 5, "compute"},
	} {
		if seconds, bound := trace.Limit(c.cost); seconds != c.seconds || bound != c.bound {
			t.Errorf("%+v: %v s by %s, want %v by %s", c.cost, seconds, bound, c.seconds, c.bound)
		}
	}
	if seconds, bound := new(Trace).Limit(device.Cost{Bytes: 1}); seconds != 0 || bound != "" {
		t.Errorf("without peaks: %v s by %q", seconds, bound)
	}
}

// TestMeasureTrace traces a prompt of several passes and a step of two sequences, on two
// sides in turns.
func TestMeasureTrace(t *testing.T) {
	e, _, _ := open(t, modeltest.Shape{Context: 4096}, 64)
	side := Side{Open: func(context, slots int) (*engine.Runner, error) {
		return e.NewRunner(engine.Config{Context: context, Slots: slots})
	}}
	measured := []Speed{
		{Task: Task{Prefill, engine.ChunkLen + 10}, TokS: 1000}, {Task: Task{Prefill, 5}, Side: 1},
		{Task: Task{Decode, 1}}, {Task: Task{Decode, 70}, Side: 1, TokS: 100},
	}
	o := SpeedOptions{Steps: 1, Reps: 2, Batch: 2, Tasks: []Task{{Prefill, engine.ChunkLen + 10}, {Decode, 70}}}
	traces, err := MeasureTrace(t.Context(), []Side{side, side}, e.Model.Vocab, measured, device.Roofline{}, o)
	if err != nil || len(traces) != len(measured) {
		t.Fatalf("%d traces, %v; want %d", len(traces), err, len(measured))
	}
	for i, want := range []struct {
		untraced time.Duration
		passes   int
		rows     int // of the last pass
	}{{2058 * time.Millisecond, 2, 10}, {0, 1, 5}, {0, 1, 2}, {20 * time.Millisecond, 1, 2}} {
		got := &traces[i]
		passes := map[int]int{}
		var attends []engine.Unit
		for _, u := range got.Units {
			passes[u.Pass()]++
			if u.Name() == "Attend" {
				attends = append(attends, u)
			}
		}
		if got.Task != measured[i].Task || got.Side != measured[i].Side || got.Untraced != want.untraced || len(passes) != want.passes {
			t.Errorf("%+v: trace of %+v on side %d, untraced %v, %d passes; want %+v", measured[i].Task, got.Task, got.Side, got.Untraced, len(passes), want)
		}
		if len(attends) != want.passes*e.Model.Layers {
			t.Fatalf("%+v: %d calls of attention, want one a pass and layer", got.Task, len(attends))
		}
		last := attends[len(attends)-1]
		if rows := last.Calls[0].Call.(*device.Attend).Q.Dim(0); rows != want.rows {
			t.Errorf("%+v: %d rows in the last pass, want %d", got.Task, rows, want.rows)
		}
		if stored := got.Len + 1; got.Phase == Decode && last.Cost.Ops != int64(2*4*stored*e.Model.Heads*e.Model.HeadDim) {
			t.Errorf("%+v: a step of two sequences has %d operations of attention behind %d", got.Task, last.Cost.Ops, got.Len)
		}
		if !slices.ContainsFunc(got.Units, func(u engine.Unit) bool { return u.Time > 0 }) {
			t.Errorf("%+v: no unit took any time", got.Task)
		}
	}
}

// countdown is a context that is done after it was asked some times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestTraceStops: a trace that is interrupted, wherever it is, says so.
func TestTraceStops(t *testing.T) {
	e, _, _ := open(t, modeltest.Shape{}, 64)
	side := Side{Open: func(context, slots int) (*engine.Runner, error) {
		return e.NewRunner(engine.Config{Context: context, Slots: slots})
	}}
	measured := []Speed{{Task: Task{Prefill, 70}}, {Task: Task{Decode, 70}}}
	stopped := 0
	for ; ; stopped++ {
		ctx := &countdown{t.Context(), stopped}
		o := SpeedOptions{Steps: 1, Reps: 1, Tasks: []Task{measured[1].Task}}
		_, err := MeasureTrace(ctx, []Side{side}, e.Model.Vocab, measured, device.Roofline{}, o)
		if err == nil {
			break
		}
		if err != context.Canceled {
			t.Fatalf("stopped after %d questions: %v, want %v", stopped, err, context.Canceled)
		}
	}
	if stopped < 10 {
		t.Errorf("a trace asks %d times whether it shall stop", stopped)
	}
}
