package devtest

import (
	"fmt"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
)

// Bench measures a backend. Every case reports what limits it: GB/s of what must
// be read from memory at least once, or GFLOP/s.
func Bench(b *testing.B, open func(b *testing.B) device.Device) {
	d := open(b)
	defer d.Close()
	for _, c := range benchCases() {
		b.Run(c.name, func(b *testing.B) { c.run(&benchBed{b: b, d: d}) })
	}
}

type benchCase struct {
	name string
	run  func(b *benchBed)
}

func benchCases() []benchCase {
	var cases []benchCase
	for _, shape := range []attention{{heads: 32, kvHeads: 8, dim: 128}, {heads: 32, kvHeads: 8, dim: 64}, {heads: 8, kvHeads: 8, dim: 128}} {
		for _, n := range []int{128, 2048, 8192} {
			for _, rows := range []int{1, 512} {
				if rows > n {
					continue
				}
				a := shape
				a.lens, a.rows = []int{n}, rows
				name := fmt.Sprintf("op=Attend/plan=dense/heads=%d/kvheads=%d/dim=%d/rows=%d/len=%d", a.heads, a.kvHeads, a.dim, rows, n)
				cases = append(cases, benchCase{name, func(b *benchBed) { b.attend(a, device.Plan{}) }})
			}
		}
	}
	stream := device.Plan{Selected: device.None, Sink: page, Recent: 960}
	a := attention{heads: 32, kvHeads: 8, dim: 128, lens: []int{8192}, rows: 1}
	cases = append(cases, benchCase{"op=Attend/plan=stream/rows=1/len=8192/read=1024", func(b *benchBed) { b.attend(a, stream) }})
	for _, l := range []struct {
		name   string
		middle device.Selection
		unit   int
	}{{"blocks", device.Blocks, page}, {"tokens", device.Tokens, 1}} {
		name := fmt.Sprintf("op=Attend/plan=%s/rows=1/len=8192/read=1024", l.name)
		cases = append(cases, benchCase{name, func(b *benchBed) {
			b.attend(a, device.Plan{Selected: l.middle, List: b.list(1024/l.unit, 8)})
		}})
	}
	for _, rows := range []int{1, 512} {
		at := fmt.Sprintf("/rows=%d", rows)
		cases = append(cases,
			benchCase{"op=RMSNorm" + at + "/dim=4096", func(b *benchBed) { b.rmsNorm(rows, 4096) }},
			benchCase{"op=SwiGLU" + at + "/dim=14336", func(b *benchBed) { b.swiGLU(rows, 14336) }},
			benchCase{"op=Rope" + at + "/heads=40/dim=128", func(b *benchBed) { b.rope(rows, 40, 128) }},
			benchCase{"op=Append" + at + "/kvheads=8/dim=128", func(b *benchBed) { b.append(rows) }})
	}
	for _, s := range []sampling.Params{{}, {Temperature: 0.8, TopK: 40, TopP: 0.95}, {Temperature: 0.8, TopP: 0.95}, {Temperature: 1}} {
		name := fmt.Sprintf("op=SampleTokens/vocab=128256/temp=%v/topk=%d/topp=%v", s.Temperature, s.TopK, s.TopP)
		cases = append(cases, benchCase{name, func(b *benchBed) { b.sample(128256, s) }})
	}
	return cases
}

// benchBed is a device and a benchmark.
type benchBed struct {
	b *testing.B
	d device.Device
}

// f32 is a tensor of small numbers, not all alike.
func (b *benchBed) f32(dims ...int) device.Tensor {
	x := make([]float32, size(dims))
	for i := range x {
		x[i] = float32(i*7919%1021)/511 - 1
	}
	return b.tensor(device.F32, encode(x), dims...)
}

func (b *benchBed) i32(x []int32, dims ...int) device.Tensor {
	return b.tensor(device.I32, encode(x), dims...)
}

func (b *benchBed) tensor(dt device.DType, raw []byte, dims ...int) device.Tensor {
	x, err := b.d.Alloc(dt, dims...)
	if err != nil {
		b.b.Fatalf("Alloc: %v", err)
	}
	b.d.Write(x, raw)
	return x
}

// count is 0, 1, 2 and so on.
func count(n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(i)
	}
	return x
}

// run measures step, which reads bytes from memory and computes flops.
func (b *benchBed) run(bytes, flops int, step func(ops device.Queue)) {
	step(b.d.Queue())
	if err := b.d.Sync(); err != nil {
		b.b.Fatalf("Sync: %v", err)
	}
	for b.b.Loop() {
		step(b.d.Queue())
		if err := b.d.Sync(); err != nil {
			b.b.Fatalf("Sync: %v", err)
		}
	}
	ns := float64(b.b.Elapsed().Nanoseconds()) / float64(b.b.N)
	if bytes > 0 {
		b.b.ReportMetric(float64(bytes)/ns, "GB/s")
	}
	if flops > 0 {
		b.b.ReportMetric(float64(flops)/ns, "GFLOP/s")
	}
}

