package cpu

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// TestLargestIsTheFrontOfASort compares the quickselect with a full sort.
func TestLargestIsTheFrontOfASort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 2, 3, 5, 64, 65, 1000} {
		for _, spread := range []int{2, 10, 1 << 30} {
			x := make([]uint64, n)
			for j := range x {
				x[j] = sortable(float32(rng.IntN(spread)-spread/2), j)
			}
			want := slices.Clone(x)
			slices.Sort(want)
			slices.Reverse(want)
			for _, k := range []int{0, 1, 2, n / 3, n - 1, n} {
				if k < 0 || k > n {
					continue
				}
				got := slices.Clone(x)
				largest(got, k)
				slices.Sort(got[:k])
				slices.Reverse(got[:k])
				if !slices.Equal(got[:k], want[:k]) {
					t.Fatalf("n=%d spread=%d k=%d: %v, want %v", n, spread, k, got[:k], want[:k])
				}
			}
		}
	}
}

// TestSortableOrdersByScoreThenPosition has ties, which go to the lowest position, and both
// zeros, which are equal.
func TestSortableOrdersByScoreThenPosition(t *testing.T) {
	negZero := float32(math.Copysign(0, -1))
	falling := []struct {
		score float32
		at    int
	}{
		{float32(math.Inf(1)), 9}, {2, 3}, {1, 2}, {1, 5}, {1e-40, 0}, {0, 4}, {negZero, 6}, {0, 8}, {-1e-40, 1}, {-1, 0}, {-2, 0},
		{-math.MaxFloat32, 0},
	}
	for i := 1; i < len(falling); i++ {
		a, b := falling[i-1], falling[i]
		if sortable(a.score, a.at) <= sortable(b.score, b.at) {
			t.Errorf("%v does not come before %v", a, b)
		}
	}
}

// selections are rows of scores: plain ones, and some whose bounds are guessed wrong from a
// sample.
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
	fill("tiny", func(int) float32 { return float32(rng.IntN(9)) * 1e-45 })
	fill("peaked", func(int) float32 { return float32(12 * rng.NormFloat64()) })
	fill("ties", func(int) float32 { return float32(math.Round(8*rng.NormFloat64())) / 4 })
	fill("nothing", func(int) float32 { return -inf })
	fill("nan", func(int) float32 { return float32(math.NaN()) })
	fill("odd", func(i int) float32 {
		return [...]float32{inf, -inf, float32(math.NaN()), 0, float32(math.Copysign(0, -1)), 1, -math.MaxFloat32, 1e-40}[rng.IntN(8)]
	})
	return rows
}

// sizes are lengths of rows, and for the fastest kernels one of 131,072.
func sizes(kernels *vec.Kernels, some ...int) []int {
	if kernels.ISA == vec.Best().ISA && !race {
		some = append(some, 1<<17)
	}
	return some
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

// ofMass is how many of the best positions hold a part of the softmax mass.
func ofMass(scores []float32, best []int32, mass float64) int {
	if len(best) == 0 {
		return 0
	}
	top := float64(scores[best[0]])
	var total, sum float64
	for _, j := range best {
		total += math.Exp(float64(scores[j]) - top)
	}
	for n, j := range best {
		if sum >= mass*total {
			return n
		}
		sum += math.Exp(float64(scores[j]) - top)
	}
	return len(best)
}

// TestTopPIsTheFrontOfASort compares top-p with a full sort.
func TestTopPIsTheFrontOfASort(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 2))
	for _, kernels := range vec.All() {
		var s selector
		for _, n := range sizes(kernels, 0, 1, 2, 63, 64, 65, 1000, minGuessed, 20000) {
			for name, x := range selections(rng, n) {
				all := order(x)
				for _, mass := range []float64{0, 1e-9, .1, .5, .95, 1, 2} {
					want := slices.Clone(all[:ofMass(x, all, mass)])
					set, m := s.topP(kernels, x, mass)
					got := make([]int32, m)
					kernels.Positions(got, set)
					if slices.Sort(want); !slices.Equal(got, want) {
						t.Fatalf("%s of %d, mass %v: %d selected, want %d", name, n, mass, m, len(want))
					}
				}
			}
		}
	}
}

// TestTopPSortsNothing: the definition, which sorts the row, is only asked where rounding may
// decide, or where there is nothing to halve.
func TestTopPSortsNothing(t *testing.T) {
	rows := selections(rand.New(rand.NewPCG(3, 4)), 20000)
	for _, kernels := range vec.All() {
		var s selector
		for _, name := range []string{"normal", "peaked", "hidden", "ties", "few"} {
			for _, mass := range []float64{1e-3, .1, .37, .5, .9, .95} {
				if _, _, ok := s.crossing(kernels, rows[name], mass); !ok {
					t.Errorf("%s, mass %v, %s: the row is sorted", name, mass, kernels.ISA)
				}
			}
		}
	}
}

// TestTopKIsTheFrontOfASort compares top-k, and its order, with a full sort, on rows that are
// ranked as a whole and on longer ones whose bounds are guessed.
func TestTopKIsTheFrontOfASort(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for _, kernels := range vec.All() {
		var s selector
		for _, n := range sizes(kernels, 0, 1, 2, 63, 64, 65, 1000, minGuessed-1, minGuessed, minGuessed+1031, 20000) {
			for name, x := range selections(rng, n) {
				all := order(x)
				for _, k := range []int{0, 1, 2, n / 20, n / 3, max(n-1, 0), n} {
					want := slices.Clone(all[:min(k, len(all))])
					set, m := s.topK(kernels, x, k)
					got := make([]int32, m)
					if kernels.Positions(got, set); m != len(want) {
						t.Fatalf("%s of %d, k=%d: %d selected, want %d", name, n, k, m, len(want))
					}
					ranked := make([]int32, m)
					if s.order(ranked, x, set); !slices.Equal(ranked, want) {
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

// TestTopOfNarrowScores: rows of scores that end before the row's position are a failure, and no
// row reads the scores of the next.
func TestTopOfNarrowScores(t *testing.T) {
	d := open(1, vec.Best())
	defer d.Close()
	alloc := func(dt device.DType, dims ...int) device.Tensor {
		x, err := d.Alloc(dt, dims...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	kv := device.KV{K: alloc(device.F32, 1, 1, device.PageLen, 4), V: alloc(device.F32, 1, 1, device.PageLen, 4), Pages: alloc(device.I32, 1, 1), Len: alloc(device.I32, 1)}
	d.Write(kv.Len, []byte{10, 0, 0, 0})
	l := device.List{Index: alloc(device.I32, 1, 2, 4), Count: alloc(device.I32, 1, 2)}
	for _, rule := range []device.SelectRule{device.TopK, device.TopP} {
		device.Do(d.Queue(), device.Select{Rule: rule, List: l, Scores: alloc(device.F32, 1, 2, 9), KV: kv, K: device.Amount{Count: 2}, Mass: .1})
		if err := d.Sync(); err == nil || !strings.Contains(err.Error(), "position 9 in scores of 9") {
			t.Errorf("rule %d: error %v, want position 9 in scores of 9", rule, err)
		}
	}
}
