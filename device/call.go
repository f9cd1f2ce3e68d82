package device

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Call is one operation as a value: a struct of operands and parameters. Backends, recorders
// and tracers all take calls, so shape checks, hazards and cost are defined once, here, and not
// per backend.
//
// Calls are queued with [Do]. The set is closed: package device declares all of them.
type Call interface {
	// Check panics unless the operands fit together; the messages are those of check.go.
	Check()
	// Access names the tensors that the call reads and writes.
	Access(a *Access)
	// Cost is a lower bound of traffic and arithmetic. s, which may be nil, reads lengths
	// and lists back.
	Cost(s Stored) Cost

	kind() kind
}

// Queue executes or records calls in order: a device, a recorder, a tracer.
type Queue interface {
	// Do queues a call. The queue may keep c until the next Sync, Read or Launch; the
	// function [Do] passes it a copy.
	Do(c Call)
	// Arena holds the calls of this queue.
	Arena() *Arena
}

// Do queues a call:
//
//	device.Do(q, device.Add{Dst: x, X: y})
//
// The value is copied into the queue's arena, so queueing allocates nothing.
func Do[T any, C interface {
	*T
	Call
}](q Queue, call T) {
	c := C(place[T](q.Arena(), C(nil).kind()))
	*c = call
	q.Do(c)
}

// kind numbers the types of calls, in the order of their registration.
type kind uint8

// maxKinds is the maximum number of types of calls. A new algorithm is a rule of one of them.
const maxKinds = 24

// kindNames are the names of the types, by kind.
var kindNames []string

// register makes T a type of call; each has a package variable for its kind.
func register[T any]() kind {
	kindNames = append(kindNames, reflect.TypeFor[T]().Name())
	return kind(len(kindNames) - 1)
}

// Name is the type of a call, with its rule if it has one: "RMSNorm", "Select(TopK)".
func Name(c Call) string {
	if ruled, ok := c.(interface{ op() string }); ok {
		return ruled.op()
	}
	return kindNames[c.kind()]
}

// Rules lists the names of all calls; a call with rules is listed once per rule.
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

// Access is the tensors that calls read and write, absent ones left out.
type Access struct{ Reads, Writes []Tensor }

// Read adds tensors that are read.
func (a *Access) Read(t ...Tensor) { a.Reads = appendPresent(a.Reads, t) }

// Write adds tensors that are written. A tensor updated in place is in both.
func (a *Access) Write(t ...Tensor) { a.Writes = appendPresent(a.Writes, t) }

// Reset empties the lists and keeps their memory.
func (a *Access) Reset() { a.Reads, a.Writes = a.Reads[:0], a.Writes[:0] }

func appendPresent(all, more []Tensor) []Tensor {
	for _, t := range more {
		if !t.Absent() {
			all = append(all, t)
		}
	}
	return all
}

// Arena is the memory of a queue's calls, type by type. The zero Arena is empty.
type Arena struct{ slabs [maxKinds]resetter }

type resetter interface{ reset() }

// Reset frees all calls. Pointers to them are invalid from then on.
func (a *Arena) Reset() {
	for _, s := range a.slabs {
		if s != nil {
			s.reset()
		}
	}
}

// slab holds calls of one type. A chunk never moves, since there are pointers into it; when it
// is full a larger one replaces it.
type slab[T any] struct{ chunk []T }

func (s *slab[T]) reset() { s.chunk = s.chunk[:0] }

// place allocates a call of type T.
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

// Mark records timestamp I of a [Clock] when all calls before it are done, again at each launch
// of a graph. A device without a clock does nothing.
type Mark struct {
	I int // at least 0
}

// Check panics for a negative mark.
func (c *Mark) Check() {
	if c.I < 0 {
		Check(false, "Mark", "mark %d, want 0 or more", c.I)
	}
}

// Access is empty.
func (c *Mark) Access(*Access) {}

// Cost is 0.
func (c *Mark) Cost(Stored) Cost { return Cost{} }

var kindMark = register[Mark]()

func (*Mark) kind() kind { return kindMark }

// Discard makes the contents of a tensor or a list undefined until they are written again. A
// backend that fuses the calls before it need not store a discarded temporary at all.
type Discard struct {
	T    Tensor // any type and shape
	List List
}

// Check panics when there is nothing to discard.
func (c *Discard) Check() {
	if c.T.Absent() && c.List.Index.Absent() {
		Check(false, "Discard", "an absent tensor")
	}
}

// Access is a write.
func (c *Discard) Access(a *Access) { a.Write(c.T); c.List.write(a) }

// Cost is 0.
func (c *Discard) Cost(Stored) Cost { return Cost{} }

var kindDiscard = register[Discard]()

func (*Discard) kind() kind { return kindDiscard }

// Unknown panics: the backend has no implementation of c.
func Unknown(backend string, c Call) {
	panic(fmt.Sprintf("device: %s: no implementation of %s", backend, Name(c)))
}
