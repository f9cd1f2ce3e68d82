package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// rotate rotates pairs of each head in place by pos times the pair's frequency.
// Elements beyond the pairs stay as they are.
func (o *ops) rotate(c *device.Rope) {
	x, pos, r := c.X, c.Pos, &c.Rotation
	rows, heads, dim, pairs := x.Dim(0), x.Dim(1), x.Dim(2), r.Freqs.Dim(0)
	o.rope.fill(i32s(pos), f32s(r.Freqs), r.Scale)
	o.turn = turnTask{x: f32s(x), heads: heads, dim: dim, table: &o.rope, pairs: pairs, rotate: o.vec.RotateHalves}
	if r.Interleaved {
		o.turn.rotate = o.vec.RotatePairs
	}
	o.runRows(rows, heads*dim, &o.turn)
}

// turnTask rotates rows.
type turnTask struct {
	x                 []float32 // [rows, heads, dim]
	heads, dim, pairs int
	table             *ropeTable
	rotate            func(x, cos, sin []float32)
}

// Do rotates rows lo to hi-1.
func (t *turnTask) Do(_, lo, hi int) {
	for r := lo; r < hi; r++ {
		cos, sin := row(t.table.cos, r, t.pairs), row(t.table.sin, r, t.pairs)
		for h := range t.heads {
			t.rotate(row(t.x, r*t.heads+h, t.dim)[:2*t.pairs], cos, sin)
		}
	}
}

// ropeTable holds the rotations of the last call, because every layer of a pass
// asks for the same ones twice. It is keyed by values, never by addresses.
type ropeTable struct {
	pos      []int32
	freqs    []float32
	scale    float32
	cos, sin []float32 // [rows, pairs], times scale
}

// fill makes the table the one of these positions and frequencies. The product
// and the functions are in float64: at position 1,000,000 an angle in float32
// would be wrong by 0.03.
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
