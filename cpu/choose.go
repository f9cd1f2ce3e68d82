package cpu

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// chooseSets makes an entry of the newest position for every set that found none.
// The heads of a kv head are scored together, so that its keys are read once.
func (o *ops) chooseSets(op string, m memo, scores, q device.Tensor, kv device.KV, p device.Plan) {
	slots, heads := kv.Len.Dim(0), m.heads
	t := &o.choose
	*t = chooseTask{memo: m, o: o, pages: newPages(kv), plan: p, q: f32s(q), scores: f32s(scores), width: scores.Dim(2),
		pos: o.newest(op, kv, t.pos), scratch: t.scratch}
	for slot, at := range t.pos {
		switch n := min(m.K.Of(at+1), at+1); {
		case at >= t.width:
			o.d.fail("%s: position %d in scores of %d", op, at, t.width)
			t.pos[slot] = -1
		case n > m.most:
			o.d.fail("%s: an entry of %d positions chooses up to %d", op, m.most, n)
		}
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, chooseScratch{})
	}
	for i := range t.scratch {
		t.scratch[i].fit(heads/t.pages.heads, m.dim)
		if m.sets < heads {
			s := &t.scratch[i]
			s.top, s.sum = grown(&s.top, t.width), grown(&s.sum, t.width)
		}
	}
	o.pool.RunChunks(slots*t.pages.heads, 1, t)
}

// chooseTask chooses for kv heads: item i is kv head i%kvheads of slot i/kvheads.
type chooseTask struct {
	memo
	o      *ops
	pages  pages
	plan   device.Plan
	q      []float32
	scores []float32 // [slots, heads, width]
	width  int
	pos    []int // by slot; -1 is skipped

	scratch []chooseScratch // by worker
}

// chooseScratch is what one worker needs.
type chooseScratch struct {
	heads []int     // those to score
	q     []float32 // [heads, dim]: their queries
	tile  []float32 // [heads, vec.Tile]: their scores of a page
	best  selector
	nans  int // scores that were not numbers

	// of the heads of a set
	lanes    lanes
	log      []float64 // [heads]: of the sum of a head's exponentials
	shift    []float32 // [heads]
	top, sum []float32 // [width]: the largest share of a head, as a logarithm, and all over it
}

// fit makes the scratch large enough for heads heads.
func (s *chooseScratch) fit(heads, dim int) {
	if cap(s.heads) < heads || len(s.q) < heads*dim {
		s.heads, s.q = make([]int, 0, heads), make([]float32, heads*dim)
		s.tile = make([]float32, heads*vec.Tile)
		s.log, s.shift = make([]float64, heads), make([]float32, heads)
	}
}

// Do chooses for items lo to hi-1.
func (t *chooseTask) Do(worker, lo, hi int) {
	n := t.pages.heads
	for i := lo; i < hi; i++ {
		if slot := i / n; t.pos[slot] >= 0 {
			t.kvHead(&t.scratch[worker], slot, i%n)
		}
	}
}

// kvHead scores the heads of a kv head whose sets found no entry, then makes,
// copies or clears the entries of its sets.
func (t *chooseTask) kvHead(s *chooseScratch, slot, kvHead int) {
	p, group := t.pos[slot], t.heads/t.pages.heads
	reach := reach{t.plan}
	visible, middle := seen(t.plan.Span, p), reach.middle(p)
	scored := middle
	if t.sets < t.heads {
		scored = visible
	}
	scale, _ := split(t.dim)
	s.heads = s.heads[:0]
	for h := kvHead * group; h < (kvHead+1)*group; h++ {
		if t.found[slot*t.sets+h*t.sets/t.heads] < 0 {
			scaled(row(s.q, len(s.heads), t.dim), row(t.q, slot*t.heads+h, t.dim), scale)
			s.heads = append(s.heads, h)
		}
	}
	for i := 0; i < len(scored) && len(s.heads) > 0; i++ {
		t.score(s, slot, kvHead, scored[i])
	}
	for set := kvHead * t.sets / t.pages.heads; set < (kvHead+1)*t.sets/t.pages.heads; set++ {
		t.enter(s, slot, set, visible, middle)
	}
}

