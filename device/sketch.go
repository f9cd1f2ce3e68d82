package device

import "math"

// Newest names the blocks of PageLen positions that hold the newest N positions
// of each slot: those of the rows of a call. An idle slot has none.
type Newest struct {
	KV KV
	N  int // rows of each slot
}

// Form says what is made of the products of two blocks.
type Form uint8

// The forms.
const (
	Raw     Form = iota // the product
	Relu                // the product where it is positive, otherwise 0
	Softmax             // its share of exp(product) in the row
)

// Compare says how the products of blocks are stored.
type Compare struct {
	Form Form
	Log  bool // as ln|x|, -Inf for 0; otherwise as x
	// Own, when present, are the sketches that stand in for q where a block
	// meets itself. f32 [pages, heads, width]
	Own Tensor
}

// Pick says how many blocks a row of blocks reads. A block always reads itself,
// and every block it sees when it sees no more than two or than it may read.
type Pick struct {
	Count int     // blocks; 0: by Share
	Share float64 // of the blocks that it sees, rounded up; at least 2
	Free  bool    // block 0 has to compete; otherwise it is always read, and counts
	Span  Span    // of the block's first row: what it cannot see is not listed
}

// Of is the number of blocks read of n. A computed real is rounded up with a
// guard of 1e-9, so that a share of 0.2 of 10 is 2.
func (p Pick) Of(n int) int {
	k := p.Count
	if k == 0 {
		k = max(2, int(math.Ceil(p.Share*float64(n)-1e-9)))
	}
	if k > n || n <= 2 {
		return n
	}
	return k
}

// Blocks of PageLen positions are compared by sketches, which are short projections of
// means, and chains of comparisons are followed over the layers. What is kept of a
// block lies beside its page: row p of a tensor [pages, ...] belongs to page p.
//
// Pairs of blocks are kept in one of two ways. [pages, width]: row i, beside the
// page of block i, holds what i made of blocks 0 to i; later ones are undefined.
// [slots, width, width]: what each block of a slot made of each of its blocks.
//
// Rows of a walk, one for each block of the call's rows, are f32 [n, width],
// logarithms, or i32 [n, 2·width], the bits of signed float64s. With several
// slots row s is that of slot s; with one, block i has row i mod n.

// BlockSum adds rows to the sums of their blocks, in the order of positions; a block's
// first position starts its sum anew. The heads of a row that belong to one head of the
// sum are averaged.
type BlockSum struct {
	Sum Tensor // f32 [pages, heads, dim]
	X   Tensor // f32 [rows, any multiple of heads, dim]
	KV  KV
}

// Check panics unless the operands fit together.
func (c *BlockSum) Check() {
	const op = "BlockSum"
	CheckKV(op, c.KV)
	CheckShape(op, "sum", c.Sum, F32, c.KV.K.Dim(0), -1, -1)
	checkHeads(op, c.X, c.Sum.Dim(1), c.Sum.Dim(2))
	RowsPerSlot(op, c.X.Dim(0), c.KV)
}

// Access names what is read and written.
func (c *BlockSum) Access(a *Access) {
	a.Read(c.X, c.Sum, c.KV.Pages, c.KV.Len)
	a.Write(c.Sum)
}

// Cost is the rows: what they are added to is one row for each block.
func (c *BlockSum) Cost() Cost {
	cost := moved(c.X)
	cost.Ops = int64(c.X.Len())
	return cost
}

func (*BlockSum) kind() kind { return kindBlockSum }

// SketchMeans projects the means of blocks: Dst = Basis·(Sum / positions).
type SketchMeans struct {
	Dst   Tensor // f32 [pages, heads, width]
	Sum   Tensor // f32 [pages, heads, dim]
	Basis Tensor // f32 [width, dim]
	At    Newest
}

// Check panics unless the operands fit together.
func (c *SketchMeans) Check() {
	const op = "SketchMeans"
	checkSketch(op, c.Dst, c.Basis, c.At.KV)
	CheckShape(op, "sum", c.Sum, F32, c.Dst.Dim(0), c.Dst.Dim(1), c.Basis.Dim(1))
}

// Access names what is read and written.
func (c *SketchMeans) Access(a *Access) {
	a.Read(c.Sum, c.Basis, c.At.KV.Pages, c.At.KV.Len)
	a.Write(c.Dst)
}

// Cost is the blocks of the call's rows, and Basis.
func (c *SketchMeans) Cost() Cost { return sketchCost(c.At.touched(), c.Dst, c.Basis) }

func (*SketchMeans) kind() kind { return kindSketchMeans }

// SketchRows projects the newest row of each slot as if it were the mean of its block.
type SketchRows struct {
	Dst   Tensor // f32 [pages, heads, width]
	X     Tensor // f32 [rows, any multiple of heads, dim]
	Basis Tensor // f32 [width, dim]
	KV    KV
}

// Check panics unless the operands fit together.
func (c *SketchRows) Check() {
	const op = "SketchRows"
	checkSketch(op, c.Dst, c.Basis, c.KV)
	checkHeads(op, c.X, c.Dst.Dim(1), c.Basis.Dim(1))
	RowsPerSlot(op, c.X.Dim(0), c.KV)
}

// Access names what is read and written.
func (c *SketchRows) Access(a *Access) {
	a.Read(c.X, c.Basis, c.KV.Pages, c.KV.Len)
	a.Write(c.Dst)
}

// Cost is a row of each slot, and Basis.
func (c *SketchRows) Cost() Cost { return sketchCost(c.KV.Len.Dim(0), c.Dst, c.Basis) }

func (*SketchRows) kind() kind { return kindSketchRows }

