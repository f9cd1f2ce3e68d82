package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// walkOps are the calls that select blocks in a decode step of Sketch&Walk: one layer of 32
// heads of 64, behind n positions.
func walkOps(t testing.TB, n int) map[string]func() {
	const heads, dim = 32, 64
	d := open(2, vec.Best())
	t.Cleanup(func() {
		if err := d.Sync(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	alloc := func(dt device.DType, dims ...int) device.Tensor {
		x, err := d.Alloc(dt, dims...)
		if err != nil {
			t.Fatal(err)
		}
		if dt == device.F32 {
			for i := range f32s(x) {
				f32s(x)[i] = float32(rand.NormFloat64())
			}
		}
		return x
	}
	blocks := (n + device.PageLen - 1) / device.PageLen
	kv := device.KV{K: alloc(device.F32, blocks, 1, device.PageLen, 1), Pages: alloc(device.I32, 1, blocks), Len: alloc(device.I32, 1)}
	kv.V = kv.K
	for i := range blocks {
		i32s(kv.Pages)[i] = int32(i)
	}
	q, basis := alloc(device.F32, 1, heads, dim), alloc(device.F32, dim, dim)
	sum, sketch := alloc(device.F32, blocks, 1, dim), alloc(device.F32, blocks, 1, dim)
	pairs, rows := alloc(device.F32, blocks, blocks), alloc(device.F32, 2, blocks)
	list := device.List{Index: alloc(device.I32, 1, 1, blocks), Count: alloc(device.I32, 1, 1)}
	compare := func() {
		device.Do(d.ops, device.Score{Rule: device.SketchScores, Dst: pairs, Q: sketch, Keys: sketch, KV: kv, Rows: 1, Product: device.SketchProduct{Log: true}})
	}
	for i := range blocks {
		i32s(kv.Len)[0] = int32(min(n, (i+1)*device.PageLen))
		compare()
	}
	return map[string]func(){
		"sum": func() { device.Do(d.ops, device.Summarize{Rule: device.SumBlocks, Dst: sum, X: q, KV: kv}) },
		"means": func() {
			device.Do(d.ops, device.Summarize{Rule: device.ProjectMeans, Dst: sketch, X: sum, Basis: basis, KV: kv, Rows: 1})
		},
		"row": func() {
			device.Do(d.ops, device.Summarize{Rule: device.ProjectRows, Dst: sketch, X: q, Basis: basis, KV: kv})
		},
		"compare": compare,
		"walk": func() {
			device.Do(d.ops, device.Walk{Dst: rows.Rows(1, 2), Src: rows.Rows(0, 1), Pairs: pairs, KV: kv, Rows: 1, Exponent: 8})
		},
		"top": func() {
			device.Do(d.ops, device.Select{Rule: device.TopBlocks, List: list, Scores: rows, KV: kv, Rows: 1, Blocks: device.BlockBudget{Share: .1}})
		},
	}
}

func TestBlocksDoNotAllocate(t *testing.T) {
	for name, op := range walkOps(t, 20*device.PageLen+3) {
		if n := testing.AllocsPerRun(20, op); n > 0 {
			t.Errorf("%s allocates %v times a call", name, n)
		}
	}
}

// BenchmarkBlocks reports the minimum time of each call, because other programs only add to it.
func BenchmarkBlocks(b *testing.B) {
	for _, n := range []int{8 << 10, 32 << 10, 64 << 10} {
		for name, op := range walkOps(b, n) {
			b.Run(fmt.Sprintf("op=%s/positions=%d", name, n), func(b *testing.B) {
				fastest := time.Hour
				for b.Loop() {
					begin := time.Now()
					op()
					fastest = min(fastest, time.Since(begin))
				}
				b.ReportMetric(float64(fastest.Nanoseconds())/1000, "min-us")
			})
		}
	}
}
