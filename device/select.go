package device

import "math"

// Select lists what rows read: positions, pages, or blocks of lines, ascending and
// without repeats. Ties go to the lowest, and NaN counts as -Inf. Rule says what is chosen.
type Select struct {
	Rule   SelectRule
	List   List
	Scores Tensor // f32 [rows, heads, width], as many heads as the list has, or as the rule says
	Q      Tensor // f32 [rows, heads, dim]: WithinMargin, Collisions
	KV     KV
	Plan   Plan // between whose sinks and recent window positions are listed
	Rows   int  // newest rows of each slot: TopBlocks, ExpandLines

	K         Amount      // TopK, TopParts, HeavyHitters
	Mass      float64     // TopP, TopLines, ExpandBlocks
	Block     int         // TopLines, WithinMargin, ExpandBlocks
	Min, Max  int         // TopParts, TopLines
	Blocks    BlockBudget // TopBlocks
	PerPage   int         // TopParts
	Recent    Amount      // HeavyHitters
	Since     Tensor      // HeavyHitters
	Below     float32     // WithinMargin
	Twice     int         // WithinMargin
	Agreement Tensor      // TopLines, ExpandBlocks
	Hash      Hash        // Collisions

	Columns, Diagonals List   // ExpandLines, ExpandBlocks: of one group
	Keys               Tensor // ExpandBlocks
}

// SelectRule is what a [Select] chooses.
type SelectRule uint8

// The rules of Select.
const (
	// TopK lists the K best positions of each row and head, and nothing that is -Inf.
	TopK SelectRule = iota
	// TopP lists the smallest set of best positions of each row and head whose exp(score -
	// max) sums to at least Mass of the row's. What is too small beside the largest to be
	// counted is not in the set, which reaches its share without it.
	TopP
	// TopBlocks lists for each block of PageLen rows the blocks with the largest elements in
	// its row of a walk; NaN and -Inf may be listed. Scores are rows of a walk.
	TopBlocks
	// TopParts lists the row's own part of a page and the best of the others, as many as
	// Parts says in all; -Inf may be listed. The list has positions up to the row's own, or
	// pages where a part is a page. Scores f32 [rows, sets, width] as BoundScores makes them.
	TopParts
	// TopLines lists the blocks of lines with the largest sums, the first one before all: as
	// many as Cover needs, with [Slack]. Scores f32 [heads, width] has columns or diagonals.
	TopLines
	// HeavyHitters lists for the newest row of each slot and each kv head what stays of the
	// positions before it (H2O): those inside the plan's span, not evicted yet, and of them
	// the newest and, of the rest, the best. All others before the row are evicted: -Inf.
	// Scores f32 [slots, kvheads, width] as AttentionMass keeps them; the plan reads its
	// row's own position besides.
	HeavyHitters
	// WithinMargin lists for each group of List.Group positions and each head the positions
	// of the plan's middle, as the group's first row of the call has it, with top - q·k/√dim
	// <= Margin.Below for the q and top of one of the group's blocks at least; a NaN is not near
	// (AnchorAttention). Weights, where the list has them, are 1 but for those of Margin.Twice.
	// List.Group is a multiple of Margin.Block; List is not Plan.List. Q f32 [blocks, heads,
	// dim] and Scores f32 [blocks, heads], the top, as MeanRows makes them.
	WithinMargin
	// Collisions lists for each row and head the positions of the plan's middle that collide
	// with the query in Hash.MinCollisions tables, with weight 1/(chance + 1e-4): the sum of their
	// weighted exponentials is that of the middle in the mean over planes, but for the 1e-4
	// (MagicPIG). A vector of length zero has cosine 0 with any, and a key that is not finite
	// is never listed. One row for each slot; List has weights.
	Collisions
	// ExpandLines lists for each group of List.Group positions that the rows lie in, and each
	// head, what columns and diagonals reach: the columns, and tiles of Group positions over
	// the diagonals (MInference). Diagonal o of the group that starts at a needs the Group
	// positions from max(a-o, 0) on. Tiles are laid from the lowest: one where the first
	// diagonal starts; a later diagonal that starts inside the tiles or at their end, and
	// needs more than they cover, adds one behind them, and one that starts beyond begins a
	// tile of its own. Nothing behind the group's last stored position is listed. One slot.
	ExpandLines
	// ExpandBlocks lists for each block of rows i and head the pages of block i, of the blocks
	// of columns, and of the blocks i-o for the blocks of diagonals o (FlexPrefill). Where
	// Pooled.Agreement is not 0 it adds what means choose: the blocks with the largest
	// softmax(mean q·mean k/√dim) over the blocks up to i, of all blocks of rows together, the
	// best first, ties to the lowest rows, then to the lowest block, as long as they sum to at
	// most Pooled.Mass times the blocks of rows, with [Slack]. List.Group is Pooled.Block, a
	// multiple of PageLen. One slot.
	ExpandBlocks
	numSelectRules
)

