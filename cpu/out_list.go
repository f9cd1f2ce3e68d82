package cpu

import (
	"sync/atomic"

	"github.com/gollm/gollm/device"
)

// outList is a list that a call writes. Tasks embed it.
type outList struct {
	index, count []int32     // [groups, heads, limit], [groups, heads]
	weight       []float32   // like index; nil where the list has no weights
	limit        int         // entries of a list
	overflow     atomic.Bool // a list had no room for an entry
}

func newOutList(l device.List) outList {
	var weight []float32
	if !l.Weight.Absent() {
		weight = f32s(l.Weight)
	}
	return outList{index: i32s(l.Index), count: i32s(l.Count), weight: weight, limit: l.Index.Dim(2)}
}

// checkOverflow fails where a list had no room for an entry.
func (l *outList) checkOverflow(o *ops, op string) {
	if l.overflow.Load() {
		o.d.fail("%s: more entries than a list of %d takes", op, l.limit)
	}
}
