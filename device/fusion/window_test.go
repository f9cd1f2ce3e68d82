package fusion

import (
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

// bytesOnHost is memory that holds nothing: calls are only queued here.
type bytesOnHost int

func (b *bytesOnHost) Size() int { return int(*b) }

func vector(n int) device.Tensor {
	memory := bytesOnHost(4 * n)
	return device.NewTensor(&memory, 0, device.F32, n)
}

// pairs is a queue whose backend computes two additions at once where the first is
// discarded by the third call, and notes what it did.
type pairs struct {
	Window
	did []string
}

func newPairs() *pairs {
	p := &pairs{}
	p.Open(func(c device.Call) { p.did = append(p.did, device.Name(c)) }, Pattern{
		Name: "two additions",
		Match: func(calls []device.Call) (n int, more bool) {
			for i, want := range []string{"Add", "Add", "Discard"} {
				if i == len(calls) {
					return 0, true
				}
				if device.Name(calls[i]) != want {
					return 0, false
				}
			}
			return 3, false
		},
		Run: func(calls []device.Call) bool {
			if calls[0].(*device.Add).X.Len() > 100 {
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
	add := func(p *pairs, x device.Tensor) { device.Do(p, device.Add{Dst: x, X: x}) }
	discard := func(p *pairs) { device.Do(p, device.Discard{T: x}) }
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
	p.Open(func(c device.Call) {
		if device.Name(c) == "Copy" {
			panic("no")
		}
		p.did = append(p.did, device.Name(c))
	})
	x := vector(8)
	func() {
		defer func() { _ = recover() }()
		device.Do(p, device.Copy{Dst: x, Src: x})
	}()
	device.Do(p, device.Add{Dst: x, X: x})
	if !slices.Equal(p.did, []string{"Add"}) {
		t.Errorf("%v behind a call that panicked, want Add", p.did)
	}
}

// TestProductsApart: products of the same rows are taken together as far as none of them
// reads or overwrites the result of another.
func TestProductsApart(t *testing.T) {
	memory := bytesOnHost(1 << 20)
	at := func(i int) device.Tensor { return device.NewTensor(&memory, i<<10, device.F32, 4, 4) }
	x, w := at(0), at(1)
	for name, c := range map[string]struct {
		second device.MatMul
		want   int
	}{
		"apart":          {device.MatMul{Dst: at(3), X: x, W: w}, 2},
		"other rows":     {device.MatMul{Dst: at(3), X: at(4), W: w}, 1},
		"over the first": {device.MatMul{Dst: at(2), X: x, W: w}, 1},
		"of the first":   {device.MatMul{Dst: at(3), X: x, W: at(2)}, 1},
	} {
		if n, _ := Products([]device.Call{&device.MatMul{Dst: at(2), X: x, W: w}, &c.second}); n != c.want {
			t.Errorf("%s: %d calls are taken, want %d", name, n, c.want)
		}
	}
}

// TestWindowAllocatesNothing: queueing and launching allocate nothing.
func TestWindowAllocatesNothing(t *testing.T) {
	p := newPairs()
	x := vector(8)
	if n := testing.AllocsPerRun(100, func() {
		for range 40 {
			device.Do(p, device.Add{Dst: x, X: x})
		}
		p.Flush()
		p.did = p.did[:0]
	}); n != 0 {
		t.Errorf("%v allocations in 40 calls", n)
	}
}
