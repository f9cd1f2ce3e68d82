package cpu

import "github.com/gollm/gollm/device"

// The operations on bounds, recorded; see graph.go.

func (r *recorder) KeyBounds(bounds device.Tensor, at device.Newest) {
	r.add(func() { r.ops.KeyBounds(bounds, at) })
}

func (r *recorder) BoundScores(dst, q, bounds device.Tensor, kv device.KV) {
	r.add(func() { r.ops.BoundScores(dst, q, bounds, kv) })
}

func (r *recorder) TopParts(l device.List, scores device.Tensor, kv device.KV, parts int, t device.Parts) {
	r.add(func() { r.ops.TopParts(l, scores, kv, parts, t) })
}
