package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// exactScores is q·k/√dim over a region of what each row sees, -Inf elsewhere, and mirrorScores
// the same of low-bit keys. Where the region does not depend on lists, the keys of a page are read
// once for the heads of a kv head and for all rows of a slot.
func (o *ops) exactScores(c *device.Score) {
	switch {
	case c.Region == device.Planned && onlyListed(&c.Plan):
		o.listedScores(c)
		return
	case c.Region == device.Planned:
		o.plannedScores(c)
		return
	}
	if o.scoreRegion("ExactScores", c) && c.Region == device.SelectedRegion {
		o.scored.made(c.Dst, c.Q, c.KV, c.Plan)
	}
}

// mirrorScores is MirrorScores.
func (o *ops) mirrorScores(c *device.Score) { o.scoreRegion("MirrorScores", c) }

// scoreRegion is both. It reports whether there are scores.
func (o *ops) scoreRegion(op string, c *device.Score) bool {
	rows := c.Q.Dim(0)
	if rows == 0 {
		return false
	}
	t := &o.tasks.exactScores
	*t = exactTask{
		o: o, op: op, pages: newPages(c.KV), mask: mask{c.Plan}, region: c.Region, perSlot: device.RowsPerSlot(op, rows, c.KV),
		dst: f32s(c.Dst), q: f32s(c.Q), heads: c.Q.Dim(1), dim: c.Q.Dim(2), width: c.Dst.Dim(2), scratch: t.scratch,
		mirror: newMirrorKeys(c.Keys, c.KV), queries: t.queries,
	}
	longest := 0
	for slot, n := range t.pages.lengths {
		if _, ok := o.first(op, &t.pages, slot, t.perSlot); ok {
			longest = max(longest, int(n))
		}
	}
	if longest > t.width {
		o.d.fail("%s: position %d in scores of %d", op, longest-1, t.width)
		return false
	}
	t.scratch = perWorker(o.pool, t.scratch)
	group := t.heads / t.pages.heads
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.tile = grown(&s.q, t.perSlot*group*t.dim), grown(&s.tile, group*vec.Tile)
	}
	if t.mirror.words != nil {
		t.loadQueries(rows)
	}
	t.splits = (longest + exactPages*device.PageLen - 1) / (exactPages * device.PageLen)
	o.pool.RunChunks(len(t.pages.lengths)*t.pages.heads*t.splits, 1, t)
	return true
}

// exactPages is how many pages an item of ExactScores has.
const exactPages = 16

// exactTask is ExactScores or MirrorScores: an item is some pages of a kv head of a slot.
type exactTask struct {
	o       *ops
	op      string
	pages   pages
	mask    mask
	region  device.Region
	perSlot int       // rows of a slot
	dst     []float32 // [rows, heads, width]
	q       []float32 // [rows, heads, dim]
	heads   int
	dim     int
	width   int
	splits  int // items of a kv head of a slot

	mirror  mirrorKeys        // of MirrorScores
	queries vec.MirrorQueries // [rows, heads], of MirrorScores

	scratch []exactScratch
}

// exactScratch is what one worker needs.
type exactScratch struct {
	q    []float32 // [rows of a slot, heads of a kv head, dim], scaled
	tile []float32 // [heads of a kv head, vec.Tile]
}

// Do scores items lo to hi-1.
func (t *exactTask) Do(worker, lo, hi int) {
	s, kvHeads := &t.scratch[worker], t.pages.heads
	for i := lo; i < hi; i++ {
		slot, kvHead := i/t.splits/kvHeads, i/t.splits%kvHeads
		first, ok := t.o.first(t.op, &t.pages, slot, t.perSlot)
		from := i % t.splits * exactPages
		to := min(from+exactPages, (first+t.perSlot-1)/device.PageLen+1)
		if !ok || from >= to {
			continue
		}
		if t.mirror.words == nil {
			t.load(s, slot, kvHead)
		}
		for b := from; b < to; b++ {
			t.page(s, slot, kvHead, first, b, b+1 < to)
		}
	}
}

// loadQueries rounds the queries of all rows for MirrorScores.
func (t *exactTask) loadQueries(rows int) {
	t.mirror.grownQueries(&t.queries, rows*t.heads)
	t.o.pool.RunChunks(rows*t.heads, 8, (*mirrorQueryTask)(t))
}

// mirrorQueryTask is loadQueries: item i is head i%heads of row i/heads.
type mirrorQueryTask exactTask

// Do rounds the queries of items lo to hi-1.
func (t *mirrorQueryTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		t.mirror.load(t.queries, i, row(t.q, i, t.dim), t.scratch[worker].q)
	}
}

// load scales the queries of a slot and a kv head.
func (t *exactTask) load(s *exactScratch, slot, kvHead int) {
	group := t.heads / t.pages.heads
	scale, _ := splitScale(t.dim)
	for r := range t.perSlot {
		from := t.q[((slot*t.perSlot+r)*t.heads+kvHead*group)*t.dim:]
		scaled(row(s.q, r, group*t.dim), from, scale)
	}
}

