package device

// Near says which positions score almost as much as the largest that rows read.
type Near struct {
	Rows  int     // rows of the call, of each slot
	Block int     // positions whose rows are averaged
	Gap   float32 // how far below the mean largest score a position's may lie
	// Twice, when above 0, lists the positions before it whatever they score, and
	// those of them that are near with weight 2.
	Twice int
}

// Striper finds single positions that a group of rows shares.
//
// A block of rows is the rows of the call whose positions lie between two
// multiples of a number of positions. Blocks are numbered as the groups of a
// [List] are: from the one of the call's first row, or by slot with several
// slots.
type Striper interface {
	// EdgeMax is the largest q·k/√dim of each row over the sinks and the recent
	// window of the plan, inside its span; -Inf where there is none, and NaN
	// counts as that. dst f32 [rows, heads], q f32 [rows, heads, dim].
	EdgeMax(dst, q Tensor, kv KV, p Plan)
	// MeanRows averages the rows of each block of positions. x f32 [rows, ...],
	// dst f32 [at least as many as there are blocks, ...].
	MeanRows(dst, x Tensor, kv KV, block int)
	// ListNear lists for each group of l.Group positions and each head the
	// positions of the plan's middle, as the group's first row of the call has
	// it, with top - q·k/√dim <= Gap for the q and top of one of the group's
	// blocks at least; a NaN is not near. Weights, where the list has them, are 1
	// but for those of Twice. l.Group is a multiple of Block; l is not p.List.
	// q f32 [blocks, heads, dim], top f32 [blocks, heads], as MeanRows makes them.
	ListNear(l List, q, top Tensor, kv KV, p Plan, n Near)
}

// BlocksOf is how many blocks the rows at first to first+rows-1 lie in.
func BlocksOf(first, rows, block int) int {
	if rows == 0 {
		return 0
	}
	return (first+rows-1)/block - first/block + 1
}

// CheckEdges panics unless the arguments of EdgeMax fit together.
func CheckEdges(dst, q Tensor, kv KV, p Plan) {
	const op = "EdgeMax"
	checkHeadsOf(op, q, kv)
	CheckShape(op, "dst", dst, F32, q.Dim(0), q.Dim(1))
	RowsPerSlot(op, q.Dim(0), kv)
	checkMiddle(op, p)
}

// CheckNear panics unless the arguments of ListNear fit together.
func CheckNear(l List, q, top Tensor, kv KV, p Plan, n Near) {
	const op = "ListNear"
	checkHeadsOf(op, q, kv)
	CheckShape(op, "top", top, F32, q.Dim(0), q.Dim(1))
	CheckShape(op, "list", l.Index, I32, -1, q.Dim(1), -1)
	CheckShape(op, "list count", l.Count, I32, l.Index.Dim(0), q.Dim(1))
	checkMiddle(op, p)
	if !l.Weight.Absent() || n.Twice > 0 {
		CheckShape(op, "list weight", l.Weight, F32, l.Index.Dim(0), q.Dim(1), l.Index.Dim(2))
	}
	if n.Rows < 1 || n.Block < 1 || max(l.Group, 1)%n.Block != 0 {
		Check(false, op, "%d rows in blocks of %d and groups of %d, want at least one row and groups of whole blocks", n.Rows, n.Block, l.Group)
	}
	if slots := kv.Len.Dim(0); slots > 1 && n.Rows > 1 {
		Check(false, op, "%d rows of each of %d slots, want 1 row or 1 slot", n.Rows, slots)
	}
}

// checkHeadsOf panics unless q is heads over the kv heads of a cache.
func checkHeadsOf(op string, q Tensor, kv KV) {
	CheckKV(op, kv)
	CheckShape(op, "q", q, F32, -1, -1, kv.K.Dim(3))
	if q.Dim(1)%kv.K.Dim(1) != 0 {
		Check(false, op, "%d heads, want a multiple of the %d kv heads", q.Dim(1), kv.K.Dim(1))
	}
}

// checkMiddle panics for a plan that has no middle.
func checkMiddle(op string, p Plan) {
	if p.Middle == All {
		Check(false, op, "a plan that reads everything, want one with a middle")
	}
}
