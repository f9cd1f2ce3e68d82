package cpu

import "github.com/gollm/gollm/device"

// The operations on blocks, recorded; see graph.go.

func (r *recorder) BlockSum(sum, x device.Tensor, kv device.KV) {
	r.add(func() { r.ops.BlockSum(sum, x, kv) })
}

func (r *recorder) SketchMeans(dst, sum, basis device.Tensor, at device.Newest) {
	r.add(func() { r.ops.SketchMeans(dst, sum, basis, at) })
}

func (r *recorder) SketchRows(dst, x, basis device.Tensor, kv device.KV) {
	r.add(func() { r.ops.SketchRows(dst, x, basis, kv) })
}

func (r *recorder) CompareBlocks(dst, q, k device.Tensor, at device.Newest, c device.Compare) {
	r.add(func() { r.ops.CompareBlocks(dst, q, k, at, c) })
}

func (r *recorder) Walk(dst, src, pairs device.Tensor, at device.Newest, exponent int) {
	r.add(func() { r.ops.Walk(dst, src, pairs, at, exponent) })
}

func (r *recorder) TopBlocks(l device.List, rows device.Tensor, at device.Newest, p device.Pick) {
	r.add(func() { r.ops.TopBlocks(l, rows, at, p) })
}
