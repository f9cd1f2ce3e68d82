package cpu

import "github.com/gollm/gollm/device"

func (r *recorder) SampleValues(l device.List, q device.Tensor, kv device.KV, p device.Plan, d device.Draws) {
	r.add(func() { r.ops.SampleValues(l, q, kv, p, d) })
}

func (r *recorder) SampleFeatures(dst, q device.Tensor, kv device.KV, f device.Features) {
	r.add(func() { r.ops.SampleFeatures(dst, q, kv, f) })
}
