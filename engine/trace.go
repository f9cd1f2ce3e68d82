package engine

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/fusion"
)

// The passes of a runner are traced twice: call by call, for the cost of each, and fused as
// usual, for the time of each unit.
//
//	c, err := r.TraceCalls()
//	// passes
//	calls, err := c.Stop()
//	u, err := r.TraceUnits(calls)
//	// the same passes
//	units, err := u.Stop()
//
// No tracer may be set meanwhile.

// TracedCall is a call of a pass and its cost.
type TracedCall struct {
	Call  device.Call
	Layer int // -1 outside of the layers
	Pass  int // number of the traced pass, from 0 on: prefill chunks, or steps
	Cost  device.Cost
}

// Unit is the calls of a pass that a backend fuses by a pattern, or one call.
type Unit struct {
	Pattern string       // empty for a call that is not fused
	Calls   []TracedCall // at least one that computes something
	Cost    device.Cost  // of the unit, intermediate tensors left out
	// Start is counted from the beginning of the first unit, and Time is how long the unit
	// took: by the device's clock where it has one.
	Start, Time time.Duration
}

// Name is the name of the pattern, or of the call.
func (u *Unit) Name() string {
	if u.Pattern == "" || len(u.Calls) == 1 {
		return device.Name(u.Calls[0].Call)
	}
	return u.Pattern
}

// Layer is that of the first call.
func (u *Unit) Layer() int { return u.Calls[0].Layer }

// Pass is that of the first call.
func (u *Unit) Pass() int { return u.Calls[0].Pass }

// CallTrace records calls and their costs. They run one by one, without fusion: the list
// between two fused calls may never be written, and the cost depends on its length.
type CallTrace struct {
	runner *Runner
	calls  []TracedCall
	done   int // calls that have run
	layer  int // of the calls being queued
	pass   int
}

// TraceCalls begins to record the calls of the runner's passes.
func (r *Runner) TraceCalls() (*CallTrace, error) {
	t := &CallTrace{runner: r, layer: -1, pass: -1}
	if fusion.Observe(r.dev.Queue(), t, true) == nil {
		return nil, r.untraceable()
	}
	r.calls = t
	return t, nil
}

func (r *Runner) untraceable() error {
	return fmt.Errorf("engine: %s does not say what it runs", r.dev.Info().Name)
}

// Stop ends the trace and returns the calls, in order.
func (t *CallTrace) Stop() ([]TracedCall, error) {
	t.runner.calls = nil
	fusion.Observe(t.runner.dev.Queue(), nil, false)
	return t.calls, t.runner.dev.Sync()
}

// begin begins a pass. t may be nil.
func (t *CallTrace) begin() {
	if t != nil {
		t.pass++
	}
}

// at sets the layer of the calls from here on, or -1. t may be nil.
func (t *CallTrace) at(layer int) {
	if t != nil {
		t.layer = layer
	}
}

// Queued records a copy of a call, whose memory in the arena is reused.
func (t *CallTrace) Queued(c device.Call) {
	own := reflect.New(reflect.TypeOf(c).Elem())
	own.Elem().Set(reflect.ValueOf(c).Elem())
	t.calls = append(t.calls, TracedCall{Call: own.Interface().(device.Call), Layer: t.layer, Pass: t.pass})
}

// Begin does nothing.
func (*CallTrace) Begin() {}

// End computes the cost of the call that ran, while its lists are valid.
func (t *CallTrace) End(string, []device.Call) {
	t.calls[t.done].Cost = t.calls[t.done].Call.Cost(t.stored)
	t.done++
}

// stored copies an i32 tensor to the host. A failure sticks to the device.
func (t *CallTrace) stored(of device.Tensor) []int32 {
	numbers := make([]int32, of.Len())
	_ = read(t.runner.dev, numbers, of)
	return numbers
}

// UnitTrace times units.
type UnitTrace struct {
	runner *Runner
	clock  device.Clock // of a device whose calls return before they are done
	mark   func(i int)  // of clock
	began  time.Time    // the first unit, without a clock
	from   time.Time    // the unit that runs, without a clock
	calls  []TracedCall // expected next
	units  []Unit
	graphs []device.Graph // of the steps, with marks
	err    error
}

// TraceUnits begins to time the units of passes whose calls were recorded.
func (r *Runner) TraceUnits(calls []TracedCall) (*UnitTrace, error) {
	t := &UnitTrace{runner: r, calls: calls}
	t.clock, _ = r.dev.(device.Clock)
	if t.mark = fusion.Observe(r.dev.Queue(), t, false); t.mark == nil {
		return nil, r.untraceable()
	}
	r.units = t
	return t, nil
}

// Stop ends the trace. It waits, and returns the units in order.
func (t *UnitTrace) Stop() ([]Unit, error) {
	t.runner.units = nil
	fusion.Observe(t.runner.dev.Queue(), nil, false)
	err := errors.Join(t.runner.dev.Sync(), t.err)
	for _, g := range t.graphs {
		err = errors.Join(err, g.Close())
	}
	for i := range t.units {
		if t.clock == nil || err != nil {
			break
		}
		u := &t.units[i]
		if u.Start, err = t.clock.Between(0, 2*i); err == nil {
			u.Time, err = t.clock.Between(2*i, 2*i+1)
		}
	}
	if err == nil && len(t.calls) > 0 {
		err = fmt.Errorf("engine: the passes ended %d calls before those recorded", len(t.calls))
	}
	return t.units, err
}

// eager reports whether decode steps are eager. t may be nil.
func (t *UnitTrace) eager() bool { return t != nil && t.clock == nil }

// replay captures a step with the marks around its units and launches it: in an eager step
// the time of short units is that of queueing them on the host.
func (t *UnitTrace) replay(step func(device.Queue)) error {
	g, err := t.runner.dev.Capture(step)
	if err == nil {
		g.Launch()
		t.graphs = append(t.graphs, g)
	}
	return err
}

// Queued does nothing.
func (*UnitTrace) Queued(device.Call) {}

// Begin begins to time a unit.
func (t *UnitTrace) Begin() {
	if t.clock != nil {
		t.mark(2 * len(t.units))
		return
	}
	t.from = time.Now()
	if len(t.units) == 0 {
		t.began = t.from
	}
}

// End records a unit. Discards and marks alone are none.
func (t *UnitTrace) End(pattern string, calls []device.Call) {
	u := Unit{Pattern: pattern}
	if t.clock == nil {
		u.Start, u.Time = t.from.Sub(t.began), time.Since(t.from)
	} else if slices.ContainsFunc(calls, computes) {
		t.mark(2*len(t.units) + 1)
	}
	if t.take(&u, calls); slices.ContainsFunc(calls, computes) {
		t.units = append(t.units, u)
	}
}

// take moves the expected calls of a unit to it.
func (t *UnitTrace) take(u *Unit, calls []device.Call) {
	n := len(calls)
	for i, c := range calls {
		if t.err == nil && (i >= len(t.calls) || device.Name(t.calls[i].Call) != device.Name(c)) {
			t.err = fmt.Errorf("engine: the passes make other calls than those recorded: %s, with %d calls expected", device.Name(c), len(t.calls))
		}
	}
	if t.err != nil {
		return
	}
	u.Calls, t.calls = t.calls[:n:n], t.calls[n:]
	costs := make([]device.Cost, n)
	for i := range costs {
		costs[i] = u.Calls[i].Cost
	}
	u.Cost = device.CostOf(calls, costs)
}

// computes reports whether a call computes anything.
func computes(c device.Call) bool {
	switch c.(type) {
	case *device.Discard, *device.Mark:
		return false
	}
	return true
}
