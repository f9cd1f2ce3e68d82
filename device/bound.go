package device

// Parts says how many parts of a row's past are read. A part is a run of
// positions: a page, or the page cut into parts of equal length.
type Parts struct {
	Keep  Amount // positions, of the row's position plus one; whole parts of them are read
	Least int    // parts that are read at least
	Span  Span   // of the row: what it cannot see is not listed, and parts without anything else do not count
}

// Of is the number of parts of len positions that a row at p reads: all when as
// many positions are kept as there are.
func (t Parts) Of(p, len int) int {
	keep := t.Keep.Of(p + 1)
	if keep > p {
		return p/len + 1
	}
	return max(t.Least, 1, keep/len)
}

// Bounder ranks runs of positions by the most that a key among them can score.
// Its rows are the newest position of each slot, one row for each.
//
// Bounds lie beside the pages, [pages, kvheads, parts, 2·dim], in the type of the
// cache: of each part of a page, PageLen/parts positions, the least element of
// its keys in each dimension, then the largest.
type Bounder interface {
	// KeyBounds makes the bounds of the parts that hold the newest positions of
	// each slot from the keys that are stored. A part without any is left.
	KeyBounds(bounds Tensor, at Newest)
	// BoundScores is Σ max(q·least, q·largest) over the dimensions, which no q·k
	// of the part exceeds, for each part that the row sees; what follows the
	// row's own part is undefined. dst f32 [rows, sets, width], q f32 [rows,
	// heads, dim]. A set is a head, or a kv head: the sum of its heads.
	BoundScores(dst, q, bounds Tensor, kv KV)
	// TopParts lists the row's own part and the best of the others, as many as t
	// says in all: ties to the lowest, NaN as -Inf, which may be listed. The list
	// has positions up to the row's own, or pages where a part is a page. Parts
	// are of PageLen/parts positions. l has a group for each row and a head for
	// each set; scores as BoundScores makes them.
	TopParts(l List, scores Tensor, kv KV, parts int, t Parts)
}

// CheckBounds panics unless bounds belong to the pages of kv, and returns how
// many parts a page has.
func CheckBounds(op string, bounds Tensor, kv KV) int {
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

// CheckBoundScores panics unless the arguments of BoundScores fit together, and
// returns how many parts a page has.
func CheckBoundScores(dst, q, bounds Tensor, kv KV) int {
	const op = "BoundScores"
	parts := CheckBounds(op, bounds, kv)
	checkHeadsOf(op, q, kv)
	checkOneRow(op, q.Dim(0), kv)
	CheckShape(op, "dst", dst, F32, q.Dim(0), -1, -1)
	if sets := dst.Dim(1); sets != q.Dim(1) && sets != kv.K.Dim(1) {
		Check(false, op, "%d sets, want one for each of %d heads or %d kv heads", sets, q.Dim(1), kv.K.Dim(1))
	}
	checkWidth(op, dst, kv, parts)
	return parts
}

// CheckTopParts panics unless the arguments of TopParts fit together.
func CheckTopParts(l List, scores Tensor, kv KV, parts int) {
	const op = "TopParts"
	CheckKV(op, kv)
	checkParts(op, parts)
	CheckShape(op, "scores", scores, F32, -1, -1, -1)
	checkOneRow(op, scores.Dim(0), kv)
	checkWidth(op, scores, kv, parts)
	CheckShape(op, "list", l.Index, I32, -1, scores.Dim(1), -1)
	CheckShape(op, "list count", l.Count, I32, l.Index.Dim(0), scores.Dim(1))
	if l.Index.Dim(0) < scores.Dim(0) {
		Check(false, op, "a list of %d groups, want one for each of %d rows", l.Index.Dim(0), scores.Dim(0))
	}
}

// checkOneRow panics unless there is one row for each slot.
func checkOneRow(op string, rows int, kv KV) {
	if rows != kv.Len.Dim(0) {
		Check(false, op, "%d rows for %d slots, want one each", rows, kv.Len.Dim(0))
	}
}

// checkWidth panics unless rows of scores have room for every part.
func checkWidth(op string, scores Tensor, kv KV, parts int) {
	if most := kv.Pages.Dim(1); scores.Dim(2)/parts < most {
		Check(false, op, "rows of %d scores, want at least %d", scores.Dim(2), most*parts)
	}
}
