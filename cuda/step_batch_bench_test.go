//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

// batchShape is the shape of a model whose heads have 128 numbers.
type batchShape struct {
	name                           string
	dim, ff, heads, kvHeads, vocab int
}

var batchShapes = []batchShape{
	{"llama-2-7b", 4096, 11008, 32, 32, 32000},
	{"llama-3.1-8b", 4096, 14336, 32, 8, 128256},
	{"qwen2.5-7b", 3584, 18944, 28, 4, 152064},
	{"qwen3-8b", 4096, 12288, 32, 8, 151936},
}

// batchModel is a model of 32 layers whose weights repeat, with sequences of one length.
type batchModel struct {
	batchShape
	d                               *dev
	rows                            int
	layers                          []stepLayer
	output, norm                    device.Tensor
	x, y, z, q, k, v, gate, up, out device.Tensor
	kv                              []device.KV
	pos                             device.Tensor
	rope                            device.Rotation
	bytes                           int // that a step reads
}

func newBatchModel(b *testing.B, d *dev, s batchShape, weights string, rows, depth int) *batchModel {
	const layers, headDim = 32, 128
	m := &batchModel{batchShape: s, d: d, rows: rows}
	rng := rand.New(rand.NewPCG(7, 9))
	matrix := func(dt device.DType, n, k int) device.Tensor {
		w := benchMatrices(b, d, dt, n, k, 1)[0]
		m.bytes += w.Size()
		return w
	}
	pages := rows * (depth/device.PageLen + 1)
	table, length := benchAlloc(b, d, device.I32, rows, pages/rows), benchAlloc(b, d, device.I32, rows)
	d.Write(table, words(rng.Perm(pages)...))
	lengths, last := make([]int, rows), make([]int, rows)
	for i := range lengths {
		lengths[i], last[i] = depth, depth-1
	}
	d.Write(length, words(lengths...))
	for l := range layers {
		t, _ := stepTypes(weights, l)
		m.layers = append(m.layers, stepLayer{
			matrix(t[0], s.heads*headDim, s.dim), matrix(t[1], s.kvHeads*headDim, s.dim), matrix(t[2], s.kvHeads*headDim, s.dim), matrix(t[3], s.dim, s.heads*headDim),
			matrix(t[4], s.ff, s.dim), matrix(t[5], s.ff, s.dim), matrix(t[6], s.dim, s.ff),
		})
		m.kv = append(m.kv, device.KV{
			K: benchAlloc(b, d, device.F16, pages, s.kvHeads, device.PageLen, headDim), V: benchAlloc(b, d, device.F16, pages, s.kvHeads, device.PageLen, headDim),
			Pages: table, Len: length, Short: depth <= device.ShortLen,
		})
		m.bytes += rows * depth * 4 * s.kvHeads * headDim
	}
	_, out := stepTypes(weights, 0)
	m.output, m.norm = matrix(out, s.vocab, s.dim), benchAlloc(b, d, device.F32, s.dim)
	f := func(n int) device.Tensor { return benchAlloc(b, d, device.F32, rows, n) }
	m.x, m.y, m.z, m.q, m.k, m.v = f(s.dim), f(s.dim), f(s.dim), f(s.heads*headDim), f(s.kvHeads*headDim), f(s.kvHeads*headDim)
	m.gate, m.up, m.out = f(s.ff), f(s.ff), f(s.vocab)
	d.Write(m.x, normal(rng, rows*s.dim))
	m.pos = benchAlloc(b, d, device.I32, rows)
	d.Write(m.pos, words(last...))
	m.rope = device.Rotation{Freqs: benchAlloc(b, d, device.F32, headDim/2), Scale: 1, Interleaved: true}
	return m
}

// batchParts are the parts of a layer, in order, and the output projection.
var batchParts = []string{"qkv", "rotate", "attend", "o", "gate-up", "down", "output"}

// step queues the parts named of a decode step of all sequences, without sampling.
func (m *batchModel) step(parts ...string) {
	o, n := m.d.ops, devtest.Norm{W: m.norm, Eps: 1e-5}
	q, k, v := m.q.Reshape(m.rows, m.heads, 128), m.k.Reshape(m.rows, m.kvHeads, 128), m.v.Reshape(m.rows, m.kvHeads, 128)
	for l := range m.layers {
		w, kv := &m.layers[l], m.kv[l]
		for _, part := range parts {
			switch part {
			case "qkv":
				devtest.NormProducts(o, []device.Tensor{m.q, m.k, m.v}, m.x, n, w[0:3], m.z)
			case "rotate":
				devtest.RotateAppend(o, kv, q, k, v, m.pos, m.rope)
			case "attend":
				device.Do(o, device.Attend{Dst: m.y.Reshape(m.rows, m.heads, 128), Q: q, KV: kv, Plan: device.Plan{}})
			case "o":
				devtest.AddProduct(o, m.x, m.y, w[3], m.z)
			case "gate-up":
				devtest.NormSwiGLU(o, []device.Tensor{m.gate, m.up}, m.x, n, w[4:6], m.z)
			case "down":
				devtest.AddProduct(o, m.x, m.gate, w[6], m.z)
			}
		}
	}
	if slices.Contains(parts, "output") {
		devtest.NormProducts(o, []device.Tensor{m.out}, m.x, n, []device.Tensor{m.output}, m.z)
	}
}

// BenchmarkBatch is a decode step of some sequences: bytes of weights and of the cache. Then the step
// without attention, and each part by itself, in all layers, one after the other.
func BenchmarkBatch(b *testing.B) {
	d := openBench(b)
	copied := copyRate(b, d)
	for _, s := range batchShapes {
		for _, weights := range []string{"F16", "Q8_0", "Q4_K_M"} {
			for _, size := range [][2]int{{1, 512}, {16, 512}, {4, 2048}, {16, 2048}, {64, 2048}} {
				rows, depth := size[0], size[1]
				b.Run(fmt.Sprintf("shape=%s/type=%s/rows=%d/depth=%d", s.name, weights, rows, depth), func(b *testing.B) {
					free, err := d.Scope(func() error {
						m := newBatchModel(b, d, s, weights, rows, depth)
						for _, attend := range []bool{true, false} {
							parts := batchParts
							if !attend {
								parts = []string{"qkv", "o", "gate-up", "down", "output"}
							}
							b.Run(fmt.Sprintf("attention=%v", attend), func(b *testing.B) {
								seconds := measure(b, d, func() { m.step(parts...) })
								reportRate(b, float64(m.bytes), seconds, copied)
								b.ReportMetric(float64(rows)/seconds, "tok/s")
							})
						}
						for _, part := range batchParts {
							b.Run("part="+part, func(b *testing.B) {
								for b.Loop() { // measured in a graph, with its own repetition
								}
								b.ReportMetric(0, "ns/op")
								b.ReportMetric(measure(b, d, func() { m.step(part) })*1e6, "us")
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
				})
			}
		}
	}
}
