package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Every size of tile gives the bits that the loops in use give, also the small
// ones that the matrix-vector loops do otherwise.
func TestTilesOfAllSizes(t *testing.T) {
	if Current() != AVX512 {
		t.Skip("this processor has no AVX-512")
	}
	rng := rand.New(rand.NewPCG(13, 0))
	for dt := range schemes {
		w, x := randomMatrix(rng, dt, 37, 768), randomActs(rng, 13, 768)
		want := multiply(t, AVX512, x, 13, w, 37)
		for tokens := 1; tokens <= 13; tokens++ {
			t.Run(fmt.Sprintf("%v/%d", dt, tokens), func(t *testing.T) {
				var b Batch
				b.Reset(x, tokens, w.Cols)
				b.Need(dt)
				b.Prepare(0, tokens)
				p := Product{Floats{make([]float32, tokens*w.Rows), w.Rows}, w}
				var s Scratch
				s.ready()
				tiledAVX512.computeTiled(&p, &b, &s, 0, w.Rows)
				sameBits(t, p.Dst, want, tokens, w, 0)
			})
		}
	}
}
