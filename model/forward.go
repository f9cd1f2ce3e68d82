package model

import (
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/sparse"
)

// feedRows is the rows of a tile of the feed-forward layer, unless the device prefers
// another number: enough to reuse each weight many times, few enough that its two wide
// activations stay small (59 MB for an 8B model).
const feedRows = 512

// Scratch is the activations of one pass, allocated once for the maximum rows of a pass.
type Scratch struct {
	x        device.Tensor // f32 [rows, dim]: the residual stream
	norm     device.Tensor // f32 [rows, dim]
	q, att   device.Tensor // f32 [rows, heads·headdim]
	k, v     device.Tensor // f32 [rows, kvheads·headdim]
	gate, up device.Tensor // f32 [tile, ff]: a tile of rows
}

// NewScratch allocates the activations for passes of up to rows rows.
func (m *Model) NewScratch(dev device.Device, rows int) (*Scratch, error) {
	var err error
	alloc := func(rows, width int) (t device.Tensor) {
		if err == nil {
			t, err = dev.Alloc(device.F32, rows, width)
		}
		return t
	}
	tile := feedRows
	if n := dev.Info().ProductRows; n > 0 {
		tile = n
	}
	tile = min(tile, rows)
	q, kv := m.Heads*m.HeadDim, m.KVHeads*m.HeadDim
	s := &Scratch{
		x: alloc(rows, m.Dim), norm: alloc(rows, m.Dim),
		q: alloc(rows, q), att: alloc(rows, q),
		k: alloc(rows, kv), v: alloc(rows, kv),
		gate: alloc(tile, m.FF), up: alloc(tile, m.FF),
	}
	return s, err
}

// Forward runs the layers over the rows of a pass and returns the residual
// stream, f32 [rows, dim], which is valid until the next pass; false means that
// the pass was abandoned. [Model.Logits] computes logits of rows of the stream.
func (m *Model) Forward(p *sparse.Pass, att *sparse.Policy, s *Scratch) (x device.Tensor, ok bool) {
	x = s.x.Rows(0, p.Rows())
	device.Do(p.Queue, device.Embed{Dst: x, Table: m.embed, IDs: p.IDs})
	for l := range m.layers {
		if p.Layer != nil && !p.Layer(l) {
			return x, false
		}
		m.attend(p, att, l, x, s)
		m.feed(p, att, l, x, s)
	}
	return x, true
}

// attend is the attention half of a layer: x += o·attention(norm(x)). Rows that the policy
// freezes in this layer keep their x; only their keys and values are computed, for later
// rows.
func (m *Model) attend(p *sparse.Pass, att *sparse.Policy, l int, x device.Tensor, s *Scratch) {
	ops, w, n := p.Queue, &m.layers[l], p.Rows()
	norm, q, k, v, a := s.norm.Rows(0, n), s.q.Rows(0, n), s.k.Rows(0, n), s.v.Rows(0, n), s.att.Rows(0, n)
	frozen := att.Frozen(p, l)

	device.Do(ops, device.RMSNorm{Dst: norm, X: x, W: w.attnNorm, Eps: m.Eps})
	m.project(ops, frozen, l, norm, s)
	device.Do(ops, device.Discard{T: norm})
	m.adjust(ops, w, q, k, v)
	q = q.Reshape(n, m.Heads, m.HeadDim)
	k = k.Reshape(n, m.KVHeads, m.HeadDim)
	v = v.Reshape(n, m.KVHeads, m.HeadDim)
	device.Do(ops, device.Rope{X: q, Pos: p.Pos, Rotation: m.rope})
	device.Do(ops, device.Rope{X: k, Pos: p.Pos, Rotation: m.rope})
	att.Append(p, l, k, v)
	att.Attend(p, l, a.Reshape(n, m.Heads, m.HeadDim), q, k)
	for _, r := range frozen.Rows.Around(n) {
		if !r.Empty() {
			addProduct(ops, x.Rows(r.Lo, r.Hi), a.Rows(r.Lo, r.Hi), w.o, norm.Rows(r.Lo, r.Hi))
		}
	}
}

