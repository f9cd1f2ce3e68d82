package cpu

import "github.com/gollm/gollm/device"

func (r *recorder) Reuse(l device.List, m device.Memo, scores, asked, q device.Tensor, kv device.KV, p device.Plan, w device.Widen) {
	r.add(func() { r.ops.Reuse(l, m, scores, asked, q, kv, p, w) })
}
