package cpu

import "github.com/gollm/gollm/device"

func (r *recorder) SampleTail(l device.List, q device.Tensor, kv device.KV, p device.Plan, t device.Tail) {
	r.add(func() { r.ops.SampleTail(l, q, kv, p, t) })
}

func (r *recorder) MaxHeads(dst, x device.Tensor, kv device.KV) {
	r.add(func() { r.ops.MaxHeads(dst, x, kv) })
}
