package device

import (
	"reflect"
	"slices"
	"testing"
)

// bytesOnHost is memory that holds nothing: calls are only queued here.
type bytesOnHost int

func (b *bytesOnHost) Size() int { return int(*b) }

func vector(n int) Tensor {
	memory := bytesOnHost(4 * n)
	return NewTensor(&memory, 0, F32, n)
}

// plain is a queue that runs calls at once.
type plain struct{ arena Arena }

func (p *plain) Do(Call)       { p.arena.Reset() }
func (p *plain) Arena() *Arena { return &p.arena }

// TestCallsAllocateNothing: a call is placed in the arena of its queue, which is as large as
// the most calls that were in it at once.
func TestCallsAllocateNothing(t *testing.T) {
	p := &plain{}
	x := vector(8)
	if n := testing.AllocsPerRun(100, func() {
		for range 40 {
			Do(p, Add{Dst: x, X: x})
		}
	}); n != 0 {
		t.Errorf("%v allocations in 40 calls", n)
	}
	if n := cap(p.arena.slabs[kindAdd].(*slab[Add]).chunk); n > 8 {
		t.Errorf("the arena has room for %d calls, where one at a time is in it", n)
	}
}

// TestRules: every type of call, and every rule, has a name of its own, and there are few
// types: what is new is a rule of one of them.
func TestRules(t *testing.T) {
	names := Rules()
	slices.Sort(names)
	want := len(kindNames) - 4 + int(numSummaryRules) + int(numScoreRules) + int(numSelectRules) + int(numSampleRules)
	if n := len(slices.Compact(names)); n != want || names[0] == "" {
		t.Errorf("%d names, want %d: %q", n, want, names)
	}
	if n := len(kindNames); n > maxKinds {
		t.Errorf("%d types of calls, want at most %d", n, maxKinds)
	}
}

// TestFewMethods: a backend with every optional ability implements few methods.
func TestFewMethods(t *testing.T) {
	var n int
	for _, of := range []reflect.Type{
		reflect.TypeFor[Device](), reflect.TypeFor[Queue](), reflect.TypeFor[Graph](),
		reflect.TypeFor[Clock](), reflect.TypeFor[AsyncReader](), reflect.TypeFor[PendingRead](),
	} {
		n += of.NumMethod()
	}
	if n > 20 {
		t.Errorf("%d methods, want at most 20", n)
	}
}
