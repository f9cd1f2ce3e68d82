package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// Choose makes an entry of the newest position for every set that found none.
func (o *ops) Choose(dm device.Memo, scores, q device.Tensor, kv device.KV, p device.Plan) {
	const op = "Choose"
	slots, heads := kv.Len.Dim(0), q.Dim(1)
	m := o.memo(op, dm, heads, kv)
	device.CheckShape(op, "q", q, device.F32, slots, heads, m.dim)
	device.CheckShape(op, "scores", scores, device.F32, slots, heads, -1)
	t := &o.choose
	*t = chooseTask{memo: m, o: o, pages: newPages(kv), plan: p, q: f32s(q), scores: f32s(scores), width: scores.Dim(2),
		pos: o.newest(op, kv, t.pos), scratch: t.scratch}
	for slot, at := range t.pos {
		if at >= t.width {
			o.d.fail("%s: position %d in scores of %d", op, at, t.width)
			t.pos[slot] = -1
		}
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, chooseScratch{})
	}
	for i := range t.scratch {
		t.scratch[i].fit(t.width, m.dim)
	}
	o.pool.RunChunks(slots*m.sets, 1, t)
	for _, at := range t.pos {
		if most := m.K.Of(at + 1); at >= 0 && most > m.most && at+1 > m.most {
			o.d.fail("%s: %d positions chosen for an entry of %d", op, most, m.most)
		}
	}
}

// chooseTask chooses for sets: item i is set i%sets of slot i/sets.
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
	keys []float32 // [PageLen, dim]
	rank []uint64  // of each candidate; see sortable
}

// fit makes the scratch large enough.
func (s *chooseScratch) fit(width, dim int) {
	if len(s.keys) < device.PageLen*dim {
		s.keys = make([]float32, device.PageLen*dim)
	}
	if cap(s.rank) < width {
		s.rank = make([]uint64, 0, width)
	}
}

// Do chooses for items lo to hi-1.
func (t *chooseTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		slot, set := i/t.sets, i%t.sets
		if p := t.pos[slot]; p >= 0 {
			t.set(&t.scratch[worker], slot, set, p)
		}
	}
}

// set makes, copies or clears the entry of position p, and counts.
func (t *chooseTask) set(s *chooseScratch, slot, set, p int) {
	i := slot*t.sets + set
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
	ranges, scored := t.score(s, slot, set, p)
	best := t.best(s, slot, set, ranges)
	best = best[:min(t.K.Of(p+1), len(best), t.most)]
	dst := row(t.index, i*t.Block+number, t.most)
	for j, key := range best {
		dst[j] = int32(^uint32(key))
	}
	rec[0], rec[1], rec[2] = int32(p+1), int32(number), int32(len(best))
	tally[1]++
	sum := uint64(uint32(tally[2])) | uint64(uint32(tally[3]))<<32
	sum += uint64(scored)
	tally[2], tally[3] = int32(uint32(sum)), int32(uint32(sum>>32))
}

// score fills the row of the set's first head with what positions are ranked
// by, and returns the ranges to rank and the number of positions scored.
func (t *chooseTask) score(s *chooseScratch, slot, set, p int) (middle [2]interval, scored int) {
	visible := seen(t.plan.Span, p)
	for i, v := range visible {
		middle[i] = interval{max(v.lo, t.plan.Sink), min(v.hi, recent(t.plan, p))}
	}
	lo, hi := t.members(set)
	ranges := visible
	if hi-lo == 1 {
		ranges = middle
	}
	for h := lo; h < hi; h++ {
		out := t.row(slot, h)
		for _, v := range ranges {
			scored += max(v.hi-v.lo, 0)
			t.products(out, s, slot, h, v)
		}
		if hi-lo > 1 {
			softmaxOver(out, visible)
		}
		if h > lo {
			addOver(t.row(slot, lo), out, visible)
		}
	}
	return middle, scored / (hi - lo)
}

