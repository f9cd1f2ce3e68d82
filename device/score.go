package device

import "math"

// Score computes a score for each row, head, and position, part of a page or block: an estimate of
// the attention score q·k, or of its maximum, that a selection is made by. A row of scores ends at the row's own position; elements
// after it are undefined. NaN is stored as it is, unless the rule says otherwise. Rows of idle
// slots are left alone.
type Score struct {
	Rule   ScoreRule
	Dst    Tensor // f32 [rows, heads, width], or as the rule says
	Q      Tensor // f32 [rows, heads, dim], or as the rule says
	Keys   Tensor // an index of keys made by [Summarize]; absent for rules that read the cache
	KV     KV
	Plan   Plan   // its Span, and the region that the rule scores
	Region Region // ExactScores, MirrorScores: which part of Plan

	Channels                       Channels      // ChannelScores
	Net                            Net           // SignScores: a network for each query head
	Rows                           int           // SketchScores: newest rows of each slot
	Product                        SketchProduct // SketchScores
	Columns                        Tensor        // PooledAgreement: f32 [heads, width], of VerticalSlash
	Diagonals                      Tensor        // VerticalSlash: f32 [heads, width]
	ForcedColumns, ForcedDiagonals int           // VerticalSlash: leading elements that are +Inf
	Block                          int           // PooledAgreement: positions of a block
	MaxDivergence                  float64       // PooledAgreement: threshold of the Jensen-Shannon distance
}

// ScoreRule is how a [Score] is computed.
type ScoreRule uint8

// The rules of Score.
const (
	// ExactScores is q·k/√dim over Region, plus ln w where Region is Planned and the list has
	// weights; -Inf outside of Region. Dst f32 [rows, heads, width].
	ExactScores ScoreRule = iota
	// BoundScores is Σ_i max(q_i·min_i, q_i·max_i), an upper bound of q·k over each part of a
	// page that the row sees (Quest). Dst f32 [rows, head groups, width]; a head
	// group of several query heads gets their sum. One row for each slot. Keys of KeyBounds.
	BoundScores
	// ChannelScores is label(q)·label(k)/√dim over the selected region of the plan, -Inf
	// elsewhere (Double Sparsity). label(q) stays f32. Keys of KeyChannels.
	ChannelScores
	// SignScores is the number of sign bits of Net(q) that agree with those of a key, minus the
	// number that differ, over the selected region of the plan; -Inf elsewhere
	// (HashAttention). Keys of KeySigns.
	SignScores
	// MirrorScores estimates q·k/√dim over Region, Visible or SelectedRegion, by the keys of
	// KeyMirror; -Inf elsewhere. The query is rotated as a key is and rounded to 8 bits with a
	// scale of its own; the products of integers are summed exactly to n, and the score is
	// (f32(n)·scale of the key)·(scale of the query·f32(1/(MirrorBlock·√dim))), each operation in
	// f32. Scores are thus the same bits on every backend, and keys that are equal tie.
	MirrorScores
	// SketchScores is block-to-block scores q·k/√width, averaged over heads, in the form of
	// Product (Sketch&Walk, steps D and E): the rows of pairs of the blocks of the newest rows,
	// and of the block before them where they start a block, whose q changed when it was
	// completed. The [slots, width, width] layout is computed as a whole. A product that is not
	// finite counts as 0. Q, Keys f32 [pages, heads, width], sketches; Dst pairs, see [Walk].
	SketchScores
	// VerticalSlash sums softmax(q·k/√dim), causal, along columns (key positions) into Dst and
	// along diagonals (distances) into Diagonals, encoded by [EncodeMass] (MInference, Jiang et
	// al. 2024; FlexPrefill). A NaN score has no mass. The first ForcedColumns and
	// ForcedDiagonals elements are +Inf. One slot; Q is its newest rows. Dst, Diagonals f32
	// [heads, width].
	VerticalSlash
	// AnchorMax is max_j q·k_j/√dim of each row over the sinks and the recent window of the
	// plan, inside its span; -Inf where there are none, and NaN counts as -Inf
	// (AnchorAttention, equation 1). Dst f32 [rows, heads].
	AnchorMax
	// PooledAgreement is 1 for a head whose pooled attention agrees with its columns, otherwise
	// 0: whether √JSD(p, c) < MaxDivergence (natural logarithm), p being
	// softmax(q·mean k/√dim) over all blocks and c the normalized sums of Columns in blocks
	// (FlexPrefill). One slot. Q f32 [1, heads, dim] is the mean query, Keys f32
	// [blocks, kvheads, dim] of MeanKeys, Dst i32 [heads].
	PooledAgreement
	// GroupMax is the maximum over the query heads of each kv head, for a selection that is
	// shared by a GQA group. Dst f32 [rows, kvheads, width], Q f32 [rows, heads, width], scores.
	GroupMax
	numScoreRules
)

