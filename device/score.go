package device

import "math"

// Score makes numbers that say how much a row wants of what is stored: one for each row
// and head, and each position, part of a page or block. Rule says how. A row of scores
// stops at the row's own position: what follows is undefined.
type Score struct {
	Rule   ScoreRule
	Dst    Tensor // f32 [rows, heads, width], or as the rule says
	Q      Tensor // f32 [rows, heads, dim], or as the rule says
	Keys   Tensor // what [Summarize] keeps of keys; absent for rules that read the cache
	KV     KV
	Plan   Plan   // whose Span, and parts, are scored
	Region Region // ExactScores: of Plan

	Channels                       Channels      // ChannelScores
	Net                            Net           // SignScores: has a set for each head
	Rows                           int           // SketchScores: newest rows of each slot
	Product                        SketchProduct // SketchScores
	Columns                        Tensor        // PooledAgreement: f32 [heads, width]
	Diagonals                      Tensor        // VerticalSlash: f32 [heads, width]
	ForcedColumns, ForcedDiagonals int           // VerticalSlash: so many of the first ones are +Inf
	Block                          int           // PooledAgreement: positions of a block
	MaxDivergence                  float64       // PooledAgreement
}

// ScoreRule is how a [Score] is made.
type ScoreRule uint8

// The rules of Score.
const (
	// ExactScores is q·k/√dim over a part of what each row sees, plus ln weight where that
	// part is Planned and the list has weights; -Inf elsewhere.
	ExactScores ScoreRule = iota
	// BoundScores is Σ max(q·least, q·largest) over the dimensions (Quest), which no q·k of
	// a part of a page exceeds, for each part that the row sees. Heads of Dst are query heads,
	// or kv heads: the sum of their heads. One row for each slot. Keys as KeyBounds makes them.
	BoundScores
	// ChannelScores is label(q)·label/√dim over the middle of the plan, -Inf elsewhere; q is
	// not in f16 (Double Sparsity). Keys as KeyChannels makes them.
	ChannelScores
	// SignScores counts the signs that agree with those of what the network makes of the
	// queries, less those that differ, over the middle of the plan; -Inf elsewhere
	// (HashAttention). Keys as KeySigns makes them.
	SignScores
	// SketchScores makes rows of pairs: products q·k/(heads·√width) of the blocks of the
	// newest rows, and of the one before them where they start a block: its q has changed
	// when it was completed. A square is made as a whole. Q, Keys f32 [pages, heads, width],
	// Dst pairs.
	SketchScores
	// VerticalSlash adds up softmax(q·k/√dim), causal, along columns into Dst and along
	// diagonals (MInference, FlexPrefill); a score that is NaN counts nothing. The first ones
	// are +Inf. One slot, whose newest rows Q is of. Dst, Diagonals f32 [heads, width].
	VerticalSlash
	// AnchorMax is the largest q·k/√dim of each row over the sinks and the recent window of
	// the plan, inside its span; -Inf where there is none, and NaN counts as that
	// (AnchorAttention). Dst f32 [rows, heads].
	AnchorMax
	// PooledAgreement is 1 for a head whose means tell what columns do, otherwise 0: whether
	// the root of the Jensen-Shannon divergence (natural logarithm) of
	// softmax(q·mean k/√dim) over all blocks and of the sums of columns in blocks, scaled to
	// 1, is below Near (FlexPrefill). One slot. Q f32 [1, heads, dim] is the mean query,
	// Keys f32 [blocks, kvheads, dim] as MeanKeys makes them, Dst i32 [heads].
	PooledAgreement
	// GroupMax is the largest of the heads of each kv head in scores: a group of query heads
	// that chooses together. Dst f32 [rows, kvheads, width], Q f32 [rows, heads, width], scores.
	GroupMax
	numScoreRules
)

var scoreOps = [numScoreRules]string{
	ExactScores: "Score(ExactScores)", BoundScores: "Score(BoundScores)", ChannelScores: "Score(ChannelScores)",
	SignScores: "Score(SignScores)", SketchScores: "Score(SketchScores)", VerticalSlash: "Score(VerticalSlash)",
	AnchorMax: "Score(AnchorMax)", PooledAgreement: "Score(PooledAgreement)",
	GroupMax: "Score(GroupMax)",
}

func (*Score) kind() kind   { return kindScore }
func (c *Score) op() string { return scoreOps[c.Rule] }

