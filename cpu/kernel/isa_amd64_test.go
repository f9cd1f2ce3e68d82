package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Every size of tile gives the bits that the loops in use give, also the small
// ones that the matrix-vector loops do otherwise.
func TestTilesOfAllSizes(t *testing.T) {
	for isa, loops := range map[ISA]tiledLoops{AVX2: tiledAVX2, AVX512: tiledAVX512} {
		if !slices.Contains(ISAs(), isa) {
			t.Logf("this processor has no %s", isa)
			continue
		}
		rng := rand.New(rand.NewPCG(13, 0))
		for dt := range schemes {
			w, x := randomMatrix(rng, dt, 37, 768), randomActs(rng, 13, 768)
			want := multiply(t, isa, x, 13, w, 37)
			for tokens := 1; tokens <= 13; tokens++ {
				t.Run(fmt.Sprintf("%s/%v/%d", isa, dt, tokens), func(t *testing.T) {
					var b Batch
					b.Reset(x, tokens, w.Cols)
					b.Need(dt)
					b.Prepare(0, tokens)
					p := Product{Floats{make([]float32, tokens*w.Rows), w.Rows}, w}
					var s Scratch
					s.ready()
					loops.computeTiled(&p, &b, &s, 0, w.Rows)
					sameBits(t, p.Dst, want, tokens, w, 0)
				})
			}
		}
	}
}

// AVX2 and AVX-512 give the same bits, of quantized and of float types.
func TestSameBitsAVX2(t *testing.T) {
	if all := ISAs(); !slices.Contains(all, AVX2) || !slices.Contains(all, AVX512) {
		t.Skipf("this processor has %v", all)
	}
	rng := rand.New(rand.NewPCG(15, 0))
	for _, dt := range types() {
		for _, cols := range []int{32, 256, 768, 2048} {
			if cols%dt.BlockLen() != 0 {
				continue
			}
			w, x := randomMatrix(rng, dt, 37, cols), randomActs(rng, 13, cols)
			for _, tokens := range []int{1, 2, 13} {
				sameBits(t, multiply(t, AVX2, x, tokens, w, 37), multiply(t, AVX512, x, tokens, w, 37), tokens, w, 0)
			}
		}
	}
}
