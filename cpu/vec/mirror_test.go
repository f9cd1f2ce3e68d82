package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomMirror is queries and a page of low-bit keys: random bytes, those at the ends of their
// range included.
func randomMirror(heads, dim, bits int) (MirrorQueries, []int32) {
	rng := rand.New(rand.NewPCG(uint64(dim), uint64(bits*100+heads)))
	words := dim * bits / 32
	q := MirrorQueries{Units: make([]float32, heads)}
	for h := range heads {
		sum := int32(0)
		for range dim / 4 {
			word := uint32(0)
			for i := range 4 {
				v := int8(rng.IntN(255) - 127)
				if h == 0 {
					v = 127
				}
				sum += int32(v)
				word |= uint32(uint8(v)) << (8 * i)
			}
			q.Words = append(q.Words, int32(word))
		}
		q.Words = append(q.Words, -sum<<(bits-1))
		q.Units[h] = rng.Float32() + .5
	}
	k := make([]int32, (words+1)*Tile)
	for i := range k {
		k[i] = int32(rng.Uint32())
		if i%Tile < 2 {
			k[i] = -1 // all bits
		}
	}
	for j := range Tile {
		k[words*Tile+j] = int32(math.Float32bits(rng.Float32()))
	}
	k[words*Tile+3] = int32(math.Float32bits(float32(math.NaN())))
	return q, k
}

func TestMirrorScores(t *testing.T) {
	natives(t, func(t *testing.T, kernels *Kernels) {
		for _, bits := range []int{8, 4} {
			for _, dim := range []int{8, 16, 64, 80, 96, 128, 256} {
				for heads := 1; heads <= 9; heads++ {
					q, k := randomMirror(heads, dim, bits)
					want, got := make([]float32, heads*Tile), make([]float32, heads*Tile)
					Go.MirrorScores(want, q, k, nil)
					kernels.MirrorScores(got, q, k, slices.Clone(k))
					for i, w := range want {
						if math.Float32bits(got[i]) != math.Float32bits(w) && w == w {
							t.Fatalf("%d bits, dim %d, %d heads: score %d is %v, want %v", bits, dim, heads, i, got[i], w)
						}
					}
				}
			}
		}
	})
}

func BenchmarkMirrorScores(b *testing.B) {
	for _, kernels := range All()[1:] {
		for _, bits := range []int{8, 4} {
			b.Run(fmt.Sprintf("%s/bits=%d", kernels.ISA, bits), func(b *testing.B) {
				q, k := randomMirror(4, 64, bits)
				dst := make([]float32, 4*Tile)
				b.SetBytes(int64(4 * len(k)))
				for b.Loop() {
					kernels.MirrorScores(dst, q, k, nil)
				}
			})
		}
	}
}
