package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// keyHashes computes the LSH codes of the stored positions that have none.
func (o *ops) keyHashes(c *device.Summarize) {
	h, t := c.Hash, &o.tasks.keyHashes
	index := o.hashIndex(h, c.KV)
	*t = keyHashTask{hashIndex: index, o: o, pages: newPages(c.KV), since: i32s(h.Since), done: i32s(h.Done),
		pos: o.newestPositions("KeyHashes", c.KV, index.capacity(), t.pos), scratch: t.scratch}
	for slot, p := range t.pos {
		if p >= 0 && p < int(t.since[slot]) {
			t.since[slot], t.done[slot] = int32(p), 0
		}
	}
	t.scratch = perWorker(o.pool, t.scratch)
	for i := range t.scratch {
		s := &t.scratch[i]
		s.x, s.tile = grown(&s.x, vec.Tile*t.dim), grown(&s.tile, vec.Tile*vec.Tile)
		if t.bucketed() {
			s.buckets = grown(&s.buckets, min(device.HashRun, t.blocks*device.PageLen))
		}
	}
	o.pool.RunChunks(len(t.pos)*t.kvHeads, 1, t)
	for slot, p := range t.pos {
		if p < 0 {
			continue
		}
		if t.bucketed() {
			t.sorted[slot] = int32(sortedOf(p+1, t.keptSorted(slot, min(int(t.done[slot]), p))))
		}
		t.done[slot] = int32(p + 1)
	}
}

// keyHashTask is KeyHashes: item i is kv head i%kvheads of slot i/kvheads.
type keyHashTask struct {
	hashIndex
	o           *ops
	pages       pages
	since, done []int32 // [slots]
	pos         []int   // by slot; -1 is skipped
	scratch     []hashScratch
}

// hashScratch is what one worker needs.
type hashScratch struct {
	x    []float32 // [vec.Tile, dim]: keys less the center
	tile []float32 // [vec.Tile, vec.Tile]: their products with planes

	buckets []uint16 // [positions of a run]: bucket of each in one table
}

// Do computes the codes of items lo to hi-1, and puts the positions into buckets.
func (t *keyHashTask) Do(worker, lo, hi int) {
	s := &t.scratch[worker]
	for i := lo; i < hi; i++ {
		slot, kvHead := i/t.kvHeads, i%t.kvHeads
		p := t.pos[slot]
		if p < 0 {
			continue
		}
		have := min(int(t.done[slot]), p)
		if have == 0 {
			t.makeCenter(s, slot, kvHead)
		}
		from := have // the first position to put into buckets
		if t.bucketed() {
			from = t.unlinkFrom(slot, kvHead, have, int(t.done[slot]))
		}
		for j := have; j <= p; {
			n := min(device.PageLen-j%device.PageLen, p+1-j)
			t.encode(s, slot, kvHead, j, n)
			j += n
		}
		if t.bucketed() {
			t.insert(s, slot, kvHead, from, p+1)
		}
	}
}

// keptSorted is how many positions of a slot stay sorted when those from have on are
// truncated: a run that loses a sorted position is sorted again as a whole.
func (t *keyHashTask) keptSorted(slot, have int) int {
	if have == 0 || have < int(t.sorted[slot]) {
		return have / device.HashRun * device.HashRun
	}
	return int(t.sorted[slot])
}

// unlinkFrom takes truncated positions, from to done-1, out of their buckets, and returns the
// first position that has to be put into its buckets.
func (t *keyHashTask) unlinkFrom(slot, kvHead, from, done int) int {
	if kept := t.keptSorted(slot, from); from == 0 || kept < int(t.sorted[slot]) {
		return kept
	}
	if from%device.HashRun == 0 { // link clears a run at its first position
		return from
	}
	for to := min(done, (from/device.HashRun+1)*device.HashRun); to > from; {
		block := (to - 1) / device.PageLen
		lo := max(from, block*device.PageLen)
		t.unlink(slot*t.kvHeads+kvHead, lo, to, t.code(slot, kvHead, block))
		to = lo
	}
	return from
}

// insert puts positions from to done-1 into their buckets.
func (t *keyHashTask) insert(s *hashScratch, slot, kvHead, from, done int) {
	head, kept := slot*t.kvHeads+kvHead, t.keptSorted(slot, min(int(t.done[slot]), done-1))
	if n := sortedOf(done, kept); n > kept {
		for run := kept / device.HashRun; run*device.HashRun < n; run++ {
			t.sort(head, run, min(n-run*device.HashRun, device.HashRun), s.buckets, func(block int) []uint64 {
				return t.code(slot, kvHead, run*device.HashRun/device.PageLen+block)
			})
		}
		from = n
	}
	for j := from; j < done; {
		to := min(done, (j/device.PageLen+1)*device.PageLen)
		t.link(head, j, to, t.code(slot, kvHead, j/device.PageLen))
		j = to
	}
}

// makeCenter sets the center of a kv head: the mean of its keys, or zero.
func (t *keyHashTask) makeCenter(s *hashScratch, slot, kvHead int) {
	center := row(t.center, slot*t.kvHeads+kvHead, t.dim)
	clear(center)
	n := int(t.since[slot]) - t.Recent - t.Sink
	if !t.Mean || n <= 0 {
		return
	}
	sum := make([]float64, t.dim) // once after each prompt
	for j := t.Sink; j < t.Sink+n; j++ {
		t.load(s.x[:t.dim], slot, kvHead, j)
		for i, x := range s.x[:t.dim] {
			sum[i] += float64(x)
		}
	}
	for i, x := range sum {
		center[i] = float32(x / float64(n))
	}
}

// load reads the key at position j.
func (t *keyHashTask) load(x []float32, slot, kvHead, j int) {
	t.o.load(x, t.pages.k, t.pages.locate(slot, kvHead, j), t.pages.half)
}

// encode computes the codes and the norms of n positions of a block from j on.
func (t *keyHashTask) encode(s *hashScratch, slot, kvHead, j, n int) {
	center, norm := row(t.center, slot*t.kvHeads+kvHead, t.dim), row(t.norm, slot*t.kvHeads+kvHead, t.width)
	for i := range n {
		x := row(s.x, i, t.dim)
		t.load(x, slot, kvHead, j+i)
		for c := range x {
			x[c] -= center[c]
		}
		norm[j+i] = float32(math.Sqrt(t.o.vec.SumSquares(x)))
	}
	code, from := t.code(slot, kvHead, j/device.PageLen), j%device.PageLen
	keep := ^(^uint64(0) >> (device.PageLen - n) << from)
	t.project(s.tile, s.x, n, func(first, planes int) {
		var side [vec.Tile]uint64 // by plane
		for i := range n {
			for c, x := range row(s.tile, i, vec.Tile)[:planes] {
				side[c] |= aboveZero(x) << i
			}
		}
		for c, word := range side[:planes] {
			code[first+c] = code[first+c]&keep | word<<from
		}
	})
}
