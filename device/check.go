package device

import (
	"fmt"
	"slices"
)

// The checks that calls are made of. Misuse panics with the same message on every backend:
// "device: MatMul: dst F32 [8 4096], want F32 [8 11008]".

// CheckShape panics unless t has the type and dimensions; a dimension of -1 matches any.
func CheckShape(op, name string, t Tensor, dt DType, dims ...int) {
	ok := t.DType == dt && t.rank == len(dims)
	for i := 0; ok && i < len(dims); i++ {
		ok = dims[i] == -1 || t.dims[i] == dims[i]
	}
	if !ok {
		// A copy, so that dims stays on the caller's stack.
		panic(fmt.Sprintf("device: %s: %s %v, want %v %v", op, name, t, dt, slices.Clone(dims)))
	}
}

// Check panics with the op and the message unless ok. Its arguments are allocated even when ok
// holds, so calls of a decode step call it inside an if.
func Check(ok bool, op, format string, args ...any) {
	if !ok {
		panic("device: " + op + ": " + fmt.Sprintf(format, args...))
	}
}

// CheckLike panics unless t has the type and shape of want.
func CheckLike(op, name string, t, want Tensor) {
	if t.DType != want.DType || t.rank != want.rank || t.dims != want.dims {
		CheckShape(op, name, t, want.DType, want.dims[:want.rank]...)
	}
}

// RowsPerSlot is the number of rows of a call for each slot of kv: all rows if kv has one slot,
// one if it has as many slots as rows. It panics otherwise.
func RowsPerSlot(op string, rows int, kv KV) int {
	slots := kv.Len.Dim(0)
	switch slots {
	case 1:
		return rows
	case rows:
		return 1
	}
	panic(fmt.Sprintf("device: %s: %d rows for %d slots, want 1 slot or as many as rows", op, rows, slots))
}

// CheckKV panics unless the four tensors of kv fit together.
func CheckKV(op string, kv KV) {
	CheckShape(op, "pages", kv.Pages, I32, -1, -1)
	CheckShape(op, "len", kv.Len, I32, kv.Pages.Dim(0))
	if !(kv.K.DType == F16 || kv.K.DType == F32) {
		Check(false, op, "k %v, want F16 or F32", kv.K)
	}
	CheckShape(op, "k", kv.K, kv.K.DType, -1, -1, PageLen, -1)
	CheckShape(op, "v", kv.V, kv.K.DType, kv.K.dims[:kv.K.rank]...)
	if kv.K.Dim(1) < 1 {
		Check(false, op, "k %v, want at least 1 kv head", kv.K)
	}
}

// checkBounds panics unless bounds fit the pages of kv, and returns the number of parts of a
// page.
func checkBounds(op string, bounds Tensor, kv KV) int {
	CheckKV(op, kv)
	CheckShape(op, "bounds", bounds, kv.K.DType, kv.K.Dim(0), kv.K.Dim(1), -1, 2*kv.K.Dim(3))
	checkParts(op, bounds.Dim(2))
	return bounds.Dim(2)
}

func checkParts(op string, parts int) {
	if parts < 1 || PageLen%parts != 0 {
		Check(false, op, "pages of %d parts, want a divisor of %d", parts, PageLen)
	}
}

// checkOneRow panics unless there is one row for each slot.
func checkOneRow(op string, rows int, kv KV) {
	if rows != kv.Len.Dim(0) {
		Check(false, op, "%d rows for %d slots, want one each", rows, kv.Len.Dim(0))
	}
}

// checkWidth panics unless a row of scores has room for every part.
func checkWidth(op string, scores Tensor, kv KV, parts int) {
	if pages := kv.Pages.Dim(1); scores.Dim(2)/parts < pages {
		Check(false, op, "rows of %d scores, want at least %d", scores.Dim(2), pages*parts)
	}
}

// checkHeadsOf panics unless q has query heads for the kv heads of a cache.
func checkHeadsOf(op string, q Tensor, kv KV) {
	CheckKV(op, kv)
	CheckShape(op, "q", q, F32, -1, -1, kv.K.Dim(3))
	checkMultiple(op, q.Dim(1), kv)
}

// checkMultiple panics unless heads are a multiple of the kv heads of a cache, and not 0.
func checkMultiple(op string, heads int, kv KV) {
	if heads < 1 || heads%kv.K.Dim(1) != 0 {
		Check(false, op, "%d heads, want a multiple of the %d kv heads", heads, kv.K.Dim(1))
	}
}

