//go:build cuda || cudaemu

package cuda

import (
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/fusion"
)

// patterns is the peephole table: sequences of calls that fused kernels compute. The longest
// come first. Where operands do not suit the kernels, run reports false, and the calls are left
// to the patterns below, and in the end to ops.run one by one.
func (o *ops) patterns() []fusion.Pattern {
	pattern := func(name string, match func(*matcher) bool, run func() bool) fusion.Pattern {
		return fusion.Pattern{Name: name,
			Match: func(calls []device.Call) (int, bool) { return o.matched.match(calls, match) },
			Run: func(calls []device.Call) bool {
				o.d.hazards.begin(calls...)
				defer o.d.hazards.end()
				return run()
			},
		}
	}
	return []fusion.Pattern{
		pattern("norm, q k v, rope, append", (*matcher).normQKV, o.fuseNormQKV),
		pattern("norm, gate up, SwiGLU, down, add", (*matcher).feedForward, o.fuseFeedForward),
		pattern("norm, gate up, SwiGLU", (*matcher).normSwiGLU, o.fuseNormSwiGLU),
		pattern("norm, products", (*matcher).normProducts, o.fuseNormProducts),
		pattern("product, add", (*matcher).productAdd, o.fuseProductAdd),
		pattern("sketch, compare, walk, top blocks", (*matcher).sketchWalk, o.fuseSketchWalk),
		pattern("sketch, compare", (*matcher).tailSketch, o.fuseSketch),
		pattern("walk, top blocks", (*matcher).walkTop, o.fuseWalkTop),
		pattern("sample values, attend", (*matcher).sampleAttend, o.fuseSampleAttend),
		pattern("top-k, sample the residual", (*matcher).topSample, o.fuseTopSample),
		pattern("mass, attend", (*matcher).massAttend, o.fuseMassAttend),
		pattern("reuse selection, attend", (*matcher).reuseAttend, o.fuseReuseAttend),
		pattern("score, group max", (*matcher).scoreGroups, o.fuseScoreGroups),
		pattern("rope, append", (*matcher).ropeAppend, o.fuseRopeAppend),
		{Name: "products", Match: fusion.Products, Run: o.fuseProducts},
	}
}

// matcher reads a sequence of calls. What it keeps is valid until the pattern has run.
type matcher struct {
	calls []device.Call
	at    int  // of calls
	short bool // the calls end where the sequence goes on

	norm    *device.RMSNorm
	n       int                        // products of the norm
	dst, w  [maxProducts]device.Tensor // of them
	product *device.MatMul
	sum     *device.Add
	biases  [3]*device.Add     // of q, k and v, or none
	norms   [2]*device.RMSNorm // of the heads of q and k, or none
	q, k    *device.Rope
	stored  *device.Append
	sketch  tailSketch
	walk    *device.Walk
	top     *device.Select
	drawn   *device.Sample
	reuse   *device.ReuseSelection
	mass    *device.Summarize
	score   *device.Score
	pool    *device.Score // GroupMax of its scores
	attend  *device.Attend
}

// match reports how many calls a sequence takes, and whether further calls decide.
func (m *matcher) match(calls []device.Call, sequence func(*matcher) bool) (n int, more bool) {
	m.calls, m.at, m.short = calls, 0, false
	if sequence(m) {
		return m.at, m.short
	}
	return 0, m.short
}

// take takes the next call if it has the type of c.
func take[C device.Call](m *matcher, c *C) (ok bool) {
	if m.at == len(m.calls) {
		m.short = true
		return false
	}
	if *c, ok = m.calls[m.at].(C); ok {
		m.at++
	}
	return ok
}

// back puts the last call back, which belongs to no sequence.
func (m *matcher) back() bool {
	m.at--
	return false
}

// summary takes the next call if it is a summary by a rule.
func (m *matcher) summary(c **device.Summarize, rule device.SummaryRule) bool {
	return take(m, c) && ((*c).Rule == rule || m.back())
}

// discard takes the end of the life of a tensor, which nobody else reads then.
func (m *matcher) discard(t device.Tensor) bool {
	var d *device.Discard
	return take(m, &d) && d.T == t
}

