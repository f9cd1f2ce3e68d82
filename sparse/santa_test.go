package sparse_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
	"github.com/gollm/gollm/sparse"
)

// draw runs ValueSample on all heads, each of which draws for itself, and
// returns what they list.
func (b *residualBench) draw(plan device.Plan, d device.ValueDraws) (index [][]int32, weight [][]float32) {
	b.t.Helper()
	device.Do(b.dev.Queue(), device.Sample{Rule: device.ValueSample, List: b.list, Q: b.q, KV: b.kv, Plan: plan, Draws: d})
	return b.lists()
}

// santaLen and santaHeads are the size of the statistical tests: heads times
// seeds is 4096.
const santaLen, santaHeads, santaSeeds = 300, 16, 256

// santaBench is a lognormal softmax over 300 positions; p is it, and mean and
// trace are the mean of the values under it and the trace of their covariance.
func santaBench(t *testing.T) (b *residualBench, values [][2]float64, p []float64, mean [2]float64, trace float64) {
	t.Helper()
	scores, values := lawOfScores("lognormal", santaLen)
	b = newResidualBench(t, santaHeads, scores, values)
	total := b.dense()[0]
	for j, v := range values {
		p = append(p, b.terms[j][0]/total)
		mean[0] += p[j] * v[0]
		mean[1] += p[j] * v[1]
	}
	for j, v := range values {
		trace += p[j] * (math.Pow(v[0]-mean[0], 2) + math.Pow(v[1]-mean[1], 2))
	}
	return b, values, p, mean, trace
}

// santaRuns draws 4096 times and calls each with what was drawn.
func santaRuns(b *residualBench, d device.ValueDraws, each func(index []int32, weight []float32)) {
	for seed := range uint64(santaSeeds) {
		d.Draw.Seed = seed
		index, weight := b.draw(device.Plan{}, d)
		for h := range index {
			each(index[h], weight[h])
		}
	}
}

// santaMoments is the mean of what is drawn, its standard errors, and the trace of
// its covariance.
func santaMoments(b *residualBench, values [][2]float64, d device.ValueDraws) (mean, stderr [2]float64, trace float64) {
	var square [2]float64
	const n = santaHeads * santaSeeds
	santaRuns(b, d, func(index []int32, weight []float32) {
		var y [2]float64
		for i, j := range index {
			y[0] += float64(weight[i]) * values[j][0]
			y[1] += float64(weight[i]) * values[j][1]
		}
		for i := range y {
			mean[i] += y[i] / n
			square[i] += y[i] * y[i] / n
		}
	})
	for i := range mean {
		v := (square[i] - mean[i]*mean[i]) * n / (n - 1)
		trace += v
		stderr[i] = math.Sqrt(v / n)
	}
	return mean, stderr, trace
}

// Every sampler and execution but the paper's allocation is attention in the
// mean; that one has the mean of its tiles, each with its whole samples.
func TestSantaIsUnbiased(t *testing.T) {
	b, values, p, dense, _ := santaBench(t)
	for name, d := range map[string]device.ValueDraws{
		"sys": {Samples: 24}, "strat": {Samples: 24, Sampler: device.Stratified}, "iid": {Samples: 24, Sampler: device.Independent},
		"flash": {Samples: 24, Tiles: device.Equal}, "flash strat": {Samples: 8, Tiles: device.Equal, Tile: 64, Sampler: device.Stratified},
		"group": {Samples: 24, Shared: true},
	} {
		mean, stderr, _ := santaMoments(b, values, d)
		runs := 1.0
		if d.Shared { // all heads of the only kv head draw alike
			runs = math.Sqrt(santaHeads)
		}
		for i := range mean {
			if z := math.Abs(mean[i]-dense[i]) / stderr[i] / runs; !(z < 4.5) {
				t.Errorf("%s: mean %v, dense %v: %.1f standard errors", name, mean[i], dense[i], z)
			}
		}
	}
	const tile, samples = 64, 3
	mean, stderr, _ := santaMoments(b, values, device.ValueDraws{Samples: samples, Tiles: device.Remainder, Tile: tile})
	want := remainderMean(p, values, tile, samples)
	var off float64
	for i := range mean {
		if z := math.Abs(mean[i]-want[i]) / stderr[i]; !(z < 4.5) {
			t.Errorf("largest remainder: mean %v, want %v: %.1f standard errors", mean[i], want[i], z)
		}
		off = max(off, math.Abs(mean[i]-dense[i])/stderr[i])
	}
	if off < 4.5 {
		t.Errorf("largest remainder: the bias is only %.1f standard errors, so the test cannot see it", off)
	}
}

