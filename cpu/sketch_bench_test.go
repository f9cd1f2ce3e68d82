package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// BenchmarkBlocks times what choosing blocks costs a decode step, in one layer
// of 32 heads of 64.
func BenchmarkBlocks(b *testing.B) {
	const heads, dim = 32, 64
	for _, n := range []int{8 << 10, 32 << 10, 64 << 10} {
		d := open(2, vec.Best())
		blocks := n / device.PageLen
		alloc := func(dt device.DType, dims ...int) device.Tensor {
			t, err := d.Alloc(dt, dims...)
			if err != nil {
				b.Fatal(err)
			}
			if dt == device.F32 {
				for i := range f32s(t) {
					f32s(t)[i] = float32(rand.NormFloat64())
				}
			}
			return t
		}
		kv := device.KV{K: alloc(device.F32, blocks, 1, device.PageLen, 1), Pages: alloc(device.I32, 1, blocks), Len: alloc(device.I32, 1)}
		kv.V = kv.K
		for i := range blocks {
			i32s(kv.Pages)[i] = int32(i)
		}
		i32s(kv.Len)[0] = int32(n)
		at := device.Newest{KV: kv, N: 1}
		q, sum, sketch, basis := alloc(device.F32, 1, heads, dim), alloc(device.F32, blocks, 1, dim), alloc(device.F32, blocks, 1, dim), alloc(device.F32, dim, dim)
		pairs, rows := alloc(device.F32, blocks, blocks), alloc(device.F32, 2, blocks)
		for i := range blocks {
			i32s(kv.Len)[0] = int32((i + 1) * device.PageLen)
			d.ops.CompareBlocks(pairs, sketch, sketch, at, device.Compare{Log: true})
		}
		l := device.List{Index: alloc(device.I32, 1, 1, blocks), Count: alloc(device.I32, 1, 1)}
		ops := map[string]func(){
			"sum":     func() { d.ops.BlockSum(sum, q, kv) },
			"sketch":  func() { d.ops.SketchMeans(sketch, sum, basis, at) },
			"compare": func() { d.ops.CompareBlocks(pairs, sketch, sketch, at, device.Compare{Log: true}) },
			"walk":    func() { d.ops.Walk(rows.Rows(1, 2), rows.Rows(0, 1), pairs, at, 8) },
			"top":     func() { d.ops.TopBlocks(l, rows, at, device.Pick{Share: .1}) },
		}
		for name, op := range ops {
			b.Run(fmt.Sprintf("op=%s/positions=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				least := time.Hour
				for b.Loop() {
					begin := time.Now()
					op()
					least = min(least, time.Since(begin))
				}
				b.ReportMetric(float64(least.Microseconds()), "least-us")
			})
		}
		if err := d.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}
