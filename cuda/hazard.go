//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// hazards says which launches may still run when the next one starts, and what they write,
// by the calls' own word for it ([device.Call] Access). A launch that may start early
// (programmatic dependent launch) asks whether what it reads before it waits is there.
type hazards struct {
	n       int // launches so far
	done    int // those that have finished when the next one starts, from the first on
	unknown int // the last one that may have written anything

	calls   []device.Call // what the next launches compute; nil is unknown
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

// end says that what is launched next computes no call that is known.
func (h *hazards) end() { h.calls = nil }

// launched counts a launch. One that does not start early starts when all before it have
// finished, and lets those after it start then, too, where it says so.
func (h *hazards) launched(early, holds bool) {
	if !early || holds {
		h.done = h.n
	}
	h.n++
	keep := h.pending[:0]
	for _, w := range h.pending {
		if w.n > h.done {
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

// forget says that it is not known what has finished.
func (h *hazards) forget() { h.unknown = h.n }

// settled reports whether no launch that may still run when the next one starts writes any
// of the tensors.
func (h *hazards) settled(tensors ...device.Tensor) bool {
	if h.unknown > h.done {
		return false
	}
	for _, w := range h.pending {
		if w.n <= h.done {
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