// normProducts is RMSNorm and products of its result.
func (m *matcher) normProducts() bool {
	if !take(m, &m.norm) {
		return false
	}
	var p *device.MatMul
	for m.n = 0; m.n < maxProducts && take(m, &p); m.n++ {
		if p.X != m.norm.Dst || !m.independent(p) {
			return false
		}
		m.dst[m.n], m.w[m.n] = p.Dst, p.W
	}
	return m.n > 0 && m.discard(m.norm.Dst)
}

// independent reports whether a product may run at the same time as the norm and the products
// before it.
func (m *matcher) independent(p *device.MatMul) bool {
	return !overlap(p.Dst, m.dst[:m.n]...) && !overlap(p.W, m.dst[:m.n]...) &&
		!overlap(p.W, m.norm.Dst) && !overlap(p.Dst, m.norm.X, m.norm.W)
}

// overlap reports whether t shares memory with any of the others.
func overlap(t device.Tensor, others ...device.Tensor) bool {
	for _, o := range others {
		if t.Overlaps(o) {
			return true
		}
	}
	return false
}

// normSwiGLU is normProducts of gate and up, and SwiGLU.
func (m *matcher) normSwiGLU() bool {
	var c *device.SwiGLU
	return m.normProducts() && m.n == 2 &&
		take(m, &c) && c.Dst == m.dst[0] && c.Gate == m.dst[0] && c.Up == m.dst[1] &&
		m.discard(m.dst[1])
}

// feedForward is normSwiGLU, the down projection, and the residual add.
func (m *matcher) feedForward() bool {
	return m.normSwiGLU() &&
		take(m, &m.product) && m.product.X == m.dst[0] && !overlap(m.product.W, m.product.X, m.norm.X) &&
		take(m, &m.sum) && m.sum.X == m.product.Dst && m.sum.Dst == m.norm.X &&
		m.discard(m.product.Dst) && m.discard(m.dst[0])
}

// productAdd is a product that is added to a tensor.
func (m *matcher) productAdd() bool {
	return take(m, &m.product) &&
		take(m, &m.sum) && m.sum.X == m.product.Dst && !overlap(m.sum.Dst, m.product.X, m.product.W) &&
		m.discard(m.product.Dst)
}

// ropeAppend is the biases of q, k and v, and the norms of the heads of q and k, as far as there
// are any, RoPE of q and k, and the append of k and v.
func (m *matcher) ropeAppend() bool {
	return m.biased() && m.normedHeads() &&
		take(m, &m.q) &&
		take(m, &m.k) && m.k.Pos == m.q.Pos && m.k.Rotation == m.q.Rotation &&
		take(m, &m.stored) && m.stored.K == m.k.X && m.q.X.Dim(2) == m.k.X.Dim(2) &&
		!overlap(m.q.X, m.stored.K, m.stored.V) && !overlap(m.stored.K, m.stored.V) &&
		m.ofHeads()
}

// biased takes three rows that are added to each of three tensors, or none.
func (m *matcher) biased() bool {
	m.biases = [3]*device.Add{}
	for i := range m.biases {
		if !take(m, &m.biases[i]) || !m.biases[i].Row() {
			return i == 0 && m.biases[0] == nil && !m.short
		}
	}
	return true
}

// normedHeads takes two norms in place, or none.
func (m *matcher) normedHeads() bool {
	m.norms = [2]*device.RMSNorm{}
	for i := range m.norms {
		if !take(m, &m.norms[i]) || m.norms[i].X != m.norms[i].Dst || m.norms[i].Eps != m.norms[0].Eps {
			return i == 0 && m.norms[0] == nil && !m.short
		}
	}
	return true
}

