package device

import "math"

// Select makes lists of what rows attend to: positions, pages, or blocks of columns and diagonals,
// ascending and without repeats. Ties go to the lowest index and NaN counts as -Inf, unless the
// rule says otherwise. Lists of idle slots are left alone.
type Select struct {
	Rule   SelectRule
	List   List
	Scores Tensor // f32 [rows, heads, width], as many heads as the list has, or as the rule says
	Q      Tensor // f32 [rows, heads, dim]: WithinMargin, Collisions, ExpandBlocks
	KV     KV
	Plan   Plan // its Span and, for rules that read keys, its selected region
	Rows   int  // newest rows of each slot: TopBlocks, WithinMargin, ExpandLines, ExpandBlocks

	K         Amount      // TopK, TopParts, HeavyHitters: how many are selected
	Mass      float64     // TopP, TopLines, ExpandBlocks: the fraction of the mass that is selected
	Block     int         // WithinMargin, ExpandBlocks: positions of a block; TopLines: lines of a block
	Min, Max  int         // TopParts (Min), TopLines: limits of the number selected; Max 0 is none
	Blocks    BlockBudget // TopBlocks
	PerPage   int         // TopParts: parts of a page, a divisor of PageLen
	Recent    Amount      // HeavyHitters: newest positions that are never evicted
	Since     Tensor      // HeavyHitters: i32 [slots, 1]
	Below     float32     // WithinMargin: the margin
	Twice     int         // WithinMargin: positions before it are always selected
	Agreement Tensor      // TopLines, ExpandBlocks: i32 [heads]
	Hash      Hash        // Collisions

	Columns, Diagonals List   // ExpandLines, ExpandBlocks: of one group
	Keys               Tensor // ExpandBlocks: f32 [blocks of the slot, kvheads, dim]
}

// SelectRule is how a [Select] selects.
type SelectRule uint8

// The rules of Select.
const (
	// TopK selects the K best positions of each row and head, K being of the row's position plus
	// one; a score of -Inf is never selected. Scores f32 [rows, heads, width].
	TopK SelectRule = iota
	// TopP selects the smallest set of best positions of each row and head whose softmax mass
	// Σ exp(score - max) is at least Mass of the row's. Scores so far below the maximum that
	// they add nothing in float64 are not selected. Scores f32 [rows, heads, width].
	TopP
	// TopBlocks selects, for each block of PageLen rows, the blocks with the largest elements in
	// its row of a walk (Sketch&Walk, step H), as many as Blocks says. The list is the same for
	// all heads. NaN and -Inf may be selected, last. Scores rows of a walk, see [Walk].
	TopBlocks
	// TopParts selects the row's own part of a page and the best others, [Select.PartsOf] in
	// all (Quest); -Inf may be selected. The list has positions up to the row's own, or pages
	// where PerPage is 1. Parts that Plan.Span hides entirely are not selected.
	// Scores f32 [rows, head groups, width] of BoundScores.
	TopParts
	// TopLines selects the blocks of lines (columns or diagonals) with the largest mass, always
	// the first block, [Select.LineBlocksOf] in all (FlexPrefill): n is the number of single
	// lines, best first, that sum to at most Mass of all, within [Slack], plus one, and 0 for a
	// head whose Agreement is not 0. Scores f32 [heads, width] of VerticalSlash.
	TopLines
	// HeavyHitters selects the positions before the newest row of each slot that stay in the cache,
	// for each kv head (H2O): of those inside Plan.Span that are not evicted, the newest Recent and
	// the K best of the others, see [Select.KeptOf]. All others are evicted for good: their
	// scores become -Inf. Scores f32 [slots, kvheads, width] of AttentionMass. The row's own
	// position is not listed.
	HeavyHitters
	// WithinMargin selects, for each group of List.Group positions and each head, the positions
	// of the plan's selected region, as it is for the first row of the group in the call, with
	// anchor - q·k/√dim <= Below for the mean q and anchor of at least one of the group's
	// blocks of Block positions (AnchorAttention, equation 2). NaN is not within the margin.
	// Those of them before position Twice are always selected, with weight 2 where they are within
	// the margin; all other weights are 1. List.Group is a multiple of Block; List is not Plan.List.
	// Q f32 [blocks, heads, dim] and Scores f32 [blocks, heads], the anchors, of MeanRows.
	WithinMargin
	// Collisions selects, for each row and head, the positions of the plan's selected region
	// that collide with the query in at least Hash.MinCollisions tables, with weight
	// 1/(p + 1e-4), p being the probability of that (MagicPIG): Σ w·exp(q·k) estimates the
	// softmax denominator of the region. A zero vector has cosine 0 with every other; a key
	// that is not finite is never selected. One row for each slot; List has weights.
	Collisions
	// ExpandLines turns columns and diagonals into positions for each group of List.Group
	// positions that the rows are in, and each head (MInference): the columns, and tiles of
	// Group positions that cover the diagonals. Diagonal o of the group that starts at a needs
	// the Group positions from max(a-o, 0) on. Tiles are placed from the lowest: one where the
	// first diagonal starts; a later diagonal that starts inside the tiles or at their end, and
	// needs more than they cover, appends one, and one that starts after them begins a new run.
	// Positions after the group's last stored position are left out. One slot.
	ExpandLines
	// ExpandBlocks turns blocks of columns and diagonals into pages for each block of rows i and
	// each head (FlexPrefill): block i, the blocks of Columns, and blocks i-o for the blocks o of
	// Diagonals. For a head whose Agreement is not 0 it adds the pairs of a block of rows and a
	// block of keys up to it with the largest softmax(mean q·mean k/√dim), over all blocks of
	// rows together, best first, ties to the lowest block of rows and then of keys, as long as
	// they sum to at most Mass times the number of blocks of rows, within [Slack]. Q f32
	// [blocks of rows, heads, dim] of MeanRows, Keys of MeanKeys. List.Group is Block, a
	// multiple of PageLen. One slot.
	ExpandBlocks
	numSelectRules
)

