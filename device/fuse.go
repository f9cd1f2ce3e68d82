package device

// Norm is what [Math.RMSNorm] does to rows before they are used.
type Norm struct {
	W   Tensor // f32 [dim]
	Eps float32
}

// Fuser is an optional ability of [Ops]: what a transformer does around a product
// or attention, in one trip through memory with it. A method returns false, having done nothing,
// where the call does not suit it. The definition of each is the function of this
// package that its comment names, which everybody calls.
type Fuser interface {
	// FuseNormMatMuls is [NormMatMuls].
	FuseNormMatMuls(dst []Tensor, x Tensor, n Norm, w []Tensor) bool
	// FuseNormSwiGLU is [NormSwiGLU].
	FuseNormSwiGLU(dst, x Tensor, n Norm, w []Tensor) bool
	// FuseAddMatMul is [AddMatMul].
	FuseAddMatMul(dst, x, w Tensor) bool
	// FuseFeed is [Feed].
	FuseFeed(x Tensor, n Norm, w, wide []Tensor) bool
	// FuseNormHeads is [NormHeads].
	FuseNormHeads(kv KV, dst []Tensor, x Tensor, n Norm, w []Tensor, pos Tensor, r Rope) bool
	// FuseRopeAppend is [RopeAppend].
	FuseRopeAppend(kv KV, q, k, v, pos Tensor, r Rope) bool
	// FuseSampleAttend is [SampleAttend].
	FuseSampleAttend(dst, q Tensor, kv KV, p Plan, d Draws) bool
	// FuseReuseAttend is [ReuseAttend].
	FuseReuseAttend(dst Tensor, l List, m Memo, scores, asked, q Tensor, kv KV, p Plan, w Widen) bool
	// FuseSketchNewest is [SketchNewest].
	FuseSketchNewest(s NewestSketch, q, k Tensor, kv KV) bool
	// FuseWalkNewest is [WalkNewest].
	FuseWalkNewest(s NewestSketch, q, k Tensor, kv KV, w NewestWalk) bool
	// FuseWalkTop is [WalkTop].
	FuseWalkTop(l List, dst, src, pairs Tensor, at Newest, exponent int, p Pick) bool
}

// NormMatMuls computes dst[i] = norm(x)·w[i]ᵀ for each i. norm f32, shaped like x,
// may hold anything afterwards.
func NormMatMuls(ops Ops, dst []Tensor, x Tensor, n Norm, w []Tensor, norm Tensor) {
	if f, ok := ops.(Fuser); ok && f.FuseNormMatMuls(dst, x, n, w) {
		return
	}
	ops.RMSNorm(norm, x, n.W, n.Eps)
	MatMuls(ops, dst, norm, w)
}

// NormSwiGLU computes dst[0] = silu(norm(x)·w[0]ᵀ) · (norm(x)·w[1]ᵀ). dst[1], shaped
// like dst[0], and norm, shaped like x, may hold anything afterwards.
func NormSwiGLU(ops Ops, dst []Tensor, x Tensor, n Norm, w []Tensor, norm Tensor) {
	if f, ok := ops.(Fuser); ok && f.FuseNormSwiGLU(dst[0], x, n, w) {
		return
	}
	NormMatMuls(ops, dst, x, n, w, norm)
	ops.SwiGLU(dst[0], dst[0], dst[1])
}

// AddMatMul computes dst += x·wᵀ. product f32, shaped like dst, may hold anything
// afterwards.
func AddMatMul(ops Ops, dst, x, w, product Tensor) {
	if f, ok := ops.(Fuser); ok && f.FuseAddMatMul(dst, x, w) {
		return
	}
	ops.MatMul(product, x, w)
	ops.Add(dst, product)
}

// Feed is a feed-forward layer, x += (silu(norm(x)·w[0]ᵀ) · (norm(x)·w[1]ᵀ))·w[2]ᵀ. wide[0]
// and wide[1], f32 [rows, ff], and norm, shaped like x, may hold anything afterwards.
func Feed(ops Ops, x Tensor, n Norm, w, wide []Tensor, norm Tensor) {
	if f, ok := ops.(Fuser); ok && f.FuseFeed(x, n, w, wide) {
		return
	}
	NormSwiGLU(ops, wide, x, n, w[:2], norm)
	AddMatMul(ops, x, wide[0], w[2], norm)
}

// RopeAppend turns the heads of q and k as [Math.Rope] does, and appends k and v.
func RopeAppend(ops Ops, kv KV, q, k, v, pos Tensor, r Rope) {
	if f, ok := ops.(Fuser); ok && f.FuseRopeAppend(kv, q, k, v, pos, r) {
		return
	}
	ops.Rope(q, pos, r)
	ops.Rope(k, pos, r)
	ops.Append(kv, k, v)
}

