package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestLargestIsTheFrontOfASort compares the selection with a full sort.
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

// TestSortableOrdersByScoreThenPosition: ties go to the lowest position, and
// both zeros are the same score.
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