// remainderMean is Σ (S_t/S)·mean of tile t.
func remainderMean(p []float64, values [][2]float64, tile, samples int) (mean [2]float64) {
	var shares, rest []float64
	for j, x := range p {
		if j%tile == 0 {
			shares = append(shares, 0)
		}
		shares[j/tile] += x
	}
	whole, left := make([]float64, len(shares)), samples
	for t, x := range shares {
		whole[t] = math.Floor(x * float64(samples))
		rest = append(rest, x*float64(samples)-whole[t])
		left -= int(whole[t])
	}
	for ; left > 0; left-- {
		best := slices.Index(rest, slices.Max(rest))
		whole[best]++
		rest[best] = 0
	}
	for j, x := range p {
		for i := range mean {
			mean[i] += whole[j/tile] / float64(samples) * x / shares[j/tile] * values[j][i]
		}
	}
	return mean
}

// The variances: iid is tr Σ / S, strata are below it and as their formula says.
func TestSantaVariances(t *testing.T) {
	b, values, p, _, trace := santaBench(t)
	const samples, runs = 24, santaHeads * santaSeeds
	_, _, iid := santaMoments(b, values, device.ValueDraws{Samples: samples, Sampler: device.Independent})
	_, _, strat := santaMoments(b, values, device.ValueDraws{Samples: samples, Sampler: device.Stratified})
	slack := 5 * math.Sqrt(2./runs)
	if r := iid / (trace / samples); math.Abs(r-1) > slack {
		t.Errorf("iid: variance %v, want %v", iid, trace/samples)
	}
	if strat > iid*(1+slack) {
		t.Errorf("variance %v with strata, %v without", strat, iid)
	}
	if want := stratVariance(p, values, samples); math.Abs(strat/want-1) > slack {
		t.Errorf("strat: variance %v, want %v", strat, want)
	}
}

// stratVariance is the sum of the traces of the covariances within strata, over
// the square of their number.
func stratVariance(p []float64, values [][2]float64, samples int) (trace float64) {
	for k := range samples {
		lo, hi, sum := float64(k)/float64(samples), float64(k+1)/float64(samples), 0.0
		var mean, square [2]float64
		for j, x := range p {
			inside := max(0, min(hi, sum+x)-max(lo, sum)) * float64(samples)
			sum += x
			for i, v := range values[j] {
				mean[i] += inside * v
				square[i] += inside * v * v
			}
		}
		for i := range mean {
			trace += (square[i] - mean[i]*mean[i]) / float64(samples*samples)
		}
	}
	return trace
}

// Systematic counts add up to S and are within one of S·p.
func TestSantaCounts(t *testing.T) {
	b, _, p, _, _ := santaBench(t)
	for _, samples := range []int{1, 7, 64, 1000} {
		santaRuns(b, device.ValueDraws{Samples: samples}, func(index []int32, weight []float32) {
			total, i := 0.0, 0
			for j := range p {
				c := 0.0
				if i < len(index) && int(index[i]) == j {
					c = math.Round(float64(weight[i]) * float64(samples))
					i++
				}
				if total += c; math.Abs(c-float64(samples)*p[j]) > 1+1e-4 {
					t.Fatalf("%d samples: position %d was drawn %v times, expected %v", samples, j, c, float64(samples)*p[j])
				}
			}
			if total != float64(samples) || i != len(index) {
				t.Fatalf("%d samples: %v drawn", samples, total)
			}
		})
	}
}

// A systematic sample is the same for all tiles, of equal weights it is each
// position as often as any other, and a point mass is exact.
func TestSantaExactCases(t *testing.T) {
	const n = 128
	for name, c := range map[string]struct {
		score func(j int) float64
		want  int // positions listed
	}{
		"flat":  {func(int) float64 { return 1 }, n},
		"point": {func(j int) float64 { return map[bool]float64{true: 0, false: -200}[j == 77] }, 1},
	} {
		scores := make([]float64, n)
		for j := range scores {
			scores[j] = c.score(j)
		}
		b := newResidualBench(t, 4, scores, make([][2]float64, n))
		for seed := range uint64(50) {
			index, weight := b.draw(device.Plan{}, device.ValueDraws{Draw: rng.Address{Seed: seed}, Samples: 2 * n})
			for h := range index {
				if len(index[h]) != c.want || slices.Max(weight[h]) != slices.Min(weight[h]) || weight[h][0] != float32(1)/float32(c.want) {
					t.Fatalf("%s: %d positions listed with weights %v", name, len(index[h]), weight[h][:1])
				}
			}
		}
		if index, _ := b.draw(device.Plan{}, device.ValueDraws{}); len(index[0]) != 0 {
			t.Errorf("%s: no samples, and %v is listed", name, index[0])
		}
	}
}