// project computes the queries of rows that are not frozen, and the keys and values of
// rows that are not aliased.
func (m *Model) project(ops device.Queue, frozen sparse.Frozen, l int, norm device.Tensor, s *Scratch) {
	w := &m.layers[l]
	for _, r := range frozen.Rows.Around(norm.Dim(0)) {
		if !r.Empty() {
			device.Do(ops, device.MatMul{Dst: s.q.Rows(r.Lo, r.Hi), X: norm.Rows(r.Lo, r.Hi), W: w.q})
		}
	}
	for _, r := range frozen.Alias.Around(norm.Dim(0)) {
		if !r.Empty() {
			k, v := s.k.Rows(r.Lo, r.Hi), s.v.Rows(r.Lo, r.Hi)
			device.Do(ops, device.MatMul{Dst: k, X: norm.Rows(r.Lo, r.Hi), W: w.k})
			device.Do(ops, device.MatMul{Dst: v, X: norm.Rows(r.Lo, r.Hi), W: w.v})
		}
	}
}

// adjust adds the biases to q, k and v, and normalizes each head of q and of k, as far as a
// family does. Rows that project left out hold what nobody reads, before and after.
func (m *Model) adjust(ops device.Queue, w *layer, q, k, v device.Tensor) {
	if m.Bias {
		device.Do(ops, device.Add{Dst: q, X: w.qBias})
		device.Do(ops, device.Add{Dst: k, X: w.kBias})
		device.Do(ops, device.Add{Dst: v, X: w.vBias})
	}
	if m.HeadNorms {
		heads := func(x device.Tensor) device.Tensor { return x.Reshape(x.Len()/m.HeadDim, m.HeadDim) }
		device.Do(ops, device.RMSNorm{Dst: heads(q), X: heads(q), W: w.qNorm, Eps: m.Eps})
		device.Do(ops, device.RMSNorm{Dst: heads(k), X: heads(k), W: w.kNorm, Eps: m.Eps})
	}
}

// feed is the feed-forward half of a layer: x += down·(silu(gate·n) · up·n), where n
// is norm(x), a tile of rows at a time.
func (m *Model) feed(p *sparse.Pass, att *sparse.Policy, l int, x device.Tensor, s *Scratch) {
	frozen := att.Frozen(p, l)
	if frozen.Feed {
		frozen.Rows = sparse.Run{}
	}
	for _, r := range frozen.Rows.Around(p.Rows()) {
		for lo, tile := r.Lo, s.gate.Dim(0); lo < r.Hi; lo += tile {
			m.feedTile(p.Queue, l, x.Rows(lo, min(lo+tile, r.Hi)), s)
		}
	}
}

// feedTile is feed for one tile of rows.
func (m *Model) feedTile(ops device.Queue, l int, x device.Tensor, s *Scratch) {
	w, n := &m.layers[l], x.Dim(0)
	norm, gate, up := s.norm.Rows(0, n), s.gate.Rows(0, n), s.up.Rows(0, n)
	device.Do(ops, device.RMSNorm{Dst: norm, X: x, W: w.ffNorm, Eps: m.Eps})
	device.Do(ops, device.MatMul{Dst: gate, X: norm, W: w.gate})
	device.Do(ops, device.MatMul{Dst: up, X: norm, W: w.up})
	device.Do(ops, device.Discard{T: norm})
	device.Do(ops, device.SwiGLU{Dst: gate, Gate: gate, Up: up})
	device.Do(ops, device.Discard{T: up})
	addProduct(ops, x, gate, w.down, norm)
	device.Do(ops, device.Discard{T: gate})
}

// addProduct is dst += x·wᵀ; product is scratch, f32, shaped like dst.
func addProduct(q device.Queue, dst, x, w, product device.Tensor) {
	device.Do(q, device.MatMul{Dst: product, X: x, W: w})
	device.Do(q, device.Add{Dst: dst, X: product})
	device.Do(q, device.Discard{T: product})
}

// Logits computes the logits of rows of the residual stream. dst f32
// [rows, vocab], x f32 [rows, dim], which is overwritten.
func (m *Model) Logits(ops device.Queue, dst, x device.Tensor) {
	device.Do(ops, device.RMSNorm{Dst: x, X: x, W: m.norm, Eps: m.Eps})
	device.Do(ops, device.MatMul{Dst: dst, X: x, W: m.output})
	device.Do(ops, device.Discard{T: x})
}
