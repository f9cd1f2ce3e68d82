package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// rope rotates the pairs of each head in place by pos times the pair's frequency. Elements
// behind the pairs (partial rotary embedding) stay as they are.
func (o *ops) rope(c *device.Rope) {
	x, pos, r := c.X, c.Pos, &c.Rotation
	rows, heads, dim, pairs := x.Dim(0), x.Dim(1), x.Dim(2), r.Freqs.Dim(0)
	o.tasks.rope.fill(i32s(pos), f32s(r.Freqs), r.Scale)
	o.tasks.rotate = rotateTask{x: f32s(x), heads: heads, dim: dim, table: &o.tasks.rope, pairs: pairs, rotate: o.vec.RotateHalves}
	if r.Interleaved {
		o.tasks.rotate.rotate = o.vec.RotatePairs
	}
	o.runRows(rows, heads*dim, &o.tasks.rotate)
}

// rotateTask is Rope of rows.
type rotateTask struct {
	x                 []float32 // [rows, heads, dim]
	heads, dim, pairs int
	table             *ropeTable
	rotate            func(x, cos, sin []float32)
}

// Do rotates rows lo to hi-1.
func (t *rotateTask) Do(_, lo, hi int) {
	for r := lo; r < hi; r++ {
		cos, sin := row(t.table.cos, r, t.pairs), row(t.table.sin, r, t.pairs)
		for h := range t.heads {
			t.rotate(row(t.x, r*t.heads+h, t.dim)[:2*t.pairs], cos, sin)
		}
	}
}

// ropeTable is a cache of the cosines and sines of the last call: every layer of a pass needs
// the same ones twice. It is keyed by values, never by addresses.
type ropeTable struct {
	pos      []int32
	freqs    []float32
	scale    float32
	cos, sin []float32 // [rows, pairs], times scale
}

// fill computes the table of these positions and frequencies. Angles, sines and cosines are in
// float64: at position 1,000,000 an angle in float32 would be off by 0.03.
func (t *ropeTable) fill(pos []int32, freqs []float32, scale float32) {
	if t.scale == scale && slices.Equal(t.pos, pos) && slices.Equal(t.freqs, freqs) {
		return
	}
	t.pos = append(t.pos[:0], pos...)
	t.freqs = append(t.freqs[:0], freqs...)
	t.scale = scale
	n := len(pos) * len(freqs)
	t.cos = slices.Grow(t.cos[:0], n)[:n]
	t.sin = slices.Grow(t.sin[:0], n)[:n]
	for i, p := range pos {
		for j, f := range freqs {
			sin, cos := math.Sincos(float64(p) * float64(f))
			t.cos[i*len(freqs)+j] = float32(cos * float64(scale))
			t.sin[i*len(freqs)+j] = float32(sin * float64(scale))
		}
	}
}
