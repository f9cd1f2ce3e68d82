package device

import "math"

// Tail says how positions that a plan leaves out are sampled, so that a few of
// them stand for all. What is read whatever the sample says is fixed: it is what
// the plan reads. The tail is what the span lets the row see besides.
//
// A pilot sample of the tail says how far its weights exp(q·k/√dim) are spread,
// and that how large the sample must be. A sample of b of n positions is read
// with weight n/b, so that the sums over the fixed positions and the sample
// estimate those over everything. Weights are relative to the largest that is fixed or in
// the pilot: one that is too small to be counted beside it moves no sum.
type Tail struct {
	Draw  Draw    // Seed, Request and Layer; the rest is filled in for each row and set
	Of    Tensor  // i32 [slots]: the Request of each slot; absent is that of Draw for all
	Pilot Amount  // size of the pilot, a share being of the tail; at least 2. Zero samples nothing
	Eps   float64 // relative error aimed at; 0 reads the whole tail
	Z     float64 // how many standard deviations Eps is

	Values  bool // aim at the error of the output, otherwise at that of the sum of weights
	Finite  bool // count on the tail being finite: a smaller sample
	Fresh   bool // the pilot is a sample of its own, otherwise the first of the sample
	Replace bool // draw with replacement; what is drawn twice is read once, with weight n/b
	Listed  bool // positions on the plan's list are of the tail too; drawn, they keep their weight
}

// Spread is what the fixed positions and a pilot say about a row's sums. All
// weights are relative to one and the same.
type Spread struct {
	Tail  int     // positions of the tail
	Sum   float64 // estimate of the sum of all weights
	Var   float64 // variance of the weights of the tail
	Norm  float64 // length of the estimate of the sum of all weighted values
	Trace float64 // sum over dimensions of the variance of weighted values of the tail
}

// Need is the size of the sample for an error of Eps, before it is rounded and
// bounded. With Values half the error is for the sum of values and half for the
// sum of weights, split in proportion to their relative spreads, so that both
// need the same.
func (t Tail) Need(s Spread) float64 {
	n := float64(s.Tail)
	spread, eps := n*math.Sqrt(s.Var)/s.Sum, t.Eps
	if t.Values {
		spread += n * math.Sqrt(s.Trace) / s.Norm
		eps /= 2
	}
	if spread == 0 && eps > 0 {
		return 0
	}
	need := t.Z * spread / eps
	need *= need
	if t.Finite {
		need /= 1 + need/n
	}
	return need
}

// Budget is the size of the sample of a tail of n positions with a pilot: n, the
// whole tail, where the need is larger or is no number.
func (t Tail) Budget(need float64, n, pilot int) int {
	if t.Eps == 0 || !(need < float64(n)) {
		return n
	}
	return min(n, max(pilot, int(math.Ceil(need))))
}

// PilotOf is the size of the pilot of a tail of n positions, n at least 2.
func (t Tail) PilotOf(n int) int { return min(n, max(2, t.Pilot.Of(n))) }

// Estimator sizes and draws random samples of positions that were not selected.
type Estimator interface {
	// SampleTail lists, for each row and set, the fixed positions between the
	// plan's sinks and its recent window with their weights and a sample of the
	// tail with weight n/b. A tail of one position, and one whose budget is all
	// of it without replacement, is listed whole with weight 1.
	//
	// A set is a query head, or the heads of a kv head together: as many as l has
	// heads. What is fixed for one head of a set is fixed for all, with the
	// largest weight, and the largest budget of its heads is used. Draws are
	// addressed by the row's position and, as the head, the set: for ForKeys the
	// elements 0 to b-1 of [Draw.Shuffle], or of [Draw.Below] with Replace, are
	// the indices of the sample in the ascending tail; a pilot of its own is
	// drawn for ForPilot.
	//
	// p reads None, Blocks or Tokens in its middle; entries of its list that lie in
	// its sinks or its recent window are of these. l is not p.List; it has a
	// group for each row, and weights. q f32 [rows, heads, dim].
	SampleTail(l List, q Tensor, kv KV, p Plan, t Tail)
	// MaxHeads is the largest of the heads of each kv head: dst f32 [rows,
	// kvheads, width], x f32 [rows, heads, width].
	MaxHeads(dst, x Tensor, kv KV)
}

// CheckTail panics unless the arguments of SampleTail fit together.
func CheckTail(l List, q Tensor, kv KV, p Plan, t Tail) {
	const op = "SampleTail"
	(&Attend{Dst: q, Q: q, KV: kv, Plan: p}).Check()
	CheckRequests(op, t.Of, kv)
	rows, heads := q.Dim(0), q.Dim(1)
	CheckShape(op, "list", l.Index, I32, rows, -1, -1)
	sets := l.Index.Dim(1)
	CheckShape(op, "list count", l.Count, I32, rows, sets)
	CheckShape(op, "list weight", l.Weight, F32, rows, sets, l.Index.Dim(2))
	if sets != heads && sets != kv.K.Dim(1) {
		Check(false, op, "a list for %d sets, want one for each of %d heads or %d kv heads", sets, heads, kv.K.Dim(1))
	}
	if p.Middle == All || p.Mixture {
		Check(false, op, "a plan that reads everything or is a mixture, want one that leaves positions out")
	}
}
