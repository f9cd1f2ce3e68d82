package sparse_test

import (
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/engine"
)

// R1: a score that is not a number is as good as -Inf, and it is counted.
func TestNaNScoresAreCounted(t *testing.T) {
	const n, broken = 300, 130
	for _, spec := range []string{
		"dense", "streaming(sink=3,window=40)",
		"topk(k=30,sink=4,window=20)", "cis(k=20,sink=4,local=16,s=4,tau=0.3)", "cis(k=20,sink=4,local=16,s=4,tau=0.3,share=group)",
		"prefill=anchor(theta=1,block=16,step=4) decode=dense", "sketchwalk(density=0.4,r=8)",
		"vattention(sink=4,local=16,top=0.05,fb=0.5,eps=0.3)", "santa(samples=24)",
	} {
		b := openBench(t, spec, n, nil)
		b.run(lawTensors(1, n), n-lawSteps, 0)
		if got, err := b.NaNScores(); got != 0 || err != nil {
			t.Errorf("%s: %d scores that are not numbers among numbers (%v)", spec, got, err)
		}
		layers := lawTensors(1, n)
		const deep, kvHead = 3, 1
		layers[deep].K[(kvHead*n+broken)*lawDim+5] = float32(math.NaN())
		selects := spec != "dense" && spec != "streaming(sink=3,window=40)"
		b.Observe = func(sel engine.Selection) {
			for row, p := range sel.Pos {
				for h := range lawHeads {
					if keys, _ := sel.Keys(row, h); sel.Decode && p >= 0 && sel.Layer == deep && h/2 == kvHead && slices.Contains(keys, broken) && spec[:4] == "topk" {
						t.Errorf("%s: row %d, head %d selects the broken position", spec, p, h)
					}
				}
			}
		}
		b.run(layers, n-lawSteps, 0)
		if got, err := b.NaNScores(); got > 0 != selects || err != nil {
			t.Errorf("%s: %d scores that are not numbers were counted (%v)", spec, got, err)
		}
	}
}
