package cpu

import (
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
	return v.plan.Middle == device.All || j < v.plan.Sink || j >= recent(v.plan, p)
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
	case v.plan.Middle == device.Blocks:
		return l.weight(j / device.PageLen)
	case v.plan.Middle == device.Tokens:
		return l.weight(j)
	}
	return 0
}

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

// lists finds the list of a group and a head. A count or a group that the
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
