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

// Sketcher compares blocks of PageLen positions by sketches, which are short
// projections of means, and follows chains of comparisons. What is kept of a
// block lies beside its page: row p of a tensor [pages, ...] belongs to page p.
//
// Pairs of blocks are kept in one of two ways. [pages, width]: row i, beside the
// page of block i, holds what i made of blocks 0 to i; later ones are undefined.
// [slots, width, width]: what each block of a slot made of each of its blocks.
//
// Rows of a walk, one for each block of the call's rows, are f32 [n, width],
// logarithms, or i32 [n, 2·width], the bits of signed float64s. With several
// slots row s is that of slot s; with one, block i has row i mod n.
type Sketcher interface {
	// BlockSum adds rows to the sums of their blocks, in the order of positions;
	// a block's first position starts its sum anew. The heads of a row that
	// belong to one head of the sum are averaged.
	// sum f32 [pages, heads, dim], x f32 [rows, any multiple of heads, dim].
	BlockSum(sum, x Tensor, kv KV)
	// SketchMeans projects the means of blocks: dst = basis·(sum / positions).
	// dst f32 [pages, heads, width], basis f32 [width, dim].
	SketchMeans(dst, sum, basis Tensor, at Newest)
	// SketchRows projects the newest row of each slot as if it were the mean of
	// its block. dst f32 [pages, heads, width], x as in BlockSum.
	SketchRows(dst, x, basis Tensor, kv KV)
	// CompareBlocks makes rows of pairs: products q·k / (heads·√width), of the
	// blocks named, and of the one before them where they start a block: its q
	// has changed when it was completed. A square is made as a whole.
	// dst f32, pairs; q, k f32 [pages, heads, width].
	CompareBlocks(dst, q, k Tensor, at Newest, c Compare)
	// Walk continues rows by one step: dst[j] = Σ_m src[m]·pairs[m][j]^exponent,
	// over the m and j that the pairs have; each row is then divided by its
	// largest element but the first. Pairs are logarithms where rows are. An
	// absent src starts: dst is the block's own row of pairs. dst may be src.
	Walk(dst, src, pairs Tensor, at Newest, exponent int)
	// TopBlocks lists for each block named the blocks with the largest elements
	// in its row: ties to the lowest, NaN as -Inf, which may be listed.
	TopBlocks(l List, rows Tensor, at Newest, p Pick)
}