// splitScale is 1/√dim as a factor of queries and one of products. Queries are only scaled by
// powers of two, which does not round: equal products stay equal, as ties must.
func splitScale(dim int) (query, product float32) {
	scale := 1 / math.Sqrt(float64(dim))
	if f, _ := math.Frexp(scale); f == 0.5 {
		return float32(scale), 1
	}
	return 1, float32(scale)
}

// ones is a tile of ones.
var ones = func() (w [vec.Tile]float32) {
	for i := range w {
		w[i] = 1
	}
	return w
}()

// rescale sets dst, at most a tile, to x times scale.
func rescale(k *vec.Kernels, dst, x []float32, scale float32) {
	if scale == 1 {
		copy(dst, x)
		return
	}
	k.ScaleMul(dst, x[:len(dst)], ones[:len(dst)], scale)
}

// scaled sets dst to the first elements of x times scale.
func scaled(dst, x []float32, scale float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * scale
	}
}

// page scores block b for the rows of a slot, the first of them at position first. With more,
// the next block is scored next, and its keys are prefetched.
func (t *exactTask) page(s *exactScratch, slot, kvHead, first, b int, more bool) {
	group, at, after := t.heads/t.pages.heads, b*device.PageLen, float32(1)
	if t.mirror.words == nil {
		_, after = splitScale(t.dim)
	}
	page, next := t.o.page(&t.pages, slot, b), -1
	if more {
		next = t.o.page(&t.pages, slot, b+1)
	}
	for r := max(at-first, 0); r < t.perSlot; r++ {
		n := min(first+r+1-at, device.PageLen)
		seen := t.visibleBits(first+r, b)
		if page < 0 {
			seen = 0
		}
		if seen != 0 {
			t.multiply(s, slot*t.perSlot+r, r, kvHead, page, next, n)
			next = -1 // once is enough
		}
		head := (slot*t.perSlot+r)*t.heads + kvHead*group
		if seen == ^uint64(0) {
			t.o.vec.WriteTile(t.dst[head*t.width+at:], t.width, s.tile[:group*vec.Tile], after)
			continue
		}
		for h := range group {
			out := row(t.dst, head+h, t.width)[at : at+n]
			rescale(t.o.vec, out, row(s.tile, h, vec.Tile), after)
			maskScores(out, seen)
		}
	}
}

// multiply sets the tile to the products of row r of a call, row i of its slot, with the first n
// keys of a page. Keys of page next are prefetched.
func (t *exactTask) multiply(s *exactScratch, r, i, kvHead, page, next, n int) {
	group := t.heads / t.pages.heads
	if t.mirror.words != nil {
		q := t.mirror.queries(t.queries, r*t.heads+kvHead*group, group)
		t.o.vec.MirrorScores(s.tile, q, t.mirror.page(page, kvHead), t.mirror.page(next, kvHead))
		return
	}
	kernel, prefetch := t.o.vec.Scores, vec.Rows{}
	if t.dim%vec.Multiple != 0 {
		kernel = vec.Go.Scores
	}
	if next >= 0 {
		prefetch = t.pages.rows(t.pages.k, next, kvHead, 0, device.PageLen)
	}
	kernel(s.tile, s.q[i*group*t.dim:], t.pages.rows(t.pages.k, page, kvHead, 0, device.PageLen), prefetch, group, n, t.dim)
}

// maskScores sets the elements whose bits are not set to -Inf.
func maskScores(x []float32, seen uint64) {
	switch seen {
	case 0:
		copy(x, unseen[:])
	case ^uint64(0) >> (64 - len(x)):
	default:
		for i := range x {
			if seen>>i&1 == 0 {
				x[i] = negInf
			}
		}
	}
}

// visibleBits is the positions of block b that the row at p scores.
func (t *exactTask) visibleBits(p, b int) uint64 {
	seen := t.mask.spannedBits(p, b)
	if t.region == device.SelectedRegion {
		seen &= between(b, t.mask.plan.Sink, windowStart(t.mask.plan, p))
	}
	return seen
}

// plannedScores is the definition of ExactScores for what the plan reads: every weight, every
// score.
func (o *ops) plannedScores(c *device.Score) {
	heads, dim, p := c.Q.Dim(1), c.Q.Dim(2), &c.Plan
	g, v, dst, q := newPages(c.KV), mask{c.Plan}, f32s(c.Dst), f32s(c.Q)
	k := make([]float32, dim)
	o.eachRow("ExactScores", c.KV, c.Q.Dim(0), func(r, slot, first, pos int) {
		for h := range heads {
			l := o.list(p.List, listGroup(p.List, slot, first, pos), h, heads)
			out := row(dst, r*heads+h, c.Dst.Dim(2))
			x := row(q, r*heads+h, dim)
			for j := range pos + 1 {
				out[j] = negInf
				w := v.weight(pos, j, l)
				page := o.page(&g, slot, j/device.PageLen)
				if w == 0 || page < 0 {
					continue
				}
				o.load(k, g.k, g.element(page, h*g.heads/heads, j%device.PageLen), g.half)
				out[j] = float32(dot(x, k)/math.Sqrt(float64(dim)) + math.Log(float64(w)))
			}
		}
	})
}