var scoreOps = [numScoreRules]string{
	ExactScores: "Score(ExactScores)", BoundScores: "Score(BoundScores)", ChannelScores: "Score(ChannelScores)",
	SignScores: "Score(SignScores)", MirrorScores: "Score(MirrorScores)", SketchScores: "Score(SketchScores)", VerticalSlash: "Score(VerticalSlash)",
	AnchorMax: "Score(AnchorMax)", PooledAgreement: "Score(PooledAgreement)",
	GroupMax: "Score(GroupMax)",
}

var kindScore = register[Score]()

func (*Score) kind() kind { return kindScore }

func (c *Score) op() string {
	checkRule("Score", "rule", c.Rule, numScoreRules)
	return scoreOps[c.Rule]
}

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
		checkRule(op, "region", c.Region, numRegions)
		checkRule(op, "selection", c.Plan.Selected, numSelections)
		if c.Region == Planned && (c.Plan.Selected == Blocks || c.Plan.Selected == Tokens) {
			checkList(op, "list", &c.Plan.List, -1, -1)
		}
	case BoundScores:
		c.checkBounds(op)
	case ChannelScores:
		checkChannels(op, c.Keys, c.Q, c.Channels, c.KV)
		CheckShape(op, "dst", c.Dst, F32, rows, heads, -1)
		checkRegion(op, &c.Plan)
	case SignScores:
		c.checkSigns(op)
	case MirrorScores:
		checkMirror(op, c.Keys, c.KV)
		CheckShape(op, "dst", c.Dst, F32, rows, heads, -1)
		if c.Region == Planned {
			Check(false, op, "the region that a plan reads, want what is visible or selected")
		}
	case VerticalSlash:
		checkOneSlot(op, c.KV)
		CheckShape(op, "columns", c.Dst, F32, heads, -1)
		CheckShape(op, "diagonals", c.Diagonals, F32, heads, c.Dst.Dim(1))
	case AnchorMax:
		CheckShape(op, "dst", c.Dst, F32, rows, heads)
		checkRegion(op, &c.Plan)
	case PooledAgreement:
		c.checkAgreement(op)
	}
}

func (c *Score) checkBounds(op string) {
	parts := checkBounds(op, c.Keys, c.KV)
	checkOneRow(op, c.Q.Dim(0), c.KV)
	CheckShape(op, "dst", c.Dst, F32, c.Q.Dim(0), -1, -1)
	if groups := c.Dst.Dim(1); groups != c.Q.Dim(1) && groups != c.KV.K.Dim(1) {
		Check(false, op, "%d head groups, want one for each of %d heads or %d kv heads", groups, c.Q.Dim(1), c.KV.K.Dim(1))
	}
	checkWidth(op, c.Dst, c.KV, parts)
}

func (c *Score) checkSigns(op string) {
	checkNet(op, c.Q, c.Net, c.KV)
	heads := c.Q.Dim(1)
	CheckShape(op, "dst", c.Dst, F32, c.Q.Dim(0), heads, -1)
	CheckShape(op, "signs", c.Keys, I32, c.KV.K.Dim(0), -1, PageLen, c.Net.Words())
	if groups := c.Keys.Dim(1); groups < 1 || c.Net.Weight[0].Dim(0) != heads || heads%groups != 0 {
		Check(false, op, "a network for %d heads and signs of %d head groups for %d heads, want one for each head and a divisor", c.Net.Weight[0].Dim(0), groups, heads)
	}
	checkRegion(op, &c.Plan)
}

func (c *Score) checkSketches(op string) {
	CheckKV(op, c.KV)
	CheckShape(op, "q", c.Q, F32, c.KV.K.Dim(0), -1, -1)
	c.checkSketchHeads(op)
	if !c.Product.Own.Absent() {
		CheckLike(op, "own", c.Product.Own, c.Q)
	}
	checkPairs(op, c.Dst, c.KV)
	checkRule(op, "form of product", c.Product.Form, numForms)
	if t := c.Product.Temperature; !(t >= 0 && t <= math.MaxFloat32) {
		Check(false, op, "temperature %v, want a finite number above 0, or 0 for 1", t)
	}
}

