package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// exactScores is q·k/√dim over a part of what each row sees, -Inf elsewhere. Where
// that part does not depend on lists, the keys of a page are read once for the
// heads of a kv head and for all rows of a slot.
func (o *ops) exactScores(dst, q device.Tensor, kv device.KV, p device.Plan, part device.Region) {
	const op = "Scores"
	rows, heads, dim := q.Dim(0), q.Dim(1), q.Dim(2)
	if part == device.Planned {
		o.scoresByWeight(dst, q, kv, p)
		return
	}
	if rows == 0 {
		return
	}
	t := &o.score
	*t = scoreTask{
		o: o, pages: newPages(kv), reach: reach{p}, part: part, perSlot: device.RowsPerSlot(op, rows, kv),
		dst: f32s(dst), q: f32s(q), heads: heads, dim: dim, width: dst.Dim(2), scratch: t.scratch,
	}
	longest := 0
	for slot, n := range t.pages.lengths {
		if _, ok := o.first(op, &t.pages, slot, t.perSlot); ok {
			longest = max(longest, int(n))
		}
	}
	if longest > t.width {
		o.d.fail("%s: position %d in scores of %d", op, longest-1, t.width)
		return
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, scoreScratch{})
	}
	group := heads / t.pages.heads
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.tile = grown(&s.q, t.perSlot*group*dim), grown(&s.tile, group*vec.Tile)
	}
	t.parts = (longest + scorePages*device.PageLen - 1) / (scorePages * device.PageLen)
	o.pool.RunChunks(kv.Len.Dim(0)*t.pages.heads*t.parts, 1, t)
}

// scorePages is how many pages an item of Scores takes.
const scorePages = 16

// scoreTask is Scores: item i is some pages of a kv head of a slot.
type scoreTask struct {
	o       *ops
	pages   pages
	reach   reach
	part    device.Region
	perSlot int       // rows of a slot
	dst     []float32 // [rows, heads, width]
	q       []float32 // [rows, heads, dim]
	heads   int
	dim     int
	width   int
	parts   int // items of a kv head

	scratch []scoreScratch
}

// scoreScratch is what one worker needs.
type scoreScratch struct {
	q    []float32 // [rows of a slot, heads of a kv head, dim], scaled
	tile []float32 // [heads of a kv head, vec.Tile]
}

// Do scores items lo to hi-1.
func (t *scoreTask) Do(worker, lo, hi int) {
	s, kvHeads := &t.scratch[worker], t.pages.heads
	for i := lo; i < hi; i++ {
		slot, kvHead := i/t.parts/kvHeads, i/t.parts%kvHeads
		first, ok := t.o.first("Scores", &t.pages, slot, t.perSlot)
		from := i % t.parts * scorePages
		to := min(from+scorePages, (first+t.perSlot-1)/device.PageLen+1)
		if !ok || from >= to {
			continue
		}
		t.load(s, slot, kvHead)
		for b := from; b < to; b++ {
			t.page(s, slot, kvHead, first, b, b+1 < to)
		}
	}
}

// load scales the queries of a slot and a kv head.
func (t *scoreTask) load(s *scoreScratch, slot, kvHead int) {
	group := t.heads / t.pages.heads
	scale, _ := split(t.dim)
	for r := range t.perSlot {
		from := t.q[((slot*t.perSlot+r)*t.heads+kvHead*group)*t.dim:]
		scaled(row(s.q, r, group*t.dim), from, scale)
	}
}

// split is 1/√dim as a factor of queries and one of products. Products that are
// the same must stay the same, so that queries are only scaled by powers of two.
func split(dim int) (query, product float32) {
	scale := 1 / math.Sqrt(float64(dim))
	if f, _ := math.Frexp(scale); f == 0.5 {
		return float32(scale), 1
	}
	return 1, float32(scale)
}

// ones is a tile of weights that change nothing.
var ones = func() (w [vec.Tile]float32) {
	for i := range w {
		w[i] = 1
	}
	return w
}()

// rescale sets dst to x times scale, at most a tile of them.
func rescale(k *vec.Kernels, dst, x []float32, scale float32) {
	if scale == 1 {
		copy(dst, x)
		return
	}
	k.ScaleMul(dst, x[:len(dst)], ones[:len(dst)], scale)
}

// scaled sets dst to the beginning of x times scale.
func scaled(dst, x []float32, scale float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * scale
	}
}

// page scores block b for the rows of a slot, the first of them at position
// first. more says that the next block follows.
func (t *scoreTask) page(s *scoreScratch, slot, kvHead, first, b int, more bool) {
	group, kernel := t.heads/t.pages.heads, t.o.vec.Scores
	if t.dim%vec.Multiple != 0 {
		kernel = vec.Go.Scores
	}
	at := b * device.PageLen
	_, after := split(t.dim)
	page, ahead := t.o.page(&t.pages, slot, b), vec.Rows{}
	if more {
		if next := t.o.page(&t.pages, slot, b+1); next >= 0 {
			ahead = t.pages.rows(t.pages.k, next, kvHead, 0, device.PageLen)
		}
	}
	for r := max(at-first, 0); r < t.perSlot; r++ {
		n := min(first+r+1-at, device.PageLen)
		seen := t.bits(first+r, b)
		if page < 0 {
			seen = 0
		}
		if seen != 0 {
			keys := t.pages.rows(t.pages.k, page, kvHead, 0, device.PageLen)
			kernel(s.tile, s.q[r*group*t.dim:], keys, ahead, group, n, t.dim)
			ahead = vec.Rows{} // once is enough
		}
		for h := range group {
			out := row(t.dst, (slot*t.perSlot+r)*t.heads+kvHead*group+h, t.width)[at : at+n]
			rescale(t.o.vec, out, row(s.tile, h, vec.Tile), after)
			hideBits(out, seen)
		}
	}
}

// hideBits makes -Inf the elements whose bits are not set.
func hideBits(x []float32, set uint64) {
	switch set {
	case 0:
		copy(x, unseen[:])
	case ^uint64(0) >> (64 - len(x)):
	default:
		for i := range x {
			if set>>i&1 == 0 {
				x[i] = negInf
			}
		}
	}
}

// bits is which positions of block b the row at p scores.
func (t *scoreTask) bits(p, b int) uint64 {
	seen := t.reach.spannedBits(p, b)
	if t.part == device.SelectedRegion {
		seen &= between(b, t.reach.plan.Sink, recent(t.reach.plan, p))
	}
	return seen
}