// SampleAttend attends to values drawn of what the plan p reads: what SampleValues
// lists of it, as a mixture. l is as for SampleValues and may hold anything afterwards.
func SampleAttend(ops Ops, dst Tensor, l List, q Tensor, kv KV, p Plan, d Draws) {
	if f, ok := ops.(Fuser); ok && f.FuseSampleAttend(dst, q, kv, p, d) {
		return
	}
	ops.SampleValues(l, q, kv, p, d)
	ops.Attend(dst, q, kv, Plan{Span: p.Span, Middle: Tokens, List: l, Mixture: true})
}

// ReuseAttend attends to what the sets of the plan p read: what Reuse lists in l, which
// afterwards has their numbers and may have any positions.
func ReuseAttend(ops Ops, dst Tensor, l List, m Memo, scores, asked, q Tensor, kv KV, p Plan, w Widen) {
	if f, ok := ops.(Fuser); ok && f.FuseReuseAttend(dst, l, m, scores, asked, q, kv, p, w) {
		return
	}
	ops.Reuse(l, m, scores, asked, q, kv, p, w)
	p.Middle, p.List = Tokens, l
	ops.Attend(dst, q, kv, p)
}

// NewestSketch is what is kept beside pages for a walk, and what [SketchNewest] makes.
type NewestSketch struct {
	Keys, Queries Tensor // f32 [pages, heads, dim]: sums of blocks
	KeySketch     Tensor // f32 [pages, heads, width]
	QuerySketch   Tensor // f32 [pages, heads, width]
	Basis         Tensor // f32 [width, dim]
	Pairs         Tensor // as CompareBlocks has them
	Compare       Compare
	// Row leaves the sketch of the row's query in QuerySketch, instead of that of the
	// mean of its block.
	Row bool
}

// SketchNewest adds the row of each slot to the sums of its block, and compares it with
// the blocks before and its own. q f32 [slots, any multiple of heads, dim], k likewise.
func SketchNewest(ops Ops, s NewestSketch, q, k Tensor, kv KV) {
	if f, ok := ops.(Fuser); ok && f.FuseSketchNewest(s, q, k, kv) {
		return
	}
	at := Newest{KV: kv, N: 1}
	ops.BlockSum(s.Keys, k, kv)
	ops.BlockSum(s.Queries, q, kv)
	ops.SketchMeans(s.KeySketch, s.Keys, s.Basis, at)
	ops.SketchRows(s.QuerySketch, q, s.Basis, kv)
	ops.CompareBlocks(s.Pairs, s.QuerySketch, s.KeySketch, at, s.Compare)
	if !s.Row {
		ops.SketchMeans(s.QuerySketch, s.Queries, s.Basis, at)
	}
}

// WalkTop continues rows by one step and lists the blocks with their largest elements.
func WalkTop(ops Ops, l List, dst, src, pairs Tensor, at Newest, exponent int, p Pick) {
	if f, ok := ops.(Fuser); ok && f.FuseWalkTop(l, dst, src, pairs, at, exponent, p) {
		return
	}
	ops.Walk(dst, src, pairs, at, exponent)
	ops.TopBlocks(l, dst, at, p)
}

// NewestWalk is a step of a walk for the newest row of each slot, as [WalkTop] makes it of
// the pairs of a [NewestSketch].
type NewestWalk struct {
	Dst, Src Tensor
	Exponent int
	List     List
	Pick     Pick
}

// WalkNewest is [SketchNewest], and then [WalkTop] for the same rows.
func WalkNewest(ops Ops, s NewestSketch, q, k Tensor, kv KV, w NewestWalk) {
	if f, ok := ops.(Fuser); ok && f.FuseWalkNewest(s, q, k, kv, w) {
		return
	}
	SketchNewest(ops, s, q, k, kv)
	WalkTop(ops, w.List, w.Dst, w.Src, s.Pairs, Newest{KV: kv, N: 1}, w.Exponent, w.Pick)
}

// NormHeads makes the queries, keys and values of a layer: dst[0], f32 [rows,
// heads·dim], and dst[1] and dst[2], f32 [rows, kvheads·dim], are norm(x)·w[i]ᵀ, turned
// and appended as by [RopeAppend]. norm f32, shaped like x, may hold anything afterwards.
func NormHeads(ops Ops, kv KV, dst []Tensor, x Tensor, n Norm, w []Tensor, norm, pos Tensor, r Rope) {
	if f, ok := ops.(Fuser); ok && f.FuseNormHeads(kv, dst, x, n, w, pos, r) {
		return
	}
	NormMatMuls(ops, dst, x, n, w, norm)
	rows, dim := x.Dim(0), kv.K.Dim(3)
	of := func(t Tensor) Tensor { return t.Reshape(rows, t.Dim(1)/dim, dim) }
	RopeAppend(ops, kv, of(dst[0]), of(dst[1]), of(dst[2]), pos, r)
}
