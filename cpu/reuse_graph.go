package cpu

import "github.com/gollm/gollm/device"

func (r *recorder) Recall(m device.Memo, q device.Tensor, kv device.KV) {
	r.add(func() { r.ops.Recall(m, q, kv) })
}

func (r *recorder) Choose(m device.Memo, scores, q device.Tensor, kv device.KV, p device.Plan) {
	r.add(func() { r.ops.Choose(m, scores, q, kv, p) })
}

func (r *recorder) Reuse(l device.List, m device.Memo, kv device.KV, p device.Plan, w device.Widen) {
	r.add(func() { r.ops.Reuse(l, m, kv, p, w) })
}
