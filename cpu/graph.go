package cpu

import (
	"slices"

	"github.com/gollm/gollm/device"
)

// Capture records the calls of step without running them.
func (d *dev) Capture(step func(device.Ops)) (device.Graph, error) {
	r := &recorder{ops: d.ops}
	step(r)
	return &graph{ops: d.ops, calls: r.calls}, nil
}

// graph is a list of calls with the tensors they were captured with.
type graph struct {
	ops   *ops
	calls []func()
}

// Launch runs the calls in order.
func (g *graph) Launch() {
	for _, call := range g.calls {
		call()
	}
	g.ops.Flush()
}

// Close forgets the calls.
func (g *graph) Close() error {
	g.calls = nil
	return nil
}

// recorder is a device.Ops that keeps calls instead of running them.
type recorder struct {
	ops   *ops
	arena device.Arena
	calls []func()
}

func (r *recorder) add(call func()) { r.calls = append(r.calls, call) }

// The methods record; package device says what the calls do.

// Arena is the graph's own: its calls live as long as it does.
func (r *recorder) Arena() *device.Arena { return &r.arena }

// Do records a call.
func (r *recorder) Do(c device.Call) {
	c.Check()
	if s, ok := c.(*device.Sample); ok {
		s.Samplings = slices.Clone(s.Samplings) // the caller's own
	}
	r.add(func() { r.ops.Do(c) })
}

func (r *recorder) Scores(dst, q device.Tensor, kv device.KV, p device.Plan, part device.Part) {
	r.add(func() { r.ops.Scores(dst, q, kv, p, part) })
}

func (r *recorder) Softmax(dst, x device.Tensor, kv device.KV) {
	r.add(func() { r.ops.Softmax(dst, x, kv) })
}

func (r *recorder) SumHeads(dst, x device.Tensor, kv device.KV) {
	r.add(func() { r.ops.SumHeads(dst, x, kv) })
}

func (r *recorder) TopK(l device.List, scores device.Tensor, kv device.KV, k device.Amount) {
	r.add(func() { r.ops.TopK(l, scores, kv, k) })
}

func (r *recorder) TopP(l device.List, scores device.Tensor, kv device.KV, share float64) {
	r.add(func() { r.ops.TopP(l, scores, kv, share) })
}