// cache is a cache of one slot, in several copies so that it does not stay in
// the processor's own caches.
func (b *benchBed) cache(a attention, layers int) []device.KV {
	pages := (a.lens[0] + page - 1) / page
	bits, _ := halves([]float32{0.5, -1, 0.25, 2, -0.125})
	raw := make([]uint16, pages*a.kvHeads*page*a.dim)
	for i := range raw {
		raw[i] = bits[i*7919%1021%len(bits)]
	}
	all := make([]device.KV, layers)
	for i := range all {
		all[i] = device.KV{
			K:     b.tensor(device.F16, encode(raw), pages, a.kvHeads, page, a.dim),
			V:     b.tensor(device.F16, encode(raw), pages, a.kvHeads, page, a.dim),
			Pages: b.i32(count(pages), 1, pages), Len: b.i32([]int32{int32(a.lens[0])}, 1),
		}
	}
	return all
}

// attend measures attention over several layers in turn.
func (b *benchBed) attend(a attention, p device.Plan) {
	n, read := a.lens[0], a.lens[0]
	if p.Selected != device.All {
		read = 1024
	}
	bytes := 2 * 2 * read * a.kvHeads * a.dim // K and V
	layers := 1
	if a.rows == 1 {
		layers = min(max(1, 1<<29/(4*n*a.kvHeads*a.dim)), 32)
	}
	caches := b.cache(a, layers)
	q, dst := b.f32(a.rows, a.heads, a.dim), b.f32(a.rows, a.heads, a.dim)
	pairs := a.rows*(n-a.rows) + a.rows*(a.rows+1)/2
	flops := 4 * pairs * a.heads * a.dim
	if a.rows == 1 {
		flops = 0
	} else {
		bytes = 0
	}
	next := 0
	b.run(bytes, flops, func(ops device.Queue) {
		device.Do(ops, device.Attend{Dst: dst, Q: q, KV: caches[next], Plan: p})
		next = (next + 1) % layers
	})
}

// list is a list of n entries out of 8 times as many for each kv head.
func (b *benchBed) list(n, heads int) device.List {
	var index, counts []int32
	for range heads {
		for i := range n {
			index = append(index, int32(8*i+i*5%8))
		}
		counts = append(counts, int32(n))
	}
	return device.List{Index: b.i32(index, 1, heads, n), Count: b.i32(counts, 1, heads)}
}

func (b *benchBed) rmsNorm(rows, dim int) {
	x, y, w := b.f32(rows, dim), b.f32(rows, dim), b.f32(dim)
	b.run(8*rows*dim, 0, func(ops device.Queue) { device.Do(ops, device.RMSNorm{Dst: y, X: x, W: w, Eps: 1e-5}) })
}

func (b *benchBed) swiGLU(rows, dim int) {
	x, y, z := b.f32(rows, dim), b.f32(rows, dim), b.f32(rows, dim)
	b.run(12*rows*dim, 0, func(ops device.Queue) { device.Do(ops, device.SwiGLU{Dst: z, Gate: x, Up: y}) })
}

func (b *benchBed) rope(rows, heads, dim int) {
	x, pos := b.f32(rows, heads, dim), b.i32(count(rows), rows)
	r := device.Rotation{Freqs: b.f32(dim / 2), Scale: 1}
	b.run(8*rows*heads*dim, 0, func(ops device.Queue) { device.Do(ops, device.Rope{X: x, Pos: pos, Rotation: r}) })
}

func (b *benchBed) append(rows int) {
	a := attention{kvHeads: 8, dim: 128, lens: []int{rows}}
	kv, x := b.cache(a, 1)[0], b.f32(rows, 8, 128)
	b.run(2*6*rows*8*128, 0, func(ops device.Queue) { device.Do(ops, device.Append{KV: kv, K: x, V: x}) })
}

func (b *benchBed) sample(vocab int, s sampling.Params) {
	logits, next := b.f32(1, vocab), b.i32([]int32{0}, 1)
	history, pos := b.i32(count(64), 1, 64), b.i32([]int32{5}, 1)
	b.run(4*vocab, 0, func(ops device.Queue) {
		device.Do(ops, device.SampleTokens{Next: next, Logits: logits, History: history, Pos: pos, Params: []sampling.Params{s}})
	})
}
