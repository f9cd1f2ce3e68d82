//go:build cuda || cudaemu

package cuda

import (
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/fusion"
)

// The peephole table: sequences of calls that one kernel, or a few, compute in one trip
// through memory. The longest come first. A sequence whose shapes do not suit a kernel is
// left to the patterns below it, and at last to the calls one by one.
func (o *ops) patterns() []fusion.Pattern {
	pattern := func(name string, match, run func(*matcher) bool) fusion.Pattern {
		return fusion.Pattern{Name: name,
			Match: func(calls []device.Call) (int, bool) { return o.matched.match(calls, match) },
			Run: func(calls []device.Call) bool {
				o.d.hazards.begin(calls...)
				defer o.d.hazards.end()
				return run(&o.matched)
			},
		}
	}
	return []fusion.Pattern{
		pattern("norm, q k v, rope, append", (*matcher).normHeads, o.fuseNormHeads),
		pattern("norm, gate up, SwiGLU, down, add", (*matcher).feed, o.fuseFeed),
		pattern("norm, gate up, SwiGLU", (*matcher).normSwiGLU, o.fuseNormSwiGLU),
		pattern("norm, products", (*matcher).normProducts, o.fuseNormProducts),
		pattern("product, add", (*matcher).addProduct, o.fuseAddProduct),
		pattern("sketch, compare, walk, top blocks", (*matcher).walkNewest, o.fuseWalkNewest),
		pattern("sketch, compare", (*matcher).sketchNewest, o.fuseSketchNewest),
		pattern("walk, top blocks", (*matcher).walkTop, o.fuseWalkTop),
		pattern("sample values, attend", (*matcher).sampleAttend, o.fuseSampleAttend),
		pattern("reuse selection, attend", (*matcher).reuseAttend, o.fuseReuseAttend),
		pattern("rope, append", (*matcher).rotateAppend, o.fuseRotateAppend),
		{Name: "products", Match: fusion.Products, Run: o.fuseProducts},
	}
}

// maxProducts is the most products of one x that are taken at once.
const maxProducts = 16

// matcher reads a sequence of calls and keeps their operands.
type matcher struct {
	calls []device.Call
	at    int  // of calls
	short bool // the calls end where the sequence wants one more

	x      device.Tensor // what is normalized, or multiplied
	norm   normWeights
	n      int
	dst, w [maxProducts]device.Tensor // of n products

	sum device.Tensor // what a product is added to, or attention is put

	kv      device.KV
	q, k, v device.Tensor
	pos     device.Tensor
	rope    device.Rotation

	sketch newestSketch
	pairs  device.Tensor
	step   device.Walk
	top    device.Select

	drawn  device.Sample
	reused device.ReuseSelection
}

// match reports how many calls the sequence takes, and whether more of them decide.
func (m *matcher) match(calls []device.Call, sequence func(*matcher) bool) (n int, more bool) {
	m.calls, m.at, m.short, m.n = calls, 0, false, 0
	if sequence(m) {
		return m.at, m.short
	}
	return 0, m.short
}

// next is the next call if it is of type T.
func next[T any](m *matcher) (*T, bool) {
	if m.at == len(m.calls) {
		m.short = true
		return nil, false
	}
	c, ok := any(m.calls[m.at]).(*T)
	if ok {
		m.at++
	}
	return c, ok
}

// summary is the next call if it is a summary by a rule.
func summary(m *matcher, rule device.SummaryRule) (*device.Summarize, bool) {
	c, ok := next[device.Summarize](m)
	if ok && c.Rule != rule {
		m.at--
		ok = false
	}
	return c, ok
}

// discard takes the end of a tensor's life.
func (m *matcher) discard(t device.Tensor) bool {
	d, ok := next[device.Discard](m)
	return ok && d.T == t
}

