package cpu

import (
	"slices"

	"github.com/gollm/gollm/device"
)

// Capture records the calls of step without running them.
func (d *dev) Capture(step func(device.Ops)) (device.Graph, error) {
	r := &recorder{ops: d.ops}
	step(r)
	return &graph{calls: r.calls}, nil
}

// graph is a list of calls with the tensors they were captured with.
type graph struct{ calls []func() }

// Launch runs the calls in order.
func (g *graph) Launch() {
	for _, call := range g.calls {
		call()
	}
}

// Close forgets the calls.
func (g *graph) Close() error {
	g.calls = nil
	return nil
}

// recorder is a device.Ops that keeps calls instead of running them.
type recorder struct {
	ops   *ops
	calls []func()
}

func (r *recorder) add(call func()) { r.calls = append(r.calls, call) }

// The methods record; package device says what the calls do.

func (r *recorder) Embed(dst, table, ids device.Tensor) {
	r.add(func() { r.ops.Embed(dst, table, ids) })
}

func (r *recorder) Gather(dst, src, rows device.Tensor) {
	r.add(func() { r.ops.Gather(dst, src, rows) })
}

func (r *recorder) Copy(dst, src device.Tensor) { r.add(func() { r.ops.Copy(dst, src) }) }

func (r *recorder) Add(dst, x device.Tensor) { r.add(func() { r.ops.Add(dst, x) }) }

func (r *recorder) RMSNorm(dst, x, w device.Tensor, eps float32) {
	r.add(func() { r.ops.RMSNorm(dst, x, w, eps) })
}

func (r *recorder) Rope(x, pos device.Tensor, p device.Rope) {
	r.add(func() { r.ops.Rope(x, pos, p) })
}

func (r *recorder) SwiGLU(dst, gate, up device.Tensor) {
	r.add(func() { r.ops.SwiGLU(dst, gate, up) })
}

func (r *recorder) MatMul(dst, x, w device.Tensor) { r.add(func() { r.ops.MatMul(dst, x, w) }) }

func (r *recorder) MatMuls(dst []device.Tensor, x device.Tensor, w []device.Tensor) {
	dst, w = slices.Clone(dst), slices.Clone(w)
	r.add(func() { r.ops.MatMuls(dst, x, w) })
}

func (r *recorder) Sample(next, logits, history, pos device.Tensor, s []device.Sampling) {
	s = slices.Clone(s)
	r.add(func() { r.ops.Sample(next, logits, history, pos, s) })
}

func (r *recorder) Append(kv device.KV, k, v device.Tensor) {
	r.add(func() { r.ops.Append(kv, k, v) })
}

func (r *recorder) Attend(dst, q device.Tensor, kv device.KV, p device.Plan) {
	r.add(func() { r.ops.Attend(dst, q, kv, p) })
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
