package devtest

import "github.com/gollm/gollm/device"

// The sequences of calls that backends fuse, as a forward pass queues them.

// Norm is what [device.RMSNorm] multiplies by, and its epsilon.
type Norm struct {
	W   device.Tensor // f32 [dim]
	Eps float32
}

// NormProducts queues dst[i] = norm(x)·w[i]ᵀ, and ends the life of scratch.
func NormProducts(q device.Queue, dst []device.Tensor, x device.Tensor, n Norm, w []device.Tensor, scratch device.Tensor) {
	device.Do(q, device.RMSNorm{Dst: scratch, X: x, W: n.W, Eps: n.Eps})
	for i := range dst {
		device.Do(q, device.MatMul{Dst: dst[i], X: scratch, W: w[i]})
	}
	device.Do(q, device.Discard{T: scratch})
}

// NormSwiGLU queues dst[0] = silu(norm(x)·w[0]ᵀ) · (norm(x)·w[1]ᵀ).
func NormSwiGLU(q device.Queue, dst []device.Tensor, x device.Tensor, n Norm, w []device.Tensor, scratch device.Tensor) {
	NormProducts(q, dst, x, n, w, scratch)
	device.Do(q, device.SwiGLU{Dst: dst[0], Gate: dst[0], Up: dst[1]})
	device.Do(q, device.Discard{T: dst[1]})
}

// Feed queues a feed-forward layer, x += (silu(norm(x)·w[0]ᵀ) · (norm(x)·w[1]ᵀ))·w[2]ᵀ, with
// the two products in wide.
func Feed(q device.Queue, wide []device.Tensor, x device.Tensor, n Norm, w []device.Tensor, scratch device.Tensor) {
	NormSwiGLU(q, wide, x, n, w[:2], scratch)
	AddProduct(q, x, wide[0], w[2], scratch)
	device.Do(q, device.Discard{T: wide[0]})
}

// AddProduct queues dst += x·wᵀ.
func AddProduct(q device.Queue, dst, x, w, product device.Tensor) {
	device.Do(q, device.MatMul{Dst: product, X: x, W: w})
	device.Do(q, device.Add{Dst: dst, X: product})
	device.Do(q, device.Discard{T: product})
}

// Heads are the biases of q, k and v, and the norms of the heads of q and k; absent ones are
// left out.
type Heads struct {
	Bias [3]device.Tensor // f32 [heads·dim]
	Norm [2]device.Tensor // f32 [dim]
	Eps  float32
}

// Adjust queues what h does to q, k and v.
func (h *Heads) Adjust(on device.Queue, q, k, v device.Tensor) {
	all := [3]device.Tensor{q, k, v}
	for i, bias := range h.Bias {
		if !bias.Absent() {
			device.Do(on, device.Add{Dst: all[i].Reshape(q.Dim(0), bias.Len()), X: bias})
		}
	}
	for i, norm := range h.Norm {
		if !norm.Absent() {
			x := all[i].Reshape(all[i].Len()/norm.Len(), norm.Len())
			device.Do(on, device.RMSNorm{Dst: x, X: x, W: norm, Eps: h.Eps})
		}
	}
}

// RotateAppend queues the rotation of q and k, and stores k and v.
func RotateAppend(on device.Queue, kv device.KV, q, k, v, pos device.Tensor, r device.Rotation) {
	device.Do(on, device.Rope{X: q, Pos: pos, Rotation: r})
	device.Do(on, device.Rope{X: k, Pos: pos, Rotation: r})
	device.Do(on, device.Append{KV: kv, K: k, V: v})
}

// TailSketch is what is kept beside pages for a walk, and how [SketchTail] makes it.
type TailSketch struct {
	Keys, Queries device.Tensor // f32 [pages, heads, dim]: sums of blocks
	KeySketch     device.Tensor // f32 [pages, heads, width]
	QuerySketch   device.Tensor // f32 [pages, heads, width]
	Basis         device.Tensor // f32 [width, dim]
	Pairs         device.Tensor // as SketchScores makes them
	Compare       device.SketchProduct
	// Row leaves the sketch of the row's query in QuerySketch, instead of that of the
	// mean of its block.
	Row bool
}

// SketchTail queues the sums and sketches of the block of each slot's newest row, and
// compares it with the blocks before. q f32 [slots, any multiple of heads, dim], k likewise.
func SketchTail(on device.Queue, s TailSketch, q, k device.Tensor, kv device.KV) {
	device.Do(on, device.Summarize{Rule: device.SumBlocks, Dst: s.Keys, X: k, KV: kv})
	device.Do(on, device.Summarize{Rule: device.SumBlocks, Dst: s.Queries, X: q, KV: kv})
	device.Do(on, device.Summarize{Rule: device.ProjectMeans, Dst: s.KeySketch, X: s.Keys, Basis: s.Basis, KV: kv, Rows: 1})
	device.Do(on, device.Summarize{Rule: device.ProjectRows, Dst: s.QuerySketch, X: q, Basis: s.Basis, KV: kv})
	device.Do(on, device.Score{Rule: device.SketchScores, Dst: s.Pairs, Q: s.QuerySketch, Keys: s.KeySketch, KV: kv, Rows: 1, Product: s.Compare})
	if !s.Row {
		device.Do(on, device.Summarize{Rule: device.ProjectMeans, Dst: s.QuerySketch, X: s.Queries, Basis: s.Basis, KV: kv, Rows: 1})
	}
}

// WalkTop queues a step of a walk and the blocks with the largest elements of its rows.
func WalkTop(q device.Queue, w device.Walk, l device.List, p device.BlockBudget) {
	device.Do(q, w)
	device.Do(q, device.Select{Rule: device.TopBlocks, List: l, Scores: w.Dst, KV: w.KV, Rows: w.Rows, Blocks: p})
}

// SampleAttend queues attention to values sampled from what p reads: an estimate of the
// attention of p. l may hold anything afterwards.
func SampleAttend(on device.Queue, dst device.Tensor, l device.List, q device.Tensor, kv device.KV, p device.Plan, d device.ValueDraws) {
	device.Do(on, device.Sample{Rule: device.ValueSample, List: l, Q: q, KV: kv, Plan: p, Draws: d})
	device.Do(on, device.Attend{Dst: dst, Q: q, KV: kv, Plan: device.Plan{Span: p.Span, Selected: device.Tokens, List: l, Mixture: true}})
	device.Do(on, device.Discard{List: l})
}

// ReuseAttend queues ReuseSelection and attention to what it selects. The list keeps the
// numbers, and may have any positions.
func ReuseAttend(on device.Queue, dst device.Tensor, c device.ReuseSelection) {
	device.Do(on, c)
	p := c.Plan
	p.Selected, p.List = device.Tokens, c.List
	device.Do(on, device.Attend{Dst: dst, Q: c.Q, KV: c.KV, Plan: p})
	device.Do(on, device.Discard{T: c.List.Index})
}
