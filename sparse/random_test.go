package sparse_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// picked is what a head read in a decode step: positions and their weights.
type picked struct {
	layer, p, head int
	keys           []int32
	weights        []float32
}

// stepsOf calls each with what the decode steps of a spec read, over seeds.
func stepsOf(t *testing.T, spec string, seeds int, each func(seed int, got picked)) {
	t.Helper()
	for seed := range seeds {
		b := openBench(t, spec, lawLen, func(c *engine.ReplayConfig) { c.Seed = uint64(seed) + 1 })
		b.Observe = func(sel engine.Selection) {
			if !sel.Decode {
				return
			}
			for h := range sel.Heads {
				keys, weights := sel.Keys(0, h)
				each(seed, picked{sel.Layer, sel.Pos[0], h, keys, weights})
			}
		}
		b.run(lawTensors(1, lawLen), lawLen-lawSteps, 0)
	}
}

// Every position of the rest is drawn as often as any other, alone and in pairs,
// and counts as many as there are for each that is drawn.
func TestRandomDrawsUniformly(t *testing.T) {
	aboutNumbers(t)
	const sink, window, k, seeds = 4, 16, 20, 24
	var times, expected, variance [lawLen]float64
	var pairs, pairsExpected float64
	runs := 0
	stepsOf(t, "random(k=20,sink=4,window=16)", seeds, func(_ int, got picked) {
		rest := got.p + 1 - sink - window
		share := float64(k) / float64(rest)
		runs++
		for j := sink; j < sink+rest; j++ {
			expected[j] += share
			variance[j] += share * (1 - share)
		}
		n := 0
		for i, j := range got.keys {
			if int(j) < sink || int(j) > got.p-window {
				continue
			}
			times[j]++
			if n++; math.Abs(float64(got.weights[i])*share-1) > 1e-6 {
				t.Fatalf("position %d has weight %v, want %v", j, got.weights[i], 1/share)
			}
			if slices.Contains(got.keys, j+1) && int(j)+1 <= got.p-window {
				pairs++
			}
		}
		if n != k {
			t.Fatalf("%d positions drawn, want %d", n, k)
		}
		pairsExpected += float64(rest-1) * share * (k - 1) / float64(rest-1)
	})
	if runs < 4096 {
		t.Fatalf("%d samples, want 4096", runs)
	}
	for j := range times {
		if z := (times[j] - expected[j]) / math.Sqrt(max(variance[j], 1e-9)); math.Abs(z) > 4.5 {
			t.Errorf("position %d was drawn %v times, expected %v: %.1f standard errors", j, times[j], expected[j], z)
		}
	}
	// Neighbours are nearly independent: the count of pairs is nearly Poisson.
	if z := (pairs - pairsExpected) / math.Sqrt(pairsExpected); math.Abs(z) > 4.5 {
		t.Errorf("%v pairs of neighbours, expected %v", pairs, pairsExpected)
	}
}

// weight=one reads the same positions, each once; share=group the same for the
// heads of a kv head, and other positions for another, another layer and another
// position.
func TestRandomOptions(t *testing.T) {
	sets := map[string][][]int32{}
	for _, options := range []string{"", ",weight=one", ",share=group"} {
		stepsOf(t, "random(k=20,sink=4,window=16"+options+")", 1, func(_ int, got picked) {
			sets[options] = append(sets[options], got.keys)
			if once := !slices.ContainsFunc(got.weights, func(w float32) bool { return w != 1 }); once != (options == ",weight=one") {
				t.Errorf("random(%s) has weights %v", options, got.weights)
			}
		})
	}
	for i, keys := range sets[""] {
		if !slices.Equal(keys, sets[",weight=one"][i]) {
			t.Fatalf("weight=one reads %v, want %v", sets[",weight=one"][i], keys)
		}
	}
	grouped := sets[",share=group"]
	for i := 0; i < len(grouped); i += lawHeads {
		if !slices.Equal(grouped[i], grouped[i+1]) || slices.Equal(grouped[i], grouped[i+2]) {
			t.Fatalf("heads read %v, %v and %v", grouped[i], grouped[i+1], grouped[i+2])
		}
		if i > 0 && slices.Equal(grouped[i], grouped[i-lawHeads]) {
			t.Fatal("two layers draw the same")
		}
	}
	if _, err := sparse.Parse("random(k=1)"); err == nil || !strings.Contains(err.Error(), "at least 2") {
		t.Errorf("k=1: %v", err)
	}
}
