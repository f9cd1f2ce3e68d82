package metric

import (
	"math"
	"slices"
)

// What a sparse selection keeps of a dense attention row is measured by the
// engine's audit. The functions here are the same figures of one row, in the
// terms of the publications, and what follows from them.

// Mass is the dense weight of the selected positions. The weights of a row sum to
// 1, and no position may be selected twice.
func Mass(weights []float64, selected []int) float64 {
	sum := 0.0
	for _, i := range selected {
		sum += weights[i]
	}
	return sum
}

// Top is the k positions of largest weight, the first among equals, in order.
func Top(weights []float64, k int) []int {
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case weights[a] > weights[b]:
			return -1
		case weights[a] < weights[b]:
			return 1
		}
		return 0
	})
	top := order[:min(k, len(order))]
	slices.Sort(top)
	return top
}

// Overlap is the share of the selected positions that an oracle, which takes as
// many of largest weight, selects too.
func Overlap(weights []float64, selected []int) float64 {
	if len(selected) == 0 {
		return 0
	}
	oracle := Top(weights, len(selected))
	both := 0
	for _, i := range selected {
		if _, ok := slices.BinarySearch(oracle, i); ok {
			both++
		}
	}
	return float64(both) / float64(len(selected))
}

// InformationBound is the most mutual information, in nats, that a row over n
// positions loses with a dropped mass (CPE): 2·(h(dropped) + dropped·ln n), with h
// the entropy of a coin.
func InformationBound(dropped float64, n int) float64 {
	h := 0.0
	for _, p := range []float64{dropped, 1 - dropped} {
		if p > 0 {
			h -= p * math.Log(p)
		}
	}
	return 2 * (h + dropped*math.Log(float64(n)))
}

// GroupDensity is what query heads that share a kv head read of n positions: the
// mean of the heads, their union, which is what memory sees, and the most that
// the union can be.
func GroupDensity(selected [][]int, n int) (mean, union, worst float64) {
	seen := map[int]bool{}
	total := 0
	for _, s := range selected {
		total += len(s)
		for _, i := range s {
			seen[i] = true
		}
	}
	mean = float64(total) / float64(len(selected)*n)
	return mean, float64(len(seen)) / float64(n), min(1, float64(total)/float64(n))
}

// RetrievalRatio is the share of selections that were computed anew in the steps
// of a generation (CPE), of so many layers and heads.
func RetrievalRatio(anew []int, layers, heads int) float64 {
	sum := 0
	for _, n := range anew {
		sum += n
	}
	return float64(sum) / float64(len(anew)*layers*heads)
}

// MultinomialVariance is the expected squared error of an attention output that is
// the mean of draws values drawn with the weights as chances (SANTA). values has a
// row for each weight.
func MultinomialVariance(weights []float64, values [][]float64, draws int) float64 {
	mean := make([]float64, len(values[0]))
	square := 0.0
	for i, w := range weights {
		for d, v := range values[i] {
			mean[d] += w * v
			square += w * v * v
		}
	}
	for _, m := range mean {
		square -= m * m
	}
	return square / float64(draws)
}

// ChunkedScored is how many predictions count where the losses of a text of n
// tokens are summed in chunks, as MInference does: the first token has none, and the
// one across each border is dropped.
func ChunkedScored(n, chunk int) int { return n - (n+chunk-1)/chunk }