// Check panics unless the operands fit together.
func (c *Score) Check() {
	op := c.op()
	switch c.Rule {
	case SketchScores:
		c.checkSketches(op)
		return
	case GroupMax:
		c.checkGroups(op)
		return
	}
	checkHeadsOf(op, c.Q, c.KV)
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	RowsPerSlot(op, rows, c.KV)
	switch c.Rule {
	case ExactScores:
		CheckShape(op, "dst", c.Dst, F32, rows, heads, -1)
	case BoundScores:
		c.checkBounds(op)
	case ChannelScores:
		checkChannels(op, c.Keys, c.Q, c.Channels, c.KV)
		CheckShape(op, "dst", c.Dst, F32, rows, heads, -1)
		checkMiddle(op, &c.Plan)
	case SignScores:
		c.checkSigns(op)
	case VerticalSlash:
		checkOneSlot(op, c.KV)
		CheckShape(op, "columns", c.Dst, F32, heads, -1)
		CheckShape(op, "diagonals", c.Diagonals, F32, heads, c.Dst.Dim(1))
	case AnchorMax:
		CheckShape(op, "dst", c.Dst, F32, rows, heads)
		checkMiddle(op, &c.Plan)
	case PooledAgreement:
		c.checkAgreement(op)
	}
}

func (c *Score) checkBounds(op string) {
	parts := checkBounds(op, c.Keys, c.KV)
	checkOneRow(op, c.Q.Dim(0), c.KV)
	CheckShape(op, "dst", c.Dst, F32, c.Q.Dim(0), -1, -1)
	if sets := c.Dst.Dim(1); sets != c.Q.Dim(1) && sets != c.KV.K.Dim(1) {
		Check(false, op, "%d sets, want one for each of %d heads or %d kv heads", sets, c.Q.Dim(1), c.KV.K.Dim(1))
	}
	checkWidth(op, c.Dst, c.KV, parts)
}

func (c *Score) checkSigns(op string) {
	checkNet(op, c.Q, c.Net, c.KV)
	heads := c.Q.Dim(1)
	CheckShape(op, "dst", c.Dst, F32, c.Q.Dim(0), heads, -1)
	CheckShape(op, "signs", c.Keys, I32, c.KV.K.Dim(0), -1, PageLen, c.Net.Words())
	if sets := c.Keys.Dim(1); c.Net.Weight[0].Dim(0) != heads || heads%sets != 0 {
		Check(false, op, "a network of %d sets and signs of %d for %d heads, want one for each head and a divisor", c.Net.Weight[0].Dim(0), sets, heads)
	}
	checkMiddle(op, &c.Plan)
}

func (c *Score) checkSketches(op string) {
	CheckKV(op, c.KV)
	CheckShape(op, "q", c.Q, F32, c.KV.K.Dim(0), -1, -1)
	CheckLike(op, "keys", c.Keys, c.Q)
	if !c.Product.Own.Absent() {
		CheckLike(op, "own", c.Product.Own, c.Q)
	}
	checkPairs(op, c.Dst, c.KV)
}

func (c *Score) checkGroups(op string) {
	CheckKV(op, c.KV)
	CheckShape(op, "q", c.Q, F32, -1, -1, -1)
	RowsPerSlot(op, c.Q.Dim(0), c.KV)
	groups := c.KV.K.Dim(1)
	CheckShape(op, "dst", c.Dst, F32, c.Q.Dim(0), groups, c.Q.Dim(2))
	if c.Q.Dim(1)%groups != 0 {
		Check(false, op, "%d heads, want a multiple of the %d kv heads", c.Q.Dim(1), groups)
	}
}

func (c *Score) checkAgreement(op string) {
	checkOneSlot(op, c.KV)
	heads := c.Q.Dim(1)
	CheckShape(op, "q", c.Q, F32, 1, heads, -1)
	CheckShape(op, "dst", c.Dst, I32, heads)
	CheckShape(op, "columns", c.Columns, F32, heads, -1)
	CheckShape(op, "mean keys", c.Keys, F32, -1, c.KV.K.Dim(1), c.KV.K.Dim(3))
	checkBlock(op, c.Block)
}

// Access names what is read and written.
func (c *Score) Access(a *Access) {
	a.Read(c.Q, c.Keys, c.KV.Pages, c.KV.Len)
	a.Write(c.Dst)
	switch c.Rule {
	case ExactScores:
		a.Read(c.KV.K)
		c.Plan.access(a)
	case ChannelScores:
		a.Read(c.Channels.Index)
	case SignScores:
		c.Net.access(a)
	case SketchScores:
		a.Read(c.Product.Own)
	case VerticalSlash:
		a.Read(c.KV.K)
		a.Write(c.Diagonals)
	case AnchorMax:
		a.Read(c.KV.K)
	case PooledAgreement:
		a.Read(c.Columns)
	}
}