// CompareBlocks makes rows of pairs: products q·k / (heads·√width), of the blocks named,
// and of the one before them where they start a block: its q has changed when it was
// completed. A square is made as a whole.
type CompareBlocks struct {
	Dst  Tensor // f32, pairs
	Q, K Tensor // f32 [pages, heads, width]
	At   Newest
	Compare
}

// Check panics unless the operands fit together.
func (c *CompareBlocks) Check() {
	const op = "CompareBlocks"
	CheckKV(op, c.At.KV)
	CheckShape(op, "q", c.Q, F32, c.At.KV.K.Dim(0), -1, -1)
	CheckLike(op, "k", c.K, c.Q)
	if !c.Own.Absent() {
		CheckLike(op, "own", c.Own, c.Q)
	}
	checkPairs(op, c.Dst, c.At.KV)
}

// Access names what is read and written.
func (c *CompareBlocks) Access(a *Access) {
	a.Read(c.Q, c.K, c.Own, c.At.KV.Pages, c.At.KV.Len)
	a.Write(c.Dst)
}

// Cost is the query sketches of the call's blocks: how many key sketches they meet
// depends on lengths.
func (c *CompareBlocks) Cost() Cost {
	return Cost{Bytes: int64(c.At.touched()) * int64(c.Q.Dim(1)*c.Q.Dim(2)) * 4}
}

func (*CompareBlocks) kind() kind { return kindCompareBlocks }

// Walk continues rows by one step: Dst[j] = Σ_m Src[m]·Pairs[m][j]^Exponent, over the m
// and j that the pairs have; each row is then divided by its largest element but the
// first. Pairs are logarithms where rows are.
type Walk struct {
	Dst      Tensor // rows of a walk
	Src      Tensor // like Dst, and may be Dst; absent: Dst is the block's own row of pairs
	Pairs    Tensor // f32, pairs
	At       Newest
	Exponent int
}

// Check panics unless the operands fit together.
func (c *Walk) Check() {
	const op = "Walk"
	CheckKV(op, c.At.KV)
	checkWalk(op, c.Dst, c.At.KV)
	if !c.Src.Absent() {
		CheckLike(op, "src", c.Src, c.Dst)
	}
	checkPairs(op, c.Pairs, c.At.KV)
}

// Access names what is read and written.
func (c *Walk) Access(a *Access) {
	a.Read(c.Src, c.Pairs, c.At.KV.Pages, c.At.KV.Len)
	a.Write(c.Dst)
}

// Cost is the rows: how many pairs there are depends on lengths.
func (c *Walk) Cost() Cost { return moved(c.Dst, c.Src) }

func (*Walk) kind() kind { return kindWalk }

// TopBlocks lists for each block named the blocks with the largest elements in its row:
// ties to the lowest, NaN as -Inf, which may be listed.
type TopBlocks struct {
	List List
	Rows Tensor // of a walk
	At   Newest
	Pick
}

// Check panics unless the operands fit together.
func (c *TopBlocks) Check() {
	const op = "TopBlocks"
	CheckKV(op, c.At.KV)
	checkWalk(op, c.Rows, c.At.KV)
	CheckShape(op, "list", c.List.Index, I32, -1, 1, -1)
	CheckShape(op, "count", c.List.Count, I32, c.List.Index.Dim(0), 1)
	if most := c.List.Index.Dim(2); most < c.At.KV.Pages.Dim(1) {
		Check(false, op, "lists of %d, want at least %d", most, c.At.KV.Pages.Dim(1))
	}
}

// Access names what is read and written.
func (c *TopBlocks) Access(a *Access) {
	a.Read(c.Rows, c.At.KV.Pages, c.At.KV.Len)
	a.Write(c.List.Index, c.List.Count)
}

// Cost is the rows.
func (c *TopBlocks) Cost() Cost { return moved(c.Rows) }

func (*TopBlocks) kind() kind { return kindTopBlocks }

// touched is how many blocks the rows of all slots lie in at most.
func (n Newest) touched() int { return n.KV.Len.Dim(0) * ((max(n.N, 1)+PageLen-2)/PageLen + 1) }

// sketchCost is that of n projections for each head of dst.
func sketchCost(n int, dst, basis Tensor) Cost {
	each := int64(dst.Dim(1)) * int64(n)
	return Cost{
		Bytes: int64(basis.Size()) + 4*each*int64(basis.Dim(0)+basis.Dim(1)),
		Ops:   2 * each * int64(basis.Len()),
	}
}

// checkHeads panics unless x is rows of a multiple of heads.
func checkHeads(op string, x Tensor, heads, dim int) {
	CheckShape(op, "x", x, F32, -1, -1, dim)
	if heads < 1 || x.Dim(1)%heads != 0 {
		Check(false, op, "%d heads in x, want a multiple of %d", x.Dim(1), heads)
	}
}

// checkSketch panics unless dst and basis belong together.
func checkSketch(op string, dst, basis Tensor, kv KV) {
	CheckKV(op, kv)
	CheckShape(op, "basis", basis, F32, -1, -1)
	CheckShape(op, "dst", dst, F32, kv.K.Dim(0), -1, basis.Dim(0))
}

// checkPairs panics unless t is numbers that blocks made of each other.
func checkPairs(op string, t Tensor, kv KV) {
	width := t.RowLen()
	if t.Rank() == 3 {
		CheckShape(op, "pairs", t, F32, kv.Len.Dim(0), width, width)
	} else {
		CheckShape(op, "pairs", t, F32, kv.K.Dim(0), width)
	}
	if width < kv.Pages.Dim(1) {
		Check(false, op, "pairs %v, want rows of at least %d", t, kv.Pages.Dim(1))
	}
}

// checkWalk panics unless t is rows of a walk.
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
}
