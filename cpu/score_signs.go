package cpu

import "github.com/gollm/gollm/device"

// signScores compares the sign bits of queries with those of keys, over the selected region.
func (o *ops) signScores(c *device.Score) {
	t := &o.tasks.signScores
	t.signNet = o.signNet(c.Net, t.signNet)
	t.regionScores = o.regionScores("SignScores", c, t.regionScores)
	t.signs, t.keyGroups = i32s(c.Keys), c.Keys.Dim(1)
	t.headsPerGroup = max(1, t.heads/t.keyGroups)
	t.signScratch = perWorker(o.pool, t.signScratch)
	for i := range t.signScratch {
		s := &t.signScratch[i]
		s.signs, s.score = grown(&s.signs, t.headsPerGroup*t.words), grown(&s.score, device.PageLen)
	}
	o.pool.RunChunks(len(t.rows)*t.heads/t.headsPerGroup, 1, t)
}

// signScoreTask is SignScores: an item is the heads of a row that share a head group of the keys.
type signScoreTask struct {
	signNet
	regionScores
	signs         []int32 // [pages, keyGroups, PageLen, words]
	keyGroups     int
	headsPerGroup int
	signScratch   []signScoreScratch
}

// signScoreScratch is what one worker needs besides the scratch of the network.
type signScoreScratch struct {
	signs []int32   // [headsPerGroup, words]: of the queries
	score []float32 // [PageLen]
}

// Do scores items lo to hi-1.
func (t *signScoreTask) Do(worker, lo, hi int) {
	s, own, perRow := &t.scratch[worker], &t.signScratch[worker], t.heads/t.headsPerGroup
	for i := lo; i < hi; i++ {
		r, head, width := i/perRow, i%perRow*t.headsPerGroup, 0
		if t.regionScores.rows[r].p < 0 {
			continue
		}
		for u := range t.headsPerGroup {
			copy(s.x, row(t.q, r*t.heads+head+u, t.dim))
			var y []float32
			y, width = t.run(t.o, s, head+u, 1)
			signsOf(row(own.signs, u, t.words), y[:width])
		}
		t.score(own, r, head, width)
	}
}

// score sets the scores of a row and the heads from head on that share a head group: width less
// twice the Hamming distance.
func (t *signScoreTask) score(s *signScoreScratch, r, head, width int) {
	at, group, unused := t.regionScores.rows[r], head*t.keyGroups/t.heads, float32(32*t.words-width)
	for b := range pagesOf(at.p + 1) {
		region, first := t.mask.regionBits(at.p, b), b*device.PageLen
		var signs []int32
		if region != 0 {
			signs = row(t.signs, t.pages.knownPage(at.slot, b)*t.keyGroups+group, device.PageLen*t.words)
		}
		for u := range t.headsPerGroup {
			out := row(t.dst, r*t.heads+head+u, t.width)[first:min(first+device.PageLen, at.p+1)]
			if region != 0 {
				t.o.vec.Signs(s.score, row(s.signs, u, t.words), signs)
				for i := 0; unused != 0 && i < len(s.score); i++ {
					s.score[i] -= unused // bits that no output has agree
				}
			}
			writeRegion(out, s.score, region)
		}
	}
}
