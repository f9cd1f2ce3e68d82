package device

import "math"

// PageLen is the number of positions in a page of the KV cache. Block-sparse methods use the
// same block, so that a list of blocks is a list of pages.
const PageLen = 64

// KV is one layer of the paged KV cache. Position p of slot s is in page
// Pages[s][p/PageLen] at index p%PageLen.
type KV struct {
	K, V  Tensor // f16 or f32 [pages, kvheads, PageLen, dim]
	Pages Tensor // i32 [slots, maxpages]: the page table of this layer
	Len   Tensor // i32 [slots]: stored positions, the rows of this call included
	Short bool   // hint that no slot has more than ShortLen positions
}

// ShortLen is the limit of KV.Short. The hint selects among kernels and never changes whether a
// result is right; a captured call keeps the kernel it was captured with.
const ShortLen = 2048

// Span is the attention mask of a layer, which no plan can exceed: a sliding window of Back
// positions, and inside it the first Sink positions and everything from a bound on that moves
// with the row (PSAW's progressive window). The zero Span is causal attention without a limit.
// Its numbers are constant for a layer.
type Span struct {
	Back int // the row at p sees p-Back+1 .. p; 0 is no limit
	Sink int // the first positions, which stay visible before the bound
	// Drop is the fraction of the past that is masked: the row at p sees positions
	// j >= floor(Drop·(p+1)) - 1. 0 masks nothing.
	Drop   float64
	Recent int // newest positions that Drop never masks, the row's own included
}

// Bound is the first position that Drop leaves visible to the row at p; 0 or less when nothing
// is dropped. 1e-9 is added before the floor, so that a fraction that is exact in decimal is not
// rounded down.
func (s Span) Bound(p int) int {
	if s.Drop == 0 {
		return 0
	}
	return min(int(math.Floor(s.Drop*float64(p+1)+1e-9))-1, p+1-s.Recent)
}

// Sees reports whether the row at p sees position j.
func (s Span) Sees(p, j int) bool {
	return j <= p && (s.Back == 0 || j > p-s.Back) && (j < s.Sink || j >= s.Bound(p))
}

// Selection says what a plan reads of its selected region: the positions between its sinks and
// its recent window.
type Selection uint8

// The selections.
const (
	All    Selection = iota // every position
	None                    // nothing
	Blocks                  // the pages in List
	Tokens                  // the positions in List
	numSelections
)

// List is a ragged index list for each group of query rows and each head group. Its heads
// dimension is the query heads, the kv heads, or 1: head h of H uses list h·heads/H. cap is large
// enough for every list that a call can make.
type List struct {
	Index  Tensor // i32 [groups, heads, cap]: ascending, without repeats; undefined after Count
	Count  Tensor // i32 [groups, heads]
	Weight Tensor // f32, shaped like Index; absent: 1
	Group  int    // positions whose rows share a list, counted from position 0; 0 is 1
}

// Plan says which stored positions each query row of a layer attends to: the first Sink, the
// last Recent, and Selected of what is between them, all inside Span and causal. The zero Plan
// is dense causal attention.
type Plan struct {
	Span         Span
	Sink, Recent int // positions: attention sinks and the recent window
	// Align, when above 0, makes the recent window the same for groups of Align positions: the
	// row at p reads positions from p/Align·Align - Recent on. Otherwise the window is the last
	// Recent positions, p included.
	Align    int
	Selected Selection
	List     List // for Blocks and Tokens; entries must be in the selected region
	// Mixture takes the weights of List as the attention probabilities: no key is read.
	Mixture bool
}

// Dense reports whether the plan is full causal attention.
func (p Plan) Dense() bool {
	return p.Selected == All && p.Span == Span{}
}

// Append stores keys and values in the pages of their positions, converted to the type of the
// cache (f16: round to nearest even). Rows of idle slots are skipped.
type Append struct {
	KV   KV     // KV.Len includes these rows
	K, V Tensor // f32 [rows, kvheads, dim]
}

