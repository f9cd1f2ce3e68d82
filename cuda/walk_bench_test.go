//go:build cuda && !cudaemu

package cuda

import (
	"fmt"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

// walkLayer is what sketchwalk keeps of a layer.
type walkLayer struct {
	kv    device.KV
	state devtest.TailSketch
}

// BenchmarkWalk is sketchwalk:paper-90 in the steered layers of a decode step in
// Llama-3.1-8B's shapes: selection, attention, both, and dense attention, in microseconds
// of a layer in a graph of ten of them.
func BenchmarkWalk(b *testing.B) {
	d := openBench(b)
	const layers, width = 10, 64
	for _, n := range []int{32 << 10, 128 << 10} {
		free, err := d.Scope(func() error {
			pages := n / device.PageLen
			f := func(dims ...int) device.Tensor { return filled(b, d, device.F32, dims...) }
			table := device.Tensor{}
			all := make([]walkLayer, layers)
			basis, q, k, y := f(width, benchDim), f(1, benchHeads, benchDim), f(1, benchKVHeads, benchDim), f(1, benchHeads, benchDim)
			basis.Memory().(*memory).constant = true
			length := benchAlloc(b, d, device.I32, 1)
			d.Write(length, words(n-5))
			for i := range all {
				kv := device.KV{
					K: filled(b, d, device.F16, pages, benchKVHeads, device.PageLen, benchDim), V: filled(b, d, device.F16, pages, benchKVHeads, device.PageLen, benchDim),
					Len: length,
				}
				if table.Absent() {
					table = benchAlloc(b, d, device.I32, 1, pages)
					order := make([]int, pages)
					for j := range order {
						order[j] = (j*97 + 31) % pages
					}
					d.Write(table, words(order...))
				}
				kv.Pages = table
				all[i] = walkLayer{kv, devtest.TailSketch{
					Keys: f(pages, 1, benchDim), Queries: f(pages, 1, benchDim), KeySketch: f(pages, 1, width), QuerySketch: f(pages, 1, width),
					Basis: basis, Pairs: f(pages, pages), Compare: device.SketchProduct{Log: true},
				}}
			}
			walk := [2]device.Tensor{f(1, pages), f(1, pages)}
			list := device.List{Index: benchAlloc(b, d, device.I32, 1, 1, pages), Count: benchAlloc(b, d, device.I32, 1, 1), Group: device.PageLen}
			look := func(i int) { devtest.SketchTail(d.ops, all[i].state, q, k, all[i].kv) }
			pick := func(i int) {
				devtest.WalkTop(d.ops, device.Walk{Dst: walk[i%2], Src: walk[1-i%2], Pairs: all[i].state.Pairs, KV: all[i].kv, Rows: 1, Exponent: 8}, list, device.BlockBudget{Share: 0.1})
			}
			selects := func(i int) {
				look(i)
				devtest.WalkTop(d.ops, device.Walk{Dst: walk[i%2], Src: walk[1-i%2], Pairs: all[i].state.Pairs, KV: all[i].kv, Rows: 1, Exponent: 8}, list, device.BlockBudget{Share: 0.1})
			}
			read := func(i int) {
				device.Do(d.ops, device.Attend{Dst: y, Q: q, KV: all[i].kv, Plan: device.Plan{Selected: device.Blocks, List: list}})
			}
			dense := func(i int) { device.Do(d.ops, device.Attend{Dst: y, Q: q, KV: all[i].kv, Plan: device.Plan{}}) }
			for _, c := range []struct {
				name string
				f    []func(i int)
			}{
				{"look", []func(int){look}}, {"pick", []func(int){pick}}, {"select", []func(int){selects}}, {"attend", []func(int){read}},
				{"both", []func(int){selects, read}}, {"dense", []func(int){dense}},
			} {
				b.Run(fmt.Sprintf("%s/len=%d", c.name, n), func(b *testing.B) {
					seconds := measure(b, d, func() {
						for i := range layers {
							for _, f := range c.f {
								f(i)
							}
						}
					})
					for b.Loop() { // measured with the device's own repetition
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(seconds/layers*1e6, "us")
				})
			}
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