// score is q·k/√dim over an interval for the heads of s.
func (t *chooseTask) score(s *chooseScratch, slot, kvHead int, v interval) {
	g, kernel := &t.pages, t.o.vec.Scores
	_, after := split(t.dim)
	if t.dim%vec.Multiple != 0 {
		kernel = vec.Go.Scores
	}
	for first := v.lo / device.PageLen * device.PageLen; max(first, v.lo) < v.hi; first += device.PageLen {
		b := first / device.PageLen
		keys, ahead := g.rows(g.k, int(g.table[slot*g.width+b]), kvHead, 0, device.PageLen), vec.Rows{}
		if first+device.PageLen < v.hi {
			ahead = g.rows(g.k, int(g.table[slot*g.width+b+1]), kvHead, 0, device.PageLen)
		}
		lo, hi := max(v.lo-first, 0), min(v.hi-first, device.PageLen)
		kernel(s.tile, s.q, keys, ahead, len(s.heads), hi, t.dim)
		for i, h := range s.heads {
			rescale(t.o.vec, t.row(slot, h)[first+lo:first+hi], row(s.tile, i, vec.Tile)[lo:], after)
		}
	}
}

// row is the scores of a head.
func (t *chooseTask) row(slot, head int) []float32 { return row(t.scores, slot*t.heads+head, t.width) }

// enter makes, copies or clears the entry of a set, and counts.
func (t *chooseTask) enter(s *chooseScratch, slot, set int, visible, middle [2]interval) {
	i, p := slot*t.sets+set, t.pos[slot]
	_, number := t.place(slot, p)
	rec, tally := t.record(slot, set, number), row(t.tally, i, 4)
	tally[0]++
	if found := t.found[i]; found >= 0 {
		rec[0], rec[1], rec[2] = 0, 0, 0
		if t.Chain {
			rec[0], rec[1] = int32(p+1), found
		}
		return
	}
	x := t.weigh(s, slot, set, visible, middle)
	hide(x, middle)
	s.nans += s.best.nans(t.o.vec, x)
	t.o.d.sawNaNs(&s.nans)
	best, _ := s.best.pick(t.o.vec, x, min(t.K.Of(p+1), t.most))
	n := s.best.rank(row(t.index, i*t.Block+number, t.most), x, best)
	rec[0], rec[1], rec[2] = int32(p+1), int32(number), int32(n)
	tally[1]++
	scored := visible
	if t.sets == t.heads {
		scored = middle
	}
	sum := uint64(uint32(tally[2])) | uint64(uint32(tally[3]))<<32
	for _, v := range scored {
		sum += uint64(max(v.hi-v.lo, 0))
	}
	tally[2], tally[3] = int32(uint32(sum)), int32(uint32(sum>>32))
}

// weigh is what the positions of a set are ranked by: the scores of its head, or
// the logarithm of the sum of its heads' softmax, up to a constant of the set. The
// sum itself is no f32 where it is far below the share of another position, often
// the row's own.
func (t *chooseTask) weigh(s *chooseScratch, slot, set int, visible, middle [2]interval) []float32 {
	lo, hi := t.members(set)
	first, n := t.row(slot, lo), t.pos[slot]+1
	if t.sets == t.heads {
		return first[:n]
	}
	v, top, sum := t.o.vec, s.top[:n], s.sum[:n]
	for j := range top {
		top[j], sum[j] = -math.MaxFloat32, 0
	}
	shift := t.shifts(s, slot, lo, hi, visible, middle)
	for _, m := range middle {
		m.hi = max(m.hi, m.lo)
		for i, by := range shift {
			if by > negInf {
				v.LogTop(top[m.lo:m.hi], t.row(slot, lo+i)[m.lo:m.hi], 1, by)
			}
		}
		for i, by := range shift {
			if by > negInf {
				v.LogSum(sum[m.lo:m.hi], top[m.lo:m.hi], t.row(slot, lo+i)[m.lo:m.hi], 1, by)
			}
		}
		for j := m.lo; j < m.hi; j++ {
			first[j] = logOf(top[j], sum[j])
		}
	}
	return first[:n]
}

