package sparse_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/engine"
)

// The laws of this file say that a knob does what its name says, and what error
// the mass that is dropped can make.

// errorOf is the mean relative error of a spec over the last rows of a run, all
// layers and heads, over so many seeds.
func errorOf(t *testing.T, spec string, n, rows, seeds int) (off float64) {
	t.Helper()
	layers, dense := lawTensors(1, n), rowsOf(alone(t, "dense", n), n, n-rows, n)
	for seed := range seeds {
		b := openBench(t, spec, n, func(c *engine.ReplayConfig) { c.Seed = uint64(seed) + 1 })
		got := rowsOf(outputs(b.run(layers, n-lawSteps, 0)), n, n-rows, n)
		for i := 0; i < len(got); i += lawDim {
			off += norm(got[i:i+lawDim], dense[i:i+lawDim]) / norm(dense[i:i+lawDim], make([]float32, lawDim)) / float64(len(got)/lawDim*seeds)
		}
	}
	return off
}

// 9.7: with more of what a knob is for the error is smaller on average.
func TestKnobsMakeErrorsSmaller(t *testing.T) {
	aboutNumbers(t)
	for _, knob := range []struct {
		spec   string
		values []any
		rows   int // the last of the run, of the prompt too
		seeds  int
		len    int
	}{
		{"topk(k=%v,sink=4,window=16)", []any{5, 20, 60, 150}, 50, 1, 200},
		{"streaming(sink=4,window=%v)", []any{10, 40, 100, 190}, 50, 1, 200},
		{"sketchwalk(sketch=exact,heads=mean_score,density=%v)", []any{.2, .5, .8, 1}, lawSteps, 1, 400},
		{"anchor(block=8,step=4,theta=%v)", []any{-1, 1, 2, math.Inf(1)}, 60, 1, 200},
		{"cis(sink=4,local=16,s=4,tau=0.3,k=%v)", []any{5, 20, 60, 180}, lawSteps, 1, 200},
		{"psaw(ls=0,sink=3,phi=%v)", []any{.1, .4, .8, 1}, 50, 1, 200},
		{"vattention(sink=4,local=16,top=5,fb=10,eps=%v)", []any{.8, .4, .2, 0}, lawSteps, 6, 200},
		{"vattention(sink=4,local=16,top=%v,fb=10,eps=0.5)", []any{2, 20, 80, 180}, lawSteps, 6, 200},
		{"santa(samples=%v)", []any{8, 32, 128, 1024}, lawSteps, 6, 200},
		{"santa(samples=64,scores=bernoulli,bits=%v)", []any{1, 2, 8, 64}, lawSteps, 6, 200},
	} {
		last := math.Inf(1)
		for _, v := range knob.values {
			spec := fmt.Sprintf(knob.spec, v)
			off := errorOf(t, spec, knob.len, knob.rows, knob.seeds)
			if !(off < last) && !(off == 0 && last == 0) {
				t.Errorf("%s: error %.4f, before %.4f", spec, off, last)
			}
			last = off
		}
	}
}

// 9.7: sets that grow with a knob hold what smaller ones hold, so that the mass
// held never falls.
func TestKnobsThatNestKeepMoreMass(t *testing.T) {
	const n = 200
	layers := lawTensors(1, n)
	for format, values := range map[string][]any{
		"topk(k=%v,sink=4,window=16)":        {0, 5, 20, 60, 150},
		"anchor(block=8,step=4,theta=%v)":    {-1, 0, 1, 2, math.Inf(1)},
		"streaming(sink=4,window=%v)":        {10, 40, 100},
		"cis(sink=4,local=16,tau=2,k=%v)":    {0.05, 0.2, 0.5, 180},
		"sketchwalk(walk=onehop,density=%v)": {.2, .5, .8, 1},
	} {
		held := map[[3]int]float64{} // by layer, position and head
		for i, v := range values {
			b := openBench(t, fmt.Sprintf(format, v), n, nil)
			b.Observe = func(sel engine.Selection) {
				for row, p := range sel.Pos {
					for h := 0; p >= 0 && h < lawHeads; h++ {
						keys, _ := sel.Keys(row, h)
						at := [3]int{sel.Layer, p, h}
						m, _ := mass(layers[sel.Layer], n, p, h, keys)
						if i > 0 && m < held[at]-1e-12 {
							t.Fatalf("%s, layer %d, row %d, head %d: mass %v, with the value before %v", fmt.Sprintf(format, v), sel.Layer, p, h, m, held[at])
						}
						held[at] = m
					}
				}
			}
			b.run(layers, n-lawSteps, 0)
		}
	}
}

// ls at the last layer, or a share of one held: nothing closes and nothing
// freezes, and the bits are those of dense attention.
func TestSchedulesThatNeverBeginAreDense(t *testing.T) {
	want := alone(t, "dense", lawLen)
	for _, spec := range []string{"psaw(ls=1.0)", "psaw(phi=1)", "etf(ls=1.0)", "etf(psi=1)", "etf(ls=4,etf=kv)", "cpe(ls=1.0,k=1.0)", "cpe(phi=1,psi=1,k=1.0)"} {
		same(t, spec, alone(t, spec, lawLen), want)
	}
}

// 9.3: the error of a plain selection is bounded by the mass that it drops.
func TestLawMassBoundsError(t *testing.T) {
	aboutNumbers(t)
	eachSubject(t, func(t *testing.T, s subject) {
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		want := alone(t, "dense", s.len)
		b := openBench(t, s.spec, s.len, nil)
		var seen []engine.Selection
		b.Observe = func(sel engine.Selection) {
			if sel.Decode && !sel.Plan().Mixture {
				seen = append(seen, sel)
			}
		}
		got := b.run(layers, prompt, 0)
		for _, sel := range seen {
			p := sel.Pos[got.Slot()]
			for h := range lawHeads {
				keys, weights := sel.Keys(got.Slot(), h)
				if slices.ContainsFunc(weights, func(w float32) bool { return w != 1 }) {
					continue
				}
				at := (h*s.len + p) * lawDim
				held, loudest := mass(layers[sel.Layer], s.len, p, h, keys)
				d := norm(got.Output(sel.Layer)[at:at+lawDim], want[sel.Layer*lawHeads*s.len*lawDim:][at:at+lawDim])
				if d > 2*(1-held)*loudest+1e-5 {
					t.Fatalf("layer %d, row %d, head %d: error %g, mass held %g, largest value %g", sel.Layer, p, h, d, held, loudest)
				}
			}
		}
	})
}

// mass is the share of dense attention on keys and the largest norm of a value.
func mass(x engine.QKV, n, p, head int, keys []int32) (held, loudest float64) {
	kv := head * lawKVHeads / lawHeads
	q := x.Q[(head*n+p)*lawDim:][:lawDim]
	weights, sum := make([]float64, p+1), 0.0
	zero := make([]float32, lawDim)
	for j := range weights {
		k := x.K[(kv*n+j)*lawDim:][:lawDim]
		var s float64
		for i := range q {
			s += float64(q[i]) * float64(k[i])
		}
		weights[j] = math.Exp(s / math.Sqrt(lawDim))
		sum += weights[j]
		loudest = max(loudest, norm(x.V[(kv*n+j)*lawDim:][:lawDim], zero))
	}
	for _, j := range keys {
		held += weights[j] / sum
	}
	return held, loudest
}

// norm is ‖a-b‖.
func norm(a, b []float32) float64 {
	var sum float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return math.Sqrt(sum)
}