// checkOneSlot panics unless kv has one slot.
func checkOneSlot(op string, kv KV) {
	CheckKV(op, kv)
	if n := kv.Len.Dim(0); n != 1 {
		Check(false, op, "%d slots, want 1", n)
	}
}

// checkChannels panics unless labels, c, kv and the heads of x fit together.
func checkChannels(op string, labels, x Tensor, c Channels, kv KV) {
	CheckKV(op, kv)
	CheckShape(op, "x", x, F32, -1, -1, kv.K.Dim(3))
	CheckShape(op, "channels", c.Index, I32, -1, -1)
	groups := c.Index.Dim(0)
	CheckShape(op, "labels", labels, F16, kv.K.Dim(0), groups, c.Index.Dim(1), PageLen)
	checkGroups(op, groups, x.Dim(1), kv)
	RowsPerSlot(op, x.Dim(0), kv)
}

// checkMirror panics unless mirror is a low-bit copy of the keys of kv.
func checkMirror(op string, mirror Tensor, kv KV) {
	CheckKV(op, kv)
	CheckShape(op, "mirror", mirror, I32, kv.K.Dim(0), kv.K.Dim(1), -1, PageLen)
	if dim := kv.K.Dim(3); MirrorBits(dim, mirror.Dim(2)) == 0 {
		Check(false, op, "%d words of keys of %d elements, want %d or %d of a multiple of 8", mirror.Dim(2), dim, MirrorWords(dim, 8), MirrorWords(dim, 4))
	}
}

// checkNet panics unless the network fits x and kv.
func checkNet(op string, x Tensor, n Net, kv KV) {
	CheckKV(op, kv)
	CheckShape(op, "x", x, F32, -1, -1, kv.K.Dim(3))
	RowsPerSlot(op, x.Dim(0), kv)
	if n.Layers() == 0 {
		Check(false, op, "a network without layers")
	}
	groups, width := n.Weight[0].Dim(0), x.Dim(2)
	for i := range n.Layers() {
		CheckShape(op, "weight", n.Weight[i], F32, groups, -1, width)
		width = n.Weight[i].Dim(1)
		CheckShape(op, "bias", n.Bias[i], F32, groups, width)
	}
	checkGroups(op, groups, x.Dim(1), kv)
}

// checkGroups panics unless one of head groups and heads is a multiple of the other, and both are
// multiples of the kv heads.
func checkGroups(op string, groups, heads int, kv KV) {
	n := kv.K.Dim(1)
	if groups < 1 || heads < 1 || groups%n != 0 || heads%n != 0 || groups%heads != 0 && heads%groups != 0 {
		Check(false, op, "%d head groups for %d heads over %d kv heads, want multiples", groups, heads, n)
	}
}

// checkHash panics unless the tensors of h fit together and fit kv.
func checkHash(op string, h Hash, kv KV) {
	CheckKV(op, kv)
	slots, kvHeads, dim := kv.Len.Dim(0), kv.K.Dim(1), kv.K.Dim(3)
	CheckShape(op, "planes", h.Planes, F32, -1, dim)
	planes := h.Planes.Dim(0)
	if h.Tables < 1 || planes%max(h.Tables, 1) != 0 || h.MinCollisions < 1 || h.MinCollisions > 2 {
		Check(false, op, "%d planes in %d tables, at least %d collisions, want whole tables and 1 or 2", planes, h.Tables, h.MinCollisions)
	}
	CheckShape(op, "codes", h.Codes, I32, slots, -1, 2*planes)
	if h.Codes.Dim(1)%kvHeads != 0 {
		Check(false, op, "codes %v for %d kv heads", h.Codes, kvHeads)
	}
	CheckShape(op, "norm", h.Norm, F32, slots, kvHeads, -1)
	CheckShape(op, "center", h.Center, F32, slots, kvHeads, dim)
	CheckShape(op, "since", h.Since, I32, slots, 1)
	CheckShape(op, "done", h.Done, I32, slots, 1)
	if !h.Bucketed() {
		return
	}
	buckets, width := 1<<h.Bits(), h.Norm.Dim(2)
	if h.Bits() > 12 {
		Check(false, op, "%d planes in a table, want at most 12 for %d buckets", h.Bits(), MaxBuckets)
	}
	runs := (width + HashRun - 1) / HashRun
	CheckShape(op, "sorted", h.Sorted, I32, slots, 1)
	CheckShape(op, "buckets", h.Buckets, I32, slots, kvHeads*runs, h.Tables*buckets)
	CheckShape(op, "members", h.Members, I32, slots, kvHeads*h.Tables, (width+1)/2)
}