// logOf is top + ln sum; where no head sees anything the lowest number, which still
// may be chosen.
func logOf(top, sum float32) float32 {
	if !(sum > 0) {
		return -math.MaxFloat32
	}
	return top + float32(math.Log(float64(sum)))
}

// shifts is what makes the scores of heads lo to hi-1 the logarithms of their softmax
// over what is visible, up to a constant of all by which the largest of the middle is 0,
// where f32 is finest; -Inf for a head without a softmax. Scores outside of what is
// visible, and those that are not numbers, become -Inf.
func (t *chooseTask) shifts(s *chooseScratch, slot, lo, hi int, visible, middle [2]interval) []float32 {
	v, log, best := t.o.vec, s.log[:hi-lo], math.Inf(-1)
	for i := range log {
		x := t.row(slot, lo+i)[:t.pos[slot]+1]
		hide(x, visible)
		s.nans += s.best.dropNaNs(v, x)
		log[i] = s.lanes.logSum(v, x)
		for _, m := range middle {
			if m.lo < m.hi && !math.IsInf(log[i], 0) {
				best = max(best, float64(s.lanes.largest(v, x[m.lo:m.hi]))-log[i])
			}
		}
	}
	shift := s.shift[:len(log)]
	for i, x := range log {
		if shift[i] = negInf; !math.IsInf(x, 0) {
			shift[i] = float32(-x - max(best, -math.MaxFloat32))
		}
	}
	return shift
}

// hide makes -Inf what is outside of two intervals, the first before the second.
func hide(x []float32, keep [2]interval) {
	at := 0
	for _, v := range keep {
		if v.lo >= v.hi {
			continue
		}
		for ; at < v.lo; at++ {
			x[at] = negInf
		}
		at = v.hi
	}
	for ; at < len(x); at++ {
		x[at] = negInf
	}
}

// interval is positions [lo, hi); empty when hi is not above lo.
type interval struct{ lo, hi int }

// seen is what a span lets the row at p see, as two intervals that do not meet.
func seen(s device.Span, p int) [2]interval {
	back := 0
	if s.Back > 0 {
		back = max(0, p+1-s.Back)
	}
	sink := interval{back, min(s.Sink, p+1)}
	return [2]interval{sink, {max(back, bound(s, p), sink.hi), p + 1}}
}

// rising is a number that grows with the score; both zeros are one.
func rising(score float32) uint32 {
	b := math.Float32bits(score + 0)
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

// sortable is a number that is larger for a larger score, and for the lower of
// two positions with the same score; its low half is ^position.
func sortable(score float32, position int) uint64 {
	return uint64(rising(score))<<32 | uint64(^uint32(position))
}

// largest moves the k largest of x to its front, in no order. The elements
// differ from each other.
func largest(x []uint64, k int) {
	lo, hi := 0, len(x)
	for hi-lo > 8 && lo < k && k < hi {
		pivot := median(x[lo], x[lo+(hi-lo)/2], x[hi-1]) // neither the largest nor the least
		part, n := x[lo:hi], 0
		for j, v := range part {
			part[j], part[n] = part[n], v
			_, larger := bits.Sub64(pivot, v, 0) // a branch would be guessed wrong half the time
			n += int(larger)
		}
		if k <= lo+n {
			hi = lo + n
		} else {
			lo += n
		}
	}
	for i := lo + 1; i < hi && lo < k && k < hi; i++ {
		for j := i; j > lo && x[j] > x[j-1]; j-- {
			x[j], x[j-1] = x[j-1], x[j]
		}
	}
}

// median is the middle one of three.
func median(a, b, c uint64) uint64 { return max(min(a, b), min(max(a, b), c)) }
