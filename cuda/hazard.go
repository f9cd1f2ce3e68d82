//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// hazards tracks read-after-write hazards between launches: which may still be running when
// the next one starts, and the tensors that they write, as their calls name them
// ([device.Call] Access). A programmatic dependent launch asks whether what its kernel reads
// before pdl_wait is complete.
type hazards struct {
	n         int // launches so far
	completed int // the first of them, which have completed when the next one starts
	unknown   int // the last launch whose writes are not known

	calls   []device.Call // that the next launches compute; nil: not known
	access  device.Access // of calls
	pending []pendingWrite
}

// pendingWrite is a tensor that launch n writes.
type pendingWrite struct {
	n int
	t device.Tensor
}

// begin says which calls the next launches compute.
func (h *hazards) begin(calls ...device.Call) {
	h.calls = calls
	h.access.Reset()
	for _, c := range calls {
		c.Access(&h.access)
	}
}

// end says that the next launches compute no known call.
func (h *hazards) end() { h.calls = nil }

// launched counts a launch. One that is not early starts when all before it have completed; so
// do the dependents of one that holds.
func (h *hazards) launched(early, holds bool) {
	if !early || holds {
		h.completed = h.n
	}
	h.n++
	keep := h.pending[:0]
	for _, w := range h.pending {
		if w.n > h.completed {
			keep = append(keep, w)
		}
	}
	h.pending = keep
	if h.calls == nil {
		h.unknown = h.n
		return
	}
	for _, t := range h.access.Writes {
		h.pending = append(h.pending, pendingWrite{h.n, t})
	}
}

// forget says that any launch may still be running, and write anything.
func (h *hazards) forget() { h.unknown = h.n }

// complete reports whether no launch that may still be running when the next one starts
// writes any of the tensors.
func (h *hazards) complete(tensors ...device.Tensor) bool {
	if h.unknown > h.completed {
		return false
	}
	for _, w := range h.pending {
		if w.n <= h.completed {
			continue
		}
		for _, t := range tensors {
			if !t.Absent() && w.t.Overlaps(t) {
				return false
			}
		}
	}
	return true
}
