package sparse_test

import (
	"math"
	"testing"

	"github.com/gollm/gollm/device"
)

// A sample that the heads of a kv head share is right in the mean for each of
// them, though it is drawn once and sized for the one that needs most.
func TestVAttentionOfAGroupIsUnbiased(t *testing.T) {
	const heads, n, seeds = 4, 400, 4096
	scores, values := lawOfScores("lognormal", n)
	b := newResidualBench(t, heads, scores, values)
	// The queries of the heads differ in length, one even in direction.
	lengths := [heads]float64{1, .5, 1.25, -1}
	q := make([]float32, heads*tailDim)
	for h, x := range lengths {
		q[h*tailDim] = float32(x * math.Sqrt(tailDim))
	}
	b.q = b.tensor(device.F32, q, 1, heads, tailDim)
	list := device.List{
		Index:  b.tensor(device.I32, make([]int32, n), 1, 1, n),
		Count:  b.tensor(device.I32, make([]int32, 1), 1, 1),
		Weight: b.tensor(device.F32, make([]float32, n), 1, 1, n),
	}
	plan := device.Plan{Sink: 4, Recent: 16, Selected: device.None}
	residual := device.Residual{Pilot: device.Amount{Count: 40}, Eps: .4, Z: 1.96, Fresh: true}
	index, count, weight := make([]int32, n), make([]int32, 1), make([]float32, n)
	var got, square, want [heads]float64
	for h, x := range lengths {
		for _, s := range scores {
			want[h] += math.Exp(x * s)
		}
	}
	sampled := 0
	for seed := range uint64(seeds) {
		residual.Draw.Seed = seed
		device.Do(b.dev.Queue(), device.Sample{Rule: device.ResidualSample, List: list, Q: b.q, KV: b.kv, Plan: plan, Residual: residual})
		b.read(index, list.Index)
		b.read(count, list.Count)
		b.read(weight, list.Weight)
		sampled += int(count[0])
		for h, x := range lengths {
			var sum float64
			for j, s := range scores {
				if j < plan.Sink || j >= n-plan.Recent {
					sum += math.Exp(x * s)
				}
			}
			for i, j := range index[:count[0]] {
				sum += float64(weight[i]) * math.Exp(x*scores[j])
			}
			got[h] += sum / seeds
			square[h] += (sum - want[h]) * (sum - want[h]) / seeds
		}
	}
	for h := range got {
		if z := (got[h] - want[h]) / math.Sqrt(square[h]/seeds); !(math.Abs(z) < 4.5) {
			t.Errorf("head %d: the sum is %v in the mean, want %v: %.1f standard errors", h, got[h], want[h], z)
		}
	}
	if mean := float64(sampled) / seeds; mean > n/2 || mean < 20 {
		t.Errorf("%.0f of %d positions are sampled, which says little", mean, n)
	}
}

// Values drawn from a set with weights have the mean of attention over that set,
// weights included: SANTA behind vAttention.
func TestSantaOfWeightsIsUnbiased(t *testing.T) {
	const n = 300
	scores, values := lawOfScores("lognormal", n)
	b := newResidualBench(t, santaHeads, scores, values)
	var index []int32
	var weight []float32
	for j := int32(20); j < n-30; j += 3 {
		index, weight = append(index, j), append(weight, []float32{1, 2.5, .25, 7}[j%4])
	}
	plan := device.Plan{Sink: 4, Recent: 16, Selected: device.Tokens, List: device.List{
		Index:  b.tensor(device.I32, index, 1, 1, len(index)),
		Count:  b.tensor(device.I32, []int32{int32(len(index))}, 1, 1),
		Weight: b.tensor(device.F32, weight, 1, 1, len(index)),
	}}
	sums := b.sums(plan, index, weight)
	want := [2]float64{sums[1] / sums[0], sums[2] / sums[0]}
	for name, d := range map[string]device.ValueDraws{
		"sys": {Samples: 24}, "strat": {Samples: 24, Sampler: device.Stratified},
		"iid": {Samples: 24, Sampler: device.Independent}, "flash": {Samples: 24, Tiles: device.Equal, Tile: 32},
	} {
		var mean, square [2]float64
		for seed := range uint64(santaSeeds) {
			d.Draw.Seed = seed
			drawn, w := b.draw(plan, d)
			for h := range drawn {
				var y [2]float64
				for i, j := range drawn[h] {
					y[0] += float64(w[h][i]) * values[j][0]
					y[1] += float64(w[h][i]) * values[j][1]
				}
				for i := range y {
					mean[i] += y[i] / (santaHeads * santaSeeds)
					square[i] += y[i] * y[i] / (santaHeads * santaSeeds)
				}
			}
		}
		for i := range mean {
			if z := (mean[i] - want[i]) / math.Sqrt((square[i]-mean[i]*mean[i])/(santaHeads*santaSeeds)); !(math.Abs(z) < 4.5) {
				t.Errorf("%s: mean %v, want %v: %.1f standard errors", name, mean[i], want[i], z)
			}
		}
	}
}

// Running sums over a long past keep their places: up to each position as many
// are drawn as its share of the softmax says, to within one.
func TestSantaCountsOfALongPast(t *testing.T) {
	const n, samples = 131072, 100000
	scores, values := lawOfScores("lognormal", n)
	b := newResidualBench(t, 1, scores, values)
	total := b.dense()[0]
	for name, d := range map[string]device.ValueDraws{"sys": {}, "strat": {Sampler: device.Stratified}} {
		d.Samples = samples
		index, weight := b.draw(device.Plan{}, d)
		var share, drawn float64
		next := 0
		for j := range n {
			share += b.terms[j][0] / total * samples
			if next < len(index[0]) && int(index[0][next]) == j {
				drawn += math.Round(float64(weight[0][next]) * samples)
				next++
			}
			if math.Abs(drawn-share) > 1.01 {
				t.Fatalf("%s: %v were drawn up to position %d, expected %.3f", name, drawn, j, share)
			}
		}
		if drawn != samples {
			t.Errorf("%s: %v were drawn of %d", name, drawn, samples)
		}
	}
}

// No set of so many positions has more weight than the best of exact scores.
func TestTopkKeepsTheMostMass(t *testing.T) {
	scores, values := lawOfScores("wide", 500)
	b := newResidualBench(t, 2, scores, values)
	for _, k := range []int{1, 7, 100, 499} {
		index, _ := b.top(k)
		for _, set := range index {
			in, minIn, maxOut := map[int32]bool{}, math.Inf(1), 0.0
			for _, j := range set {
				in[j], minIn = true, min(minIn, b.terms[j][0])
			}
			for j, x := range b.terms {
				if !in[int32(j)] {
					maxOut = max(maxOut, x[0])
				}
			}
			if len(in) != k || maxOut > minIn {
				t.Errorf("k=%d: %d positions, one without has weight %v, one with %v", k, len(in), maxOut, minIn)
			}
		}
	}
}