// checkSketchHeads panics unless each head of Q has its head of Keys.
func (c *Score) checkSketchHeads(op string) {
	if !c.Product.Each {
		CheckLike(op, "keys", c.Keys, c.Q)
		return
	}
	CheckShape(op, "keys", c.Keys, F32, c.Q.Dim(0), -1, c.Q.Dim(2))
	if heads, shared := c.Q.Dim(1), c.Keys.Dim(1); shared < 1 || heads%shared != 0 {
		Check(false, op, "%d heads of queries and %d of keys, want a multiple of them", heads, shared)
	}
}

func (c *Score) checkGroups(op string) {
	CheckKV(op, c.KV)
	CheckShape(op, "q", c.Q, F32, -1, -1, -1)
	RowsPerSlot(op, c.Q.Dim(0), c.KV)
	groups := c.KV.K.Dim(1)
	CheckShape(op, "dst", c.Dst, F32, c.Q.Dim(0), groups, c.Q.Dim(2))
	checkMultiple(op, c.Q.Dim(1), c.KV)
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
		if c.Region == Planned {
			c.Plan.access(a)
		}
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

// Cost is the queries, the keys or index entries read, and the scores written.
func (c *Score) Cost(s Stored) Cost {
	switch c.Rule {
	case SketchScores:
		b, width, keys := s.blocks(c.KV, c.Rows, PageLen), int64(c.Q.Dim(1)*c.Q.Dim(2)), int64(c.Keys.Dim(1)*c.Keys.Dim(2))
		return Cost{Bytes: 4 * (width*b.touched + keys*b.stored + b.pairs), Ops: 2 * width * b.pairs}
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
		r, n := s.region(&c.Plan, c.KV, rows, int(heads)), int64(c.Channels.Index.Dim(1))
		cost.Bytes += r.rows/kvHeads*int64(c.Keys.Dim(1))*n*2 + 4*heads*past
		cost.Ops = 2 * n * r.pairs
	case SignScores:
		r, words := s.region(&c.Plan, c.KV, rows, int(heads)), int64(c.Net.Words())
		cost.Add(c.Net.cost(rows))
		cost.Bytes += 4 * (r.rows/kvHeads*int64(c.Keys.Dim(1))*words + heads*past)
		cost.Ops += 2 * words * r.pairs
	case MirrorScores:
		r := s.part(c)
		cost.Bytes += 4*r.rows*int64(c.Keys.Dim(2)) + 4*heads*past
		cost.Ops = 2 * dim * r.pairs
		cost.Int8 = cost.Ops
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

// part is what ExactScores and MirrorScores read.
func (s Stored) part(c *Score) reads {
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	switch c.Region {
	case Planned:
		return s.reads(&c.Plan, c.KV, rows, heads)
	case SelectedRegion:
		return s.region(&c.Plan, c.KV, rows, heads)
	}
	return s.reads(&Plan{Span: c.Plan.Span}, c.KV, rows, heads)
}

// Amount is a number of positions: Count, or, when Share is above 0, floor(Share·n) of the n
// positions that a row sees.
type Amount struct {
	Count int
	Share float64
}

// Of is the amount of n positions. 1e-9 is added before the floor, so that 0.3 of 10 is 3.
func (a Amount) Of(n int) int {
	if a.Share > 0 {
		return int(math.Floor(a.Share*float64(n) + 1e-9))
	}
	return a.Count
}

// Region is a part of the positions that the span of a plan lets a row see.
type Region uint8

// The regions.
const (
	Visible        Region = iota // all of them
	SelectedRegion               // between the sinks and the recent window of the plan
	Planned                      // what the plan reads
	numRegions
)

// ProductForm is the function that is applied to block-to-block products.
type ProductForm uint8

// The forms.
const (
	Raw     ProductForm = iota // x
	Relu                       // max(0, x)
	Softmax                    // softmax over the row
	numForms
)

// SketchProduct says how block-to-block scores are stored.
type SketchProduct struct {
	Form ProductForm
	Log  bool // as ln|x|, -Inf for 0; otherwise as x
	// Temperature divides the products before Softmax; 0 is 1.
	Temperature float64
	// Each applies the form to the products of each head of Q, with the head of Keys that it
	// shares, and averages over them; otherwise it is applied to the mean of the products.
	Each bool
	// Own, when present, replaces q on the diagonal, where a block is scored with itself.
	// f32 [pages, heads, width]
	Own Tensor
}
