package sparse_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
)

// featureBench samples features of the queries of heads heads over kv heads.
func featureBench(t *testing.T, kvHeads, dim int) *residualBench {
	t.Helper()
	dev, err := device.Open("cpu", device.Config{Threads: 2})
	must(t, err)
	t.Cleanup(func() { must(t, dev.Close()) })
	b := &residualBench{t: t, dev: dev}
	empty := b.tensor(device.F32, make([]float32, kvHeads*device.PageLen*dim), 1, kvHeads, device.PageLen, dim)
	b.kv = device.KV{K: empty, V: empty, Pages: b.tensor(device.I32, []int32{0}, 1, 1), Len: b.tensor(device.I32, []int32{5}, 1)}
	return b
}

// estimates calls each with the estimates of q, [heads, dim], of many seeds.
func (b *residualBench) estimates(q []float32, heads, seeds int, f device.QueryFeatures, each func(y []float32)) {
	b.t.Helper()
	dim := len(q) / heads
	in, out := b.tensor(device.F32, q, 1, heads, dim), b.tensor(device.F32, make([]float32, len(q)), 1, heads, dim)
	y := make([]float32, len(q))
	for seed := range uint64(seeds) {
		f.Draw.Seed = seed
		device.Do(b.dev.Queue(), device.Sample{Rule: device.QueryFeatureSample, Dst: out, Q: in, KV: b.kv, Features: f})
		b.read(y, out)
		each(y)
	}
}

// gauss is n numbers of the normal distribution.
func gauss(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 3))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// The largest feature is read by every draw, and comes out as it is; a feature
// of zero never.
func TestBernoulliAlwaysReadsTheLargest(t *testing.T) {
	b := featureBench(t, 1, 16)
	q := gauss(1, 16)
	q[3], q[5], q[11] = 4, 0, -4
	for _, f := range []device.QueryFeatures{{Draws: 1}, {Draws: 3, Strata: true}, {Draws: 2, Mean: true}} {
		b.estimates(q, 1, 500, f, func(y []float32) {
			if y[3] != 4 || y[11] != -4 || y[5] != 0 {
				t.Fatalf("%+v: features 4, -4 and 0 became %v, %v and %v", f, y[3], y[11], y[5])
			}
		})
	}
}

// Estimates of queries, and of their products with keys, are right in the mean.
func TestBernoulliIsUnbiased(t *testing.T) {
	const heads, dim, seeds, keys = 4, 16, 4096, 8
	b, q, k := featureBench(t, 2, dim), gauss(2, heads*dim), gauss(3, keys*dim)
	products := func(q []float32) (p []float64) {
		for h := range heads {
			for j := range keys {
				var s float64
				for i := range dim {
					s += float64(q[h*dim+i]) * float64(k[j*dim+i])
				}
				p = append(p, s)
			}
		}
		return append(p, wide(q)...)
	}
	want := products(q)
	for name, f := range map[string]device.QueryFeatures{
		"standard": {Draws: 3}, "strata": {Draws: 3, Strata: true}, "group": {Draws: 3, Mean: true}, "group strata": {Draws: 4, Mean: true, Strata: true},
	} {
		sum, square := make([]float64, len(want)), make([]float64, len(want))
		b.estimates(q, heads, seeds, f, func(y []float32) {
			for i, p := range products(y) {
				sum[i] += p / seeds
				square[i] += (p - want[i]) * (p - want[i]) / seeds
			}
		})
		for i, w := range want {
			if off, sd := math.Abs(sum[i]-w), math.Sqrt(square[i]/seeds); off > 4.5*sd+1e-6 {
				t.Errorf("%s: number %d is %v in the mean, want %v: %.1f standard errors off", name, i, sum[i], w, off/sd)
			}
		}
	}
}

// The variance of a feature is norm²·π(1-π)/B, and with strata norm²·f(1-f)/B²
// where f is the fraction of B·π: none where that is whole.
func TestBernoulliVariances(t *testing.T) {
	const seeds, draws = 4096, 4
	q := []float32{1, .25, .5, .75, .1, -.4, .9, 0}
	b := featureBench(t, 1, len(q))
	for _, strata := range []bool{false, true} {
		square := make([]float64, len(q))
		b.estimates(q, 1, seeds, device.QueryFeatures{Draws: draws, Strata: strata}, func(y []float32) {
			for i, v := range y {
				d := float64(v) - float64(q[i])
				square[i] += d * d / seeds
			}
		})
		for i, x := range q {
			p := math.Abs(float64(x))
			want := p * (1 - p) / draws
			if strata {
				f := draws*p - math.Floor(draws*p+1e-6)
				want = f * (1 - f) / draws / draws
			}
			if off := math.Abs(square[i] - want); off > .1*want+1e-9 {
				t.Errorf("strata %v: the variance of feature %v is %v, want %v", strata, x, square[i], want)
			}
		}
	}
}

// The error of scores at 4 draws, for normal queries and keys of 128 features:
// 0.56, and 0.28 with strata.
func TestBernoulliErrorOfThePaper(t *testing.T) {
	const heads, dim, keys, seeds = 16, 128, 64, 16
	b, q, k := featureBench(t, 1, dim), gauss(4, heads*dim), gauss(5, keys*dim)
	for strata, want := range map[bool]float64{false: .56, true: .28} {
		var off float64
		b.estimates(q, heads, seeds, device.QueryFeatures{Draws: 4, Strata: strata}, func(y []float32) {
			for h := range heads {
				var diff, size float64
				for j := range keys {
					var s, d float64
					for i := range dim {
						x := float64(k[j*dim+i])
						s += float64(q[h*dim+i]) * x
						d += float64(y[h*dim+i]-q[h*dim+i]) * x
					}
					diff, size = diff+d*d, size+s*s
				}
				off += math.Sqrt(diff/size) / (heads * seeds)
			}
		})
		if math.Abs(off-want) > .03 {
			t.Errorf("strata %v: relative error %.3f, want %.2f", strata, off, want)
		}
	}
}

// Where all features are of one size every draw hits all of them: santa is as
// with exact scores. Otherwise it is not.
func TestSantaOfSampledFeatures(t *testing.T) {
	layers := lawTensors(1, lawLen)
	run := func(spec string) []float32 {
		return rowsOf(outputs(openBench(t, spec, lawLen, nil).run(layers, lawLen-lawSteps, 0)), lawLen, lawLen-lawSteps, lawLen)
	}
	const exact = "santa(samples=24)"
	specs := []string{
		"santa(samples=24,scores=bernoulli,bits=2)", "santa(samples=24,scores=bernoulli,bits=2,bernoulli=standard)", "santa(samples=24,scores=bernoulli,bits=2,group=mean_query)",
	}
	var noisy [][]float32
	for _, spec := range specs {
		noisy = append(noisy, run(spec))
		if slices.Equal(noisy[len(noisy)-1], run(exact)) {
			t.Errorf("%s is as with exact scores", spec)
		}
	}
	if slices.Equal(noisy[0], noisy[1]) || slices.Equal(noisy[0], noisy[2]) {
		t.Error("ways to draw features give the same outputs")
	}
	for l := range layers {
		signs(layers[l])
	}
	for _, spec := range specs {
		same(t, spec, run(spec), run(exact))
	}
}

// signs replaces the elements of queries by 1 and -1.
func signs(x engine.QKV) {
	for i, v := range x.Q {
		x.Q[i] = float32(math.Copysign(1, float64(v)))
	}
}
