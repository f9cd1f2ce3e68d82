package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// reach is what the rows of a call may see: the definition of a [device.Plan].
type reach struct{ plan device.Plan }

// spanned reports whether the span lets the row at p see position j.
func (v *reach) spanned(p, j int) bool { return v.plan.Span.Sees(p, j) }

// bound is the first position at or after which the row at p sees everything.
func bound(s device.Span, p int) int { return s.Bound(p) }

// edge reports whether position j is read by the row at p whatever the list says.
func (v *reach) edge(p, j int) bool {
	return v.plan.Selected == device.All || j < v.plan.Sink || j >= recent(v.plan, p)
}

// recent is the first position of the row's recent window.
func recent(plan device.Plan, p int) int {
	if plan.Align > 0 {
		return p/plan.Align*plan.Align - plan.Recent
	}
	return p + 1 - plan.Recent
}

// weight is the weight of position j for the row at p, 0 if it does not see it.
func (v *reach) weight(p, j int, l list) float32 {
	switch {
	case !v.spanned(p, j):
		return 0
	case v.edge(p, j):
		return 1
	case v.plan.Selected == device.Blocks:
		return l.weight(j / device.PageLen)
	case v.plan.Selected == device.Tokens:
		return l.weight(j)
	}
	return 0
}

// A set of positions of one page is a word: bit i is position PageLen·page + i.
// spannedBits and edgeBits are spanned and edge for a whole page at once.

// between is the positions lo to hi-1 of a page.
func between(page, lo, hi int) uint64 {
	lo, hi = max(lo-page*device.PageLen, 0), min(hi-page*device.PageLen, device.PageLen)
	if lo >= hi {
		return 0
	}
	return ^uint64(0) >> (device.PageLen - (hi - lo)) << lo
}

func (v *reach) spannedBits(p, page int) uint64 {
	s, first := v.plan.Span, 0
	if s.Back > 0 {
		first = p + 1 - s.Back
	}
	bits := between(page, first, p+1)
	if s.Drop != 0 {
		bits &= between(page, 0, s.Sink) | between(page, bound(s, p), math.MaxInt)
	}
	return bits
}

func (v *reach) edgeBits(p, page int) uint64 {
	if v.plan.Selected == device.All {
		return ^uint64(0)
	}
	return between(page, 0, v.plan.Sink) | between(page, recent(v.plan, p), math.MaxInt)
}

// edges are the pages that a run of rows needs whatever the list says: those
// before head and those from tail on.
type edges struct{ head, tail int }

// has reports whether a page is among them.
func (e edges) has(page int) bool { return page < e.head || page >= e.tail }

// edgePages finds them for rows whose first is at p. What a later row needs of
// the recent past is no earlier than what the first one does.
func (v *reach) edgePages(p int) edges {
	var head, tail int // positions
	if v.plan.Selected != device.All {
		head, tail = v.plan.Sink, recent(v.plan, p)
	}
	s := v.plan.Span
	if b := bound(s, p); b > tail {
		head, tail = max(head, s.Sink), b
	}
	if s.Back > 0 {
		tail = max(tail, p+1-s.Back)
	}
	return edges{pagesOf(head), max(tail, 0) / device.PageLen}
}

// pagesOf is how many pages n positions take.
func pagesOf(n int) int { return (n + device.PageLen - 1) / device.PageLen }

// list is one ragged set: what a group of rows and a head read.
type list struct {
	index   []int32   // ascending
	weights []float32 // nil: one each
}

// weight is the weight of entry j, 0 if the list does not have it.
func (l list) weight(j int) float32 {
	i, found := slices.BinarySearch(l.index, int32(j))
	switch {
	case !found:
		return 0
	case l.weights == nil:
		return 1
	}
	return l.weights[i]
}

// list finds the list of a group and a head. A count or a group that the
// tensors do not have is a failure; the list is cut, or empty.
func (o *ops) list(l device.List, group, head, heads int) list {
	if l.Index.Absent() {
		return list{}
	}
	groups, width, limit := l.Index.Dim(0), l.Index.Dim(1), l.Index.Dim(2)
	if group >= groups {
		o.d.fail("Attend: rows of list group %d, want 0 to %d", group, groups-1)
		return list{}
	}
	at := group*width + head*width/heads
	n := int(i32s(l.Count)[at])
	if n < 0 || n > limit {
		o.d.fail("Attend: list of %d entries, want 0 to %d", n, limit)
		n = min(max(n, 0), limit)
	}
	found := list{index: row(i32s(l.Index), at, limit)[:n]}
	if !l.Weight.Absent() {
		found.weights = row(f32s(l.Weight), at, limit)[:n]
	}
	return found
}

// group is the list group of a row: rows of one slot share a list by absolute
// position, and rows of several slots have one each.
func group(l device.List, slot, first, p int) int {
	n := max(l.Group, 1)
	return slot + p/n - first/n
}