var selectOps = [numSelectRules]string{
	TopK: "Select(TopK)", TopP: "Select(TopP)", TopBlocks: "Select(TopBlocks)", TopParts: "Select(TopParts)",
	TopLines: "Select(TopLines)", HeavyHitters: "Select(HeavyHitters)", WithinMargin: "Select(WithinMargin)",
	Collisions: "Select(Collisions)", ExpandLines: "Select(ExpandLines)", ExpandBlocks: "Select(ExpandBlocks)",
}

func (*Select) kind() kind   { return kindSelect }
func (c *Select) op() string { return selectOps[c.Rule] }

// Check panics unless the operands fit together.
func (c *Select) Check() {
	op := c.op()
	CheckKV(op, c.KV)
	switch c.Rule {
	case TopK, TopP:
		CheckShape(op, "scores", c.Scores, F32, -1, -1, -1)
		RowsPerSlot(op, c.Scores.Dim(0), c.KV)
		checkList(op, "list", &c.List, -1, c.Scores.Dim(1))
	case TopBlocks:
		c.checkBlocks(op)
	case TopParts:
		c.checkParts(op)
	case TopLines:
		c.checkLines(op)
	case HeavyHitters:
		slots, kvHeads := c.KV.Len.Dim(0), c.KV.K.Dim(1)
		CheckShape(op, "scores", c.Scores, F32, slots, kvHeads, -1)
		CheckShape(op, "since", c.Since, I32, slots, 1)
		checkList(op, "list", &c.List, slots, kvHeads)
	case WithinMargin:
		c.checkMargin(op)
	case Collisions:
		checkHash(op, c.Hash, c.KV)
		checkAttend(op, c.Q, c.KV, &c.Plan)
		CheckShape(op, "q", c.Q, F32, c.KV.Len.Dim(0), -1, -1)
		checkWeighted(op, &c.List, c.Q.Dim(0), c.Q.Dim(1))
		checkMiddle(op, &c.Plan)
	case ExpandLines, ExpandBlocks:
		c.checkExpand(op)
	}
}

func (c *Select) checkBlocks(op string) {
	checkWalk(op, c.Scores, c.KV)
	checkList(op, "list", &c.List, -1, 1)
	if n := c.List.Index.Dim(2); n < c.KV.Pages.Dim(1) {
		Check(false, op, "lists of %d, want at least %d", n, c.KV.Pages.Dim(1))
	}
}

func (c *Select) checkParts(op string) {
	checkParts(op, c.PerPage)
	CheckShape(op, "scores", c.Scores, F32, -1, -1, -1)
	checkOneRow(op, c.Scores.Dim(0), c.KV)
	checkWidth(op, c.Scores, c.KV, c.PerPage)
	checkList(op, "list", &c.List, -1, c.Scores.Dim(1))
	if c.List.Index.Dim(0) < c.Scores.Dim(0) {
		Check(false, op, "a list of %d groups, want one for each of %d rows", c.List.Index.Dim(0), c.Scores.Dim(0))
	}
}