// ofHeads reports whether the biases and the norms are of q, k and v, and share no memory with
// them.
func (m *matcher) ofHeads() bool {
	all := [3]device.Tensor{m.q.X, m.k.X, m.stored.V}
	for i, b := range m.biases {
		if b != nil && !(sameElements(b.Dst, all[i]) && b.X.Len() == all[i].Dim(1)*all[i].Dim(2) && !overlap(b.X, all[:]...)) {
			return false
		}
	}
	for i, n := range m.norms {
		if n != nil && !(sameElements(n.X, all[i]) && n.W.Len() == all[i].Dim(2) && !overlap(n.W, all[:]...)) {
			return false
		}
	}
	return true
}

// bias is the bias of q, k or v, absent without.
func (m *matcher) bias(i int) device.Tensor {
	if m.biases[i] == nil {
		return device.Tensor{}
	}
	return m.biases[i].X
}

// headNorm is the weights of the norm of the heads of q or k, absent without.
func (m *matcher) headNorm(i int) device.Tensor {
	if m.norms[i] == nil {
		return device.Tensor{}
	}
	return m.norms[i].W
}

// headEps is the epsilon of these norms.
func (m *matcher) headEps() float32 {
	if m.norms[0] == nil {
		return 0
	}
	return m.norms[0].Eps
}

// normQKV is normProducts of q, k and v, and ropeAppend.
func (m *matcher) normQKV() bool {
	return m.normProducts() && m.n == 3 && m.ropeAppend() &&
		sameElements(m.q.X, m.dst[0]) && sameElements(m.k.X, m.dst[1]) && sameElements(m.stored.V, m.dst[2])
}

// sameElements reports whether tensors are the same elements in whatever dimensions.
func sameElements(a, b device.Tensor) bool {
	return a.Memory() == b.Memory() && a.Offset() == b.Offset() && a.DType == b.DType && a.Len() == b.Len()
}

// tailSketch is the sketches of the newest row of each slot and their block scores: see the type
// tailSketch. The sketch of the mean query may follow.
func (m *matcher) tailSketch() bool {
	var kSum, qSum, kMean, row, qMean *device.Summarize
	var c *device.Score
	ok := m.summary(&kSum, device.SumBlocks) && kSum.X.Dim(0) == kSum.KV.Len.Dim(0) &&
		m.summary(&qSum, device.SumBlocks) && qSum.KV == kSum.KV && qSum.Dst.Dim(1) == 1 && !overlap(qSum.Dst, kSum.Dst) &&
		m.summary(&kMean, device.ProjectMeans) && kMean.X == kSum.Dst && kMean.KV == kSum.KV && kMean.Rows == 1 &&
		m.summary(&row, device.ProjectRows) && row.X == qSum.X && row.Basis == kMean.Basis && row.KV == kSum.KV && !overlap(row.Dst, kMean.Dst) &&
		take(m, &c) && c.Rule == device.SketchScores && c.Q == row.Dst && c.Keys == kMean.Dst && c.KV == kSum.KV && c.Rows == 1 && c.Dst.Rank() == 2
	if !ok {
		return false
	}
	m.sketch = tailSketch{
		q: qSum.X, k: kSum.X, qSums: qSum.Dst, kSums: kSum.Dst, qSketch: row.Dst, kSketch: kMean.Dst,
		basis: kMean.Basis, scores: c.Dst, product: c.Product, kv: kSum.KV,
	}
	if !m.sketch.suits() {
		return false
	}
	mean := m.summary(&qMean, device.ProjectMeans) &&
		(qMean.Dst == row.Dst && qMean.X == qSum.Dst && qMean.Basis == kMean.Basis && qMean.KV == kSum.KV && qMean.Rows == 1 || m.back())
	m.sketch.token = !mean
	return true
}

// walkTop is a step of a walk, and the selection of blocks by its rows.
func (m *matcher) walkTop() bool {
	return take(m, &m.walk) &&
		take(m, &m.top) && m.top.Rule == device.TopBlocks && m.top.Scores == m.walk.Dst && m.top.KV == m.walk.KV && m.top.Rows == m.walk.Rows
}

// sketchWalk is tailSketch, and walkTop over its block scores.
func (m *matcher) sketchWalk() bool {
	return m.tailSketch() && m.walkTop() && m.walk.Pairs == m.sketch.scores && m.walk.KV == m.sketch.kv
}

