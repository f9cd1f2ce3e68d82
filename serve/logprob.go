package serve

import (
	"cmp"
	"slices"

	"github.com/gollm/gollm/engine"
)

// logprobOf is the log-probability of a token, and the top likeliest tokens, of logits
// f32 [vocab].
func logprobOf(logits []float32, id int32, top int) *Logprob {
	sum := engine.LogSumExp(logits)
	p := &Logprob{Value: float64(logits[id]) - sum}
	for _, id := range largest(logits, top) {
		p.Top = append(p.Top, TopToken{id, float64(logits[id]) - sum})
	}
	return p
}

// largest are the ids of the k largest logits, descending, ties by the lower id.
func largest(logits []float32, k int) []int32 {
	if k = min(k, len(logits)); k == 0 {
		return nil
	}
	best := make([]int32, 0, k+1)
	for id, x := range logits {
		if len(best) == k && !(x > logits[best[k-1]]) {
			continue
		}
		i, _ := slices.BinarySearchFunc(best, x, func(b int32, x float32) int {
			return cmp.Or(cmp.Compare(x, logits[b]), -1) // behind its equals
		})
		best = slices.Insert(best, i, int32(id))
		best = best[:min(len(best), k)]
	}
	return best
}
