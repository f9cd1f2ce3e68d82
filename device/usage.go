package device

// Keep says which positions stay when what is read least is dropped for good. A
// share is of Since, or, where that is 0, of the positions stored before the row.
type Keep struct {
	Best   Amount // those with the largest sums
	Newest Amount // and the newest besides, whatever their sums
	Since  Tensor // i32 [slots, 1]: the length that shares are of
}

// Of is how many of the n positions before a row stay by their sums, and how
// many because they are new.
func (k Keep) Of(n, since int) (best, newest int) {
	if since == 0 {
		since = n
	}
	return min(k.Best.Of(since), n), min(k.Newest.Of(since), n)
}

// Keeper counts how much attention stored positions get and drops those that
// get the least. A sum is of all heads of a kv head, as [HoldShare] holds it; -Inf
// is a position that was dropped, and stays so. sum f32 [slots, kvheads, width].
type Keeper interface {
	// AddWeights adds the softmax weights of the rows of a call over what the plan
	// reads: sum[j] += Σ weight, row after row in the order of positions. A row's
	// own position is new: its sum is set. p is not a mixture.
	// q f32 [rows, heads, dim].
	AddWeights(sum, q Tensor, kv KV, p Plan)
	// KeepBest lists for the newest row of each slot and each kv head what stays
	// of the positions before it: those inside the plan's span, not dropped yet,
	// and of them the newest and, of the rest, the best; ties to the lowest
	// position, NaN as -Inf. All others before the row are dropped. l has a group
	// for each slot and a head for each kv head; p reads its row's own position
	// besides.
	KeepBest(l List, sum Tensor, kv KV, p Plan, k Keep)
}

// CheckAddWeights panics unless the arguments of AddWeights fit together.
func CheckAddWeights(sum, q Tensor, kv KV, p Plan) {
	const op = "AddWeights"
	(&Attend{Dst: q, Q: q, KV: kv, Plan: p}).Check()
	CheckShape(op, "sum", sum, F32, kv.Len.Dim(0), kv.K.Dim(1), -1)
	if p.Mixture {
		Check(false, op, "a plan that is a mixture, want one whose keys are read")
	}
}

// CheckKeep panics unless the arguments of KeepBest fit together.
func CheckKeep(l List, sum Tensor, kv KV, k Keep) {
	const op = "KeepBest"
	CheckKV(op, kv)
	slots, kvHeads := kv.Len.Dim(0), kv.K.Dim(1)
	CheckShape(op, "sum", sum, F32, slots, kvHeads, -1)
	CheckShape(op, "since", k.Since, I32, slots, 1)
	CheckShape(op, "list", l.Index, I32, slots, kvHeads, -1)
	CheckShape(op, "list count", l.Count, I32, slots, kvHeads)
}
