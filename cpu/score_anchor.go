package cpu

import (
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// anchorRows is how many rows an item of AnchorMax has.
const anchorRows = 48

// anchorTask is AnchorMax: item i is kv head i%kvheads of tile i/kvheads of rows.
type anchorTask struct {
	keyTiles
	dst            []float32 // [rows, heads]
	perSlot, tiles int       // rows, and tiles of rows, of a slot
}

// anchorMax is the largest score of each row over the sinks and the recent window.
func (o *ops) anchorMax(c *device.Score) {
	t := &o.tasks.anchorMax
	t.perSlot = device.RowsPerSlot("AnchorMax", c.Q.Dim(0), c.KV)
	t.reset(o, c.Q, c.KV, c.Plan, min(anchorRows, t.perSlot))
	t.dst, t.tiles = f32s(c.Dst), (t.perSlot+anchorRows-1)/anchorRows
	o.pool.RunChunks(c.KV.Len.Dim(0)*t.tiles*t.pages.heads, 1, t)
}

// Do computes items lo to hi-1.
func (t *anchorTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		tile, kvHead := i/t.pages.heads, i%t.pages.heads
		slot := tile / t.tiles
		first, ok := t.o.first("AnchorMax", &t.pages, slot, t.perSlot)
		if ok {
			at := tile % t.tiles * anchorRows
			t.tile(&t.scratch[worker], slot, first, at, min(anchorRows, t.perSlot-at), kvHead)
		}
	}
}

// tile computes n rows of a slot from its row at on.
func (t *anchorTask) tile(s *keyScratch, slot, first, at, n, kvHead int) {
	row0, p := slot*t.perSlot+at, first+at
	t.load(s, row0, n, kvHead)
	for i := range s.top {
		s.top[i] = negInf
	}
	last, e := p+n-1, t.mask.alwaysPages(p)
	for b := 0; b <= last/device.PageLen; b++ {
		if !e.has(b) {
			continue
		}
		page := t.o.page(&t.pages, slot, b)
		if page < 0 {
			return
		}
		t.multiply(s, page, kvHead, min(last+1-b*device.PageLen, device.PageLen), n)
		for i := range n {
			seen := t.mask.spannedBits(p+i, b) & t.mask.alwaysBits(p+i, b)
			for r := i * t.group; r < (i+1)*t.group; r++ {
				var nans int
				s.top[r], nans = maskedMax(s.top[r], row(s.scores, r, vec.Tile), seen)
				s.nans += nans
			}
		}
	}
	t.o.d.sawNaNs(&s.nans)
	for i := range n {
		out := row(t.dst, row0+i, t.heads)[kvHead*t.group:]
		for u := range t.group {
			out[u] = s.top[i*t.group+u] * t.scale
		}
	}
}

// maskedMax is the largest of top and of the scores whose bits are set, and how many of these
// scores are NaN.
func maskedMax(top float32, scores []float32, seen uint64) (largest float32, nans int) {
	if seen == ^uint64(0) {
		for _, x := range scores {
			if x > top {
				top = x
			} else if x != x {
				nans++
			}
		}
		return top, nans
	}
	for ; seen != 0; seen &= seen - 1 {
		if x := scores[bits.TrailingZeros64(seen)]; x > top {
			top = x
		} else if x != x {
			nans++
		}
	}
	return top, nans
}