// Check panics unless the operands fit together.
func (c *Append) Check() {
	const op = "Append"
	CheckKV(op, c.KV)
	CheckShape(op, "k", c.K, F32, -1, c.KV.K.Dim(1), c.KV.K.Dim(3))
	CheckLike(op, "v", c.V, c.K)
	RowsPerSlot(op, c.K.Dim(0), c.KV)
}

// Access names what is read and written.
func (c *Append) Access(a *Access) {
	a.Read(c.K, c.V, c.KV.Pages, c.KV.Len)
	a.Write(c.KV.K, c.KV.V)
}

// Cost is the rows, read as f32 and written in the type of the cache.
func (c *Append) Cost(Stored) Cost {
	cost := moved(c.K, c.V)
	cost.Bytes += 2 * int64(c.KV.K.DType.RowSize(c.K.Len()))
	return cost
}

var kindAppend = register[Append]()

func (*Append) kind() kind { return kindAppend }

// Attend is attention over a plan: Dst = Σ_j softmax_j(q·k_j/√dim + ln w_j)·v_j over the
// positions j that the plan reads for the row, w_j being the weight of a list entry, 1 for all
// others. With Plan.Mixture it is Dst = Σ_j w_j·v_j. A row that reads nothing is 0; rows of
// idle slots are left alone.
type Attend struct {
	Dst, Q Tensor // f32 [rows, heads, dim]; heads is a multiple of the kv heads
	KV     KV
	Plan   Plan
}

// Check panics unless the operands fit together.
func (c *Attend) Check() {
	const op = "Attend"
	checkAttend(op, c.Q, c.KV, &c.Plan)
	CheckShape(op, "dst", c.Dst, F32, c.Q.dims[0], c.Q.dims[1], c.Q.dims[2])
	if c.Plan.Mixture && c.Plan.List.Weight.Absent() {
		Check(false, op, "a mixture needs weights")
	}
}

// checkAttend panics unless q, the plan and the cache fit together.
func checkAttend(op string, q Tensor, kv KV, p *Plan) {
	checkHeadsOf(op, q, kv)
	RowsPerSlot(op, q.Dim(0), kv)
	checkRule(op, "selection", p.Selected, numSelections)
	if p.Selected == Blocks || p.Selected == Tokens {
		checkList(op, "list", &p.List, -1, -1)
		if n := p.List.Index.Dim(1); n < 1 || q.Dim(1)%n != 0 {
			Check(false, op, "list for %d heads, want a divisor of %d", p.List.Index.Dim(1), q.Dim(1))
		}
	}
}

// Access names what is read and written.
func (c *Attend) Access(a *Access) {
	a.Read(c.Q, c.KV.K, c.KV.V, c.KV.Pages, c.KV.Len)
	c.Plan.access(a)
	a.Write(c.Dst)
}

// access adds the list of a plan as read.
func (p *Plan) access(a *Access) {
	if p.Selected == Blocks || p.Selected == Tokens {
		p.List.read(a)
	}
}

func (l *List) read(a *Access)  { a.Read(l.Index, l.Count, l.Weight) }
func (l *List) write(a *Access) { a.Write(l.Index, l.Count, l.Weight) }

// Cost is the queries and results, the lists, and the keys and values of the plan, each once
// for all queries. A mixture reads no keys.
func (c *Attend) Cost(s Stored) Cost {
	cost := moved(c.Q, c.Dst)
	r, of := s.reads(&c.Plan, c.KV, c.Q.Dim(0), c.Q.Dim(1)), int64(2)
	if c.Plan.Mixture {
		of = 1
	}
	cost.Bytes += of * c.KV.rowBytes(r.rows)
	if c.Plan.Selected == Blocks || c.Plan.Selected == Tokens {
		cost.Bytes += s.listBytes(&c.Plan.List, c.KV, c.Q.Dim(0))
	}
	cost.Ops = 2 * of * r.pairs * int64(c.Q.Dim(2))
	return cost
}

var kindAttend = register[Attend]()

func (*Attend) kind() kind { return kindAttend }
