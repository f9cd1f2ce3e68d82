package device

import "math"

// Amount is a number of positions: a count, or a share of the n positions that
// a row can see, floor(Share·n), when Share is above 0.
type Amount struct {
	Count int
	Share float64
}

// Of is the amount of n positions. A computed real is floored with a guard of
// 1e-9, so that a share of 0.3 of 10 is 3.
func (a Amount) Of(n int) int {
	if a.Share > 0 {
		return int(math.Floor(a.Share*float64(n) + 1e-9))
	}
	return a.Count
}

// Part says which of the visible positions an op looks at.
type Part uint8

// The parts of what the plan's span lets a row see.
const (
	Visible Part = iota // everything
	Middles             // what is neither in the plan's sinks nor in its recent window
	Planned             // what the plan reads
)

// Ranker finds what to read by scores. A row of scores has one number for each
// position of its sequence, -Inf where the row does not look; what lies beyond
// the row's own position is undefined, and every op stops there.
type Ranker interface {
	// Scores computes q·k/√dim in f32 over a part of what each row sees, plus
	// ln weight where that part is Planned and the list has weights.
	// dst f32 [rows, heads, width], q f32 [rows, heads, dim].
	Scores(dst, q Tensor, kv KV, p Plan, part Part)
	// Softmax normalizes rows of scores: -Inf gives 0, a row of only -Inf gives
	// zeros. dst, x f32 [rows, heads, width]; dst may be x.
	Softmax(dst, x Tensor, kv KV)
	// SumHeads adds up the heads of each kv head: dst f32 [rows, kvheads,
	// width], x f32 [rows, heads, width].
	SumHeads(dst, x Tensor, kv KV)
	// TopK lists the k best positions of each row and head, ties to the lowest
	// position, NaN as -Inf, and nothing that is -Inf. k is of the row's
	// position plus one. scores f32 [rows, heads, width], as many heads as the
	// list has.
	TopK(l List, scores Tensor, kv KV, k Amount)
	// TopP lists the smallest set of best positions of each row and head whose
	// exp(score - max) sums to at least share of the row's; ties as TopK. What is
	// too small beside the largest to be counted is not in the set, which reaches
	// its share without it.
	TopP(l List, scores Tensor, kv KV, share float64)
}
