package sparse_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
)

// half makes the cache f16, as labels are.
func half(c *engine.ReplayConfig) { c.KV = device.F16 }

// With all channels the ranking is that of exact scores.
func TestDoublesparsityOfAllChannelsIsTopK(t *testing.T) {
	const prompt = lawLen - lawSteps
	layers := lawTensors(1, lawLen)
	want := openBench(t, "topk(k=20,sink=4,window=16)", lawLen, half).lists(layers, prompt)
	got := openBench(t, "doublesparsity(file="+lawFiles+"/channels.npy,factor=1,k=20,sink=4,window=16,dense=0)", lawLen, half).lists(layers, prompt)
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Fatalf("set %d is %v, want %v", i, got[i], want[i])
		}
	}
	coarse := openBench(t, "doublesparsity(file="+lawFiles+"/channels.npy,factor=1,bits=1,k=20,sink=4,window=16,dense=0)", lawLen, half).lists(layers, prompt)
	if slices.EqualFunc(coarse, want, slices.Equal) {
		t.Error("labels of one bit select the same as exact ones")
	}
}

// What is selected depends on the first channels of the file alone, and the first
// layers are dense.
func TestDoublesparsityReadsItsChannels(t *testing.T) {
	const prompt, first = lawLen - lawSteps, 4
	dir := t.TempDir()
	var ranks []float32
	for range lawLayers * lawHeads {
		for c := range lawDim {
			ranks = append(ranks, float32((c*3+5)%lawDim)) // 5, 8, 11 and 14 first
		}
	}
	must(t, save(dir, "c", ranks, lawLayers, lawHeads, lawDim))
	layers, other := lawTensors(1, lawLen), lawTensors(1, lawLen)
	rng := rand.New(rand.NewPCG(1, 1))
	for l := range other {
		for _, x := range [][]float32{other[l].Q, other[l].K} {
			for i := range x {
				if c := i % lawDim; c != 5 && c != 8 && c != 11 && c != 14 {
					x[i] = float32(rng.NormFloat64())
				}
			}
		}
	}
	spec := "doublesparsity(file=" + dir + "/c.npy,factor=4,k=20,window=16,dense=1)"
	a, b := openBench(t, spec, lawLen, nil).lists(layers, prompt), openBench(t, spec, lawLen, nil).lists(other, prompt)
	if !slices.EqualFunc(a, b, slices.Equal) {
		t.Error("other channels change what is selected")
	}
	for i, set := range a {
		if layer, p := i/lawHeads%lawLayers, prompt+i/lawHeads/lawLayers; (len(set) == p+1) != (layer == 0) {
			t.Fatalf("layer %d reads %d of %d positions", layer, len(set), p+1)
		}
	}
	c := openBench(t, "doublesparsity(file="+lawFiles+"/channels.npy,factor=4,k=20,window=16,dense=1)", lawLen, nil).lists(layers, prompt)
	if slices.EqualFunc(a, c, slices.Equal) {
		t.Error("another ranking selects the same")
	}
}
