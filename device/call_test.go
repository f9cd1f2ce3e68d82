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

// pairs is a queue whose backend computes two additions at once where the first is
// discarded by the third call, and notes what it did.
type pairs struct {
	Window
	did []string
}

func newPairs() *pairs {
	p := &pairs{}
	p.Open(func(c Call) { p.did = append(p.did, Name(c)) }, Pattern{
		Name: "two additions",
		Match: func(calls []Call) (n int, more bool) {
			for i, want := range []kind{kindAdd, kindAdd, kindDiscard} {
				if i == len(calls) {
					return 0, true
				}
				if calls[i].kind() != want {
					return 0, false
				}
			}
			return 3, false
		},
		Run: func(calls []Call) bool {
			if calls[0].(*Add).X.Len() > 100 {
				return false
			}
			p.did = append(p.did, "pair")
			return true
		},
	})
	return p
}

// TestWindow: calls leave a window in order, fused where a pattern takes them, one by one
// where it does not, where it does not suit them, and where they are flushed.
func TestWindow(t *testing.T) {
	x, long := vector(8), vector(200)
	add := func(p *pairs, x Tensor) { Do(p, Add{Dst: x, X: x}) }
	discard := func(p *pairs) { Do(p, Discard{T: x}) }
	for name, c := range map[string]struct {
		calls func(p *pairs)
		want  []string
	}{
		"fused":    {func(p *pairs) { add(p, x); add(p, x); discard(p) }, []string{"pair"}},
		"waits":    {func(p *pairs) { add(p, x); add(p, x) }, nil},
		"flushed":  {func(p *pairs) { add(p, x); add(p, x); p.Flush(); discard(p) }, []string{"Add", "Add", "Discard"}},
		"no match": {func(p *pairs) { add(p, x); discard(p) }, []string{"Add", "Discard"}},
		"behind":   {func(p *pairs) { add(p, x); add(p, x); add(p, x); discard(p) }, []string{"Add", "pair"}},
		"unsuited": {func(p *pairs) { add(p, long); add(p, long); discard(p) }, []string{"Add", "Add", "Discard"}},
		"dropped":  {func(p *pairs) { add(p, x); p.Drop(); discard(p) }, []string{"Discard"}},
	} {
		p := newPairs()
		if c.calls(p); !slices.Equal(p.did, c.want) {
			t.Errorf("%s: %v, want %v", name, p.did, c.want)
		}
	}
}

// TestPanicInACall: misuse that a backend finds is not tried again by the next call.
func TestPanicInACall(t *testing.T) {
	p := &pairs{}
	p.Open(func(c Call) {
		if c.kind() == kindCopy {
			panic("no")
		}
		p.did = append(p.did, Name(c))
	})
	x := vector(8)
	func() {
		defer func() { _ = recover() }()
		Do(p, Copy{Dst: x, Src: x})
	}()
	Do(p, Add{Dst: x, X: x})
	if !slices.Equal(p.did, []string{"Add"}) {
		t.Errorf("%v behind a call that panicked, want Add", p.did)
	}
}

// TestProductsApart: products of the same rows are taken together as far as none of them
// reads or overwrites the result of another.
func TestProductsApart(t *testing.T) {
	memory := bytesOnHost(1 << 20)
	at := func(i int) Tensor { return NewTensor(&memory, i<<10, F32, 4, 4) }
	x, w := at(0), at(1)
	for name, c := range map[string]struct {
		second MatMul
		want   int
	}{
		"apart":          {MatMul{Dst: at(3), X: x, W: w}, 2},
		"other rows":     {MatMul{Dst: at(3), X: at(4), W: w}, 1},
		"over the first": {MatMul{Dst: at(2), X: x, W: w}, 1},
		"of the first":   {MatMul{Dst: at(3), X: x, W: at(2)}, 1},
	} {
		if n, _ := Products([]Call{&MatMul{Dst: at(2), X: x, W: w}, &c.second}); n != c.want {
			t.Errorf("%s: %d calls are taken, want %d", name, n, c.want)
		}
	}
}

// TestCallsAllocateNothing: the arena of a queue is as large as its window was.
func TestCallsAllocateNothing(t *testing.T) {
	p := newPairs()
	x := vector(8)
	if n := testing.AllocsPerRun(100, func() {
		for range 40 {
			Do(p, Add{Dst: x, X: x})
		}
		p.Flush()
		p.did = p.did[:0]
	}); n != 0 {
		t.Errorf("%v allocations in 40 calls", n)
	}
	if n := cap(p.arena.slabs[kindAdd].(*slab[Add]).chunk); n > 64 {
		t.Errorf("the arena has room for %d calls, where a flush leaves none of 40", n)
	}
}

// TestRules: every type of call, and every rule, has a name of its own, and there are few
// types: what is new is a rule of one of them.
func TestRules(t *testing.T) {
	names := Rules()
	slices.Sort(names)
	want := int(numKinds) - 4 + int(numSummaryRules) + int(numScoreRules) + int(numSelectRules) + int(numSampleRules)
	if n := len(slices.Compact(names)); n != want || names[0] == "" {
		t.Errorf("%d names, want %d: %q", n, want, names)
	}
	if numKinds > 24 {
		t.Errorf("%d types of calls, want at most 24", numKinds)
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
