//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

// stepLayer is the weights of a layer: q, k, v, o, gate, up, down.
type stepLayer [7]device.Tensor

// stepModel is Llama-3.1-8B's shape with weights that repeat.
type stepModel struct {
	d              *dev
	layers         []stepLayer
	output, norm   device.Tensor
	x, y, q, k, v  device.Tensor
	gate, up, logs device.Tensor
	kv             []device.KV
	pos            device.Tensor
	rope           device.Rotation
	bytes          int
	attend         func(layer int, y, q, k device.Tensor)
}

// stepTypes are the types of a layer's matrices and of the output.
func stepTypes(name string, layer int) (types [7]device.DType, output device.DType) {
	plain := map[string]device.DType{"F16": device.F16, "Q8_0": device.Q8_0, "Q4_K_M": device.Q4_K}[name]
	for i := range types {
		types[i] = plain
	}
	if name != "Q4_K_M" {
		return types, plain
	}
	if layer < 4 || layer >= 28 || layer%3 == 0 { // about half, as llama.cpp does it
		types[2], types[6] = device.Q6_K, device.Q6_K
	}
	return types, device.Q6_K
}

func newStepModel(b *testing.B, d *dev, name string, layers, depth int) *stepModel {
	const dim, ff, heads, kvHeads, headDim, vocab = 4096, 14336, 32, 8, 128, 128256
	m := &stepModel{d: d}
	rng := rand.New(rand.NewPCG(7, 9))
	matrix := func(dt device.DType, n, k int) device.Tensor {
		w := benchAlloc(b, d, dt, n, k)
		some := 64
		d.Write(w.Rows(0, some), randomMatrix(rng, dt, some, k))
		for some < n {
			more := min(some, n-some)
			device.Do(d.ops, device.Copy{Dst: w.Rows(some, some+more), Src: w.Rows(0, more)})
			some += more
		}
		w.Memory().(*memory).constant = true
		m.bytes += w.Size()
		return w
	}
	for l := range layers {
		t, _ := stepTypes(name, l)
		m.layers = append(m.layers, stepLayer{
			matrix(t[0], heads*headDim, dim), matrix(t[1], kvHeads*headDim, dim), matrix(t[2], kvHeads*headDim, dim), matrix(t[3], dim, heads*headDim),
			matrix(t[4], ff, dim), matrix(t[5], ff, dim), matrix(t[6], dim, ff),
		})
		pages := depth/device.PageLen + 1
		kv := device.KV{
			K: benchAlloc(b, d, device.F16, pages, kvHeads, device.PageLen, headDim), V: benchAlloc(b, d, device.F16, pages, kvHeads, device.PageLen, headDim),
			Pages: benchAlloc(b, d, device.I32, 1, pages), Len: benchAlloc(b, d, device.I32, 1), Short: depth <= device.ShortLen,
		}
		d.Write(kv.Pages, words(rng.Perm(pages)...))
		d.Write(kv.Len, words(depth))
		m.kv = append(m.kv, kv)
		m.bytes += 4 * depth * kvHeads * headDim
	}
	_, out := stepTypes(name, 0)
	m.output = matrix(out, vocab, dim)
	f := func(n int) device.Tensor { return benchAlloc(b, d, device.F32, 1, n) }
	m.norm = benchAlloc(b, d, device.F32, dim)
	m.x, m.y, m.q, m.k, m.v, m.gate, m.up, m.logs = f(dim), f(dim), f(dim), f(kvHeads*headDim), f(kvHeads*headDim), f(ff), f(ff), f(vocab)
	m.pos = benchAlloc(b, d, device.I32, 1)
	d.Write(m.pos, words(depth-1))
	m.rope = device.Rotation{Freqs: benchAlloc(b, d, device.F32, headDim/2), Scale: 1, Interleaved: true}
	m.attend = func(l int, y, q, _ device.Tensor) {
		device.Do(d.ops, device.Attend{Dst: y, Q: q, KV: m.kv[l], Plan: device.Plan{}})
	}
	return m
}

// step queues a decode step without sampling, and without the part that without names.
func (m *stepModel) step(without string) {
	o, n := m.d.ops, devtest.Norm{W: m.norm, Eps: 1e-5}
	for l := range m.layers {
		w, kv := &m.layers[l], m.kv[l]
		qkv := []device.Tensor{m.q, m.k, m.v}
		if without == "rope" || without == "attention" {
			devtest.NormProducts(o, qkv, m.x, n, w[0:3], m.y)
		} else if without == "heads" {
			devtest.NormProducts(o, qkv, m.x, n, w[0:3], m.y)
			o.Flush()
			devtest.RotateAppend(o, kv, m.q.Reshape(1, 32, 128), m.k.Reshape(1, 8, 128), m.v.Reshape(1, 8, 128), m.pos, m.rope)
		} else {
			devtest.NormProducts(o, qkv, m.x, n, w[0:3], m.y)
			devtest.RotateAppend(o, kv, m.q.Reshape(1, 32, 128), m.k.Reshape(1, 8, 128), m.v.Reshape(1, 8, 128), m.pos, m.rope)
		}
		q := m.q.Reshape(1, 32, 128)
		if without != "attend" && without != "attention" {
			m.attend(l, m.y.Reshape(1, 32, 128), q, m.k.Reshape(1, 8, 128))
		}
		devtest.AddProduct(o, m.x, m.y, w[3], m.q)
		devtest.NormSwiGLU(o, []device.Tensor{m.gate, m.up}, m.x, n, w[4:6], m.y)
		devtest.AddProduct(o, m.x, m.gate, w[6], m.y)
	}
	if without != "head" {
		devtest.NormProducts(o, []device.Tensor{m.logs}, m.x, n, []device.Tensor{m.output}, m.x)
	}
}

// BenchmarkStep is a decode step of an 8B model: bytes of weights and of the cache.
func BenchmarkStep(b *testing.B) {
	d := openBench(b)
	copied := copyRate(b, d)
	for _, name := range []string{"F16", "Q8_0", "Q4_K_M"} {
		for _, depth := range []int{512} {
			free, err := d.Scope(func() error {
				m := newStepModel(b, d, name, 32, depth)
				for _, without := range []string{"", "heads", "attention"} {
					at := fmt.Sprintf("type=%s/depth=%d", name, depth)
					if without != "" {
						at += "/without=" + without
					}
					b.Run(at, func(b *testing.B) {
						reportRate(b, float64(m.bytes), measure(b, d, func() { m.step(without) }), copied)
					})
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			if err := free(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
