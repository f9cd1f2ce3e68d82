package device

import "math"

// PageLen is the number of positions in a page of the KV cache: Sketch&Walk's
// block, so that a list of blocks is a list of pages.
const PageLen = 64

// KV is one layer of the paged cache as kernels see it. Position p of slot s
// lies in page Pages[s][p/PageLen] at index p%PageLen.
type KV struct {
	K, V  Tensor // f16 or f32 [pages, kvheads, PageLen, dim]
	Pages Tensor // i32 [slots, maxpages]: this layer's own page numbers
	Len   Tensor // i32 [slots]: positions stored, the rows of this call included
	Short bool   // that no slot has more than ShortLen positions; where it holds, steps may be faster
}

// ShortLen is the most positions of a [KV] that is Short. Results are right with more: a
// device chooses by it among kernels, and calls that were captured keep the choice.
const ShortLen = 2048

// Span is the part of the past that a layer may see, whatever a plan reads: no
// further than Back from the row, and of that the first Sink positions and what
// lies at or after a bound that moves with the row. The zero Span is everything.
// Its numbers belong to a layer and do not change between steps.
type Span struct {
	Back int // the row at p sees p-Back+1 .. p; 0 is no limit
	Sink int // positions before the bound that stay visible
	// Drop is the share of the past before the bound: the row at p sees
	// position j >= floor(Drop·(p+1)) - 1; 0 drops nothing.
	Drop   float64
	Recent int // newest positions that Drop leaves visible, the row's own included
}

// Bound is the position from which on the row at p sees everything that is not
// further than Back; 0 or less when nothing is dropped. The dropped share is
// floored with the guard of a computed real: 1e-9.
func (s Span) Bound(p int) int {
	if s.Drop == 0 {
		return 0
	}
	return min(int(math.Floor(s.Drop*float64(p+1)+1e-9))-1, p+1-s.Recent)
}

// Sees reports whether the span lets the row at p see position j.
func (s Span) Sees(p, j int) bool {
	return j <= p && (s.Back == 0 || j > p-s.Back) && (j < s.Sink || j >= s.Bound(p))
}

// Middle says what a plan reads between its sinks and its recent window.
type Selection uint8

// The kinds of middle.
const (
	All    Selection = iota // every position
	None                    // nothing
	Blocks                  // the blocks of PageLen positions that List names
	Tokens                  // the positions that List names
)

// List is a ragged set for each group of query rows and each head. The heads
// dimension may be all heads, the kv heads, or 1; kernels divide. cap is as
// large as the set can get, so that nothing is ever cut.
type List struct {
	Index  Tensor // i32 [groups, heads, cap]: no repeats, ascending
	Count  Tensor // i32 [groups, heads]
	Weight Tensor // f32, shaped like Index; absent: one each
	Group  int    // query rows that share a list, counted from absolute position 0; 0 is 1
}

// Plan says which stored positions each query row of one layer reads: the first
// Sink, the last Recent, and Middle between them, all inside Span and causal.
// The zero Plan is dense causal attention.
type Plan struct {
	Span         Span
	Sink, Recent int // positions; read whatever the list says
	// Align, when above 0, counts Recent back from the start of the row's group
	// of Align positions: the row at p reads what lies at or after
	// p/Align·Align - Recent. Otherwise Recent counts p itself.
	Align    int
	Selected Selection
	List     List // for Blocks and Tokens; entries outside the middle are not allowed
	// Mixture takes Weight as the softmax itself: keys are not read.
	Mixture bool
}

// Dense reports whether the plan reads every position of the past.
func (p Plan) Dense() bool {
	return p.Selected == All && p.Span == Span{}
}

// Append stores the keys and values of the call's rows at their positions.
type Append struct {
	KV   KV     // KV.Len already counts these rows
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

// Cost is the rows, read as f32 and written as the cache has them.
func (c *Append) Cost(Stored) Cost {
	cost := moved(c.K, c.V)
	cost.Bytes += 2 * int64(c.KV.K.DType.RowSize(c.K.Len()))
	return cost
}

func (*Append) kind() kind { return kindAppend }

// Attend computes softmax(q·k/√dim + ln weight)·v over the plan, causal.
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

// checkAttend panics unless queries over a plan belong to a cache.
func checkAttend(op string, q Tensor, kv KV, p *Plan) {
	checkHeadsOf(op, q, kv)
	RowsPerSlot(op, q.Dim(0), kv)
	if p.Selected == Blocks || p.Selected == Tokens {
		checkList(op, "list", &p.List, -1, -1)
		if q.Dim(1)%p.List.Index.Dim(1) != 0 {
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

// access adds the list of a plan, which is read.
func (p *Plan) access(a *Access) {
	if p.Selected == Blocks || p.Selected == Tokens {
		p.List.read(a)
	}
}

func (l *List) read(a *Access)  { a.Read(l.Index, l.Count, l.Weight) }
func (l *List) write(a *Access) { a.Write(l.Index, l.Count, l.Weight) }

// Cost is the queries and the results, the keys and values that the plan reads, once for
// all queries, and its lists. A mixture reads no keys.
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

func (*Attend) kind() kind { return kindAttend }
