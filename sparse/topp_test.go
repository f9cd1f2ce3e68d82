package sparse_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestToppIsTheSmallestSet: what a row reads of its region holds the share of the
// weight, one position less would not, and no other position weighs more.
func TestToppIsTheSmallestSet(t *testing.T) {
	const n, prompt, sink, window = 150, 140, 3, 10
	layers := lawTensors(11, n)
	var before map[readBy][]int32
	for _, share := range []float64{0, 0.3, 0.7, 0.95} {
		read := selected(t, fmt.Sprintf("topp(p=%v,sink=%d,window=%d)", share, sink, window), layers, n, prompt, 0)
		for at, keys := range read {
			w := weightsOf(layers[at.layer], n, at.pos, at.head)
			var region []float64
			var total float64
			in := []int32{}
			for j := sink; j <= at.pos-window; j++ {
				region = append(region, w[j])
				total += w[j]
				if slices.Contains(keys, int32(j)) {
					in = append(in, int32(j-sink))
				}
			}
			if !slices.Equal(in, best(region, len(in))) {
				t.Fatalf("p=%v, %+v: reads %v of the region, not the best so many", share, at, in)
			}
			sum := weightOn(region, in)
			if sum < share*total-1e-6 {
				t.Errorf("p=%v, %+v: keeps %v of %v", share, at, sum, total)
			}
			if len(in) > 0 {
				if rest := best(region, len(in)-1); weightOn(region, rest) >= share*total+1e-6 {
					t.Errorf("p=%v, %+v: %d positions were enough, it reads %d", share, at, len(rest), len(in))
				}
			}
			if before != nil && !subset(before[at], keys) {
				t.Errorf("p=%v, %+v: a smaller share reads what this one does not", share, at)
			}
		}
		before = read
	}
}

// TestToppOfEverything: with p=1 the output is that of dense attention, bit for
// bit.
func TestToppOfEverything(t *testing.T) {
	const n, prompt = 150, 140
	layers := lawTensors(12, n)
	same(t, "p=1", outputs(openBench(t, "topp(p=1,sink=0,window=1)", n, nil).run(layers, prompt, 0)),
		outputs(openBench(t, "dense", n, nil).run(layers, prompt, 0)))
}

// TestToppByLaw: of flat scores a share of positions is read, the first ones; of
// one spike a single one; of a lognormal tail more as the share grows.
func TestToppByLaw(t *testing.T) {
	const n, prompt = 200, 199
	for _, tt := range []struct {
		law  string
		of   func(j int) float64 // score of position j
		want int                 // positions besides the window; -1 is not checked
	}{
		{"flat", func(int) float64 { return 0 }, 100}, // 0.5 of 199 is 99.5
		{"spike", func(j int) float64 { return map[bool]float64{true: 40}[j == 77] }, 1},
		{"sink", func(j int) float64 { return math.Exp(2*math.Sin(float64(j*j))) + 9*math.Exp(-float64(j)) }, -1},
	} {
		layers := lawTensors(13, n)
		for l := range layers {
			for i := range layers[l].Q {
				layers[l].Q[i] = map[bool]float32{true: 1}[i%lawDim == 0]
			}
			for i := range layers[l].K {
				layers[l].K[i] = 0
				if i%lawDim == 0 {
					layers[l].K[i] = float32(tt.of(i/lawDim%n) * math.Sqrt(lawDim))
				}
			}
		}
		read := selected(t, "topp(p=0.5,sink=0,window=1)", layers, n, prompt, 0)
		keys := read[readBy{2, n - 1, 1}]
		if tt.want >= 0 && len(keys) != tt.want+1 {
			t.Errorf("%s: %d positions besides its own, want %d: %v", tt.law, len(keys)-1, tt.want, keys)
		}
		if tt.law == "flat" && !slices.Equal(keys[:tt.want], upTo(tt.want-1)) {
			t.Errorf("flat: it reads %v, want the lowest", keys)
		}
		if w := weightsOf(layers[2], n, n-1, 1); weightOn(w, keys) < 0.5-1e-6 {
			t.Errorf("%s: %v of the weight is kept", tt.law, weightOn(w, keys))
		}
	}
}
