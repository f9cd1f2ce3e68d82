package device

// Norm is what [Math.RMSNorm] does to rows before they are used.
type Norm struct {
	W   Tensor // f32 [dim]
	Eps float32
}

// Fuser is an optional ability of [Ops]: what a transformer does around a product,
// in one trip through memory with it. A method returns false, having done nothing,
// where the call does not suit it. The definition of each is the function of this
// package that its comment names, which everybody calls.
type Fuser interface {
	// FuseNormMatMuls is [NormMatMuls].
	FuseNormMatMuls(dst []Tensor, x Tensor, n Norm, w []Tensor) bool
	// FuseNormSwiGLU is [NormSwiGLU].
	FuseNormSwiGLU(dst, x Tensor, n Norm, w []Tensor) bool
	// FuseAddMatMul is [AddMatMul].
	FuseAddMatMul(dst, x, w Tensor) bool
	// FuseNormHeads is [NormHeads].
	FuseNormHeads(kv KV, dst []Tensor, x Tensor, n Norm, w []Tensor, pos Tensor, r Rope) bool
	// FuseRopeAppend is [RopeAppend].
	FuseRopeAppend(kv KV, q, k, v, pos Tensor, r Rope) bool
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
	ops.RMSNorm(norm, x, n.W, n.Eps)
	MatMuls(ops, dst, norm, w)
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

// RopeAppend turns the heads of q and k as [Math.Rope] does, and appends k and v.
func RopeAppend(ops Ops, kv KV, q, k, v, pos Tensor, r Rope) {
	if f, ok := ops.(Fuser); ok && f.FuseRopeAppend(kv, q, k, v, pos, r) {
		return
	}
	ops.Rope(q, pos, r)
	ops.Rope(k, pos, r)
	ops.Append(kv, k, v)
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
