package fusion

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

// notes is what an observer was told.
type notes struct {
	queued []string
	units  []string
	begun  int // since the last unit
}

func (n *notes) Queued(c device.Call) { n.queued = append(n.queued, device.Name(c)) }
func (n *notes) Begin()               { n.begun++ }
func (n *notes) End(pattern string, calls []device.Call) {
	n.units = append(n.units, fmt.Sprintf("%q of %d behind %v", pattern, len(calls), n.begun > 0))
	n.begun = 0
}

// TestObserve: an observer sees every call once, as the window begins them, from when it is
// set until it is taken away.
func TestObserve(t *testing.T) {
	x, long := vector(8), vector(200)
	p, n := newPairs(), &notes{}
	device.Do(p, device.Add{Dst: x, X: x}) // waits, and is flushed before
	mark := Observe(p, n, false)
	if mark == nil {
		t.Fatal("a window cannot be observed")
	}
	for _, y := range []device.Tensor{x, long} { // which is fused, and which is not
		device.Do(p, device.Add{Dst: y, X: y})
		device.Do(p, device.Add{Dst: y, X: y})
		device.Do(p, device.Discard{T: y})
	}
	if want := []string{"Add", "Add", "Discard", "Add", "Add", "Discard"}; !slices.Equal(n.queued, want) {
		t.Errorf("queued %q, want %q", n.queued, want)
	}
	if want := []string{`"two additions" of 3 behind true`, `"" of 1 behind true`, `"" of 1 behind true`, `"" of 1 behind true`}; !slices.Equal(n.units, want) {
		t.Errorf("units %q, want %q", n.units, want)
	}
	p.did = nil
	device.Do(p, device.Add{Dst: x, X: x}) // waits
	if mark(3); !slices.Equal(p.did, []string{"Mark"}) {
		t.Errorf("%q ran, want the mark alone", p.did)
	}
	Observe(p, n, true)
	n.units = nil
	device.Do(p, device.Add{Dst: x, X: x})
	device.Do(p, device.Add{Dst: x, X: x})
	device.Do(p, device.Discard{T: x})
	if want := []string{`"" of 1 behind true`, `"" of 1 behind true`, `"" of 1 behind true`}; !slices.Equal(n.units, want) {
		t.Errorf("apart: units %q, want %q", n.units, want)
	}
	Observe(p, nil, false)
	device.Do(p, device.Discard{T: x})
	if len(n.units) != 3 {
		t.Errorf("%q, of which the last came when nobody observed", n.units)
	}
	if Observe(plainQueue{}, n, false) != nil {
		t.Error("a queue without a window says that it can be observed")
	}
}

// plainQueue is a queue without a window.
type plainQueue struct{}

func (plainQueue) Do(device.Call)       {}
func (plainQueue) Arena() *device.Arena { return nil }
