//go:build cuda || cudaemu

package sparse_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/sparse"
)

// TestEveryMethodSelectsTheSame holds what every row reads on the GPU, real or
// emulated, against what it reads on the CPU. Scores differ in their last bits; no
// position of these tensors lies so near the border of a set that they decide.
func TestEveryMethodSelectsTheSame(t *testing.T) {
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

// fullSize makes TestEveryMethodAtFullSize run, which takes minutes in emulation.
var fullSize = flag.Bool("fullsize", false, "run every method on layers of Llama-3.1-8B's shape")

// TestEveryMethodAtFullSize is TestEveryMethodSelectsTheSame on layers of Llama-3.1-8B's
// shape, with a cache in half precision, and holds captured steps against eager ones.
func TestEveryMethodAtFullSize(t *testing.T) {
	if !*fullSize {
		t.Skip("it takes minutes: make emulate-8b")
	}
	size := engine.ReplayConfig{Layers: 3, Heads: 32, KVHeads: 8, HeadDim: 128, Slots: 2, Seed: 1, KV: device.F16}
	files, err := os.MkdirTemp("", "gollm-full-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(files) })
	must(t, calibrate(files, size.Layers, size.Heads, size.KVHeads, size.HeadDim))
	for _, m := range sparse.Methods() {
		s := subjects[slices.IndexFunc(subjects, func(s subject) bool { return slices.Contains(methodsOf(s.spec), m.Name) })]
		s.spec, s.len = strings.ReplaceAll(s.spec, lawFiles, files), max(s.len, lawLen)
		t.Run(m.Name, func(t *testing.T) {
			layers := fullTensors(size, s.len)
			want, _ := fullRun(t, "cpu", s, size, layers)
			got, apart := fullRun(t, devtest.Device, s, size, layers)
			if len(got) != len(want) {
				t.Fatalf("%d rows were planned, want %d", len(got), len(want))
			}
			for row, keys := range want {
				if !slices.Equal(got[row], keys) {
					t.Errorf("layer %d, row %d, head %d reads %v, on the CPU %v", row.layer, row.pos, row.head, got[row], keys)
					return
				}
			}
			if !(apart <= 1e-4) {
				t.Errorf("captured steps are %g from eager ones", apart)
			}
		})
	}
}

// fullTensors is random tensors of a size.
func fullTensors(c engine.ReplayConfig, n int) []engine.QKV {
	rng := rand.New(rand.NewPCG(1, 7))
	normal := func(heads int) []float32 {
		x := make([]float32, heads*n*c.HeadDim)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	var layers []engine.QKV
	for range c.Layers {
		layers = append(layers, engine.QKV{Q: normal(c.Heads), K: normal(c.KVHeads), V: normal(c.KVHeads)})
	}
	return layers
}

// fullRun is what the last rows of a prompt and two steps behind it read, and how far
// captured steps are from the eager ones at most.
func fullRun(t *testing.T, device string, s subject, size engine.ReplayConfig, layers []engine.QKV) (map[readBy][]int32, float64) {
	const steps, last = 2, 8
	b := openBenchOn(t, device, s.spec, s.len, func(c *engine.ReplayConfig) {
		maxLen := c.MaxLen
		*c = size
		c.MaxLen = maxLen
	})
	read := map[readBy][]int32{}
	b.Observe = func(sel engine.Selection) {
		for row, p := range sel.Pos {
			for h := range size.Heads {
				if p >= s.len-steps-last {
					read[readBy{sel.Layer, p, h}], _ = sel.Keys(row, h)
				}
			}
		}
	}
	eager := b.open(layers)
	must(t, eager.Prefill(s.len-steps, 0))
	kept, err := eager.Fork()
	must(t, err)
	b.steps(eager)
	eager.Close() // a fork takes its slot
	captured, err := kept.Fork()
	must(t, err)
	b.Observe = nil
	for captured.More() {
		must(t, b.StepReplayed(captured))
	}
	var apart float64
	for l := range size.Layers {
		apart = max(apart, furthest(captured.Output(l), eager.Output(l)))
	}
	return read, apart
}

// modelBound is how far logits may be from those of the CPU, relative to their
// length.
const modelBound = 1e-2

// TestEveryMethodOnAModel runs a prompt and some steps of a small model under every
// method, and holds the logits against those of the CPU.
func TestEveryMethodOnAModel(t *testing.T) {
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
		i := slices.IndexFunc(subjects, func(s subject) bool { return slices.Contains(methodsOf(s.spec), m.Name) })
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
