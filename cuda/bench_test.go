//go:build cuda || cudaemu

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/device/sampling"
)

// Benchmarks of the parts of a decode step, with a device-to-device copy in the same run for
// comparison. A figure is of calls in a graph, one after the other, over more data than the L2
// cache holds.

// benchBytes is the data that a benchmark goes through.
const benchBytes = 2 << 30

// openBench opens a GPU.
func openBench(b *testing.B) *dev {
	if emulated {
		b.Skip("speed is that of a GPU")
	}
	d, err := Open(device.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Close() })
	return d.(*dev)
}

func benchAlloc(b *testing.B, d *dev, dt device.DType, dims ...int) device.Tensor {
	x, err := d.Alloc(dt, dims...)
	if err != nil {
		b.Fatal(err)
	}
	return x
}

// measure is the seconds of a graph of step's calls, the best of five.
func measure(b *testing.B, d *dev, step func()) float64 {
	g, err := d.Capture(func(device.Queue) { step() })
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	launch := func(n int) float64 {
		begin := time.Now()
		for range n {
			g.Launch()
		}
		if err := d.Sync(); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin).Seconds() / float64(n)
	}
	launch(2)
	best := launch(5)
	for range 4 {
		best = min(best, launch(5))
	}
	return best
}

// copyRate is the bytes per second that a copy reads and writes.
func copyRate(b *testing.B, d *dev) float64 {
	rate := 0.0
	free, err := d.Scope(func() error {
		x, y := benchAlloc(b, d, device.I32, benchBytes/4), benchAlloc(b, d, device.I32, benchBytes/4)
		best := 0.0
		for range 10 {
			begin := time.Now()
			for range 4 {
				device.Do(d.ops, device.Copy{Dst: y, Src: x})
			}
			if err := d.Sync(); err != nil {
				return err
			}
			best = max(best, 4/time.Since(begin).Seconds())
		}
		rate = 2 * benchBytes * best
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := free(); err != nil {
		b.Fatal(err)
	}
	return rate
}

// reportRate reports the rate of bytes in seconds, and a copy's.
func reportRate(b *testing.B, bytes, seconds, copied float64) {
	for b.Loop() { // measured in a graph, with its own repetition
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(seconds*1e6, "us")
	b.ReportMetric(bytes/seconds/1e9, "GB/s")
	b.ReportMetric(copied/1e9, "copy-GB/s")
	b.ReportMetric(100*bytes/seconds/copied, "%-of-copy")
}

// benchProducts are the products of a layer of an 8B model and of its output, y[0] of
// x. Rows of y have n numbers, those of x and z k; y[1] and z may be written over.
var benchProducts = []struct {
	name    string
	n, k    int
	product func(o device.Queue, y [2]device.Tensor, x, z, w device.Tensor, n devtest.Norm)
}{
	{"qkv", 6144, 4096, normProduct},
	{"o", 4096, 4096, addProduct},
	{"gateup", 28672, 4096, func(o device.Queue, y [2]device.Tensor, x, z, w device.Tensor, n devtest.Norm) {
		rows, half := y[0].Dim(0), w.Dim(0)/2
		gate := []device.Tensor{y[0].Reshape(2*rows, half).Rows(0, rows), y[1].Reshape(2*rows, half).Rows(0, rows)}
		devtest.NormSwiGLU(o, gate, x, n, []device.Tensor{w.Rows(0, half), w.Rows(half, 2*half)}, z)
	}},
	{"down", 4096, 14336, addProduct},
	{"head", 128256, 4096, normProduct},
	{"qwen2.5-qkv", 4608, 3584, normProduct},
	{"qwen2.5-down", 3584, 18944, addProduct},
}

func normProduct(o device.Queue, y [2]device.Tensor, x, z, w device.Tensor, n devtest.Norm) {
	devtest.NormProducts(o, y[:1], x, n, []device.Tensor{w}, z)
}

func addProduct(o device.Queue, y [2]device.Tensor, x, _, w device.Tensor, _ devtest.Norm) {
	devtest.AddProduct(o, y[0], x, w, y[1])
}

// benchTypes are the types that products of a decode step are measured with.
var benchTypes = []device.DType{device.F16, device.BF16, device.Q8_0, device.Q4_0, device.Q4_K, device.Q5_K, device.Q6_K}

// BenchmarkGEMV is products of one row.
func BenchmarkGEMV(b *testing.B) { benchmarkProducts(b, 1) }

// BenchmarkSkinnyGEMM is products of a decode batch.
func BenchmarkSkinnyGEMM(b *testing.B) { benchmarkProducts(b, 2, 4, 8, 16, 32, 63, 64) }

func benchmarkProducts(b *testing.B, rows ...int) {
	d := openBench(b)
	copied := copyRate(b, d)
	for _, dt := range benchTypes {
		for _, s := range benchProducts {
			b.Run(fmt.Sprintf("type=%v/%s", dt, s.name), func(b *testing.B) {
				free, err := d.Scope(func() error {
					size, norm := s.n*dt.RowSize(s.k), benchAlloc(b, d, device.F32, s.k)
					w := benchMatrices(b, d, dt, s.n, s.k, max(benchBytes/2/size, 2))
					for _, r := range rows {
						x, z := benchAlloc(b, d, device.F32, r, s.k), benchAlloc(b, d, device.F32, r, s.k)
						y := [2]device.Tensor{benchAlloc(b, d, device.F32, r, s.n), benchAlloc(b, d, device.F32, r, s.n)}
						d.Write(x, normal(rand.New(rand.NewPCG(1, 2)), r*s.k))
						b.Run(fmt.Sprintf("rows=%d", r), func(b *testing.B) {
							seconds := measure(b, d, func() {
								for _, w := range w {
									s.product(d.ops, y, x, z, w, devtest.Norm{W: norm, Eps: 1e-5})
								}
							})
							reportRate(b, float64(size), seconds/float64(len(w)), copied)
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

// benchMatrices is copies of a random matrix whose rows repeat.
func benchMatrices(b *testing.B, d *dev, dt device.DType, n, k, copies int) []device.Tensor {
	const some = 64
	raw := randomMatrix(rand.New(rand.NewPCG(3, 4)), dt, some, k)
	all := make([]device.Tensor, copies)
	for i := range all {
		w := benchAlloc(b, d, dt, n, k)
		d.Write(w.Rows(0, some), raw)
		for have := some; have < n; have *= 2 {
			more := min(have, n-have)
			device.Do(d.ops, device.Copy{Dst: w.Rows(have, have+more), Src: w.Rows(0, more)})
		}
		w.Memory().(*memory).constant = true
		all[i] = w
	}
	return all
}

// BenchmarkAttend is attention of a decode step over several layers of a cache: 32
// heads of 128 numbers with 8 kv heads.
func BenchmarkAttend(b *testing.B) {
	d := openBench(b)
	copied := copyRate(b, d)
	const heads, kvHeads, dim = 32, 8, 128
	for _, n := range []int{512, 4096, 32768, 131072} {
		layers := max(2, benchBytes/(4*n*kvHeads*dim))
		layers = min(layers, 64)
		pages := n / device.PageLen
		plan := func(name string, read int, p func() device.Plan) {
			b.Run(fmt.Sprintf("plan=%s/len=%d", name, n), func(b *testing.B) {
				free, err := d.Scope(func() error {
					rng := rand.New(rand.NewPCG(5, 6))
					q, y := benchAlloc(b, d, device.F32, 1, heads, dim), benchAlloc(b, d, device.F32, 1, heads, dim)
					d.Write(q, normal(rng, heads*dim))
					kv := device.KV{
						K: benchAlloc(b, d, device.F16, layers*pages, kvHeads, device.PageLen, dim), V: benchAlloc(b, d, device.F16, layers*pages, kvHeads, device.PageLen, dim),
						Len: benchAlloc(b, d, device.I32, 1), Short: n <= device.ShortLen,
					}
					d.Write(kv.Len, words(n))
					some := randomMatrix(rng, device.F16, pages, kvHeads*device.PageLen*dim)
					for l := range layers {
						d.Write(kv.K.Rows(l*pages, (l+1)*pages), some)
						d.Write(kv.V.Rows(l*pages, (l+1)*pages), some)
					}
					tables := make([]device.Tensor, layers)
					for l := range tables {
						tables[l] = benchAlloc(b, d, device.I32, 1, pages)
						at := rng.Perm(pages)
						for i := range at {
							at[i] += l * pages
						}
						d.Write(tables[l], words(at...))
					}
					at := p()
					seconds := measure(b, d, func() {
						for l := range layers {
							kv.Pages = tables[l]
							device.Do(d.ops, device.Attend{Dst: y, Q: q, KV: kv, Plan: at})
						}
					})
					reportRate(b, float64(4*read*kvHeads*dim), seconds/float64(layers), copied)
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
		list := func(selected device.Selection, count, of, heads int) func() device.Plan {
			return func() device.Plan {
				l := device.List{Index: benchAlloc(b, d, device.I32, 1, heads, count), Count: benchAlloc(b, d, device.I32, 1, heads)}
				var index, counts []int
				for range heads {
					for i := range count {
						index = append(index, i*of/count)
					}
					counts = append(counts, count)
				}
				d.Write(l.Index, words(index...))
				d.Write(l.Count, words(counts...))
				return device.Plan{Selected: selected, Recent: 1, List: l}
			}
		}
		plan("dense", n, func() device.Plan { return device.Plan{} })
		plan("blocks-10%", n/10, list(device.Blocks, pages/10, pages-1, 1))
		plan("tokens-1k", 1000, list(device.Tokens, min(1000, n-1), n-1, kvHeads))
		plan("tokens-128-each-head", 128*heads/kvHeads, list(device.Tokens, 128, n-1, heads))
	}
}

// words is numbers as i32.
func words(v ...int) []byte {
	raw := make([]byte, 0, 4*len(v))
	for _, n := range v {
		raw = append(raw, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	return raw
}

// BenchmarkSample samples a token of 128,256; bytes are the logits.
func BenchmarkSample(b *testing.B) {
	d := openBench(b)
	copied := copyRate(b, d)
	const vocab, times = 128256, 20
	rng := rand.New(rand.NewPCG(7, 9))
	next, history, pos := benchAlloc(b, d, device.I32, 1), benchAlloc(b, d, device.I32, 1, 64), benchAlloc(b, d, device.I32, 1)
	logits := benchAlloc(b, d, device.F32, 1, vocab)
	for _, spread := range []float64{1, 4} {
		x := make([]byte, 0, 4*vocab)
		for range vocab {
			x = binary.LittleEndian.AppendUint32(x, math.Float32bits(float32(spread*rng.NormFloat64())))
		}
		d.Write(logits, x)
		for _, s := range []sampling.Params{
			{}, {Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05}, {Temperature: 0.8, TopP: 0.95}, {Temperature: 0.8, MinP: 0.05}, {Temperature: 0.8},
			{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.1, RepeatLastN: 64},
		} {
			b.Run(fmt.Sprintf("spread=%v/temp=%v/topk=%d/topp=%v/minp=%v/last=%d", spread, s.Temperature, s.TopK, s.TopP, s.MinP, s.RepeatLastN), func(b *testing.B) {
				seconds := measure(b, d, func() {
					for range times {
						device.Do(d.ops, device.SampleTokens{Next: next, Logits: logits, History: history, Pos: pos, Params: []sampling.Params{s}})
					}
				})
				reportRate(b, 4*vocab, seconds/times, copied)
			})
		}
	}
}
