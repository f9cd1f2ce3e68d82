package cpu

import (
	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// listedScores is ExactScores of a plan that reads a list of positions and nothing else, without
// weights: what a selection by low-bit keys rescores.
func (o *ops) listedScores(c *device.Score) {
	t := &o.tasks.listedScores
	t.regionScores = o.regionScores("ExactScores", c, t.regionScores)
	t.list = c.Plan.List
	t.scratch = perWorker(o.pool, t.scratch)
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.some = grown(&s.q, t.dim), grown(&s.some, t.list.Index.Dim(2))
	}
	o.pool.RunChunks(len(t.rows)*t.heads, 1, t)
}

// onlyListed reports whether a plan reads a list of positions with weight one, and nothing else.
func onlyListed(p *device.Plan) bool {
	return p.Selected == device.Tokens && p.Sink == 0 && p.Recent == 0 && p.Align == 0 && p.List.Weight.Absent()
}

// listedScoreTask is ExactScores of lists: item i is head i%heads of row i/heads.
type listedScoreTask struct {
	regionScores
	list device.List

	scratch []listedScratch
}

// listedScratch is what one worker needs.
type listedScratch struct {
	q     []float32 // [dim], scaled
	some  []int32   // positions of the list that the row sees
	tile  [vec.Tile]float32
	start [2][vec.Tile]int // of the keys of a tile, and of the next
}

// Do scores items lo to hi-1.
func (t *listedScoreTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		if at := t.rows[i/t.heads]; at.p >= 0 {
			t.score(&t.scratch[worker], at, i)
		}
	}
}

// score scores what head i%heads of a row reads.
func (t *listedScoreTask) score(s *listedScratch, at slotRow, i int) {
	out, head := row(t.dst, i, t.width)[:at.p+1], i%t.heads
	for j := range out {
		out[j] = negInf
	}
	some := s.some[:0]
	for _, j := range t.o.list(t.list, listGroup(t.list, at.slot, at.first, at.p), head, t.heads).index {
		if j >= 0 && int(j) <= at.p && t.mask.spanned(at.p, int(j)) {
			some = append(some, j)
		}
	}
	kernel := t.o.vec.ScoresAt
	if t.dim%vec.Multiple != 0 {
		kernel = vec.Go.ScoresAt
	}
	before, after := splitScale(t.dim)
	scaled(s.q, row(t.q, i, t.dim), before)
	g, kvHead := &t.pages, head*t.pages.heads/t.heads
	g.locateTile(&s.start[0], at.slot, kvHead, some)
	for n := 0; len(some) > 0; n++ {
		m, this, next := min(len(some), vec.Tile), &s.start[n%2], &s.start[(n+1)%2]
		g.locateTile(next, at.slot, kvHead, some[m:])
		kernel(s.tile[:], s.q, g.all(g.k), this, next, 1, m, t.dim)
		rescale(t.o.vec, s.tile[:m], s.tile[:m], after)
		for k, j := range some[:m] {
			out[j] = s.tile[k]
		}
		some = some[m:]
	}
}
