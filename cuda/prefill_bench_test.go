//go:build cuda && !cudaemu

package cuda

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// The benchmarks of prefill have the shapes of Llama-3.1-8B and report TFLOP/s, or layers per
// second for selection. They need a GPU:
//
//	go test -tags cuda -run '^$' -bench 'Product|Prefill' -benchtime 5x ./cuda
const (
	benchHeads   = 32
	benchKVHeads = 8
	benchDim     = 128
	benchChunk   = 2048
)

// filled is a tensor whose bytes repeat those of random numbers.
func filled(b *testing.B, d *dev, dt device.DType, dims ...int) device.Tensor {
	b.Helper()
	x, err := d.Alloc(dt, dims...)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	width := dims[len(dims)-1]
	rows := min(x.Len()/width, max(1, (4<<20)/dt.RowSize(width)))
	var some []byte
	if dt == device.F32 || dt == device.I32 { // any bits
		some = normal(rng, rows*width)
	} else {
		some = randomMatrix(rng, dt, rows, width)
	}
	flat := x.Reshape(x.Len()/width, width)
	for r := 0; r < flat.Dim(0); r += rows {
		n := min(rows, flat.Dim(0)-r)
		d.Write(flat.Rows(r, r+n), some[:n*dt.RowSize(width)])
	}
	return x
}

