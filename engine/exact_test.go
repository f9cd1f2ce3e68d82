package engine_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/engine"
)

// exactModel is a forward pass in float64, straight from the definitions. It shares nothing
// with package model: it reads the file's metadata itself, and asks nobody what a family has
// but the file.
type exactModel struct {
	t                              *testing.T
	e                              *engine.Engine
	dim, heads, kvHeads, d, layers int
	eps                            float64
	freqs                          []float64 // radians per position of each pair
	scale                          float64   // of what is rotated
	halves                         bool      // pair i is elements i and i+d/2
}

// newExactModel reads the metadata of a model of one of the families.
func newExactModel(t *testing.T, e *engine.Engine) *exactModel {
	t.Helper()
	arch, err := e.File.Architecture()
	if err != nil {
		t.Fatal(err)
	}
	number := func(key string, def float64) float64 {
		if x, err := e.File.Float(arch + "." + key); err == nil {
			return x
		}
		n, err := e.File.UintOr(arch+"."+key, int(def))
		if err != nil {
			t.Fatal(err)
		}
		return float64(n)
	}
	m := &exactModel{
		t: t, e: e, dim: int(number("embedding_length", 0)), heads: int(number("attention.head_count", 0)),
		kvHeads: int(number("attention.head_count_kv", 0)), layers: int(number("block_count", 0)),
		eps: number("attention.layer_norm_rms_epsilon", 0), halves: arch != "llama",
	}
	m.d = int(number("attention.key_length", float64(m.dim/m.heads)))
	m.freqs, m.scale = make([]float64, m.d/2), 1
	base, factor, trained := number("rope.freq_base", 0), number("rope.scaling.factor", 1), number("rope.scaling.original_context_length", 0)
	for i := range m.freqs {
		m.freqs[i] = math.Pow(base, -float64(2*i)/float64(m.d))
	}
	if factor > 1 {
		m.yarn(base, factor, trained)
	}
	return m
}

// yarn stretches the frequencies: those of few turns within the trained context by the factor,
// those of many not at all, and those between linearly by their number.
func (m *exactModel) yarn(base, factor, trained float64) {
	number := func(turns float64) float64 { // of the pair that makes so many
		return float64(m.d) / 2 * math.Log(trained/turns/(2*math.Pi)) / math.Log(base)
	}
	first, last := math.Floor(number(32)), math.Ceil(number(1))
	first, last = math.Max(first, 0), math.Min(last, float64(m.d)-1)
	for i := range m.freqs {
		share := (float64(i) - first) / math.Max(last-first, 1e-3)
		share = math.Min(math.Max(share, 0), 1)
		m.freqs[i] *= 1 - share + share/factor
	}
	m.scale = 1 + math.Log(factor)/10
}

// tensor is a tensor of the file, nil where there is none.
func (m *exactModel) tensor(format string, args ...any) []float64 {
	name := fmt.Sprintf(format, args...)
	if !m.e.File.HasTensor(name) {
		return nil
	}
	x, err := m.e.File.Tensor(name)
	if err != nil {
		m.t.Fatal(err)
	}
	narrow, wide := make([]float32, x.Len()), make([]float64, x.Len())
	kernel.Dequantize(x.DType, narrow, x.Data)
	for i, v := range narrow {
		wide[i] = float64(v)
	}
	return wide
}

// times is w·x.
func times(w, x []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for r := range y {
		for i, v := range x {
			y[r] += w[r*len(x)+i] * v
		}
	}
	return y
}

// plus adds y to x, where there is one.
func plus(x, y []float64) []float64 {
	for i := range y {
		x[i] += y[i]
	}
	return x
}

// normal is x over its root mean square, times w.
func (m *exactModel) normal(x, w []float64) []float64 {
	var squares float64
	for _, v := range x {
		squares += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(squares/float64(len(x))+m.eps) * w[i]
	}
	return y
}

// rotated is heads at a position, each normalized by w where there is one.
func (m *exactModel) rotated(x, w []float64, pos int) []float64 {
	for h := 0; h < len(x); h += m.d {
		head := x[h : h+m.d]
		if w != nil {
			copy(head, m.normal(head, w))
		}
		for i, f := range m.freqs {
			a, b := 2*i, 2*i+1
			if m.halves {
				a, b = i, i+m.d/2
			}
			z, turn := complex(head[a], head[b]), complex(math.Cos(float64(pos)*f)*m.scale, math.Sin(float64(pos)*f)*m.scale)
			head[a], head[b] = real(z*turn), imag(z*turn)
		}
	}
	return x
}

// logits is those of every position of ids, one after the other.
func (m *exactModel) logits(ids []int32) (all []float64) {
	embed := m.tensor("token_embd.weight")
	stream := make([][]float64, len(ids))
	for p, id := range ids {
		stream[p] = append([]float64(nil), embed[int(id)*m.dim:][:m.dim]...)
	}
	for l := range m.layers {
		m.layer(l, stream)
	}
	norm, out := m.tensor("output_norm.weight"), m.tensor("output.weight")
	if out == nil {
		out = embed
	}
	for _, x := range stream {
		all = append(all, times(out, m.normal(x, norm))...)
	}
	return all
}

// layer adds to the stream what layer l makes of it.
func (m *exactModel) layer(l int, stream [][]float64) {
	w := func(name string) []float64 { return m.tensor("blk.%d.%s", l, name) }
	norm, wq, wk, wv, wo := w("attn_norm.weight"), w("attn_q.weight"), w("attn_k.weight"), w("attn_v.weight"), w("attn_output.weight")
	qBias, kBias, vBias, qNorm, kNorm := w("attn_q.bias"), w("attn_k.bias"), w("attn_v.bias"), w("attn_q_norm.weight"), w("attn_k_norm.weight")
	feedNorm, gate, up, down := w("ffn_norm.weight"), w("ffn_gate.weight"), w("ffn_up.weight"), w("ffn_down.weight")
	var keys, values [][]float64
	for pos, x := range stream {
		n := m.normal(x, norm)
		keys = append(keys, m.rotated(plus(times(wk, n), kBias), kNorm, pos))
		values = append(values, plus(times(wv, n), vBias))
		q := m.rotated(plus(times(wq, n), qBias), qNorm, pos)
		plus(x, times(wo, m.attended(q, keys, values)))
		n = m.normal(x, feedNorm)
		g, u := times(gate, n), times(up, n)
		for i := range g {
			g[i] *= u[i] / (1 + math.Exp(-g[i]))
		}
		plus(x, times(down, g))
	}
}

// attended is the softmax attention of each head of q to the keys so far.
func (m *exactModel) attended(q []float64, keys, values [][]float64) []float64 {
	y := make([]float64, len(q))
	for h := range m.heads {
		from := h / (m.heads / m.kvHeads) * m.d
		weights, sum := make([]float64, len(keys)), 0.0
		for p, k := range keys {
			for i := range m.d {
				weights[p] += q[h*m.d+i] * k[from+i]
			}
			weights[p] = math.Exp(weights[p] / math.Sqrt(float64(m.d)))
			sum += weights[p]
		}
		for p, v := range values {
			for i := range m.d {
				y[h*m.d+i] += weights[p] / sum * v[from+i]
			}
		}
	}
	return y
}
