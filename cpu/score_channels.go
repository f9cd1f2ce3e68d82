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
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.scores = grown(&s.q, t.headsPerGroup*t.n), grown(&s.scores, vec.Tile)
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
	q      []float32 // [headsPerGroup, n]
	scores []float32 // [vec.Tile]
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
	for u := range t.headsPerGroup {
		q := row(s.q, u, t.n)
		channelLabel(q, row(t.q, r*t.heads+head+u, t.dim), row(t.index, group, t.n), t.levels)
		for i := range q {
			q[i] *= scale
		}
	}
	labels := t.labelsOf(at, group, 0)
	for b := range pagesOf(at.p + 1) {
		region, first, next := t.mask.regionBits(at.p, b), b*device.PageLen, t.labelsOf(at, group, b+1)
		for u := range t.headsPerGroup {
			if region != 0 {
				t.o.vec.Labels(s.scores, row(s.q, u, t.n), labels, next)
			}
			out := row(t.dst, r*t.heads+head+u, t.width)[first:min(first+device.PageLen, at.p+1)]
			writeRegion(out, s.scores, region)
		}
		labels = next
	}
}

// labelsOf is the labels of block b for a head group, nil where the row sees nothing of it.
func (t *channelScoreTask) labelsOf(at slotRow, group, b int) []uint16 {
	if b > at.p/device.PageLen || t.mask.regionBits(at.p, b) == 0 {
		return nil
	}
	return row(t.labels, t.pages.knownPage(at.slot, b)*t.groups+group, t.n*device.PageLen)
}
