package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

var negInf = float32(math.Inf(-1))

// mask is the attention mask of a [device.Plan]: which stored positions a query row reads,
// and with what weight.
type mask struct{ plan device.Plan }

// weight is the weight of position j for the row at position p, 0 where it is masked. This
// is the definition; everything below answers the same question for many positions at once.
func (v *mask) weight(p, j int, l positionList) float32 {
	switch {
	case !v.spanned(p, j):
		return 0
	case v.always(p, j):
		return 1
	case v.plan.Selected == device.Blocks:
		return l.weight(j / device.PageLen)
	case v.plan.Selected == device.Tokens:
		return l.weight(j)
	}
	return 0
}

// spanned reports whether the span lets the row at p see position j.
func (v *mask) spanned(p, j int) bool { return v.plan.Span.Sees(p, j) }

// always reports whether the row at p reads position j without the list: in the sinks, in
// the recent window, or anywhere if the plan selects all positions.
func (v *mask) always(p, j int) bool {
	return v.plan.Selected == device.All || j < v.plan.Sink || j >= windowStart(v.plan, p)
}

// windowStart is the first position of the recent window of the row at p.
func windowStart(plan device.Plan, p int) int {
	if plan.Align > 0 {
		return p/plan.Align*plan.Align - plan.Recent
	}
	return p + 1 - plan.Recent
}

// A set of positions of one page is a 64-bit word: bit i is position PageLen·page + i.

// between is the positions lo to hi-1 of a page.
func between(page, lo, hi int) uint64 {
	lo, hi = max(lo-page*device.PageLen, 0), min(hi-page*device.PageLen, device.PageLen)
	if lo >= hi {
		return 0
	}
	return ^uint64(0) >> (device.PageLen - (hi - lo)) << lo
}

// spannedBits is spanned for all positions of a page.
func (v *mask) spannedBits(p, page int) uint64 {
	s, first := v.plan.Span, 0
	if s.Back > 0 {
		first = p + 1 - s.Back
	}
	bits := between(page, first, p+1)
	if s.Drop != 0 {
		bits &= between(page, 0, s.Sink) | between(page, s.Bound(p), math.MaxInt)
	}
	return bits
}

// alwaysBits is always for all positions of a page.
func (v *mask) alwaysBits(p, page int) uint64 {
	if v.plan.Selected == device.All {
		return ^uint64(0)
	}
	return between(page, 0, v.plan.Sink) | between(page, windowStart(v.plan, p), math.MaxInt)
}

// seesBlock reports whether the span lets the row at p see any position of block j.
func (v *mask) seesBlock(p, j int) bool {
	last := min(j*device.PageLen+device.PageLen-1, p)
	sink := min(last, v.plan.Span.Sink-1)
	return v.spanned(p, last) || sink >= j*device.PageLen && v.spanned(p, sink)
}

// alwaysPages are the pages that consecutive rows read without the list: those before head,
// and those from tail on.
type alwaysPages struct{ head, tail int }

// has reports whether a page is among them.
func (e alwaysPages) has(page int) bool { return page < e.head || page >= e.tail }

// alwaysPages finds the pages for rows that start at p. The window of a later row starts no
// earlier than that of the first.
func (v *mask) alwaysPages(p int) alwaysPages {
	var head, tail int // positions
	if v.plan.Selected != device.All {
		head, tail = v.plan.Sink, windowStart(v.plan, p)
	}
	s := v.plan.Span
	if b := s.Bound(p); b > tail {
		head, tail = max(head, s.Sink), b
	}
	if s.Back > 0 {
		tail = max(tail, p+1-s.Back)
	}
	return alwaysPages{pagesOf(head), max(tail, 0) / device.PageLen}
}

// interval is positions [lo, hi); empty when hi is not above lo.
type interval struct{ lo, hi int }

// has reports whether position j is in the interval.
func (v interval) has(j int) bool { return v.lo <= j && j < v.hi }

