package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// loudKeys is n keys and a query of dim elements; a few channels of the keys are larger than the
// others, as those of trained models are.
func loudKeys(n, dim int) (q []float32, keys [][]float32) {
	r := rand.New(rand.NewPCG(7, 1))
	for range dim {
		q = append(q, float32(2*r.NormFloat64()))
	}
	for range n {
		k := make([]float32, dim)
		for i := range k {
			k[i] = float32(r.NormFloat64())
			if i%61 == 5 {
				k[i] = 15 + 3*k[i]
			}
		}
		keys = append(keys, k)
	}
	return q, keys
}

// massKept is the softmax mass of the tenth of the keys that low-bit scores rank best, over that of
// the tenth with the most.
func massKept(q []float32, keys [][]float32, bits, block int) float64 {
	dim := len(q)
	m := mirrorKeys{per: device.MirrorWords(dim, bits), bits: bits, heads: 1, dim: dim, block: block}
	m.words = make([]int32, m.per*device.PageLen*pagesOf(len(keys)))
	for j, k := range keys {
		m.store(m.page(j/device.PageLen, 0), j%device.PageLen, slices.Clone(k))
	}
	var query vec.MirrorQueries
	one := m.queries(m.grownQueries(&query, 1), 0, 1)
	m.load(one, 0, q, make([]float32, dim))
	scores := make([]float32, pagesOf(len(keys))*vec.Tile)
	for b := range pagesOf(len(keys)) {
		vec.Best().MirrorScores(scores[b*vec.Tile:][:vec.Tile], one, m.page(b, 0), nil)
	}
	exact := make([]float32, len(keys))
	for j, k := range keys {
		exact[j] = float32(dot(q, k) / math.Sqrt(float64(dim)))
	}
	best := func(ranks []float32) (mass float64) {
		for _, j := range order(ranks[:len(keys)])[:len(keys)/10] {
			mass += math.Exp(float64(exact[j]))
		}
		return mass
	}
	return best(scores) / best(exact)
}

// TestLowBitKeysKeepTheMass: keys of 8 and 4 bits find nearly all of what exact scores find, also
// where channels are loud; without the rotation those of 4 bits do not.
func TestLowBitKeysKeepTheMass(t *testing.T) {
	for _, dim := range []int{64, 80, 96, 128, 256} {
		q, keys := loudKeys(4096, dim)
		for bits, least := range map[int]float64{8: .999, 4: .96} {
			kept := massKept(q, keys, bits, device.MirrorBlock(dim))
			t.Logf("dim %d, %d bits: %.4f of the mass, %.4f without the rotation", dim, bits, kept, massKept(q, keys, bits, 1))
			if kept < least {
				t.Errorf("dim %d, %d bits: %.4f of the mass that exact scores find, want %v", dim, bits, kept, least)
			}
		}
		if kept := massKept(q, keys, 4, 1); dim&(dim-1) == 0 && kept > .97 {
			t.Errorf("dim %d: %.4f of the mass without the rotation: it is good for nothing here", dim, kept)
		}
	}
}
