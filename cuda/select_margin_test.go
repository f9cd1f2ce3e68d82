//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

// anchorBound is the error of the largest scores on tensor cores, whose queries have 22 bits.
const anchorBound = 1e-5

// TestAnchorMMA compares AnchorMax and WithinMargin on tensor cores with the kernels for any shape.
func TestAnchorMMA(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	const block, group = 16, 128
	for _, s := range [][5]int{{128, 64, 640, 4, 2}, {100, 64, 700, 2, 2}, {128, 128, 512, 6, 1}, {90, 128, 600, 1, 1}} {
		rows, dim, n, heads, kvHeads := s[0], s[1], s[2], s[3], s[4]
		rng := rand.New(rand.NewPCG(11, 12))
		q := alloc(t, d, device.F32, rows, heads, dim)
		d.Write(q, normal(rng, rows*heads*dim))
		kv := filledCache(t, d, rng, n, kvHeads, dim)
		for name, p := range map[string]device.Plan{
			"align": {Selected: device.Tokens, Sink: block, Recent: block, Align: group},
			"sinks": {Selected: device.Tokens, Sink: 5},
			"span":  {Selected: device.Tokens, Sink: 5, Recent: 40, Span: device.Span{Back: 300}},
			"drop":  {Selected: device.Tokens, Sink: 5, Recent: 100, Span: device.Span{Drop: 0.3, Sink: 3, Recent: 20}},
		} {
			t.Run(fmt.Sprintf("%s/rows=%d/dim=%d/len=%d/heads=%d", name, rows, dim, n, heads), func(t *testing.T) {
				got, want := alloc(t, d, device.F32, rows, heads), alloc(t, d, device.F32, rows, heads)
				device.Do(d.ops, device.Score{Rule: device.AnchorMax, Dst: got, Q: q, KV: kv, Plan: p})
				d.ops.anchorMaxAny(&device.Score{Dst: want, Q: q, KV: kv, Plan: p})
				compare(t, read(t, d, got), read(t, d, want), anchorBound)
				d.ops.anchorMaxMMA(&device.Score{Dst: got, Q: q, KV: kv, Plan: p})
				compare(t, read(t, d, got), read(t, d, want), anchorBound)

				blocks := device.BlocksOf(n-rows, rows, block)
				mean, top := alloc(t, d, device.F32, blocks, heads, dim), alloc(t, d, device.F32, blocks, heads)
				device.Do(d.ops, device.Summarize{Rule: device.MeanRows, Dst: mean, X: q, KV: kv, Block: block})
				device.Do(d.ops, device.Summarize{Rule: device.MeanRows, Dst: top, X: want, KV: kv, Block: block})
				lists := make([][]float32, 2)
				for i, kernel := range []string{marginKernels[dim], ""} {
					groups := device.BlocksOf(n-rows, rows, group)
					l := device.List{
						Index: alloc(t, d, device.I32, groups, heads, n), Count: alloc(t, d, device.I32, groups, heads),
						Weight: alloc(t, d, device.F32, groups, heads, n), Group: group,
					}
					d.ops.withinMarginBy(kernel, &device.Select{List: l, Q: mean, Scores: top, KV: kv, Plan: p, Rows: rows, Block: block, Below: 2.2, Twice: 70})
					lists[i] = slices.Concat(read(t, d, l.Count), read(t, d, l.Index), read(t, d, l.Weight))
				}
				if !slices.Equal(lists[0], lists[1]) {
					t.Error("the lists differ")
				}
			})
		}
	}
}
