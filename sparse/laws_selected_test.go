package sparse_test

import (
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/engine"
)

// readBy is a row and a head of a layer.
type readBy struct{ layer, pos, head int }

// selected is what every row and head of a run reads: a prompt in chunks, then
// decode steps.
func selected(t *testing.T, spec string, layers []engine.QKV, n, prompt, chunk int) map[readBy][]int32 {
	t.Helper()
	return openBench(t, spec, n, nil).selected(layers, prompt, chunk)
}

// selected is what every row and head of a run reads.
func (b *bench) selected(layers []engine.QKV, prompt, chunk int) map[readBy][]int32 {
	b.t.Helper()
	read := map[readBy][]int32{}
	b.Observe = func(sel engine.Selection) {
		for row, p := range sel.Pos {
			for h := range lawHeads {
				if p >= 0 {
					read[readBy{sel.Layer, p, h}], _ = sel.Keys(row, h)
				}
			}
		}
	}
	b.run(layers, prompt, chunk)
	return read
}

// queryOf and keyOf are the vectors of a position.
func queryOf(x engine.QKV, n, p, head int) []float32 { return x.Q[(head*n+p)*lawDim:][:lawDim] }
func keyOf(x engine.QKV, n, j, head int) []float32 {
	return x.K[(head*lawKVHeads/lawHeads*n+j)*lawDim:][:lawDim]
}

// weightsOf is the exact attention of a row.
func weightsOf(x engine.QKV, n, p, head int) []float64 {
	w := make([]float64, p+1)
	for j := range w {
		for i, q := range queryOf(x, n, p, head) {
			w[j] += float64(q) * float64(keyOf(x, n, j, head)[i]) / math.Sqrt(lawDim)
		}
	}
	return softmax64(w)
}

// softmax64 is exp(x) scaled to sum to 1.
func softmax64(x []float64) []float64 {
	top, sum, y := slices.Max(x), 0.0, make([]float64, len(x))
	for i, v := range x {
		y[i] = math.Exp(v - top)
		sum += y[i]
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

// weightOn is the share of weights that a set holds.
func weightOn(w []float64, set []int32) (sum float64) {
	for _, j := range set {
		sum += w[j]
	}
	return sum
}

// subset reports whether everything in a is in b.
func subset(a, b []int32) bool {
	for _, j := range a {
		if _, found := slices.BinarySearch(b, j); !found {
			return false
		}
	}
	return true
}

// best is the k largest, ties to the lowest, ascending.
func best(x []float64, k int) []int32 {
	order := upTo(len(x) - 1)
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case x[a] > x[b]:
			return -1
		case x[a] < x[b]:
			return 1
		}
		return 0
	})
	order = order[:min(k, len(x))]
	slices.Sort(order)
	return order
}

// lists is what each head of each layer reads in each decode step.
func (b *bench) lists(layers []engine.QKV, prompt int) (all [][]int32) {
	b.t.Helper()
	b.Observe = func(sel engine.Selection) {
		for h := range lawHeads {
			if keys, _ := sel.Keys(0, h); sel.Decode {
				all = append(all, keys)
			}
		}
	}
	b.run(layers, prompt, 0)
	return all
}
