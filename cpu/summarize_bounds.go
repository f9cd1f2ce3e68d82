package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
)

// keyBoundsTask is KeyBounds: item i is block i of the call.
type keyBoundsTask struct {
	o      *ops
	pages  pages
	bounds []byte // [pages, kvheads, parts, 2·dim]: minima, then maxima
	parts  int    // of a page
	blocks []callBlock

	scratch [][]float32 // by worker: [3, dim]: a key, minima, maxima
}

// keyBounds computes the per-channel bounds of the sub-pages that hold the newest positions.
func (o *ops) keyBounds(c *device.Summarize) {
	t := &o.tasks.keyBounds
	t.o, t.pages, t.bounds, t.parts = o, newPages(c.KV), bytesOf(c.Dst), c.Dst.Dim(2)
	t.blocks = t.blocks[:0]
	o.eachBlock("KeyBounds", c.KV, c.Rows, touched, func(b callBlock) { t.blocks = append(t.blocks, b) })
	t.scratch = perWorker(o.pool, t.scratch)
	for i := range t.scratch {
		grown(&t.scratch[i], 3*t.pages.dim)
	}
	o.pool.RunChunks(len(t.blocks), 4, t)
}

// Do computes the bounds of blocks lo to hi-1.
func (t *keyBoundsTask) Do(worker, lo, hi int) {
	size, dim := device.PageLen/t.parts, t.pages.dim
	for _, b := range t.blocks[lo:hi] {
		from := max(b.first-b.index*device.PageLen, 0) / size * size
		for h := range t.pages.heads {
			for at := from; at < b.positions(); at += size {
				s := t.scratch[worker]
				t.bound(s[dim:3*dim], s[:dim], b.page, h, at, min(at+size, b.positions()))
				to := ((b.page*t.pages.heads+h)*t.parts + at/size) * 2 * dim
				t.o.store(t.bounds, to, s[dim:3*dim], t.pages.half)
			}
		}
	}
}

// bound sets dst to the minima and the maxima of keys lo to hi-1 of a page, channel by
// channel. k is scratch for a key.
func (t *keyBoundsTask) bound(dst, k []float32, page, head, lo, hi int) {
	low, high := dst[:len(k)], dst[len(k):2*len(k)]
	for i := range low {
		low[i], high[i] = float32(math.Inf(1)), negInf
	}
	for j := lo; j < hi; j++ {
		t.o.load(k, t.pages.k, t.pages.element(page, head, j), t.pages.half)
		for i, x := range k {
			if x < low[i] {
				low[i] = x
			}
			if x > high[i] {
				high[i] = x
			}
		}
	}
}