// Cost is the queries, what is read of the cache or of what is kept beside it, and the
// scores that are made.
func (c *Score) Cost(s Stored) Cost {
	switch c.Rule {
	case SketchScores:
		b, width := s.blocks(c.KV, c.Rows, PageLen), int64(c.Q.Dim(1)*c.Q.Dim(2))
		return Cost{Bytes: 4 * (width*(b.touched+b.stored) + b.pairs), Ops: 2 * width * b.pairs}
	case GroupMax:
		n := s.past(c.KV, c.Q.Dim(0))
		return Cost{Bytes: 4 * n * int64(c.Q.Dim(1)+c.KV.K.Dim(1)), Ops: n * int64(c.Q.Dim(1))}
	}
	cost := moved(c.Q)
	rows, heads, dim := c.Q.Dim(0), int64(c.Q.Dim(1)), int64(c.Q.Dim(2))
	kvHeads, past := int64(c.KV.K.Dim(1)), s.past(c.KV, rows)
	keys := func(r reads) {
		cost.Bytes += c.KV.rowBytes(r.rows)
		cost.Ops = 2 * dim * r.pairs
	}
	switch c.Rule {
	case ExactScores:
		r := s.part(c)
		keys(r)
		cost.Bytes += 4 * heads * past
	case BoundScores:
		parts := s.blocks(c.KV, 1, PageLen/c.Keys.Dim(2)).stored
		cost.Bytes += parts * (kvHeads*int64(c.Keys.DType.RowSize(c.Keys.Dim(3))) + 4*int64(c.Dst.Dim(1)))
		cost.Ops = 4 * dim * heads * parts
	case ChannelScores:
		r, n := s.middle(&c.Plan, c.KV, rows, int(heads)), int64(c.Channels.Index.Dim(1))
		cost.Bytes += r.rows/kvHeads*int64(c.Keys.Dim(1))*n*2 + 4*heads*past
		cost.Ops = 2 * n * r.pairs
	case SignScores:
		r, words := s.middle(&c.Plan, c.KV, rows, int(heads)), int64(c.Net.Words())
		cost.Add(c.Net.cost(rows))
		cost.Bytes += 4 * (r.rows/kvHeads*int64(c.Keys.Dim(1))*words + heads*past)
		cost.Ops += 2 * words * r.pairs
	case VerticalSlash:
		keys(s.reads(&Plan{}, c.KV, rows, int(heads)))
		cost.Bytes += 8 * heads * s.past(c.KV, 1)
	case AnchorMax:
		ends := c.Plan
		ends.Selected, ends.List = None, List{}
		keys(s.reads(&ends, c.KV, rows, int(heads)))
		cost.Bytes += int64(c.Dst.Size())
	case PooledAgreement:
		b := s.blocks(c.KV, 1, c.Block).stored
		cost.Bytes += 4 * (b*kvHeads*dim + heads*past)
		cost.Ops = 2 * dim * heads * b
	}
	return cost
}

// part is what exact scores read.
func (s Stored) part(c *Score) reads {
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	switch c.Region {
	case Planned:
		return s.reads(&c.Plan, c.KV, rows, heads)
	case SelectedRegion:
		return s.middle(&c.Plan, c.KV, rows, heads)
	}
	return s.reads(&Plan{Span: c.Plan.Span}, c.KV, rows, heads)
}

// Amount is a number of positions: a count, or a share of the n positions that
// a row can see, floor(Share·n), when Share is above 0.
type Amount struct {
	Count int
	Share float64
}

// Of is the amount of n positions. A computed real is floored with a guard of
// 1e-9, so that a share of 0.3 of 10 is 3.
func (a Amount) Of(n int) int {
	if a.Share > 0 {
		return int(math.Floor(a.Share*float64(n) + 1e-9))
	}
	return a.Count
}

// Part says which of the visible positions are scored.
type Region uint8

// The parts of what the plan's span lets a row see.
const (
	Visible        Region = iota // everything
	SelectedRegion               // what is neither in the plan's sinks nor in its recent window
	Planned                      // what the plan reads
)

// Form says what is made of the products of two blocks.
type ProductForm uint8

// The forms.
const (
	Raw     ProductForm = iota // the product
	Relu                       // the product where it is positive, otherwise 0
	Softmax                    // its share of exp(product) in the row
)

// Compare says how the products of blocks are stored.
type SketchProduct struct {
	Form ProductForm
	Log  bool // as ln|x|, -Inf for 0; otherwise as x
	// Own, when present, are the sketches that stand in for q where a block
	// meets itself. f32 [pages, heads, width]
	Own Tensor
}
