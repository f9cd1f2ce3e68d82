package sparse_test

import (
	"math"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// lawLenOfValues positions have values that rise with the position, so that what
// reads the wrong ones is far off.
const lawLenOfValues = 800

// lawBench is a law of scores over rising values, and the mean of the values under
// its softmax.
func lawBench(t *testing.T, law string) (b *residualBench, values [][2]float64, mean [2]float64) {
	t.Helper()
	scores, values := lawOfScores(law, lawLenOfValues)
	for j := range values {
		values[j][0] = float64(j) / lawLenOfValues
	}
	b = newResidualBench(t, santaHeads, scores, values)
	d := b.dense()
	return b, values, [2]float64{d[1] / d[0], d[2] / d[0]}
}

// Under each law of scores of section 11 every sampler is dense attention in the
// mean, and strata vary no more than independent draws.
func TestSantaUnderLawsOfScores(t *testing.T) {
	const samples = 24
	slack := 5 * math.Sqrt(2./(santaHeads*santaSeeds))
	for law := range scoreLaws {
		b, values, dense := lawBench(t, law)
		traces := map[string]float64{}
		for name, d := range map[string]device.ValueDraws{
			"sys": {Samples: samples}, "strat": {Samples: samples, Sampler: device.Stratified},
			"iid": {Samples: samples, Sampler: device.Independent}, "flash": {Samples: samples, Tiles: device.Equal},
		} {
			mean, stderr, trace := santaMoments(b, values, d)
			traces[name] = trace
			for i := range mean {
				if z := math.Abs(mean[i]-dense[i]) / stderr[i]; !(z < 4.5) {
					t.Errorf("%s of a %s law: mean %v, dense %v: %.1f standard errors", name, law, mean[i], dense[i], z)
				}
			}
		}
		if traces["strat"] > traces["iid"]*(1+slack) {
			t.Errorf("%s law: variance %v with strata, %v without", law, traces["strat"], traces["iid"])
		}
	}
}

// A flat law misleads a top-k, a spike misleads a sample that does not look at
// scores, and neither misleads values that are drawn by their softmax. It fails where
// the draws do not follow the softmax, and where the sample is not spread.
func TestLawsThatMisleadOthersThanSanta(t *testing.T) {
	const samples = 24
	for law, want := range map[string]map[string][2]float64{ // least and largest error
		"flat":  {"santa": {0, .1}, "top-k": {.15, 1}, "sample": {0, .1}},
		"spike": {"santa": {0, .15}, "top-k": {0, .15}, "sample": {.2, 1}},
	} {
		b, _, dense := lawBench(t, law)
		// off is the root of the mean square error of the first number, over heads
		// and seeds; weights are those of values, or of exponentials.
		off := func(ofValues bool, draw func(seed uint64) ([][]int32, [][]float32)) float64 {
			var square float64
			for seed := range uint64(santaSeeds) {
				index, weight := draw(seed)
				for h := range index {
					var n, d float64
					for i, j := range index[h] {
						w := float64(weight[h][i])
						if !ofValues {
							w *= b.terms[j][0]
						}
						n, d = n+w*b.terms[j][1]/b.terms[j][0], d+w
					}
					square += math.Pow(n/d-dense[0], 2) / float64(santaSeeds*len(index))
				}
			}
			return math.Sqrt(square)
		}
		for name, got := range map[string]float64{
			"santa": off(true, func(seed uint64) ([][]int32, [][]float32) {
				return b.draw(device.Plan{}, device.ValueDraws{Draw: rng.Address{Seed: seed}, Samples: samples})
			}),
			"top-k": off(false, func(uint64) ([][]int32, [][]float32) { return b.top(samples) }),
			"sample": off(false, func(seed uint64) ([][]int32, [][]float32) {
				return b.sample(device.Plan{Selected: device.None}, tailOf(samples, 1e9, seed))
			}),
		} {
			if bound := want[name]; !(got >= bound[0] && got <= bound[1]) {
				t.Errorf("%s of a %s law: error %.3f, want %v to %v", name, law, got, bound[0], bound[1])
			}
		}
	}
}

// top is the k best of every head, each with weight 1.
func (b *residualBench) top(k int) (index [][]int32, weight [][]float32) {
	b.t.Helper()
	scores := b.tensor(device.F32, make([]float32, b.heads*b.n), 1, b.heads, b.n)
	device.Do(b.dev.Queue(), device.Score{Rule: device.ExactScores, Dst: scores, Q: b.q, KV: b.kv, Plan: device.Plan{Selected: device.None}, Region: device.SelectedRegion})
	list := b.list
	list.Weight = device.Tensor{}
	device.Do(b.dev.Queue(), device.Select{Rule: device.TopK, List: list, Scores: scores, KV: b.kv, K: device.Amount{Count: k}})
	index, _ = b.lists()
	for _, x := range index {
		weight = append(weight, make([]float32, len(x)))
		for i := range x {
			weight[len(weight)-1][i] = 1
		}
	}
	return index, weight
}
