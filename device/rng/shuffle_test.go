package rng

import (
	"math"
	"testing"
)

func TestShuffleIsAPermutation(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 100, 1000, 4097, 70000} {
		for seed := range uint64(3) {
			s, seen := Address{Seed: seed, Pos: 9, Purpose: ForKeys}.Shuffle(n), make([]bool, n)
			for i := range n {
				x := s.At(i)
				if x < 0 || x >= n || seen[x] {
					t.Fatalf("n=%d, seed %d: element %d is %d, out of range or not new", n, seed, i, x)
				}
				seen[x] = true
			}
		}
	}
}

// Every single element is exactly uniform whatever the network does: over all offsets it
// takes every value once, and offsets are uniform.
func TestShuffleOffsets(t *testing.T) {
	for _, n := range []int{1, 2, 7, 300} {
		s, counts := Address{Seed: 5, Purpose: ForKeys}.Shuffle(n), make([]int, n)
		for offset := range n {
			s.offset = uint32(offset)
			counts[s.At(n/2)]++
		}
		for x, c := range counts {
			if c != 1 {
				t.Errorf("n=%d: over all offsets an element is %d %d times, want once", n, x, c)
			}
		}
	}
	const n, seeds = 10, 10000
	var counts [n]int
	for seed := range uint64(seeds) {
		counts[Address{Seed: seed, Purpose: ForKeys}.Shuffle(n).offset]++
	}
	for offset, c := range counts {
		if math.Abs(float64(c)-seeds/n) > 4.5*math.Sqrt(seeds/n) {
			t.Errorf("offset %d was drawn %d times of %d", offset, c, seeds)
		}
	}
}

// Every ordered pair of first elements is as likely as any other, within what
// chance allows: χ² is less than its mean and five standard deviations.
func TestShufflePairsAreUniform(t *testing.T) {
	const seeds = 1 << 14
	for _, n := range []int{2, 5, 8, 16, 33} {
		for _, at := range [][2]int{{0, 1}, {n - 2, n - 1}, {0, n / 2}} {
			if at[0] == at[1] {
				continue
			}
			counts := make([]float64, n*n)
			for seed := range uint64(seeds) {
				s := Address{Seed: seed, Layer: 3, Purpose: ForKeys}.Shuffle(n)
				counts[s.At(at[0])*n+s.At(at[1])]++
			}
			want, chi := float64(seeds)/float64(n*(n-1)), 0.0
			for i, c := range counts {
				if i/n != i%n {
					chi += (c - want) * (c - want) / want
				}
			}
			free := float64(n*(n-1) - 1)
			if limit := free + 5*math.Sqrt(2*free); chi > limit {
				t.Errorf("n=%d, elements %v: χ² = %.1f, want less than %.1f", n, at, chi, limit)
			}
		}
	}
}

// The variance of a sum over the first elements is that of a sample without
// replacement, whatever the order of what is sampled.
func TestShuffleSamplesAsTheyShould(t *testing.T) {
	const n, b, seeds = 1000, 50, 1 << 12
	for name, f := range map[string]func(i int) float64{
		"ramp":      func(i int) float64 { return float64(i) },
		"alternate": func(i int) float64 { return float64(i % 2) },
		"block":     func(i int) float64 { return float64(i / 512) },
		"spike":     func(i int) float64 { return float64(max(0, i-990)) },
	} {
		var mean, square float64
		for i := range n {
			mean += f(i) / n
			square += f(i) * f(i) / n
		}
		want := b * (square - mean*mean) * (n - b) / (n - 1)
		var sum, sum2 float64
		for seed := range uint64(seeds) {
			s, x := Address{Seed: seed, Head: 2, Purpose: ForKeys}.Shuffle(n), 0.0
			for i := range b {
				x += f(s.At(i)) - mean
			}
			sum += x
			sum2 += x * x
		}
		if z := sum / math.Sqrt(seeds*want); math.Abs(z) > 4.5 {
			t.Errorf("%s: the mean is %.1f standard errors off", name, z)
		}
		if r := sum2 / seeds / want; math.Abs(r-1) > 0.11 {
			t.Errorf("%s: variance is %.3f of what it should be", name, r)
		}
	}
}

func TestBelowIsUniform(t *testing.T) {
	var counts [7]int
	for i := range uint32(70000) {
		counts[Address{Seed: 4, Purpose: ForKeys}.Below(i, len(counts))]++
	}
	for x, c := range counts {
		if c < 9600 || c > 10400 {
			t.Errorf("%d came %d times of 70000, want about 10000", x, c)
		}
	}
}
