package cpu

import (
	"math/bits"

	"github.com/gollm/gollm/device"
)

// signScores compares the sign bits of queries with those of keys, over the selected region.
func (o *ops) signScores(c *device.Score) {
	t := &o.tasks.signScores
	t.signNet = o.signNet(c.Net, t.signNet)
	t.regionScores = o.regionScores("SignScores", c, t.regionScores)
	t.signs, t.keyGroups = i32s(c.Keys), c.Keys.Dim(1)
	t.signScratch = perWorker(o.pool, t.signScratch)
	for i := range t.signScratch {
		s := &t.signScratch[i]
		s.signs, s.score = grown(&s.signs, t.words), grown(&s.score, device.PageLen)
	}
	o.pool.RunChunks(len(t.rows)*t.heads, 1, t)
}

// signScoreTask is SignScores: item i is head i%heads of row i/heads.
type signScoreTask struct {
	signNet
	regionScores
	signs       []int32 // [pages, keyGroups, PageLen, words]
	keyGroups   int
	signScratch []signScoreScratch
}

// signScoreScratch is what one worker needs besides the scratch of the network.
type signScoreScratch struct {
	signs []int32   // [words]: of the query
	score []float32 // [PageLen]
}

// Do scores items lo to hi-1.
func (t *signScoreTask) Do(worker, lo, hi int) {
	s, own := &t.scratch[worker], &t.signScratch[worker]
	for i := lo; i < hi; i++ {
		r, head := i/t.heads, i%t.heads
		if t.regionScores.rows[r].p < 0 {
			continue
		}
		copy(s.x, row(t.q, i, t.dim))
		y, width := t.run(t.o, s, head, 1)
		signsOf(own.signs, y[:width])
		t.score(own, r, head, width)
	}
}

// score sets the scores of a row and a head: width less twice the Hamming distance.
func (t *signScoreTask) score(s *signScoreScratch, r, head, width int) {
	at, group := t.regionScores.rows[r], head*t.keyGroups/t.heads
	for b := range pagesOf(at.p + 1) {
		region, first := t.mask.regionBits(at.p, b), b*device.PageLen
		if region != 0 {
			signs := row(t.signs, t.pages.knownPage(at.slot, b)*t.keyGroups+group, device.PageLen*t.words)
			for i := range s.score {
				differ := 0
				for w, word := range s.signs {
					differ += bits.OnesCount32(uint32(word ^ signs[i*t.words+w]))
				}
				s.score[i] = float32(width - 2*differ)
			}
		}
		writeRegion(row(t.dst, r*t.heads+head, t.width)[first:min(first+device.PageLen, at.p+1)], s.score, region)
	}
}