func (c *Select) checkLines(op string) {
	checkOneSlot(op, c.KV)
	CheckShape(op, "lines", c.Scores, F32, -1, -1)
	CheckShape(op, "agree", c.Agreement, I32, c.Scores.Dim(0))
	checkList(op, "list", &c.List, 1, c.Scores.Dim(0))
	if c.Block < 1 || math.IsNaN(c.Mass) {
		Check(false, op, "blocks of %d and a share of %v, want at least 1 and a number", c.Block, c.Mass)
	}
}

func (c *Select) checkMargin(op string) {
	checkHeadsOf(op, c.Q, c.KV)
	heads := c.Q.Dim(1)
	CheckShape(op, "top", c.Scores, F32, c.Q.Dim(0), heads)
	checkList(op, "list", &c.List, -1, heads)
	checkMiddle(op, &c.Plan)
	if !c.List.Weight.Absent() || c.Twice > 0 {
		checkWeighted(op, &c.List, c.List.Index.Dim(0), heads)
	}
	if c.Rows < 1 || c.Block < 1 || max(c.List.Group, 1)%c.Block != 0 {
		Check(false, op, "%d rows in blocks of %d and groups of %d, want at least one row and groups of whole blocks", c.Rows, c.Block, c.List.Group)
	}
	if slots := c.KV.Len.Dim(0); slots > 1 && c.Rows > 1 {
		Check(false, op, "%d rows of each of %d slots, want 1 row or 1 slot", c.Rows, slots)
	}
}

func (c *Select) checkExpand(op string) {
	checkOneSlot(op, c.KV)
	checkList(op, "list", &c.List, -1, -1)
	heads := c.List.Index.Dim(1)
	checkList(op, "list of columns", &c.Columns, 1, heads)
	checkList(op, "list of diagonals", &c.Diagonals, 1, heads)
	if c.Rule == ExpandLines {
		if c.List.Group < 1 || c.Rows < 1 {
			Check(false, op, "%d rows in groups of %d, want at least 1", c.Rows, c.List.Group)
		}
		return
	}
	checkBlock(op, c.Block)
	CheckShape(op, "mean queries", c.Q, F32, -1, heads, c.KV.K.Dim(3))
	CheckShape(op, "agree", c.Agreement, I32, heads)
	CheckShape(op, "mean keys", c.Keys, F32, -1, c.KV.K.Dim(1), c.KV.K.Dim(3))
	if c.Block%PageLen != 0 || c.List.Group != c.Block || c.Rows < 1 {
		Check(false, op, "%d rows, blocks of %d and groups of %d, want at least one row and both the same multiple of %d", c.Rows, c.Block, c.List.Group, PageLen)
	}
}

// Access names what is read and written.
func (c *Select) Access(a *Access) {
	a.Read(c.Scores, c.Q, c.KV.Pages, c.KV.Len)
	c.List.write(a)
	switch c.Rule {
	case TopLines:
		a.Read(c.Agreement)
	case HeavyHitters:
		a.Read(c.Since)
		a.Write(c.Scores)
	case WithinMargin:
		a.Read(c.KV.K)
	case Collisions:
		a.Read(c.KV.K, c.Hash.Planes)
		c.Hash.access(a)
	case ExpandBlocks:
		a.Read(c.Keys, c.Agreement)
		fallthrough
	case ExpandLines:
		c.Columns.read(a)
		c.Diagonals.read(a)
	}
}