// row is the scores of a head.
func (t *chooseTask) row(slot, head int) []float32 { return row(t.scores, slot*t.heads+head, t.width) }

// products is q·k/√dim over an interval.
func (t *chooseTask) products(out []float32, s *chooseScratch, slot, head int, v interval) {
	q := row(t.q, slot*t.heads+head, t.dim)
	g, kvHead := &t.pages, head*t.pages.heads/t.heads
	for j := v.lo; j < v.hi; {
		end := min(v.hi, (j/device.PageLen+1)*device.PageLen)
		page := int(g.table[slot*g.width+j/device.PageLen])
		keys := s.keys[:(end-j)*t.dim]
		t.o.load(keys, g.k, g.element(page, kvHead, j%device.PageLen), g.half)
		for i := range end - j {
			out[j+i] = float32(dot(q, row(keys, i, t.dim)) / math.Sqrt(float64(t.dim)))
		}
		j = end
	}
}

// best ranks the candidates of a set, best first; no more than K of them are in
// order.
func (t *chooseTask) best(s *chooseScratch, slot, set int, middle [2]interval) []uint64 {
	lo, _ := t.members(set)
	scores := t.row(slot, lo)
	s.rank = s.rank[:0]
	for _, v := range middle {
		for j := v.lo; j < v.hi; j++ {
			if scores[j] > negInf {
				s.rank = append(s.rank, sortable(scores[j], j))
			}
		}
	}
	k := min(t.K.Of(t.pos[slot]+1), len(s.rank))
	largest(s.rank, k)
	slices.SortFunc(s.rank[:k], func(a, b uint64) int {
		if a > b {
			return -1
		}
		return 1
	})
	return s.rank[:k]
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

// softmaxOver normalizes what two intervals hold; NaN and -Inf count nothing.
func softmaxOver(x []float32, over [2]interval) {
	top, sum := math.Inf(-1), 0.0
	for _, v := range over {
		for j := v.lo; j < v.hi; j++ {
			if s := float64(x[j]); s > top {
				top = s
			}
		}
	}
	for _, v := range over {
		for j := v.lo; j < v.hi; j++ {
			e := 0.0
			if x[j] > negInf {
				e = math.Exp(float64(x[j]) - top)
			}
			x[j] = float32(e)
			sum += e
		}
	}
	for _, v := range over {
		for j := v.lo; j < v.hi; j++ {
			x[j] = float32(float64(x[j]) / max(sum, math.SmallestNonzeroFloat64))
		}
	}
}

// addOver adds x to dst in two intervals.
func addOver(dst, x []float32, over [2]interval) {
	for _, v := range over {
		for j := v.lo; j < v.hi; j++ {
			dst[j] += x[j]
		}
	}
}

// sortable is a number that is larger for a larger score, and for the lower of
// two positions with the same score; its low half is ^position.
func sortable(score float32, position int) uint64 {
	b := math.Float32bits(score + 0) // -0 is 0
	if b>>31 == 1 {
		b = ^b
	} else {
		b |= 1 << 31
	}
	return uint64(b)<<32 | uint64(^uint32(position))
}

// largest moves the k largest of x to its front, in no order. The elements
// differ from each other.
func largest(x []uint64, k int) {
	for lo, hi := 0, len(x); hi-lo > 1 && lo < k && k < hi; {
		pivot := median(x[lo], x[lo+(hi-lo)/2], x[hi-1])
		i, j := lo, hi-1
		for i <= j {
			for x[i] > pivot {
				i++
			}
			for x[j] < pivot {
				j--
			}
			if i <= j {
				x[i], x[j] = x[j], x[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case k <= j+1:
			hi = j + 1
		case k >= i:
			lo = i
		default:
			return
		}
	}
}

// median is the middle one of three.
func median(a, b, c uint64) uint64 { return max(min(a, b), min(max(a, b), c)) }