// sampleAttend samples values and attends to them.
func (m *matcher) sampleAttend() bool {
	var d *device.Discard
	return take(m, &m.drawn) && m.drawn.Rule == device.ValueSample &&
		take(m, &m.attend) && m.attend.KV == m.drawn.KV && !overlap(m.attend.Dst, m.drawn.Q) &&
		m.attend.Plan == device.Plan{Span: m.drawn.Plan.Span, Selected: device.Tokens, List: m.drawn.List, Mixture: true} &&
		take(m, &d) && d.List == m.drawn.List
}

// massAttend accumulates the attention mass of rows, and attends to the same positions.
func (m *matcher) massAttend() bool {
	return m.summary(&m.mass, device.AttentionMass) &&
		take(m, &m.attend) && m.attend.Q == m.mass.X && m.attend.KV == m.mass.KV && m.attend.Plan == m.mass.Plan &&
		!overlap(m.attend.Dst, m.mass.X, m.mass.Dst)
}

// reuseAttend reuses or makes a selection and attends to it.
func (m *matcher) reuseAttend() bool {
	var d *device.Discard
	return take(m, &m.reuse) &&
		take(m, &m.attend) && m.attend.Q == m.reuse.Q && m.attend.KV == m.reuse.KV && m.attend.Plan == m.reuse.Plan &&
		m.reuse.Plan.List == m.reuse.List && m.reuse.Plan.Selected == device.Tokens && !overlap(m.attend.Dst, m.reuse.Q, m.reuse.Compared) &&
		take(m, &d) && (d.List.Index == m.reuse.List.Index || d.T == m.reuse.List.Index)
}

// topSample is TopK and a sample of what its list, which nobody else reads, leaves.
func (m *matcher) topSample() bool {
	var d *device.Discard
	return take(m, &m.top) && m.top.Rule == device.TopK &&
		take(m, &m.drawn) && m.drawn.Rule == device.ResidualSample && m.drawn.Plan.Selected == device.Tokens && m.drawn.Plan.List == m.top.List && m.drawn.KV == m.top.KV &&
		take(m, &d) && d.List == m.top.List && !overlap(m.top.Scores, m.drawn.List.Index, m.drawn.List.Count, m.drawn.List.Weight)
}

// scoreGroups is scores of keys that are pooled over the heads of each kv head, and dropped.
func (m *matcher) scoreGroups() bool {
	var d *device.Discard
	return take(m, &m.score) && (m.score.Rule == device.ExactScores || m.score.Rule == device.MirrorScores) &&
		take(m, &m.pool) && m.pool.Rule == device.GroupMax && m.pool.Q == m.score.Dst && m.pool.KV == m.score.KV && !overlap(m.pool.Dst, m.score.Q) &&
		take(m, &d) && d.T == m.score.Dst
}

// fusedNorm is the norm of the products.
func (m *matcher) fusedNorm() fusedNorm { return fusedNorm{m.norm.W, m.norm.Eps} }

// fuseNormProducts computes dst[i] = norm(x)·w[i]ᵀ, for a decode batch or by GEMM.
func (o *ops) fuseNormProducts() bool {
	m := &o.matched
	dst, w := m.dst[:m.n], m.w[:m.n]
	return o.skinny(dst, m.norm.X, m.fusedNorm(), w, epilogueStore) || o.gemmNorm(dst, m.norm.X, m.fusedNorm(), w)
}

// fuseNormSwiGLU computes silu(norm(x)·w[0]ᵀ) · (norm(x)·w[1]ᵀ) for a decode batch.
func (o *ops) fuseNormSwiGLU() bool {
	m := &o.matched
	return o.skinny(m.dst[:1], m.norm.X, m.fusedNorm(), m.w[:2], epilogueSwiGLU)
}

// fuseFeedForward computes the feed-forward half of a layer by GEMM.
func (o *ops) fuseFeedForward() bool {
	m := &o.matched
	m.w[2] = m.product.W
	return o.gemmFeedForward(m.norm.X, m.fusedNorm(), m.w[:3], m.dst[:2])
}

