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

// What the device runs for a runner is looked at twice: call by call, for what each costs,
// and as it is run otherwise, for how long it takes.
//
//	c, err := r.TraceCalls()
//	// passes
//	calls, err := c.Stop()
//	u, err := r.TraceUnits(calls)
//	// the same passes
//	units, err := u.Stop()
//
// Nothing else may watch the passes meanwhile.

// TracedCall is a call of a pass and its cost.
type TracedCall struct {
	Call  device.Call
	Layer int // -1 outside of the layers
	Pass  int // of those that were traced, from 0 on: chunks of a prompt, or steps
	Cost  device.Cost
}

// Unit is what a backend computes at once in a pass: the calls that a pattern takes
// together, or one call.
type Unit struct {
	Pattern string       // empty for a call that no pattern took
	Calls   []TracedCall // at least one that computes something
	Cost    device.Cost  // of all of them together
	// Start is when it began, counted from the beginning of the first unit, and Time
	// how long it took: by the device's clock where it has one.
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

// CallTrace notes calls. They are run one by one, not as units: where calls are fused, a list
// that only they use may never be written, and nobody could say how long it is.
type CallTrace struct {
	runner *Runner
	calls  []TracedCall
	done   int // of calls
	layer  int // that is being queued
	pass   int
}

// TraceCalls begins to note the calls of the runner's passes.
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

// begin is a pass of the runner. t may be nil.
func (t *CallTrace) begin() {
	if t != nil {
		t.pass++
	}
}

// at is where the calls after this one belong: a layer, or -1. t may be nil.
func (t *CallTrace) at(layer int) {
	if t != nil {
		t.layer = layer
	}
}

// Queued keeps a copy of a call, whose own memory is used again.
func (t *CallTrace) Queued(c device.Call) {
	own := reflect.New(reflect.TypeOf(c).Elem())
	own.Elem().Set(reflect.ValueOf(c).Elem())
	t.calls = append(t.calls, TracedCall{Call: own.Interface().(device.Call), Layer: t.layer, Pass: t.pass})
}

// Begin does nothing.
func (*CallTrace) Begin() {}

// End counts what the call that was run costs, while the lists that it has are there.
func (t *CallTrace) End(string, []device.Call) {
	t.calls[t.done].Cost = t.calls[t.done].Call.Cost(t.stored)
	t.done++
}

// stored reads an i32 tensor back. A failure sticks to the device.
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
	from   time.Time    // the unit that is being begun, without a clock
	calls  []TracedCall // that are to come
	units  []Unit
	graphs []device.Graph // of the steps, with marks
	err    error
}

// TraceUnits begins to time what the device runs in passes whose calls are known.
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
		err = fmt.Errorf("engine: %d calls more were to come", len(t.calls))
	}
	return t.units, err
}

// eager reports whether decode steps are made call by call. t may be nil.
func (t *UnitTrace) eager() bool { return t != nil && t.clock == nil }

// replay captures a step with the marks around its units and launches it: call by call,
// short ones would take as long as the host takes to queue them.
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

// End notes a unit. Calls that compute nothing are none.
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

// take gives a unit its calls.
func (t *UnitTrace) take(u *Unit, calls []device.Call) {
	n := len(calls)
	for i, c := range calls {
		if t.err == nil && (i >= len(t.calls) || device.Name(t.calls[i].Call) != device.Name(c)) {
			t.err = fmt.Errorf("engine: the passes make other calls than before: %s, with %d calls known to come", device.Name(c), len(t.calls))
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
