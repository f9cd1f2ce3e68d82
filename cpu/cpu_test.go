package cpu

import (
	"slices"
	"testing"

	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

// TestConformance runs the suite once for each instruction set. Under the race
// detector it runs once: the goroutines are the same for all of them, and the
// run without it (make test does both) checks their numbers.
func TestConformance(t *testing.T) {
	sets := vec.All()
	if race {
		sets = []*vec.Kernels{vec.Best()}
	}
	for _, k := range sets {
		t.Run(string(k.ISA), func(t *testing.T) {
			use(t, k.ISA)
			devtest.Run(t, func(t *testing.T) device.Device { return open(2, k) })
		})
	}
}

// use makes products run on an instruction set too, if they know it.
func use(t *testing.T, isa kernel.ISA) {
	t.Helper()
	if !slices.Contains(kernel.ISAs(), isa) {
		return
	}
	before := kernel.Current()
	if err := kernel.Use(isa); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kernel.Use(before); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkOp(b *testing.B) {
	devtest.Bench(b, func(b *testing.B) device.Device { return open(2, vec.Best()) })
}