// normProducts is RMSNorm, then products of what it made, which nobody else reads.
func (m *matcher) normProducts() bool {
	c, ok := next[device.RMSNorm](m)
	if !ok {
		return false
	}
	m.x, m.norm = c.X, normWeights{c.W, c.Eps}
	for m.n < maxProducts {
		p, ok := next[device.MatMul](m)
		if !ok {
			break
		}
		if p.X != c.Dst {
			return false
		}
		if m.dst[m.n], m.w[m.n] = p.Dst, p.W; !m.apart(c.Dst) {
			return false
		}
		m.n++
	}
	return m.n > 0 && m.discard(c.Dst)
}

// apart reports whether the newest product, whose matrix is not the rows themselves, may
// be computed at the same time as those before it, of x.
func (m *matcher) apart(rows device.Tensor) bool {
	dst, w := m.dst[m.n], m.w[m.n]
	for _, before := range m.dst[:m.n] {
		if before.Overlaps(dst) || before.Overlaps(w) {
			return false
		}
	}
	return !(w.Overlaps(rows) || dst.Overlaps(m.x) || dst.Overlaps(m.norm.W))
}

// normSwiGLU is normProducts of two matrices, and the gating of one by the other.
func (m *matcher) normSwiGLU() bool {
	if !m.normProducts() || m.n != 2 {
		return false
	}
	c, ok := next[device.SwiGLU](m)
	return ok && c.Dst == m.dst[0] && c.Gate == m.dst[0] && c.Up == m.dst[1] && m.discard(m.dst[1])
}

// feed is the whole feed-forward half of a layer.
func (m *matcher) feed() bool {
	if !m.normSwiGLU() {
		return false
	}
	p, ok := next[device.MatMul](m)
	if !ok || p.X != m.dst[0] || p.W.Overlaps(p.X) || p.W.Overlaps(m.x) {
		return false
	}
	a, ok := next[device.Add](m)
	if !ok || a.X != p.Dst || a.Dst != m.x {
		return false
	}
	m.w[2] = p.W
	return m.discard(p.Dst) && m.discard(m.dst[0])
}

// addProduct is a product that is added to a tensor, and read by nobody else.
func (m *matcher) addProduct() bool {
	p, ok := next[device.MatMul](m)
	if !ok {
		return false
	}
	a, ok := next[device.Add](m)
	if !ok || a.X != p.Dst || a.Dst.Overlaps(p.X) || a.Dst.Overlaps(p.W) {
		return false
	}
	m.x, m.w[0], m.sum = p.X, p.W, a.Dst
	return m.discard(p.Dst)
}

// rotateAppend rotates queries and keys, and stores the keys with their values.
func (m *matcher) rotateAppend() bool {
	q, ok := next[device.Rope](m)
	if !ok {
		return false
	}
	k, ok := next[device.Rope](m)
	if !ok || k.Pos != q.Pos || k.Rotation != q.Rotation {
		return false
	}
	c, ok := next[device.Append](m)
	if !ok || c.K != k.X || q.X.Dim(2) != k.X.Dim(2) {
		return false
	}
	if q.X.Overlaps(c.K) || q.X.Overlaps(c.V) || c.K.Overlaps(c.V) {
		return false
	}
	m.q, m.k, m.v, m.pos, m.rope, m.kv = q.X, c.K, c.V, q.Pos, q.Rotation, c.KV
	return true
}

// normHeads is normProducts of queries, keys and values, and then rotateAppend.
func (m *matcher) normHeads() bool {
	if !m.normProducts() || m.n != 3 || !m.rotateAppend() {
		return false
	}
	return same(m.q, m.dst[0]) && same(m.k, m.dst[1]) && same(m.v, m.dst[2])
}