// spanIntervals is what a span lets the row at p see, as two disjoint intervals.
func spanIntervals(s device.Span, p int) [2]interval {
	back := 0
	if s.Back > 0 {
		back = max(0, p+1-s.Back)
	}
	sink := interval{back, min(s.Sink, p+1)}
	return [2]interval{sink, {max(back, s.Bound(p), sink.hi), p + 1}}
}

// region is the selected region of the row at p, which lists select from: what its span lets
// it see between the sinks and the recent window.
func (v *mask) region(p int) [2]interval {
	region := spanIntervals(v.plan.Span, p)
	for i, x := range region {
		region[i] = interval{max(x.lo, v.plan.Sink), min(x.hi, windowStart(v.plan, p))}
	}
	return region
}

// regionBits is the positions of a page in the selected region of the row at p.
func (v *mask) regionBits(p, page int) uint64 {
	return v.spannedBits(p, page) &^ v.alwaysBits(p, page)
}

// covered reports whether a list has every position that the rows at positions first to last
// see in the selected region, each with weight one. Such rows are computed as those of a
// plan without a list, so that a selection of everything gives the bits of dense attention.
func (v *mask) covered(l positionList, first, last int) bool {
	p := &v.plan
	if p.Selected != device.Tokens || p.Mixture || first != last && p.Span != (device.Span{}) {
		return false
	}
	next := 0
	for _, seen := range v.region(last) {
		for j := seen.lo; j < seen.hi; j, next = j+1, next+1 {
			if next == len(l.index) || int(l.index[next]) != j || l.weights != nil && l.weights[next] != 1 {
				return false
			}
		}
	}
	return true
}

// dense is the mask of rows whose list is covered.
func (v *mask) dense() mask { return mask{device.Plan{Span: v.plan.Span}} }

// positionList is what a list group and a head read: positions, or pages where the plan
// selects blocks.
type positionList struct {
	index   []int32   // ascending
	weights []float32 // nil: one each
}

// list finds the list of a list group and a head. A group or a count outside of the tensors
// is a failure: the list is cut, or empty.
func (o *ops) list(l device.List, group, head, heads int) positionList {
	if l.Index.Absent() {
		return positionList{}
	}
	groups, width, limit := l.Index.Dim(0), l.Index.Dim(1), l.Index.Dim(2)
	if group >= groups {
		o.d.fail("Attend: rows of list group %d, want 0 to %d", group, groups-1)
		return positionList{}
	}
	at := group*width + head*width/heads
	n := int(i32s(l.Count)[at])
	if n < 0 || n > limit {
		o.d.fail("Attend: list of %d entries, want 0 to %d", n, limit)
		n = min(max(n, 0), limit)
	}
	found := positionList{index: row(i32s(l.Index), at, limit)[:n]}
	if !l.Weight.Absent() {
		found.weights = row(f32s(l.Weight), at, limit)[:n]
	}
	return found
}

// listGroup is the list group of the row at p: rows of one slot share a list by absolute
// position, and rows of several slots have one each.
func listGroup(l device.List, slot, first, p int) int {
	n := max(l.Group, 1)
	return slot + p/n - first/n
}

// weight is the weight of entry j, 0 if the list does not have it.
func (l positionList) weight(j int) float32 {
	i, found := slices.BinarySearch(l.index, int32(j))
	switch {
	case !found:
		return 0
	case l.weights == nil:
		return 1
	}
	return l.weights[i]
}

// has reports whether entry j is on the list with a weight.
func (l positionList) has(j int) bool { return len(l.index) > 0 && l.weight(j) != 0 }

// bits are the positions of a page that are on the list.
func (l positionList) bits(m device.Selection, page int) (set uint64) {
	switch m {
	case device.Blocks:
		if _, found := slices.BinarySearch(l.index, int32(page)); found {
			return ^uint64(0)
		}
	case device.Tokens:
		at, _ := slices.BinarySearch(l.index, int32(page*device.PageLen))
		for _, j := range l.index[at:] {
			if int(j) >= (page+1)*device.PageLen {
				break
			}
			set |= 1 << (j % device.PageLen)
		}
	}
	return set
}
