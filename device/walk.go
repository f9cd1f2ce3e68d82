package device

// blocksOf is how many blocks of PageLen positions the newest rows of all slots lie in at
// most, so many of each.
func blocksOf(kv KV, rows int) int { return kv.Len.Dim(0) * ((max(rows, 1)+PageLen-2)/PageLen + 1) }

// Pairs of blocks are kept in one of two ways. [pages, width]: row i, beside the
// page of block i, holds what i made of blocks 0 to i; later ones are undefined.
// [slots, width, width]: what each block of a slot made of each of its blocks.
//
// Rows of a walk, one for each block of the call's rows, are f32 [n, width],
// logarithms, or i32 [n, 2·width], the bits of signed float64s. With several
// slots row s is that of slot s; with one, block i has row i mod n.

// Walk continues rows by one step: Dst[j] = Σ_m Src[m]·Pairs[m][j]^Exponent, over the m
// and j that the pairs have; each row is then divided by its largest element but the
// first. Pairs are logarithms where rows are.
type Walk struct {
	Dst      Tensor // rows of a walk
	Src      Tensor // like Dst, and may be Dst; absent: Dst is the block's own row of pairs
	Pairs    Tensor // f32, pairs
	KV       KV
	Rows     int // newest rows of each slot: those whose blocks walk
	Exponent int
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
}

// Access names what is read and written.
func (c *Walk) Access(a *Access) {
	a.Read(c.Src, c.Pairs, c.KV.Pages, c.KV.Len)
	a.Write(c.Dst)
}

// Cost is the rows, and the pairs of all blocks up to the newest, once for all rows; those of
// a row's own block where it begins.
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

func (*Walk) kind() kind { return kindWalk }
