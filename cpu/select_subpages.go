package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
)

// subPageTask is TopParts: item i is head group i%groups of slot i/groups.
type subPageTask struct {
	outList
	o             *ops
	pages         pages
	scores        []float32 // [rows, groups, width]
	groups, width int
	size          int // positions of a sub-page
	call          *device.Select
	causal        bool // the span masks nothing before the row

	scratch []subPageScratch
}

// subPageScratch is what one worker needs.
type subPageScratch struct {
	seen []int32  // sub-pages that the row sees
	keys []uint32 // of each of them: see orderedBits
}

// topParts lists the positions, or the pages, of the sub-pages with the best scores (Quest).
func (o *ops) topParts(c *device.Select) {
	t := &o.tasks.subPages
	*t = subPageTask{
		outList: newOutList(c.List), o: o, pages: newPages(c.KV),
		scores: f32s(c.Scores), groups: c.Scores.Dim(1), width: c.Scores.Dim(2),
		size: device.PageLen / c.PerPage, call: c, causal: c.Plan.Span == device.Span{},
		scratch: perWorker(o.pool, t.scratch),
	}
	for i := range t.scratch {
		s := &t.scratch[i]
		grown(&s.seen, t.width)
		grown(&s.keys, t.width)
	}
	o.pool.RunChunks(c.KV.Len.Dim(0)*t.groups, 1, t)
}

// Do lists items lo to hi-1.
func (t *subPageTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		if p, ok := t.o.first("TopParts", &t.pages, i/t.groups, 1); ok {
			t.list(&t.scratch[worker], i, p)
		}
	}
}

// list lists for item i, whose row is at position p.
func (t *subPageTask) list(s *subPageScratch, i, p int) {
	own, scores := p/t.size, row(t.scores, i, t.width)
	s.seen, s.keys = s.seen[:0], s.keys[:0]
	for part := range own {
		if t.sees(p, part) {
			s.seen, s.keys = append(s.seen, int32(part)), append(s.keys, orderedBits(numberOr(scores[part], negInf)))
		}
	}
	k := t.call.PartsOf(p) - 1
	out, n := row(t.index, i, t.limit), 0
	threshold, ties := uint32(0), len(s.keys)
	if k < len(s.keys) {
		threshold, ties = atRank(s.keys, k)
	}
	for j, part := range s.seen {
		if key := s.keys[j]; key > threshold || key == threshold && ties > 0 {
			if key == threshold {
				ties--
			}
			n = t.add(out, n, int(part), p)
		}
	}
	t.count[i] = int32(t.add(out, n, own, p))
}

// sees reports whether the row at p sees any position of a sub-page.
func (t *subPageTask) sees(p, part int) bool {
	if t.causal {
		return true
	}
	for j := part * t.size; j < (part+1)*t.size; j++ {
		if t.call.Plan.Span.Sees(p, j) {
			return true
		}
	}
	return false
}

// add appends what the row at p sees of a sub-page to a list of n entries: positions, or the
// page where a sub-page is a page.
func (t *subPageTask) add(out []int32, n, part, p int) int {
	from, to := part*t.size, min((part+1)*t.size, p+1)
	if t.size == device.PageLen {
		from, to = part, part+1
	}
	if n+to-from > len(out) {
		t.o.d.fail("TopParts: more entries than a list of %d takes", len(out))
		return n
	}
	for j := from; j < to; j++ {
		if t.causal || t.size == device.PageLen || t.call.Plan.Span.Sees(p, j) {
			out[n] = int32(j)
			n++
		}
	}
	return n
}

// numberOr is x, or other where x is NaN.
func numberOr(x, other float32) float32 {
	if x != x {
		return other
	}
	return x
}

// atRank is the k-th largest of keys, counted from 1, and how many of the k largest are equal
// to it, by radix select. For k = 0 it is above any key.
func atRank(keys []uint32, k int) (key uint32, ties int) {
	if k <= 0 {
		return math.MaxUint32, 0
	}
	var prefix, mask uint32
	for shift := 24; shift >= 0; shift -= 8 {
		var count [256]int
		for _, x := range keys {
			if x&mask == prefix {
				count[x>>shift&255]++
			}
		}
		digit := 255
		for ; count[digit] < k; digit-- {
			k -= count[digit]
		}
		prefix |= uint32(digit) << shift
		mask |= 255 << shift
	}
	return prefix, k
}
