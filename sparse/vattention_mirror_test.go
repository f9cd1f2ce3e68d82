package sparse_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// trials is how often the test below samples for each kind of keys.
var trials = flag.Int("trials", 320, "samples of TestVAttentionWithLowBitKeys for each kind of keys")

// keyLaws are kinds of keys: all alike, with two channels that are larger than the others, as RoPE
// and training leave them, and with a few keys that point to the query.
var keyLaws = map[string]func(r *rand.Rand, j, i int, q float32) float32{
	"normal": func(r *rand.Rand, _, _ int, _ float32) float32 { return float32(r.NormFloat64()) },
	"channels": func(r *rand.Rand, _, i int, _ float32) float32 {
		x := float32(r.NormFloat64())
		if i == 3 || i == 11 {
			x = 4*x + 12
		}
		return x
	},
	"needles": func(r *rand.Rand, j, _ int, q float32) float32 {
		x := float32(r.NormFloat64())
		if j%97 == 50 {
			x += q
		}
		return x
	},
}

// keysOfLaw is n keys of a kind and a query.
func keysOfLaw(name string, n int) (q, k []float32, values [][2]float64) {
	r := rand.New(rand.NewPCG(5, uint64(len(name))))
	for range tailDim {
		q = append(q, float32(r.NormFloat64()))
	}
	for j := range n {
		for i := range tailDim {
			k = append(k, keyLaws[name](r, j, i, q[i]))
		}
		values = append(values, [2]float64{r.NormFloat64(), 1})
	}
	return q, k, values
}

// lowBit is a plan that reads sinks, window and the k positions with the largest scores by keys of
// some bits.
func (b *residualBench) lowBit(bits, sink, recent, k int) device.Plan {
	words := device.MirrorWords(tailDim, bits)
	mirror := b.tensor(device.I32, make([]int32, b.kv.K.Dim(0)*words*device.PageLen), b.kv.K.Dim(0), 1, words, device.PageLen)
	scores := b.tensor(device.F32, make([]float32, b.heads*b.n), 1, b.heads, b.n)
	plan := device.Plan{Sink: sink, Recent: recent, Selected: device.Tokens, List: device.List{
		Index: b.tensor(device.I32, make([]int32, b.heads*k), 1, b.heads, k), Count: b.tensor(device.I32, make([]int32, b.heads), 1, b.heads),
	}}
	q := b.dev.Queue()
	device.Do(q, device.Summarize{Rule: device.KeyMirror, Dst: mirror, KV: b.kv, Rows: b.n})
	device.Do(q, device.Score{Rule: device.MirrorScores, Dst: scores, Q: b.q, Keys: mirror, KV: b.kv, Plan: plan, Region: device.SelectedRegion})
	device.Do(q, device.Select{Rule: device.TopK, List: plan.List, Scores: scores, KV: b.kv, K: device.Amount{Count: k}})
	return plan
}

// TestVAttentionWithLowBitKeys: which positions are read in any case is no part of the promise, so
// that it holds where keys of 8 and 4 bits choose them.
func TestVAttentionWithLowBitKeys(t *testing.T) {
	const heads, n, eps, delta = 16, 4096, .05, .1
	seeds := max(*trials/heads, 1)
	residual := device.Residual{Pilot: device.Amount{Share: .05}, Eps: eps, Z: math.Sqrt2 * math.Erfinv(1-delta)}
	for name := range keyLaws {
		q, k, values := keysOfLaw(name, n)
		for _, bits := range []int{8, 4} {
			b := newKeyBench(t, heads, q, k, values)
			share, _, size, bias := b.trials(b.lowBit(bits, 4, 16, fixedTop), residual, seeds)
			limit := delta + 4*math.Sqrt(delta*(1-delta)/float64(heads*seeds))
			t.Logf("%s, %d bits: %.4f of %d samples are off by more than %v, %.0f positions, bias %.5f", name, bits, share, heads*seeds, eps, size, bias)
			if share > limit || math.Abs(bias) > .01 {
				t.Errorf("%s, %d bits: error above %v in %.4f of samples and a bias of %.4f, want at most %.4f and 0.01", name, bits, eps, share, bias, limit)
			}
		}
	}
}
