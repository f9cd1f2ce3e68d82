//go:build cuda || cudaemu

package sparse_test

import (
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// TestEverySystemSelectsTheSame holds what every row of every system reads on the
// GPU, real or emulated, against what it reads on the CPU. Scores differ in their
// last bits, so that a position on the border of a set may go either way: a row
// agrees where the sets are equal but for positions whose exact scores are within
// tied of each other.
func TestEverySystemSelectsTheSame(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		want := selectedOn(t, "cpu", s.spec, layers, s.len, prompt)
		got := selectedOn(t, devtest.Device, s.spec, layers, s.len, prompt)
		if len(got) != len(want) {
			t.Fatalf("%d rows were planned, want %d", len(got), len(want))
		}
		differ := 0
		for row, keys := range want {
			if other, ok := got[row]; !ok || !slices.Equal(other, keys) {
				if differ++; differ <= 3 {
					t.Logf("layer %d, row %d, head %d reads %v, on the CPU %v", row.layer, row.pos, row.head, other, keys)
				}
			}
		}
		if differ > 0 {
			t.Errorf("%d of %d rows read other positions than on the CPU", differ, len(want))
		}
	})
}

// selectedOn is selected on a device.
func selectedOn(t *testing.T, name, spec string, layers []engine.QKV, n, prompt int) map[readBy][]int32 {
	t.Helper()
	b := openBenchOn(t, name, spec, n, nil)
	return b.selected(layers, prompt, 0)
}

var _ = device.Config{}
var _ = sparse.Methods
