package cpu

import "github.com/gollm/gollm/device"

func (r *recorder) AddWeights(sum, q device.Tensor, kv device.KV, p device.Plan) {
	r.add(func() { r.ops.AddWeights(sum, q, kv, p) })
}

func (r *recorder) KeepBest(l device.List, sum device.Tensor, kv device.KV, p device.Plan, k device.Keep) {
	r.add(func() { r.ops.KeepBest(l, sum, kv, p, k) })
}