// sketchNewest adds the row of each slot to the sums of its block, of keys and of queries,
// sketches the mean key and the row's query, and compares it with the blocks before; the
// sketch of the mean query may follow.
func (m *matcher) sketchNewest() bool {
	k, ok := summary(m, device.SumBlocks)
	if !ok || k.X.Dim(0) != k.KV.Len.Dim(0) {
		return false
	}
	q, ok := summary(m, device.SumBlocks)
	if !ok || q.KV != k.KV || q.Dst.Dim(1) != 1 || q.Dst.Overlaps(k.Dst) {
		return false
	}
	means, ok := summary(m, device.ProjectMeans)
	if !ok || means.X != k.Dst || means.KV != k.KV || means.Rows != 1 {
		return false
	}
	row, ok := summary(m, device.ProjectRows)
	if !ok || row.X != q.X || row.Basis != means.Basis || row.KV != k.KV || row.Dst.Overlaps(means.Dst) {
		return false
	}
	c, ok := next[device.Score](m)
	if !ok || c.Rule != device.SketchScores || c.Q != row.Dst || c.Keys != means.Dst || c.KV != k.KV || c.Rows != 1 || c.Dst.Rank() != 2 {
		return false
	}
	m.sketch = newestSketch{q: q.X, k: k.X, keys: k.Dst, queries: q.Dst, keySketch: means.Dst, querySketch: row.Dst, basis: means.Basis, compare: c.Product, row: true}
	m.kv, m.pairs = k.KV, c.Dst
	if !m.sketch.suits() {
		return false
	}
	if mean, ok := summary(m, device.ProjectMeans); ok {
		if mean.Dst == row.Dst && mean.X == q.Dst && mean.Basis == means.Basis && mean.KV == k.KV && mean.Rows == 1 {
			m.sketch.row = false
		} else {
			m.at--
		}
	}
	return true
}

// walkTop is a step of a walk, and the blocks with the largest elements of its rows.
func (m *matcher) walkTop() bool {
	w, ok := next[device.Walk](m)
	if !ok {
		return false
	}
	t, ok := next[device.Select](m)
	if !ok || t.Rule != device.TopBlocks || t.Scores != w.Dst || t.KV != w.KV || t.Rows != w.Rows {
		return false
	}
	m.step, m.top = *w, *t
	return true
}

// walkNewest is sketchNewest, and then walkTop for the same rows.
func (m *matcher) walkNewest() bool {
	return m.sketchNewest() && m.walkTop() && m.step.Pairs == m.pairs && m.step.KV == m.kv
}

// sampleAttend draws values and attends to them; nobody reads what was drawn.
func (m *matcher) sampleAttend() bool {
	s, ok := next[device.Sample](m)
	if !ok || s.Rule != device.ValueSample {
		return false
	}
	a, ok := next[device.Attend](m)
	want := device.Plan{Span: s.Plan.Span, Selected: device.Tokens, List: s.List, Mixture: true}
	if !ok || a.KV != s.KV || a.Plan != want || a.Dst.Overlaps(s.Q) {
		return false
	}
	m.drawn, m.sum = *s, a.Dst
	d, ok := next[device.Discard](m)
	return ok && d.List == s.List
}

// reuseAttend chooses again or anew and attends to the choice; nobody reads the positions.
func (m *matcher) reuseAttend() bool {
	c, ok := next[device.ReuseSelection](m)
	if !ok {
		return false
	}
	a, ok := next[device.Attend](m)
	if !ok || a.Q != c.Q || a.KV != c.KV || c.Plan.List != c.List || c.Plan.Selected != device.Tokens || a.Plan != c.Plan || a.Dst.Overlaps(c.Q) || a.Dst.Overlaps(c.Compared) {
		return false
	}
	m.reused, m.sum = *c, a.Dst
	d, ok := next[device.Discard](m)
	return ok && (d.List.Index == c.List.Index || d.T == c.List.Index)
}

// same reports whether tensors are the same elements, whatever their dimensions.
func same(a, b device.Tensor) bool {
	return a.Memory() == b.Memory() && a.Offset() == b.Offset() && a.DType == b.DType && a.Len() == b.Len()
}

// fuseNormProducts computes dst[i] = norm(x)·w[i]ᵀ of a few rows, or of many.
func (o *ops) fuseNormProducts(m *matcher) bool {
	return o.few(m.dst[:m.n], m.x, m.norm, m.w[:m.n], store) || o.manyNormed(m.dst[:m.n], m.x, m.norm, m.w[:m.n])
}