// checkHeads panics unless the heads of x are a multiple of heads.
func checkHeads(op string, x Tensor, heads, dim int) {
	CheckShape(op, "x", x, F32, -1, -1, dim)
	if heads < 1 || x.Dim(1) < 1 || x.Dim(1)%heads != 0 {
		Check(false, op, "%d heads in x, want a multiple of %d", x.Dim(1), heads)
	}
}

// checkSketch panics unless dst and basis fit together.
func checkSketch(op string, dst, basis Tensor, kv KV) {
	CheckKV(op, kv)
	CheckShape(op, "basis", basis, F32, -1, -1)
	CheckShape(op, "dst", dst, F32, kv.K.Dim(0), -1, basis.Dim(0))
}

// checkPairs panics unless t has one of the layouts of pairs, see [Walk].
func checkPairs(op string, t Tensor, kv KV) {
	if t.Rank() == 3 {
		CheckShape(op, "pairs", t, F32, kv.Len.Dim(0), t.RowLen(), t.RowLen())
	} else {
		CheckShape(op, "pairs", t, F32, kv.K.Dim(0), -1)
	}
	width := t.RowLen()
	if width < kv.Pages.Dim(1) {
		Check(false, op, "pairs %v, want rows of at least %d", t, kv.Pages.Dim(1))
	}
}

// checkWalk panics unless t is rows of a walk, see [Walk].
func checkWalk(op string, t Tensor, kv KV) {
	n := 1
	if slots := kv.Len.Dim(0); slots > 1 {
		n = slots
	}
	if t.DType != F32 && t.DType != I32 {
		Check(false, op, "rows %v, want F32 or I32", t)
	}
	CheckShape(op, "rows", t, t.DType, -1, -1)
	if t.Dim(0) < n {
		Check(false, op, "rows %v, want at least %d", t, n)
	}
	width := t.Dim(1)
	if t.DType == I32 {
		width /= 2 // a float64 in two
	}
	if pages := kv.Pages.Dim(1); width < pages {
		Check(false, op, "rows %v of %d blocks, want at least %d", t, width, pages)
	}
}

// checkAmount panics unless an amount is a number of positions.
func checkAmount(op, name string, a Amount) {
	if a.Count < 0 || !(a.Share >= 0) {
		Check(false, op, "%s of %d positions or a share of %v, want 0 or more", name, a.Count, a.Share)
	}
}

// checkRule panics unless a rule or another enumerated parameter is below the number of its values.
func checkRule[R ~uint8](op, name string, rule, n R) {
	if rule >= n {
		Check(false, op, "%s %d, want 0 to %d", name, rule, n-1)
	}
}

// checkWeight panics unless t is a matrix of weights.
func checkWeight(op, name string, t Tensor) {
	if !t.DType.IsWeight() {
		Check(false, op, "%s %v, want a type of weights", name, t)
	}
	CheckShape(op, name, t, t.DType, -1, -1)
}

// checkRegion panics for a plan that selects everything.
func checkRegion(op string, p *Plan) {
	if p.Selected == All {
		Check(false, op, "a plan that selects everything, want one with a selected region")
	}
}

// checkNoMixture panics for a plan that is a mixture.
func checkNoMixture(op string, p *Plan) {
	if p.Mixture {
		Check(false, op, "a plan that is a mixture, want one that reads keys")
	}
}

// checkBlock panics unless a block has at least one position.
func checkBlock(op string, block int) {
	if block < 1 {
		Check(false, op, "blocks of %d, want at least 1", block)
	}
}

// checkList panics unless l has the number of groups and heads; -1 matches any.
func checkList(op, name string, l *List, groups, heads int) {
	CheckShape(op, name, l.Index, I32, groups, heads, -1)
	CheckShape(op, name, l.Count, I32, l.Index.dims[0], l.Index.dims[1])
	if !l.Weight.Absent() {
		CheckShape(op, "list weight", l.Weight, F32, l.Index.dims[0], l.Index.dims[1], l.Index.dims[2])
	}
}

// checkWeighted panics unless l has the number of groups and heads, and weights.
func checkWeighted(op string, l *List, groups, heads int) {
	checkList(op, "list", l, groups, heads)
	if l.Weight.Absent() {
		Check(false, op, "a list without weights, want one with")
	}
}

// CheckRequests panics unless t is the request id of each slot, i32 [slots], or absent.
func CheckRequests(op string, t Tensor, kv KV) {
	if !t.Absent() {
		CheckShape(op, "requests", t, I32, kv.Len.Dim(0))
	}
}
