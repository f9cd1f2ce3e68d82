package device

import "math"

// The attention of a slot's newest rows is a matrix with a row for each of them
// and a column for each position. Lines are its columns, and its diagonals:
// diagonal o is what lies o positions before each row. Tensors of lines are f32
// [heads, width], each a sum of weights as [HoldShare] holds it; what follows the
// slot's newest position is undefined.

// First is how many columns, and how many diagonals, come before all others
// whatever their sum is: the first ones.
type First struct{ Columns, Diagonals int }

// Cover says how many blocks of lines are taken.
type Cover struct {
	Block int     // lines of a block, counted from 0
	Share float64 // as many as single lines, the best first, sum to this share of all need
	Least int     // blocks that are taken at least
	Most  int     // blocks that are taken at most; 0 is all
}

// Of is the number of blocks that stand for n lines of a row of width lines.
func (c Cover) Of(n, width int) int {
	blocks := (width + c.Block - 1) / c.Block
	most := blocks
	if c.Most > 0 {
		most = min(most, c.Most)
	}
	return min(max(n/c.Block+1, c.Least), most)
}

// Slack is what a sum may exceed a share by, as a factor: sums of whole rows of
// softmax are not whole numbers.
const Slack = 1 + 1e-9

// Means are the mean queries and keys of blocks of Block positions of one slot,
// as MeanRows and MeanKeys make them.
type Means struct {
	Block   int
	Queries Tensor // f32 [blocks of the call's rows, heads, dim]
	Keys    Tensor // f32 [blocks of the slot, kvheads, dim]
	Rows    int    // rows of the call
	// Agree i32 [heads] is 1 for a head whose means tell what columns do, otherwise 0.
	Agree Tensor
	// Share is how much of a row of what means say is read, on the average of all
	// rows, where they agree.
	Share float64
}

// Liner finds what the rows of a prompt read from the attention of its newest
// rows, and from means. kv has one slot. Lists of lines have one group.
type Liner interface {
	// LineSums adds up softmax(q·k/√dim), causal, along columns and diagonals;
	// a score that is NaN counts nothing. The first ones are +Inf.
	// columns, diagonals f32 [heads, width], q f32 [rows, heads, dim].
	LineSums(columns, diagonals, q Tensor, kv KV, f First)
	// ListLines lists for each group of l.Group positions that the call's rows
	// lie in, and each head, what lines reach: the columns, and tiles of Group
	// positions over the diagonals. Diagonal o of the group that starts at a needs
	// the Group positions from max(a-o, 0) on. Tiles are laid from the lowest: one
	// where the first diagonal starts; a later diagonal that starts inside the
	// tiles or at their end, and needs more than they cover, adds one behind them,
	// and one that starts beyond begins a tile of its own. Nothing behind the
	// group's last stored position is listed.
	ListLines(l, columns, diagonals List, kv KV, rows int)
	// MeanKeys averages the stored keys of each block of positions.
	// dst f32 [at least as many as there are blocks, kvheads, dim].
	MeanKeys(dst Tensor, kv KV, block int)
	// Agree sets m.Agree to whether means tell what columns do: whether the root of
	// the Jensen-Shannon divergence (natural logarithm) of softmax(q·mean k/√dim)
	// over all blocks and of the sums of columns in blocks, scaled to 1, is below
	// near. columns as LineSums makes them, q f32 [1, heads, dim].
	Agree(m Means, columns, q Tensor, kv KV, near float64)
	// TopLines lists the blocks of lines with the largest sums, the first one
	// before all: as many as the cover needs, with [Slack], where agree is not 0
	// the least.
	// x f32 [heads, width] has columns or diagonals, agree i32 [heads].
	TopLines(l List, x Tensor, kv KV, c Cover, agree Tensor)
	// ListBlocks lists for each block of rows i and head the pages of block i,
	// of the blocks of columns, and of the blocks i-o for the blocks of diagonals
	// o. Where m.Agree is not 0 it adds what means choose: the blocks with the
	// largest softmax(mean q·mean k/√dim) over the blocks up to i, of all blocks
	// of rows together, the best first, ties to the lowest rows, then to the
	// lowest block, as long as they sum to at most m.Share times the blocks of
	// rows, with [Slack]. l.Group is m.Block, a multiple of PageLen.
	ListBlocks(l, columns, diagonals List, kv KV, m Means)
}