// fuseNormSwiGLU computes silu(norm(x)·w[0]ᵀ) · (norm(x)·w[1]ᵀ) of a few rows.
func (o *ops) fuseNormSwiGLU(m *matcher) bool {
	return o.few(m.dst[:1], m.x, m.norm, m.w[:2], gate)
}

// fuseFeed computes the feed-forward half of a layer of many rows.
func (o *ops) fuseFeed(m *matcher) bool { return o.feed(m.x, m.norm, m.w[:3], m.dst[:2]) }

// fuseAddProduct computes sum += x·wᵀ of a few rows, or of many.
func (o *ops) fuseAddProduct(m *matcher) bool {
	m.dst[0] = m.sum
	return o.few(m.dst[:1], m.x, normWeights{}, m.w[:1], add) || o.manyAdded(m.sum, m.x, m.w[0])
}

// fuseRotateAppend rotates queries and keys, and stores keys and values.
func (o *ops) fuseRotateAppend(m *matcher) bool {
	return o.rotateAppend(m.kv, m.q, m.k, m.v, m.pos, m.rope)
}

// fuseNormHeads makes queries, keys and values of one row, rotates and stores them.
// Products of two types are two launches, each of which waits for memory by itself; that
// is slower than rotating heads in a third.
func (o *ops) fuseNormHeads(m *matcher) bool {
	w := m.w[:3]
	if m.x.Dim(0) != 1 || !m.rope.Interleaved || m.kv.K.Dim(3)%2 != 0 || w[0].DType != w[1].DType || w[0].DType != w[2].DType {
		return false
	}
	if device.RowsPerSlot("NormHeads", 1, m.kv) != 1 {
		return false
	}
	o.rotation = rotation{m.kv, m.pos, m.rope}
	return o.few(m.dst[:3], m.x, m.norm, w, inHeads)
}

// fuseSketchNewest adds, sketches and compares the newest row of each slot.
func (o *ops) fuseSketchNewest(m *matcher) bool {
	o.newest(&m.sketch, m.pairs, m.kv, device.Walk{}, device.Select{})
	return true
}

// fuseWalkNewest does that, walks and lists blocks.
func (o *ops) fuseWalkNewest(m *matcher) bool {
	if !o.suitsNewest(&m.step) {
		return false
	}
	o.newest(&m.sketch, m.pairs, m.kv, m.step, m.top)
	return true
}

// fuseWalkTop continues rows by one step and lists blocks.
func (o *ops) fuseWalkTop(m *matcher) bool { return o.walkTop(&m.step, &m.top) }

// fuseSampleAttend attends to values drawn of what rows read.
func (o *ops) fuseSampleAttend(m *matcher) bool {
	s := &m.drawn
	return device.RowsPerSlot("Sample", s.Q.Dim(0), s.KV) == 1 && o.drawRows(device.List{}, m.sum, s.Q, s.KV, s.Plan, s.Draws)
}

// fuseReuseAttend attends to what sets read that are heads which share no keys.
func (o *ops) fuseReuseAttend(m *matcher) bool { return o.reuseAttend(m.sum, &m.reused) }

// fuseProducts computes products of the same activations, which are prepared once.
func (o *ops) fuseProducts(calls []device.Call) bool {
	o.d.hazards.begin(calls...)
	defer o.d.hazards.end()
	m := &o.matched
	for len(calls) > 0 {
		m.n = min(len(calls), maxProducts)
		for i, c := range calls[:m.n] {
			p := c.(*device.MatMul)
			m.x, m.dst[i], m.w[i] = p.X, p.Dst, p.W
		}
		o.products(m.dst[:m.n], m.x, m.w[:m.n])
		calls = calls[m.n:]
	}
	return true
}

// normWeights is what rows are normalized with before they are multiplied; without W they are not.
type normWeights struct {
	W   device.Tensor // f32 [dim]
	Eps float32
}