// perSecond runs f b.N times after a warm-up, and reports worth per second, of one run.
func perSecond(b *testing.B, d *dev, worth float64, unit string, f func()) {
	b.Helper()
	f()
	if err := d.Sync(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		f()
	}
	if err := d.Sync(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(worth*float64(b.N)/b.Elapsed().Seconds(), unit)
}

// BenchmarkProduct is the GEMMs of a layer, and a large one with f16 weights. library=false is
// our own kernels.
func BenchmarkProduct(b *testing.B) {
	d := openBench(b)
	type shape struct {
		name    string
		dt      device.DType
		rows, n int
		k       int
	}
	shapes := []shape{{"square", device.F16, 8192, 8192, 8192}}
	for _, rows := range []int{2048, 8192} {
		for _, dt := range []device.DType{device.F16, device.Q8_0, device.Q4_K} {
			shapes = append(shapes, shape{"q", dt, rows, 4096, 4096}, shape{"k", dt, rows, 1024, 4096}, shape{"gate", dt, rows, 14336, 4096}, shape{"down", dt, rows, 4096, 14336})
		}
	}
	has := d.drv.hasLibrary()
	for _, s := range shapes {
		free, err := d.Scope(func() error {
			x, w, y := filled(b, d, device.F32, s.rows, s.k), filled(b, d, s.dt, s.n, s.k), filled(b, d, device.F32, s.rows, s.n)
			for _, library := range []bool{true, false} {
				if library && !has {
					continue
				}
				b.Run(fmt.Sprintf("%s/%v/rows=%d/library=%v", s.name, s.dt, s.rows, library), func(b *testing.B) {
					d.drv.library.off = !library
					defer func() { d.drv.library.off = false }()
					perSecond(b, d, 2e-12*float64(s.rows)*float64(s.n)*float64(s.k), "TFLOP/s", func() { device.Do(d.ops, device.MatMul{Dst: y, X: x, W: w}) })
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

// layerBed is a cache of one layer and a chunk of queries.
type layerBed struct {
	d    *dev
	kv   device.KV
	q, k device.Tensor // f32 [chunk, heads, dim], [chunk, kvheads, dim]
	y    device.Tensor
	n    int
}

func newLayerBed(b *testing.B, d *dev, n, chunk int) *layerBed {
	b.Helper()
	pages := n / device.PageLen
	l := &layerBed{
		d: d, n: n,
		kv: device.KV{
			K: filled(b, d, device.F16, pages, benchKVHeads, device.PageLen, benchDim), V: filled(b, d, device.F16, pages, benchKVHeads, device.PageLen, benchDim),
			Pages: filled(b, d, device.I32, 1, pages), Len: filled(b, d, device.I32, 1),
		},
		q: filled(b, d, device.F32, chunk, benchHeads, benchDim),
		k: filled(b, d, device.F32, chunk, benchKVHeads, benchDim),
		y: filled(b, d, device.F32, chunk, benchHeads, benchDim),
	}
	var table []byte
	for _, p := range rand.New(rand.NewPCG(3, 4)).Perm(pages) {
		table = binary.LittleEndian.AppendUint32(table, uint32(p))
	}
	d.Write(l.kv.Pages, table)
	for end := chunk; end <= n; end += chunk {
		l.at(end)
		device.Do(d.ops, device.Append{KV: l.kv, K: l.k, V: l.k})
	}
	return l
}

// at makes the chunk of queries the last before end.
func (l *layerBed) at(end int) {
	l.d.Write(l.kv.Len, binary.LittleEndian.AppendUint32(nil, uint32(end)))
}

// prefill runs f for each chunk of the sequence.
func (l *layerBed) prefill(f func(end int)) {
	chunk := l.q.Dim(0)
	for end := chunk; end <= l.n; end += chunk {
		l.at(end)
		f(end)
	}
}

// work is the TFLOP of dense causal attention over the sequence.
func (l *layerBed) work() float64 {
	n := float64(l.n)
	return 4e-12 * benchHeads * benchDim * n * (n + 1) / 2
}

// BenchmarkPrefillDense is dense attention of a layer: a prompt at once, and in
// chunks as the engine has them.
func BenchmarkPrefillDense(b *testing.B) {
	d := openBench(b)
	for _, s := range []struct{ n, chunk int }{{8 << 10, 8 << 10}, {32 << 10, 32 << 10}, {32 << 10, benchChunk}, {128 << 10, benchChunk}} {
		free, err := d.Scope(func() error {
			l := newLayerBed(b, d, s.n, s.chunk)
			b.Run(fmt.Sprintf("n=%dk/chunk=%dk", s.n>>10, s.chunk>>10), func(b *testing.B) {
				perSecond(b, d, l.work(), "TFLOP/s", func() {
					l.prefill(func(int) { device.Do(d.ops, device.Attend{Dst: l.y, Q: l.q, KV: l.kv, Plan: device.Plan{}}) })
				})
			})
			return nil
		})
		if err == nil {
			err = free()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPrefillSketch is sketchwalk:paper-90 in a layer at 128k: selection, and with
// attention; dense is dense attention of such a layer.
func BenchmarkPrefillSketch(b *testing.B) {
	d := openBench(b)
	const n, width = 128 << 10, 64
	l := newLayerBed(b, d, n, benchChunk)
	pages, rows := n/device.PageLen, benchChunk/device.PageLen+2
	f := func(dims ...int) device.Tensor { return filled(b, d, device.F32, dims...) }
	keys, queries, basis := f(pages, 1, benchDim), f(pages, 1, benchDim), f(width, benchDim)
	keySketch, querySketch, pairs := f(pages, 1, width), f(pages, 1, width), f(pages, pages)
	walk := f(rows, pages)
	list := device.List{Index: filled(b, d, device.I32, rows, 1, pages), Count: filled(b, d, device.I32, rows, 1), Group: device.PageLen}
	selects := func(int) {
		device.Do(d.ops, device.Summarize{Rule: device.SumBlocks, Dst: keys, X: l.k, KV: l.kv})
		device.Do(d.ops, device.Summarize{Rule: device.SumBlocks, Dst: queries, X: l.q, KV: l.kv})
		device.Do(d.ops, device.Summarize{Rule: device.ProjectMeans, Dst: keySketch, X: keys, Basis: basis, KV: l.kv, Rows: benchChunk})
		device.Do(d.ops, device.Summarize{Rule: device.ProjectMeans, Dst: querySketch, X: queries, Basis: basis, KV: l.kv, Rows: benchChunk})
		device.Do(d.ops, device.Score{Rule: device.SketchScores, Dst: pairs, Q: querySketch, Keys: keySketch, KV: l.kv, Rows: benchChunk, Product: device.SketchProduct{Log: true}})
		device.Do(d.ops, device.Walk{Dst: walk, Src: walk, Pairs: pairs, KV: l.kv, Rows: benchChunk, Exponent: 8})
		device.Do(d.ops, device.Select{Rule: device.TopBlocks, List: list, Scores: walk, KV: l.kv, Rows: benchChunk, Blocks: device.BlockBudget{Share: 0.1}})
	}
	plan := device.Plan{Selected: device.Blocks, List: list}
	l.prefill(selects)
	b.Run("select", func(b *testing.B) { perSecond(b, d, 1, "layer/s", func() { l.prefill(selects) }) })
	b.Run("both", func(b *testing.B) {
		perSecond(b, d, 1, "layer/s", func() {
			l.prefill(func(end int) {
				selects(end)
				device.Do(d.ops, device.Attend{Dst: l.y, Q: l.q, KV: l.kv, Plan: plan})
			})
		})
	})
	b.Run("dense", func(b *testing.B) {
		perSecond(b, d, 1, "layer/s", func() {
			l.prefill(func(int) { device.Do(d.ops, device.Attend{Dst: l.y, Q: l.q, KV: l.kv, Plan: device.Plan{}}) })
		})
	})
}

// BenchmarkPrefillAnchor is anchor in a layer at 128k, with a threshold by which the
// last chunk selects 11 % of the past between sinks and window.
func BenchmarkPrefillAnchor(b *testing.B) {
	d := openBench(b)
	const n, block = 128 << 10, 128
	l := newLayerBed(b, d, n, benchChunk)
	blocks := benchChunk/block + 1
	f := func(dims ...int) device.Tensor { return filled(b, d, device.F32, dims...) }
	top, meanTop, mean := f(benchChunk, benchHeads), f(blocks, benchHeads), f(blocks, benchHeads, benchDim)
	list := device.List{Index: filled(b, d, device.I32, 1, benchHeads, n), Count: filled(b, d, device.I32, 1, benchHeads), Group: benchChunk}
	plan := device.Plan{Sink: block, Recent: block, Align: benchChunk, Selected: device.Tokens, List: list}
	below := float32(0) // the margin
	selects := func(end int) {
		if end == benchChunk {
			return
		}
		device.Do(d.ops, device.Score{Rule: device.AnchorMax, Dst: top, Q: l.q, KV: l.kv, Plan: plan})
		device.Do(d.ops, device.Summarize{Rule: device.MeanRows, Dst: meanTop, X: top, KV: l.kv, Block: block})
		device.Do(d.ops, device.Summarize{Rule: device.MeanRows, Dst: mean, X: l.q, KV: l.kv, Block: block})
		device.Do(d.ops, device.Select{Rule: device.WithinMargin, List: list, Q: mean, Scores: meanTop, KV: l.kv, Plan: plan, Rows: benchChunk, Block: block, Below: below})
	}
	attend := func(end int) {
		p := plan
		if end == benchChunk {
			p = device.Plan{}
		}
		device.Do(d.ops, device.Attend{Dst: l.y, Q: l.q, KV: l.kv, Plan: p})
	}
	selected := 0.0
	l.at(n)
	for lo, hi, i := float32(0), float32(16), 0; i < 16; i++ {
		below = (lo + hi) / 2
		selects(n)
		raw := make([]byte, list.Count.Size())
		if err := d.Read(raw, list.Count); err != nil {
			b.Fatal(err)
		}
		sum := 0
		for h := range benchHeads {
			sum += int(binary.LittleEndian.Uint32(raw[4*h:]))
		}
		if selected = float64(sum) / benchHeads / n; selected > 0.11 {
			hi = below
		} else {
			lo = below
		}
	}
	l.prefill(selects)
	b.Run("select", func(b *testing.B) { perSecond(b, d, 1, "layer/s", func() { l.prefill(selects) }) })
	b.Run("anchor", func(b *testing.B) {
		perSecond(b, d, 1, "layer/s", func() {
			l.prefill(func(int) {
				device.Do(d.ops, device.Score{Rule: device.AnchorMax, Dst: top, Q: l.q, KV: l.kv, Plan: plan})
			})
		})
	})
	b.Run("both", func(b *testing.B) {
		perSecond(b, d, 1, "layer/s", func() {
			l.prefill(func(end int) {
				selects(end)
				attend(end)
			})
		})
		b.ReportMetric(100*selected, "%selected")
	})
}