// fuseProductAdd computes sum += x·wᵀ, for a decode batch or by GEMM.
func (o *ops) fuseProductAdd() bool {
	m := &o.matched
	m.dst[0], m.w[0] = m.sum.Dst, m.product.W
	return o.skinny(m.dst[:1], m.product.X, fusedNorm{}, m.w[:1], epilogueAdd) || o.gemmAdd(m.sum.Dst, m.product.X, m.product.W)
}

// fuseRopeAppend rotates q and k and appends k and v.
func (o *ops) fuseRopeAppend() bool {
	o.ropeAppend(&o.matched)
	return true
}

// fuseNormQKV makes q, k and v of one row, with biases, rotates and appends them. Heads that are
// normalized have to be whole first, which a block of the kernel has only parts of. Where q, k and v are not of
// one type that would be two launches, each of which waits for its own weights; a third launch
// for the heads is faster.
func (o *ops) fuseNormQKV() bool {
	m := &o.matched
	w := m.w[:3]
	if m.norm.X.Dim(0) != 1 || m.norms[0] != nil || m.stored.KV.K.Dim(3)%2 != 0 || w[0].DType != w[1].DType || w[0].DType != w[2].DType {
		return false
	}
	return device.RowsPerSlot("NormQKV", 1, m.stored.KV) == 1 && o.skinny(m.dst[:3], m.norm.X, m.fusedNorm(), w, epilogueQKV)
}

// fuseSketch computes the sketches and block scores of the newest row of each slot.
func (o *ops) fuseSketch() bool {
	kv := o.matched.sketch.kv
	o.walkDecode(&o.matched.sketch, &device.Walk{}, &device.Select{KV: kv, Rows: 1})
	return true
}

// fuseSketchWalk does that, walks and selects blocks.
func (o *ops) fuseSketchWalk() bool {
	m := &o.matched
	if !o.suitsWalkDecode(m.walk) {
		return false
	}
	o.walkDecode(&m.sketch, m.walk, m.top)
	return true
}

// fuseWalkTop continues rows by one step and selects blocks.
func (o *ops) fuseWalkTop() bool { return o.walkTop(o.matched.walk, o.matched.top) }

// fuseSampleAttend attends to sampled values, which need no list.
func (o *ops) fuseSampleAttend() bool {
	s := *o.matched.drawn
	s.List = device.List{}
	return device.RowsPerSlot("Sample", s.Q.Dim(0), s.KV) == 1 && o.sampleDecode(&s, o.matched.attend.Dst)
}

// fuseReuseAttend attends to a selection in the launch that makes it, where every query head has
// a kv head of its own.
func (o *ops) fuseReuseAttend() bool { return o.reuseAttend(o.matched.attend.Dst, o.matched.reuse) }

// fuseTopSample selects and samples in one launch, in which the list stays a bitmap.
func (o *ops) fuseTopSample() bool { return o.sampleTop(o.matched.top, o.matched.drawn) }

// fuseScoreGroups pools scores in the kernel that makes them. A kv head of one query head is left
// alone, whose NaN the pool turns into -Inf.
func (o *ops) fuseScoreGroups() bool {
	c := *o.matched.score
	c.Dst = o.matched.pool.Dst
	if !pooled(&c) {
		return false
	}
	if c.Rule == device.MirrorScores {
		return o.mirrorDecode(&c)
	}
	return device.RowsPerSlot("Scores", c.Q.Dim(0), c.KV) == 1 && o.scoreDecode(&c)
}

// fuseProducts computes products of the same x.
func (o *ops) fuseProducts(calls []device.Call) bool {
	o.d.hazards.begin(calls...)
	defer o.d.hazards.end()
	m := &o.matched
	for len(calls) > 0 {
		m.n = min(len(calls), maxProducts)
		for i, c := range calls[:m.n] {
			m.product = c.(*device.MatMul)
			m.dst[i], m.w[i] = m.product.Dst, m.product.W
		}
		o.products(m.dst[:m.n], m.product.X, m.w[:m.n])
		calls = calls[m.n:]
	}
	return true
}
