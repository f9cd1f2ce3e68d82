package device

import (
	"fmt"
	"slices"
	"strings"
)

// Call is one operation as a value: a struct whose fields are its operands and
// settings. Backends, recorders and tracers all take calls, so what a call reads
// and writes, whether its operands fit together, and what it costs at least is
// said once, here, and nowhere per backend.
//
// Calls are made with [Do]. The set is closed: package device declares them all.
type Call interface {
	// Check panics unless the operands fit together, in the words of check.go.
	Check()
	// Access names the tensors that the call reads and writes.
	Access(a *Access)
	// Cost is the least that the call has to move and to compute; s, which may be nil,
	// tells lengths and lists.
	Cost(s Stored) Cost

	kind() kind
}

// Queue takes calls, in order: a device, a recorder, a tracer.
type Queue interface {
	// Do queues a call. The queue may look at c until its next Sync, Read or
	// Launch; [Do] gives it a copy of its own.
	Do(c Call)
	// Arena is where the calls for this queue lie.
	Arena() *Arena
}

// Do queues a call that is given as a value:
//
//	device.Do(q, device.Add{Dst: x, X: y})
//
// It is copied into the queue's arena, so that a call allocates nothing.
func Do[T any, C interface {
	*T
	Call
}](q Queue, call T) {
	c := C(place[T](q.Arena(), C(nil).kind()))
	*c = call
	q.Do(c)
}

// kind numbers the types of calls.
type kind uint8

const (
	kindEmbed kind = iota
	kindGather
	kindCopy
	kindAdd
	kindRMSNorm
	kindRope
	kindSwiGLU
	kindMatMul
	kindSampleTokens
	kindAppend
	kindAttend
	kindSummarize
	kindScore
	kindWalk
	kindSelect
	kindReuseSelection
	kindSample
	kindMark
	kindDiscard
	numKinds
)

// Name is the type of a call without its package, and the rule of a call that has one:
// "RMSNorm", "Select(TopK)".
func Name(c Call) string {
	if ruled, ok := c.(interface{ op() string }); ok {
		return ruled.op()
	}
	return kindNames[c.kind()]
}

var kindNames = [numKinds]string{
	kindEmbed: "Embed", kindGather: "Gather", kindCopy: "Copy", kindAdd: "Add", kindRMSNorm: "RMSNorm",
	kindRope: "Rope", kindSwiGLU: "SwiGLU", kindMatMul: "MatMul", kindSampleTokens: "SampleTokens",
	kindAppend: "Append", kindAttend: "Attend", kindSummarize: "Summarize", kindScore: "Score", kindWalk: "Walk",
	kindSelect: "Select", kindReuseSelection: "ReuseSelection", kindSample: "Sample", kindMark: "Mark", kindDiscard: "Discard",
}

// Rules lists the names of all calls, those that have rules once for each.
func Rules() []string {
	var all []string
	for _, rules := range [][]string{summaryOps[:], scoreOps[:], selectOps[:], sampleOps[:]} {
		all = append(all, rules...)
	}
	for _, name := range kindNames {
		if !slices.ContainsFunc(all, func(ruled string) bool { return strings.HasPrefix(ruled, name+"(") }) {
			all = append(all, name)
		}
	}
	return all
}

// Access is the tensors that calls read and write. Absent tensors are left out.
type Access struct{ Reads, Writes []Tensor }

// Read adds tensors that are read.
func (a *Access) Read(t ...Tensor) { a.Reads = appendPresent(a.Reads, t) }

// Write adds tensors that are written. What is updated in place is both.
func (a *Access) Write(t ...Tensor) { a.Writes = appendPresent(a.Writes, t) }

// Reset forgets the tensors and keeps the memory.
func (a *Access) Reset() { a.Reads, a.Writes = a.Reads[:0], a.Writes[:0] }

func appendPresent(all, more []Tensor) []Tensor {
	for _, t := range more {
		if !t.Absent() {
			all = append(all, t)
		}
	}
	return all
}

// Arena holds the calls of a queue, type by type. The zero Arena is empty.
type Arena struct{ slabs [numKinds]resetter }

type resetter interface{ reset() }

// Reset makes room for new calls in the place of the old ones, which nobody may
// look at any more.
func (a *Arena) Reset() {
	for _, s := range a.slabs {
		if s != nil {
			s.reset()
		}
	}
}

// slab is room for calls of one type. A chunk never moves, since pointers into it
// are out; when it is full the next one is larger.
type slab[T any] struct{ chunk []T }

func (s *slab[T]) reset() { s.chunk = s.chunk[:0] }

// place is room for a call of type T.
func place[T any](a *Arena, k kind) *T {
	s, ok := a.slabs[k].(*slab[T])
	if !ok {
		s = &slab[T]{make([]T, 0, 8)}
		a.slabs[k] = s
	}
	if len(s.chunk) == cap(s.chunk) {
		s.chunk = make([]T, 0, 2*cap(s.chunk))
	}
	s.chunk = s.chunk[:len(s.chunk)+1]
	return &s.chunk[len(s.chunk)-1]
}

// Mark sets mark I of a [Clock] to the time at which all calls before it are done. Each
// launch of a captured one sets it again. A device that is no clock does nothing.
type Mark struct {
	I int // from 0 on
}

// Check panics for a mark below 0.
func (c *Mark) Check() {
	if c.I < 0 {
		Check(false, "Mark", "mark %d, want 0 or more", c.I)
	}
}

// Access is of nothing.
func (c *Mark) Access(*Access) {}

// Cost is nothing.
func (c *Mark) Cost(Stored) Cost { return Cost{} }

func (*Mark) kind() kind { return kindMark }

// Discard ends the life of what a tensor or a list holds: its contents are undefined until
// it is written again. A backend that fuses the calls before it need not write it at all.
type Discard struct {
	T    Tensor // any type and shape
	List List
}

// Check panics where there is nothing to discard.
func (c *Discard) Check() {
	if c.T.Absent() && c.List.Index.Absent() {
		Check(false, "Discard", "an absent tensor")
	}
}

// Access counts as a write: what was there is gone.
func (c *Discard) Access(a *Access) { a.Write(c.T); c.List.write(a) }

// Cost is nothing.
func (c *Discard) Cost(Stored) Cost { return Cost{} }

func (*Discard) kind() kind { return kindDiscard }

// Unknown panics with the name of a call that a backend does not have.
func Unknown(backend string, c Call) {
	panic(fmt.Sprintf("device: %s: no implementation of %s", backend, Name(c)))
}
