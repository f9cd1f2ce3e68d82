//go:build cuda || cudaemu

package cuda

import (
	"testing"

	"github.com/gollm/gollm/device"
)

// TestHazards: what is complete when a launch starts follows from what the calls before it write.
func TestHazards(t *testing.T) {
	tensor := func(n int) device.Tensor { return device.NewTensor(&memory{size: 4 * n}, 0, device.F32, n) }
	x, y, z := tensor(8), tensor(8), tensor(8)
	var h hazards
	launch := func(early, holds bool, calls ...device.Call) {
		h.begin(calls...)
		h.launched(early, holds)
		h.end()
	}
	complete := func(when string, want bool, tensors ...device.Tensor) {
		t.Helper()
		if got := h.complete(tensors...); got != want {
			t.Errorf("%s: complete is %v, want %v", when, got, want)
		}
	}
	launch(false, false, &device.Add{Dst: x, X: y})
	complete("the call before writes it", false, x)
	complete("the call before reads it", true, y, z, device.Tensor{})
	launch(true, false, &device.Copy{Dst: z, Src: y})
	complete("two early calls before", false, x)
	complete("one early call before", false, y, z)
	launch(true, true, &device.Copy{Dst: y, Src: z})
	complete("the call before holds those after it", true, x, z)
	complete("what that writes itself", false, y.Rows(0, 1))
	launch(false, false, &device.Copy{Dst: z.Rows(0, 4), Src: y.Rows(0, 4)})
	complete("the call before waits for all", true, x, y, z.Rows(4, 8))
	complete("part of what it writes", false, z.Rows(3, 5))
	h.launched(true, false) // of no call
	complete("a launch of no call", false, x)
	launch(false, false, &device.Add{Dst: x, X: y})
	complete("behind it", true, y)
	h.forget()
	complete("after a capture", false, y)
}