// Errors of a step say nothing about those of the next one, of another layer or
// of another request.
func TestSantaErrorsAreIndependent(t *testing.T) {
	b, values, _, _, _ := santaBench(t)
	// errorsOf is the error of each head at a length.
	errorsOf := func(d device.ValueDraws, n int) (off []float64) {
		b.dev.Write(b.kv.Len, []byte{byte(n % 256), byte(n / 256), 0, 0})
		var dense, total float64
		for j := range n {
			dense += b.terms[j][1]
			total += b.terms[j][0]
		}
		index, weight := b.draw(device.Plan{}, d)
		for h := range index {
			y := -dense / total
			for i, j := range index[h] {
				y += float64(weight[h][i]) * values[j][0]
			}
			off = append(off, y)
		}
		return off
	}
	for name, other := range map[string]func(d *device.ValueDraws) int{
		"steps":    func(*device.ValueDraws) int { return santaLen - 1 },
		"layers":   func(d *device.ValueDraws) int { d.Draw.Layer++; return santaLen },
		"requests": func(d *device.ValueDraws) int { d.Draw.Request++; return santaLen },
	} {
		var alike, square float64
		for seed := range uint64(santaSeeds) {
			d := device.ValueDraws{Draw: rng.Address{Seed: seed}, Samples: 16}
			one := errorsOf(d, santaLen)
			n := other(&d)
			two := errorsOf(d, n)
			for h := range one {
				alike += one[h] * two[h]
				square += (one[h]*one[h] + two[h]*two[h]) / 2
			}
		}
		if c := alike / square; math.Abs(c) > 4.5/math.Sqrt(santaHeads*santaSeeds) {
			t.Errorf("errors of two %s have correlation %.3f", name, c)
		}
	}
}

func TestSantaRejects(t *testing.T) {
	for _, spec := range []string{"santa(samples=-1)", "santa(tile=48)", "santa(sampler=all)", "prefill=santa", "santa + santa(samples=3)"} {
		if _, err := sparse.Parse(spec); err == nil {
			t.Errorf("%s is accepted", spec)
		}
	}
}

// Layers with the same tensors read different samples.
func TestLayersDrawForThemselves(t *testing.T) {
	for _, spec := range []string{"santa(samples=16)", "vattention(sink=2,local=8,top=4,fb=20,eps=0.9)"} {
		layers := lawTensors(1, lawLen)
		for l := range layers {
			layers[l] = layers[0]
		}
		s := openBench(t, spec, lawLen, nil).run(layers, lawLen-lawSteps, 0)
		from := func(l int) []float32 { return s.Output(l)[(lawLen-lawSteps)*lawDim : lawLen*lawDim] }
		for l := range lawLayers - 1 {
			if slices.Equal(from(l), from(l+1)) {
				t.Errorf("%s: layers %d and %d give the same outputs", spec, l, l+1)
			}
		}
	}
}

// Drawn all together, what is drawn does not depend on the length of tiles; and
// one tile for all is that, too, however tiles share their samples.
func TestSantaForgetsTiles(t *testing.T) {
	b, _, _, _, _ := santaBench(t)
	draw := func(tiles device.Tiles, tile int, seed uint64) string {
		index, weight := b.draw(device.Plan{}, device.ValueDraws{Draw: rng.Address{Seed: seed}, Samples: 40, Tiles: tiles, Tile: tile})
		return fmt.Sprint(index, weight)
	}
	for seed := range uint64(20) {
		want := draw(device.OneTile, 0, seed)
		for _, tile := range []int{32, 64, 256} {
			if got := draw(device.OneTile, tile, seed); got != want {
				t.Fatalf("seed %d, tiles of %d: %s, want %s", seed, tile, got, want)
			}
		}
		if got := draw(device.Remainder, 320, seed); got != want { // longer than the sequence
			t.Fatalf("seed %d, one tile with its samples: %s, want %s", seed, got, want)
		}
		if got := draw(device.Remainder, 32, seed); got == want {
			t.Fatalf("seed %d: tiles with their own samples draw the same", seed)
		}
	}
}
