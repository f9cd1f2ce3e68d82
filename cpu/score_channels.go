package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// channelScores is the product of channel labels over the selected region (Double Sparsity).
func (o *ops) channelScores(c *device.Score) {
	t, index := &o.tasks.channelScores, c.Channels.Index
	t.regionScores = o.regionScores("ChannelScores", c, t.regionScores)
	t.labels, t.index, t.levels = elements[uint16](c.Keys), i32s(index), c.Channels.Levels
	t.groups, t.n = index.Dim(0), index.Dim(1)
	t.headsPerGroup = max(1, t.heads/t.groups)
	t.scratch = perWorker(o.pool, t.scratch)
	rows := (t.headsPerGroup + vec.TileRows - 1) / vec.TileRows * vec.TileRows
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.label, s.scores = grown(&s.q, rows*t.n), grown(&s.label, t.n*vec.Tile), grown(&s.scores, rows*vec.Tile)
	}
	o.pool.RunChunks(len(t.rows)*t.heads/t.headsPerGroup, 1, t)
}

// channelScoreTask is ChannelScores: an item is the heads of a row that share a head group of the
// channels.
type channelScoreTask struct {
	regionScores
	labels        []uint16 // [pages, groups, n, PageLen]
	index         []int32  // [groups, n]
	levels        int
	groups, n     int // n channels
	headsPerGroup int

	scratch []channelScratch
}

// channelScratch is what one worker needs.
type channelScratch struct {
	q      []float32 // [headsPerGroup padded to vec.TileRows, n]
	label  []float32 // [n, vec.Tile]
	scores []float32 // [headsPerGroup padded to vec.TileRows, vec.Tile]
}

// Do scores items lo to hi-1.
func (t *channelScoreTask) Do(worker, lo, hi int) {
	perRow := t.heads / t.headsPerGroup
	for i := lo; i < hi; i++ {
		if t.rows[i/perRow].p >= 0 {
			t.score(&t.scratch[worker], i/perRow, i%perRow*t.headsPerGroup)
		}
	}
}

// score scores the heads of a row from head on that share a head group.
func (t *channelScoreTask) score(s *channelScratch, r, head int) {
	at, group := t.rows[r], head*t.groups/t.heads
	scale := float32(1 / math.Sqrt(float64(t.dim)))
	clear(s.q)
	for u := range t.headsPerGroup {
		q := row(s.q, u, t.n)
		channelLabel(q, row(t.q, r*t.heads+head+u, t.dim), row(t.index, group, t.n), t.levels)
		for i := range q {
			q[i] *= scale
		}
	}
	c, q, k := vec.Matrix{Data: s.scores, Stride: vec.Tile}, vec.Matrix{Data: s.q, Stride: t.n}, vec.Matrix{Data: s.label, Stride: vec.Tile}
	for b := range pagesOf(at.p + 1) {
		region, first := t.mask.regionBits(at.p, b), b*device.PageLen
		if region != 0 {
			t.o.vec.FromHalf(s.label, row(t.labels, t.pages.knownPage(at.slot, b)*t.groups+group, t.n*device.PageLen))
			for u := 0; u < t.headsPerGroup; u += vec.TileRows {
				t.o.vec.Multiply(c.From(u, 0), q.From(u, 0), k, nil, t.n, vec.Tile)
			}
		}
		for u := range t.headsPerGroup {
			out := row(t.dst, r*t.heads+head+u, t.width)[first:min(first+device.PageLen, at.p+1)]
			writeRegion(out, row(s.scores, u, vec.Tile), region)
		}
	}
}