// checkOneSlot panics unless kv has one slot.
func checkOneSlot(op string, kv KV) {
	CheckKV(op, kv)
	if n := kv.Len.Dim(0); n != 1 {
		Check(false, op, "%d slots, want 1", n)
	}
}

// CheckLineSums panics unless the arguments of LineSums fit together.
func CheckLineSums(columns, diagonals, q Tensor, kv KV) {
	const op = "LineSums"
	checkOneSlot(op, kv)
	checkHeadsOf(op, q, kv)
	CheckShape(op, "columns", columns, F32, q.Dim(1), -1)
	CheckShape(op, "diagonals", diagonals, F32, q.Dim(1), columns.Dim(1))
}

// CheckListLines panics unless the arguments of ListLines fit together.
func CheckListLines(l, columns, diagonals List, kv KV, rows int) {
	const op = "ListLines"
	checkOneSlot(op, kv)
	heads := l.Index.Dim(1)
	checkList(op, "list", l, -1, heads)
	checkList(op, "list of columns", columns, 1, heads)
	checkList(op, "list of diagonals", diagonals, 1, heads)
	if l.Group < 1 || rows < 1 {
		Check(false, op, "%d rows in groups of %d, want at least 1", rows, l.Group)
	}
}

// CheckMeanKeys panics unless the arguments of MeanKeys fit together.
func CheckMeanKeys(dst Tensor, kv KV, block int) {
	const op = "MeanKeys"
	checkOneSlot(op, kv)
	CheckShape(op, "dst", dst, F32, -1, kv.K.Dim(1), kv.K.Dim(3))
	if block < 1 {
		Check(false, op, "blocks of %d, want at least 1", block)
	}
}

// CheckAgree panics unless the arguments of Agree fit together.
func CheckAgree(m Means, columns, q Tensor, kv KV) {
	const op = "Agree"
	checkOneSlot(op, kv)
	checkHeadsOf(op, q, kv)
	CheckShape(op, "q", q, F32, 1, -1, -1)
	CheckShape(op, "columns", columns, F32, q.Dim(1), -1)
	checkMeans(op, m, q.Dim(1), kv)
}

// CheckTopLines panics unless the arguments of TopLines fit together.
func CheckTopLines(l List, x Tensor, kv KV, c Cover, agree Tensor) {
	const op = "TopLines"
	checkOneSlot(op, kv)
	CheckShape(op, "lines", x, F32, -1, -1)
	CheckShape(op, "agree", agree, I32, x.Dim(0))
	checkList(op, "list", l, 1, x.Dim(0))
	if c.Block < 1 || math.IsNaN(c.Share) {
		Check(false, op, "blocks of %d and a share of %v, want at least 1 and a number", c.Block, c.Share)
	}
}

// CheckListBlocks panics unless the arguments of ListBlocks fit together.
func CheckListBlocks(l, columns, diagonals List, kv KV, m Means) {
	const op = "ListBlocks"
	checkOneSlot(op, kv)
	heads := l.Index.Dim(1)
	checkList(op, "list", l, -1, heads)
	checkList(op, "list of columns", columns, 1, heads)
	checkList(op, "list of diagonals", diagonals, 1, heads)
	checkMeans(op, m, heads, kv)
	if m.Block%PageLen != 0 || l.Group != m.Block || m.Rows < 1 {
		Check(false, op, "%d rows, blocks of %d and groups of %d, want at least one row and both the same multiple of %d", m.Rows, m.Block, l.Group, PageLen)
	}
}

// checkMeans panics unless means are of heads heads and the kv heads of kv.
func checkMeans(op string, m Means, heads int, kv KV) {
	if m.Block < 1 {
		Check(false, op, "blocks of %d, want at least 1", m.Block)
	}
	CheckShape(op, "mean queries", m.Queries, F32, -1, heads, kv.K.Dim(3))
	CheckShape(op, "agree", m.Agree, I32, heads)
	CheckShape(op, "mean keys", m.Keys, F32, -1, kv.K.Dim(1), kv.K.Dim(3))
}

// checkList panics unless l has so many groups (-1 is any) and heads.
func checkList(op, name string, l List, groups, heads int) {
	CheckShape(op, name, l.Index, I32, groups, heads, -1)
	CheckShape(op, name+" count", l.Count, I32, l.Index.Dim(0), heads)
}
