package cpu

import (
	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// keySigns stores the sign bits of the network's outputs for the rows' keys at their
// positions.
func (o *ops) keySigns(c *device.Summarize) {
	t := &o.tasks.keySigns
	t.signNet = o.signNet(c.Net, t.signNet)
	t.o, t.pages, t.signs, t.x = o, newPages(c.KV), i32s(c.Dst), f32s(c.X)
	t.rows, t.heads, t.dim = c.X.Dim(0), c.X.Dim(1), c.X.Dim(2)
	t.perSlot = device.RowsPerSlot("KeySigns", t.rows, c.KV)
	tiles := (t.rows + vec.Tile - 1) / vec.Tile
	o.pool.RunChunks(tiles*t.groups, 1, t)
}

// keySignsTask is KeySigns: item i is head group i%groups of tile i/groups of rows.
type keySignsTask struct {
	signNet
	o                *ops
	pages            pages
	signs            []int32   // [pages, groups, PageLen, words]
	x                []float32 // [rows, heads, dim]
	rows, heads, dim int
	perSlot          int // rows of a slot
}

// Do encodes items lo to hi-1.
func (t *keySignsTask) Do(worker, lo, hi int) {
	s := &t.scratch[worker]
	for i := lo; i < hi; i++ {
		group, first := i%t.groups, i/t.groups*vec.Tile
		n := min(vec.Tile, t.rows-first)
		for r := range n {
			copy(s.x[r*t.dim:], row(t.x, (first+r)*t.heads+group*t.heads/t.groups, t.dim))
		}
		y, width := t.run(t.o, s, group, n)
		for r := range n {
			t.store(first+r, group, row(y, r, width))
		}
	}
}

// store writes the sign bits of row r, whose network output is y.
func (t *keySignsTask) store(r, group int, y []float32) {
	slot := r / t.perSlot
	first, ok := t.o.first("KeySigns", &t.pages, slot, t.perSlot)
	if !ok {
		return
	}
	p := first + r%t.perSlot
	if page := t.o.page(&t.pages, slot, p/device.PageLen); page >= 0 {
		signsOf(row(t.signs, (page*t.groups+group)*device.PageLen+p%device.PageLen, t.words), y)
	}
}
