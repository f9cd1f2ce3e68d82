package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSelectRank compares the quickselect with a sort, with many ties.
func TestSelectRank(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 15, 16, 17, 18, 40, 1000} {
		for _, values := range []int{1, 2, 3, 10, 1 << 30} {
			all := make([]candidate, n)
			for i := range all {
				all[i] = candidate{id: int32(i), logit: float32(rng.IntN(values))}
			}
			want := slices.Clone(all)
			slices.SortFunc(want, byRank)
			for _, k := range []int{0, 1, 2, n / 3, n - 1, n} {
				got := slices.Clone(all)
				rng.Shuffle(n, func(i, j int) { got[i], got[j] = got[j], got[i] })
				k = min(max(k, 0), n)
				selectRank(got, k)
				got = got[:k]
				slices.SortFunc(got, byRank)
				if !slices.Equal(got, want[:k]) {
					t.Fatalf("n=%d values=%d k=%d: %v, want %v", n, values, k, got, want[:k])
				}
			}
		}
	}
}
