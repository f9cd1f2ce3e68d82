package cpu

import "github.com/gollm/gollm/device"

// The operations on lines, recorded; see graph.go.

func (r *recorder) LineSums(columns, diagonals, q device.Tensor, kv device.KV, f device.First) {
	r.add(func() { r.ops.LineSums(columns, diagonals, q, kv, f) })
}

func (r *recorder) ListLines(l, columns, diagonals device.List, kv device.KV, rows int) {
	r.add(func() { r.ops.ListLines(l, columns, diagonals, kv, rows) })
}

func (r *recorder) MeanKeys(dst device.Tensor, kv device.KV, block int) {
	r.add(func() { r.ops.MeanKeys(dst, kv, block) })
}

func (r *recorder) Agree(m device.Means, columns, q device.Tensor, kv device.KV, near float64) {
	r.add(func() { r.ops.Agree(m, columns, q, kv, near) })
}

func (r *recorder) TopLines(l device.List, x device.Tensor, kv device.KV, c device.Cover, agree device.Tensor) {
	r.add(func() { r.ops.TopLines(l, x, kv, c, agree) })
}

func (r *recorder) ListBlocks(l, columns, diagonals device.List, kv device.KV, m device.Means) {
	r.add(func() { r.ops.ListBlocks(l, columns, diagonals, kv, m) })
}
