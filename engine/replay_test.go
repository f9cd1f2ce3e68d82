package engine_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

const (
	rHeads, rKVHeads, rDim, rLayers = 4, 2, 16, 2
)

// randomLayers is n positions of random tensors for the replay's layers.
func randomLayers(seed uint64, n int) []engine.QKV {
	rng := rand.New(rand.NewPCG(seed, 1))
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	layers := make([]engine.QKV, rLayers)
	for l := range layers {
		layers[l] = engine.QKV{Q: normal(rHeads * n * rDim), K: normal(rKVHeads * n * rDim), V: normal(rKVHeads * n * rDim)}
	}
	return layers
}

func newReplay(t *testing.T, spec string, slots, maxLen int) *engine.Replay {
	t.Helper()
	return newWindowReplay(t, spec, slots, maxLen, 0)
}

// newWindowReplay is newReplay of a model with a sliding window.
func newWindowReplay(t *testing.T, spec string, slots, maxLen, window int) *engine.Replay {
	t.Helper()
	dev, err := device.Open(devtest.Device, device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	s, err := sparse.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	r, err := engine.NewReplay(dev, s, engine.ReplayConfig{
		Layers: rLayers, Heads: rHeads, KVHeads: rKVHeads, HeadDim: rDim, MaxLen: maxLen, Slots: slots, Window: window,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// attention is softmax(q·k/√dim + ln w)·v of one row over the keys given, in
// float64.
func attention(t engine.QKV, n, p, head int, keys []int32, weights []float32) []float64 {
	kv := head * rKVHeads / rHeads
	q := t.Q[(head*n+p)*rDim:][:rDim]
	y, sum := make([]float64, rDim), 0.0
	for i, j := range keys {
		k, v := t.K[(kv*n+int(j))*rDim:][:rDim], t.V[(kv*n+int(j))*rDim:][:rDim]
		var s float64
		for c := range q {
			s += float64(q[c]) * float64(k[c])
		}
		w := float64(weights[i]) * math.Exp(s/math.Sqrt(rDim))
		sum += w
		for c := range y {
			y[c] += w * float64(v[c])
		}
	}
	for c := range y {
		y[c] /= sum
	}
	return y
}

// TestReplayComputesAttentionOverItsSelection holds outputs against float64
// attention over the keys that were read back.
func TestReplayComputesAttentionOverItsSelection(t *testing.T) {
	const n, prompt = 150, 130
	for _, spec := range []string{"dense", "streaming(sink=3,window=20)", "topk(k=0.2,sink=2,window=5)"} {
		r := newReplay(t, spec, 2, n)
		layers := randomLayers(1, n)
		other, err := r.Open(randomLayers(2, n))
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Open(layers)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Prefill(70, 0); err != nil {
			t.Fatal(err)
		}
		var seen []engine.Selection
		r.Observe = func(sel engine.Selection) { seen = append(seen, sel) }
		if err := s.Prefill(prompt, 64); err != nil {
			t.Fatal(err)
		}
		for s.Len() < n {
			if err := r.Step(s, other); err != nil {
				t.Fatal(err)
			}
		}
		rows := 0
		for _, sel := range seen {
			for i, p := range sel.Pos {
				if sel.Decode && i != s.Slot() {
					continue
				}
				rows++
				for h := range rHeads {
					keys, weights := sel.Keys(i, h)
					want := attention(layers[sel.Layer], n, p, h, keys, weights)
					got := s.Output(sel.Layer)[(h*n+p)*rDim:][:rDim]
					for c := range want {
						if math.Abs(float64(got[c])-want[c]) > 1e-5 {
							t.Fatalf("%s layer %d head %d row %d: %v, want %v", spec, sel.Layer, h, p, got, want)
						}
					}
				}
			}
		}
		if want := rLayers * n; rows != want {
			t.Errorf("%s: %d rows were observed, want %d", spec, rows, want)
		}
	}
}

func TestReplayForksTruncatesAndLaunches(t *testing.T) {
	const n = 140
	r := newReplay(t, "topk(k=10,sink=2,window=5)", 2, n)
	layers := randomLayers(3, n)
	s, err := r.Open(layers)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(100, 64); err != nil {
		t.Fatal(err)
	}
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	for s.Len() < n {
		if err := r.Step(s); err != nil {
			t.Fatal(err)
		}
	}
	for f.Len() < n {
		if err := r.StepReplayed(f); err != nil {
			t.Fatal(err)
		}
	}
	for l := range rLayers {
		if !slices.Equal(s.Output(l), f.Output(l)) {
			t.Errorf("layer %d: launched steps of a fork differ from eager ones", l)
		}
	}
	want := slices.Clone(s.Output(1))
	s.Truncate(90)
	if err := s.Prefill(10, 0); err != nil {
		t.Fatal(err)
	}
	for s.Len() < n {
		if err := r.Step(s); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(s.Output(1), want) {
		t.Error("after a truncation the outputs differ")
	}
}

func TestReplayLeavesFrozenRowsZero(t *testing.T) {
	const n = 100
	r := newReplay(t, "etf(ls=1,psi=0.5,sink=10)", 1, n)
	s, err := r.Open(randomLayers(1, n))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(n, 32); err != nil {
		t.Fatal(err)
	}
	zeros := 0
	for p := range n {
		row := s.Output(1)[p*rDim:][:rDim]
		if !slices.ContainsFunc(row, func(v float32) bool { return v != 0 }) {
			zeros++
			if p < 10 || p >= 50 {
				t.Errorf("row %d is zero; rows 10 to 49 are frozen", p)
			}
		}
	}
	if zeros != 40 {
		t.Errorf("%d rows are zero, want 40", zeros)
	}
}

func TestReplayRefusesWhatDoesNotFit(t *testing.T) {
	r := newReplay(t, "dense", 1, 64)
	layers := randomLayers(1, 40)
	layers[1].K = layers[1].K[1:]
	if _, err := r.Open(layers); err == nil {
		t.Error("tensors of other sizes: no error")
	}
	if _, err := r.Open(randomLayers(1, 40)[:1]); err == nil {
		t.Error("one layer of two: no error")
	}
	s, err := r.Open(randomLayers(1, 40))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(41, 0); err == nil {
		t.Error("prefill of more positions than the tensors have: no error")
	}
	if err := s.Prefill(40, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.Step(s); err == nil {
		t.Error("step past the tensors: no error")
	}
}
