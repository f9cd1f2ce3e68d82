package cpu

import (
	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// boundScoreTask is BoundScores: an item is a split of the sub-pages of a kv head of a slot.
// The negative elements of a query are multiplied with the minima, the positive ones with the
// maxima, so that the upper bound of a sub-page is one product of twice the length.
type boundScoreTask struct {
	o      *ops
	kernel *vec.Kernels
	pages  pages
	bounds device.Tensor
	parts  int       // of a page
	q, dst []float32 // [rows, heads, dim], [rows, groups, width]
	heads  int
	groups int
	width  int

	scratch []boundScoreScratch
}

// boundScoreScratch is what one worker needs.
type boundScoreScratch struct {
	q      []float32 // [heads of a kv head, 2·dim]: negative elements, then positive ones
	bounds vec.Rows  // [vec.Tile, 2·dim]: minima, then maxima
	scores []float32 // [heads of a kv head, vec.Tile]
}

// boundSplits is how many items a kv head of a slot is split into.
const boundSplits = 4

// boundScores is an upper bound of q·k for the keys of each sub-page (Quest).
func (o *ops) boundScores(c *device.Score) {
	t := &o.tasks.boundScores
	t.o, t.kernel, t.pages, t.bounds, t.parts = o, o.vec, newPages(c.KV), c.Keys, c.Keys.Dim(2)
	t.q, t.dst, t.heads, t.groups, t.width = f32s(c.Q), f32s(c.Dst), c.Q.Dim(1), c.Dst.Dim(1), c.Dst.Dim(2)
	if 2*t.pages.dim%vec.Multiple != 0 {
		t.kernel = vec.Go
	}
	t.scratch = perWorker(o.pool, t.scratch)
	group, dim := t.heads/t.pages.heads, 2*t.pages.dim
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.scores = grown(&s.q, group*dim), grown(&s.scores, group*vec.Tile)
		s.bounds = fitRows(s.bounds, vec.Tile*dim, t.pages.half)
	}
	o.pool.RunChunks(c.KV.Len.Dim(0)*t.pages.heads*boundSplits, 1, t)
}

// Do scores items lo to hi-1.
func (t *boundScoreTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		kvHead, slot := i/boundSplits%t.pages.heads, i/boundSplits/t.pages.heads
		first, ok := t.o.first("BoundScores", &t.pages, slot, 1)
		if !ok {
			continue
		}
		size := device.PageLen / t.parts
		n := first/size + 1
		tiles := (n + vec.Tile - 1) / vec.Tile
		split := i % boundSplits
		s := &t.scratch[worker]
		t.splitSigns(s, slot, kvHead)
		for tile := split * tiles / boundSplits; tile < (split+1)*tiles/boundSplits; tile++ {
			t.score(s, slot, kvHead, tile*vec.Tile, min(n, (tile+1)*vec.Tile))
		}
	}
}

// splitSigns loads the queries of a slot and a kv head, split into negative and positive
// elements.
func (t *boundScoreTask) splitSigns(s *boundScoreScratch, slot, kvHead int) {
	group, dim := t.heads/t.pages.heads, t.pages.dim
	for u := range group {
		q, both := row(t.q, slot*t.heads+kvHead*group+u, dim), row(s.q, u, 2*dim)
		for i, x := range q {
			both[i], both[dim+i] = min(x, 0), max(x, 0)
		}
	}
}

// score scores sub-pages lo to hi-1 of a slot, at most a tile of them.
func (t *boundScoreTask) score(s *boundScoreScratch, slot, kvHead, lo, hi int) {
	group, dim := t.heads/t.pages.heads, 2*t.pages.dim
	raw := bytesOf(t.bounds)
	for at := lo; at < hi; {
		page := t.o.page(&t.pages, slot, at/t.parts)
		if page < 0 {
			return
		}
		n := min(t.parts-at%t.parts, hi-at)
		from := ((page*t.pages.heads+kvHead)*t.parts + at%t.parts) * dim
		to := (at - lo) * dim
		if t.pages.half {
			copy(s.bounds.Half[to:to+n*dim], as[uint16](raw)[from:])
		} else {
			copy(s.bounds.Full[to:to+n*dim], as[float32](raw)[from:])
		}
		at += n
	}
	t.kernel.Scores(s.scores, s.q, s.bounds, vec.Rows{}, group, hi-lo, dim)
	if t.groups == t.heads {
		for u := range group {
			copy(row(t.dst, slot*t.groups+kvHead*group+u, t.width)[lo:hi], row(s.scores, u, vec.Tile))
		}
		return
	}
	out := row(t.dst, slot*t.groups+kvHead, t.width)[lo:hi]
	clear(out)
	for u := range group {
		for j := range out {
			out[j] += s.scores[u*vec.Tile+j]
		}
	}
}
