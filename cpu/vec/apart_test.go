package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRowsApart multiplies with rows in a random order, some of them twice, and
// wants the bits that the same rows in a block give.
func TestRowsApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	natives(t, func(t *testing.T, k *Kernels) {
		for _, dim := range dims {
			const stored = 3 * Tile
			for name, rows := range caches(stored * dim) {
				var at, next [Tile]int
				block := Rows{Half: make([]uint16, Tile*dim)}
				if rows.Half == nil {
					block = Rows{Full: make([]float32, Tile*dim)}
				}
				for j := range at {
					at[j], next[j] = rng.IntN(stored)*dim, rng.IntN(1<<20)
					block.Slice(j*dim, (j+1)*dim).Copy(rows.Slice(at[j], at[j]+dim))
				}
				for _, heads := range []int{1, 2, 3, 4, 5, 7, 8} {
					q, p, scale := normal(heads*dim), normal(heads*Tile), normal(heads)
					for _, n := range []int{1, 2, 15, 16, 17, 63, 64} {
						name := fmt.Sprintf("%s dim=%d heads=%d n=%d", name, dim, heads, n)
						got, want := make([]float32, heads*Tile), make([]float32, heads*Tile)
						k.ScoresAt(got, q, rows, &at, &next, heads, n, dim)
						k.Scores(want, q, block, Rows{}, heads, n, dim)
						plain := make([]float32, heads*Tile)
						Go.ScoresAt(plain, q, rows, &at, &next, heads, Tile, dim)
						for h := range heads {
							compare(t, "ScoresAt "+name, got[h*Tile:][:n], want[h*Tile:][:n], 0)
							within(t, "plain ScoresAt "+name, got[h*Tile:][:n], plain[h*Tile:][:n], 1e-6*largest(plain)) // a sum may cancel
						}
						acc := normal(heads*dim + 1)
						got, want, plain = clone(acc), clone(acc), clone(acc)
						k.GatherAt(got, p, scale, rows, &at, &next, heads, n, dim)
						k.Gather(want, p, scale, block, Rows{}, heads, n, dim)
						Go.GatherAt(plain, p, scale, rows, &at, &next, heads, n, dim)
						compare(t, "GatherAt "+name, got, want, 0)
						within(t, "plain GatherAt "+name, got, plain, 1e-6*math.Sqrt(float64(n)))
					}
				}
			}
		}
	})
}

// TestWeightedSoftmax compares with the definition, and weights of 1 with none.
func TestWeightedSoftmax(t *testing.T) {
	inf := float32(math.Inf(1))
	natives(t, func(t *testing.T, k *Kernels) {
		for rows := range 6 {
			for _, spread := range []float32{0.01, 1, 40} {
				s, w := normal(rows*Tile), normal(Tile)
				top, sum := normal(rows), normal(rows + 1)[:rows]
				for j := range w {
					w[j] *= w[j]
				}
				w[7] = 0
				for i := range s {
					if s[i] *= spread; i%7 == 3 {
						s[i] = -inf
					}
				}
				for r := range top {
					sum[r] = 1 + sum[r]*sum[r]
					if r%3 == 2 {
						top[r], sum[r] = -math.MaxFloat32, 0 // nothing seen yet
					}
				}
				scale := make([]float32, rows)
				s2, top2, sum2, scale2 := clone(s), clone(top), clone(sum), clone(scale)
				s3, top3, sum3, scale3 := clone(s), clone(top), clone(sum), clone(scale)
				s4, top4, sum4, scale4 := clone(s), clone(top), clone(sum), clone(scale)
				k.WeightedSoftmax(s, w, top, sum, scale)
				Go.WeightedSoftmax(s2, w, top2, sum2, scale2)
				compare(t, "s", s, s2, 2e-7)
				compare(t, "top", top, top2, 0)
				compare(t, "sum", sum, sum2, 5e-7)
				compare(t, "scale", scale, scale2, 2e-7)
				ones := make([]float32, Tile)
				for j := range ones {
					ones[j] = 1
				}
				k.WeightedSoftmax(s3, ones, top3, sum3, scale3)
				k.Softmax(s4, top4, sum4, scale4)
				compare(t, "s of ones", s3, s4, 0)
				compare(t, "sum of ones", sum3, sum4, 0)
			}
		}
	})
}

// TestSets compares bounds and positions with their definitions.
func TestSets(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	natives(t, func(t *testing.T, k *Kernels) {
		for _, n := range lengths {
			x := normal(n)
			for i := range x {
				switch {
				case i%11 == 5:
					x[i] = nan
				case i%13 == 2:
					x[i] = -inf
				case i%17 == 1:
					x[i] = 0.5
				case i%19 == 1:
					x[i] = inf
				}
			}
			for _, bound := range []float32{-inf, -math.MaxFloat32, -1, 0, 0.5, 3, inf, nan} {
				got, want := make([]uint64, (n+63)/64), make([]uint64, (n+63)/64)
				for i := range got {
					got[i] = 0x5555 // of an earlier call
				}
				k.AtLeast(got, x, bound)
				Go.AtLeast(want, x, bound)
				if !slices.Equal(got, want) {
					t.Fatalf("AtLeast %v of %d: %x, want %x", bound, n, got, want)
				}
				list, plain := make([]int32, n+3), make([]int32, n+3)
				for i := range list {
					list[i], plain[i] = -7, -7
				}
				a, b := k.Positions(list, want), Go.Positions(plain, want)
				if a != b || !slices.Equal(list, plain) {
					t.Fatalf("Positions of %x: %d %v, want %d %v", want, a, list, b, plain)
				}
			}
		}
	})
}

// TestPlaces looks up positions, some of them where nothing may be.
func TestPlaces(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	natives(t, func(t *testing.T, k *Kernels) {
		for range 2000 {
			x := Index{Head: rng.IntN(1 << 20), Dim: 16 * (1 + rng.IntN(16)), Starts: make([]int, 1+rng.IntN(40))}
			for i := range x.Starts {
				x.Starts[i] = rng.IntN(1 << 40)
				if rng.IntN(1000) == 0 {
					x.Starts[i] = -1
				}
			}
			stored := len(x.Starts) * Tile
			x.Lo, x.Hi = rng.IntN(stored/2), stored-rng.IntN(stored/4)
			positions := make([]int32, Tile)
			for i := range positions {
				positions[i] = int32(x.Lo + rng.IntN(x.Hi-x.Lo))
			}
			if rng.IntN(3) == 0 {
				odd := []int{x.Lo - 1, x.Lo, x.Hi - 1, x.Hi, -1, math.MinInt32, math.MaxInt32, stored}
				positions[rng.IntN(Tile)] = int32(odd[rng.IntN(len(odd))])
			}
			var got, want [Tile]int
			a, b := k.Places(&got, positions, &x), Go.Places(&want, positions, &x)
			if a != b || a && got != want {
				t.Fatalf("Places %v of %v: %v %v, want %v %v", x, positions, a, got, b, want)
			}
		}
	})
}

func BenchmarkPositions(b *testing.B) {
	set := make([]uint64, 512)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3276 {
		j := rng.IntN(len(set) * 64)
		set[j/64] |= 1 << (j % 64)
	}
	dst := make([]int32, 64*len(set))
	for _, kernels := range All() {
		b.Run(string(kernels.ISA), func(b *testing.B) {
			for b.Loop() {
				kernels.Positions(dst, set)
			}
		})
	}
}
