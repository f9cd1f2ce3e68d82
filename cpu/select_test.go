package cpu

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/cpu/vec"
)

// rows of scores that mislead a guess from a few of them, and plain ones.
func selections(rng *rand.Rand, n int) map[string][]float32 {
	rows := map[string][]float32{}
	fill := func(name string, f func(i int) float32) {
		x := make([]float32, n)
		for i := range x {
			x[i] = f(i)
		}
		rows[name] = x
	}
	inf := float32(math.Inf(1))
	fill("normal", func(int) float32 { return float32(rng.NormFloat64()) })
	fill("same", func(int) float32 { return 1 })
	fill("few", func(int) float32 { return float32(rng.IntN(3)) })
	fill("rising", func(i int) float32 { return float32(i) })
	fill("falling", func(i int) float32 { return float32(-i) })
	fill("period", func(i int) float32 { return float32(i % 64) })
	fill("head", func(i int) float32 { return float32(max(0, 50-i)) })
	fill("hidden", func(i int) float32 {
		if i < n-n/20 {
			return -inf
		}
		return float32(rng.NormFloat64())
	})
	fill("nothing", func(int) float32 { return -inf })
	fill("nan", func(int) float32 { return float32(math.NaN()) })
	fill("odd", func(i int) float32 {
		return [...]float32{inf, -inf, float32(math.NaN()), 0, float32(math.Copysign(0, -1)), 1, -math.MaxFloat32, 1e-40}[rng.IntN(8)]
	})
	return rows
}

// order is the positions with a score above -Inf, best first, ties to the lowest.
func order(scores []float32) []int32 {
	var best []int32
	for j, s := range scores {
		if s > negInf {
			best = append(best, int32(j))
		}
	}
	slices.SortStableFunc(best, func(a, b int32) int { return cmp.Compare(scores[b], scores[a]) })
	return best
}

// ofShare is how many of the best hold a share of the mass.
func ofShare(scores []float32, best []int32, share float64) int {
	if len(best) == 0 {
		return 0
	}
	top := float64(scores[best[0]])
	var total, sum float64
	for _, j := range best {
		total += math.Exp(float64(scores[j]) - top)
	}
	for n, j := range best {
		if sum >= share*total {
			return n
		}
		sum += math.Exp(float64(scores[j]) - top)
	}
	return len(best)
}

// TestPickShareIsTheFrontOfASort compares the choice by a share with a full sort.
func TestPickShareIsTheFrontOfASort(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 2))
	for _, kernels := range vec.All() {
		var s selector
		for _, n := range []int{1, 2, 63, 64, 65, 1000, 20000} {
			for name, x := range selections(rng, n) {
				all := order(x)
				for _, share := range []float64{0, 1e-9, .1, .5, .95, 1, 2} {
					want := slices.Clone(all[:ofShare(x, all, share)])
					set, m := s.pickShare(kernels, x, share)
					got := make([]int32, m)
					kernels.Positions(got, set)
					if slices.Sort(want); !slices.Equal(got, want) {
						t.Fatalf("%s of %d, share %v: %d chosen, want %d", name, n, share, m, len(want))
					}
				}
			}
		}
	}
}

// TestPickIsTheFrontOfASort compares the choice, and its order, with a full sort,
// on rows short enough to be ranked whole and long enough to be guessed.
func TestPickIsTheFrontOfASort(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for _, kernels := range vec.All() {
		var s selector
		for _, n := range []int{1, 2, 63, 64, 65, 1000, guessed - 1, guessed, guessed + 1031, 20000} {
			for name, x := range selections(rng, n) {
				all := order(x)
				for _, k := range []int{0, 1, 2, n / 20, n / 3, n - 1, n} {
					want := slices.Clone(all[:min(k, len(all))])
					set, m := s.pick(kernels, x, k)
					got := make([]int32, m)
					if kernels.Positions(got, set); m != len(want) {
						t.Fatalf("%s of %d, k=%d: %d chosen, want %d", name, n, k, m, len(want))
					}
					ranked := make([]int32, m)
					if s.rank(ranked, x, set); !slices.Equal(ranked, want) {
						t.Fatalf("%s of %d, k=%d: %v in order, want %v", name, n, k, ranked, want)
					}
					if slices.Sort(want); !slices.Equal(got, want) {
						t.Fatalf("%s of %d, k=%d: %v, want %v", name, n, k, got, want)
					}
				}
			}
		}
	}
}
