//go:build cuda || cudaemu

package sparse_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/sparse"
)

// TestEverySystemSelectsTheSame holds what every row reads on the GPU, real or
// emulated, against what it reads on the CPU. Scores differ in their last bits; no
// position of these tensors lies so near the border of a set that they decide.
func TestEverySystemSelectsTheSame(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		want := openBenchOn(t, "cpu", s.spec, s.len, nil).selected(layers, prompt, 0)
		got := openBenchOn(t, devtest.Device, s.spec, s.len, nil).selected(layers, prompt, 0)
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

// modelBound is how far logits may be from those of the CPU, relative to their
// length.
const modelBound = 1e-2

// TestEverySystemOnAModel runs a prompt and some steps of a small model under every
// system, and holds the logits against those of the CPU.
func TestEverySystemOnAModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "random.gguf")
	must(t, modeltest.Writer(modeltest.Shape{Layers: 3, Vocab: 100}).WriteFile(path))
	open := func(name string) *engine.Engine {
		e, err := engine.Open(path, name, device.Config{Threads: 2})
		must(t, err)
		t.Cleanup(func() { e.Close() })
		return e
	}
	cpu, gpu := open("cpu"), open(devtest.Device)
	ids := make([]int32, 150)
	for i := range ids {
		ids[i] = int32((i*i*7 + i*13) % cpu.Model.Vocab)
	}
	dense := logitsOf(t, cpu, "dense", ids, lawSteps)
	for _, m := range sparse.Methods() {
		i := slices.IndexFunc(subjects, func(s subject) bool { return slices.Contains(systems(s.spec), m.Name) })
		t.Run(m.Name, func(t *testing.T) {
			spec := fitted(t, subjects[i].spec, cpu)
			want, got := logitsOf(t, cpu, spec, ids, lawSteps), logitsOf(t, gpu, spec, ids, lawSteps)
			if d := apart(got, want); !(d <= modelBound) {
				t.Errorf("%s: logits are %.2g from the CPU's, want at most %g", spec, d, modelBound)
			}
			if d := apart(want, dense); m.Name != "dense" && d <= 2*modelBound {
				t.Errorf("%s: logits are only %.2g from dense: it is not sparse here", spec, d)
			}
		})
	}
}

// apart is the length of a - b over that of b.
func apart(a, b []float32) float64 {
	var far, size float64
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		far += d * d
		size += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(far / size)
}
