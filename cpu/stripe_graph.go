package cpu

import "github.com/gollm/gollm/device"

func (r *recorder) EdgeMax(dst, q device.Tensor, kv device.KV, p device.Plan) {
	r.add(func() { r.ops.EdgeMax(dst, q, kv, p) })
}

func (r *recorder) MeanRows(dst, x device.Tensor, kv device.KV, block int) {
	r.add(func() { r.ops.MeanRows(dst, x, kv, block) })
}

func (r *recorder) ListNear(l device.List, q, top device.Tensor, kv device.KV, p device.Plan, n device.Near) {
	r.add(func() { r.ops.ListNear(l, q, top, kv, p, n) })
}