// Cost is the scores that are looked at, or the keys, and the lists that are made.
func (c *Select) Cost(s Stored) Cost {
	rows := c.listedRows()
	cost := Cost{Bytes: s.listBytes(&c.List, c.KV, rows)}
	switch c.Rule {
	case TopK, TopP:
		cost.Bytes += 4 * int64(c.Scores.Dim(1)) * s.past(c.KV, rows)
	case TopBlocks:
		size := int64(4)
		if c.Scores.DType == I32 {
			size = 8 // a float64 in two
		}
		cost.Bytes += size * s.blocks(c.KV, c.Rows, PageLen).pairs
	case TopParts:
		cost.Bytes += 4 * int64(c.Scores.Dim(1)) * s.blocks(c.KV, 1, PageLen/c.PerPage).stored
	case TopLines, HeavyHitters:
		cost.Bytes += 4 * int64(c.List.Index.Dim(1)) * s.past(c.KV, c.KV.Len.Dim(0))
	case WithinMargin:
		blocks, dim := int64(c.Q.Dim(0)), int64(c.Q.Dim(2))
		r := s.middle(&c.Plan, c.KV, rows, c.Q.Dim(1))
		cost.Add(moved(c.Q, c.Scores))
		cost.Bytes += c.KV.rowBytes(r.rows)
		cost.Ops = 2 * dim * r.pairs * blocks / int64(rows)
	case Collisions:
		cost.Add(moved(c.Q, c.Hash.Planes))
		cost.Ops = 2 * int64(c.Q.Len()) * int64(c.Hash.Planes.Dim(0))
		if !c.Hash.Bucketed() {
			cost.Bytes += 8 * int64(c.Hash.Planes.Dim(0)*c.KV.K.Dim(1)) * s.blocks(c.KV, 1, PageLen).stored
		}
	case ExpandLines, ExpandBlocks:
		cost.Bytes += s.listBytes(&c.Columns, c.KV, 1) + s.listBytes(&c.Diagonals, c.KV, 1)
	}
	return cost
}

// listedRows is how many rows of the call the lists are for.
func (c *Select) listedRows() int {
	slots := c.KV.Len.Dim(0)
	switch c.Rule {
	case TopK, TopP, TopParts:
		return c.Scores.Dim(0)
	case TopBlocks, ExpandLines, ExpandBlocks, WithinMargin:
		return slots * max(c.Rows, 1)
	}
	return slots
}

// Pick says how many blocks a row of blocks reads. A block always reads itself,
// and every block it sees when it sees no more than two or than it may read.
type BlockBudget struct {
	Count int     // blocks; 0: by Share
	Share float64 // of the blocks that it sees, rounded up; at least 2
	Free  bool    // block 0 has to compete; otherwise it is always read, and counts
	Span  Span    // of the block's first row: what it cannot see is not listed
}

// Of is the number of blocks read of n. A computed real is rounded up with a
// guard of 1e-9, so that a share of 0.2 of 10 is 2.
func (p BlockBudget) Of(n int) int {
	k := p.Count
	if k == 0 {
		k = max(2, int(math.Ceil(p.Share*float64(n)-1e-9)))
	}
	if k > n || n <= 2 {
		return n
	}
	return k
}

// PartsOf is the number of parts that TopParts reads for a row at p, its own included: every
// one where K is all of its positions.
func (c *Select) PartsOf(p int) int {
	keep, size := c.K.Of(p+1), PageLen/c.PerPage
	if keep > p {
		return p/size + 1
	}
	return max(c.Min, 1, keep/size)
}

// KeptOf is how many of the n positions before a row HeavyHitters keeps by their sums, and how
// many because they are recent. since is the slot's element of Since.
func (c *Select) KeptOf(n, since int) (heavy, recent int) {
	if since == 0 {
		since = n
	}
	return min(c.K.Of(since), n), min(c.Recent.Of(since), n)
}

// LineBlocksOf is the number of blocks that TopLines lists of width lines, n of which reach Mass.
func (c *Select) LineBlocksOf(n, width int) int {
	limit := (width + c.Block - 1) / c.Block
	if c.Max > 0 {
		limit = min(limit, c.Max)
	}
	return min(max(n/c.Block+1, c.Min), limit)
}

// BlocksOf is how many blocks the rows at first to first+rows-1 lie in.
func BlocksOf(first, rows, block int) int {
	if rows == 0 {
		return 0
	}
	return (first+rows-1)/block - first/block + 1
}

// Slack is what a sum may exceed a share by, as a factor: sums of whole rows of
// softmax are not whole numbers.
const Slack = 1 + 1e-9