var selectOps = [numSelectRules]string{
	TopK: "Select(TopK)", TopP: "Select(TopP)", TopBlocks: "Select(TopBlocks)", TopParts: "Select(TopParts)",
	TopLines: "Select(TopLines)", HeavyHitters: "Select(HeavyHitters)", WithinMargin: "Select(WithinMargin)",
	Collisions: "Select(Collisions)", ExpandLines: "Select(ExpandLines)", ExpandBlocks: "Select(ExpandBlocks)",
}

var kindSelect = register[Select]()

func (*Select) kind() kind { return kindSelect }

func (c *Select) op() string {
	checkRule("Select", "rule", c.Rule, numSelectRules)
	return selectOps[c.Rule]
}

// Check panics unless the operands fit together.
func (c *Select) Check() {
	op := c.op()
	CheckKV(op, c.KV)
	checkAmount(op, "the best", c.K)
	checkAmount(op, "the newest", c.Recent)
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
		checkRegion(op, &c.Plan)
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
		Check(false, op, "blocks of %d lines and a mass of %v, want at least 1 and a number", c.Block, c.Mass)
	}
}

func (c *Select) checkMargin(op string) {
	checkHeadsOf(op, c.Q, c.KV)
	heads := c.Q.Dim(1)
	CheckShape(op, "top", c.Scores, F32, c.Q.Dim(0), heads)
	checkList(op, "list", &c.List, -1, heads)
	checkRegion(op, &c.Plan)
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

// Cost is the scores or keys read, and the lists written.
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
		r := s.region(&c.Plan, c.KV, rows, c.Q.Dim(1))
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

// listedRows is the number of rows that the lists are for.
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

// BlockBudget is the number of blocks that TopBlocks selects for a block of rows. It always
// selects the block itself, and all blocks where there are at most two. Blocks that are always
// selected count, and are selected even where they are more.
type BlockBudget struct {
	Count int     // blocks; 0: by Share
	Share float64 // of the blocks that it sees, rounded up; at least 2
	Free  bool    // only the block itself is always selected
	Span  Span    // for the block's first row: hidden blocks are not selected
	First Amount  // blocks from 0 on that are always selected, at least one
	Last  Amount  // blocks up to the block itself that are always selected, at least one
	Dense int     // rows of blocks from this one on select all that they see; 0: none do
}

// Of is the number of blocks selected of n. 1e-9 is subtracted before rounding up, so that 0.2
// of 10 is 2.
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

// Edges is how many blocks are always selected for the rows of a block that see n: blocks 0 to
// first-1, and the last ones up to the block itself. Shares of n are rounded up.
func (p BlockBudget) Edges(n int) (first, last int) {
	up := func(a Amount) int {
		if a.Share > 0 {
			return max(1, int(math.Ceil(a.Share*float64(n)-1e-9)))
		}
		return max(1, a.Count)
	}
	if p.Free {
		return 0, 1
	}
	return up(p.First), up(p.Last)
}

// PartsOf is the number of parts that TopParts selects for a row at p, its own included: all
// of them where K is at least p+1 positions, otherwise K in whole parts, at least Min and 1.
func (c *Select) PartsOf(p int) int {
	keep, size := c.K.Of(p+1), PageLen/c.PerPage
	if keep > p {
		return p/size + 1
	}
	return max(c.Min, 1, keep/size)
}

// KeptOf is how many of the n positions before a row HeavyHitters keeps by their mass, and how
// many because they are recent. Shares are of since, the slot's element of Since, or of n where
// that is 0.
func (c *Select) KeptOf(n, since int) (heavy, recent int) {
	if since == 0 {
		since = n
	}
	return min(c.K.Of(since), n), min(c.Recent.Of(since), n)
}

// LineBlocksOf is the number of blocks that TopLines selects of width lines, n of which reach
// Mass.
func (c *Select) LineBlocksOf(n, width int) int {
	limit := (width + c.Block - 1) / c.Block
	if c.Max > 0 {
		limit = min(limit, c.Max)
	}
	return min(max(n/c.Block+1, c.Min), limit)
}

// BlocksOf is the number of blocks that the positions first to first+rows-1 are in.
func BlocksOf(first, rows, block int) int {
	if rows == 0 {
		return 0
	}
	return (first+rows-1)/block - first/block + 1
}

// Slack is the relative tolerance of comparisons with Mass: the probabilities of a row do not sum
// to exactly 1.
const Slack = 1 + 1e-9
