package cpu

import "github.com/gollm/gollm/device"

func (r *recorder) HashKeys(h device.Hash, kv device.KV) {
	r.add(func() { r.ops.HashKeys(h, kv) })
}

func (r *recorder) ListCollisions(l device.List, h device.Hash, q device.Tensor, kv device.KV, p device.Plan) {
	r.add(func() { r.ops.ListCollisions(l, h, q, kv, p) })
}
