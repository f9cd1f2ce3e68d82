package device

// blocksOf is the maximum number of pages that the newest rows of all slots are in, rows being
// the number for each slot.
func blocksOf(kv KV, rows int) int { return kv.Len.Dim(0) * ((max(rows, 1)+PageLen-2)/PageLen + 1) }

// Pairs are block-to-block scores, stored in one of two layouts. [pages, width], beside the page
// of block i: its scores with blocks 0 to i, the rest undefined. [slots, width, width]: the whole
// matrix of each slot.
//
// Rows of a walk, one for each block of the call's rows, are f32 [n, width], logarithms, or i32
// [n, 2·width], the bits of signed float64s. With several slots row s is that of slot s; with one
// slot block i has row i mod n.

// Walk is one step of Sketch&Walk's random walk over blocks, a product with a triangular
// matrix: Dst[j] = Σ_m Src[m]·Pairs[m][j]^Exponent over the blocks m and j that Pairs have. Each
// row is then divided by its largest element other than block 0's. Pairs are logarithms exactly
// where rows are. Of a damped walk a part Own of Dst is the block's own row of Pairs^Exponent, both
// parts scaled so that their magnitudes sum to 1.
type Walk struct {
	Dst      Tensor // rows of a walk
	Src      Tensor // like Dst, and may be Dst; absent starts a walk: Dst is the block's own row of Pairs
	Pairs    Tensor // f32, pairs
	KV       KV
	Rows     int // newest rows of each slot, whose blocks walk
	Exponent int
	Own      float64 // at least 0 and below 1; 0 is a walk that is not damped
}

// Check panics unless the operands fit together.
func (c *Walk) Check() {
	const op = "Walk"
	CheckKV(op, c.KV)
	checkWalk(op, c.Dst, c.KV)
	if !c.Src.Absent() {
		CheckLike(op, "src", c.Src, c.Dst)
	}
	checkPairs(op, c.Pairs, c.KV)
	if !(c.Own >= 0 && c.Own < 1) {
		Check(false, op, "own %v, want at least 0 and below 1", c.Own)
	}
}

// Access names what is read and written.
func (c *Walk) Access(a *Access) {
	a.Read(c.Src, c.Pairs, c.KV.Pages, c.KV.Len)
	a.Write(c.Dst)
}

// Cost is the rows and the pairs of all stored blocks, once for all rows; at the start of a
// walk the pairs of the rows' own blocks.
func (c *Walk) Cost(s Stored) Cost {
	size, b := int64(4), s.blocks(c.KV, c.Rows, PageLen)
	if c.Dst.DType == I32 {
		size = 8 // a float64 in two
	}
	if c.Src.Absent() {
		return Cost{Bytes: (4 + size) * b.pairs, Ops: b.pairs}
	}
	return Cost{Bytes: 4*s.blocks(c.KV, 1, PageLen).triangles + 2*size*b.pairs, Ops: 2 * b.triangles}
}

var kindWalk = register[Walk]()

func (*Walk) kind() kind { return kindWalk }
