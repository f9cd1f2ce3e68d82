//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// anchorKernels are the kernels of AnchorMax on tensor cores by head dimension, as flashKernels.
var anchorKernels = map[int]struct{ mma, wgmma string }{
	64:  {"anchor_max_64", "anchor_max_wgmma_64"},
	128: {"anchor_max_128", "anchor_max_wgmma_128"},
}

// suitsAnchor reports whether kernels on tensor cores take AnchorMax and WithinMargin of so many
// rows.
func suitsAnchor(rows int, kv device.KV) bool {
	return rows >= gemmRows && kv.Len.Dim(0) == 1 && kv.K.DType == device.F16
}

// anchorMax is the largest score of each row over the plan's sinks and window.
func (o *ops) anchorMax(c *device.Score) {
	rows, heads, p := c.Q.Dim(0), c.Q.Dim(1), &c.Plan
	names, ok := anchorKernels[c.Q.Dim(2)]
	switch {
	case !ok || !suitsAnchor(rows, c.KV):
		o.anchorMaxAny(c)
	case o.d.drv.hasWGMMA():
		fixed := device.Plan{Span: p.Span, Sink: p.Sink, Recent: p.Recent, Align: p.Align, Selected: device.None}
		o.wgmma(names.wgmma, &device.Attend{Dst: c.Dst, Q: c.Q, KV: c.KV, Plan: fixed}, heads/c.KV.K.Dim(1)%2 == 0, 2)
	default:
		o.anchorMaxMMA(c)
	}
}

// anchorMaxMMA is anchorMax by mma.sync.
func (o *ops) anchorMaxMMA(c *device.Score) {
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	o.launch(anchorKernels[c.Q.Dim(2)].mma).tensor(c.Dst).tensor(c.Q).int(heads).pages(c.KV, rows).plan(c.Plan).
		run(blocks{tailBlocks(rows), heads, 1}, 128)
}

// anchorMaxAny is anchorMax for any shape, in f32 on CUDA cores.
func (o *ops) anchorMaxAny(c *device.Score) {
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	o.launch("anchor_max").tensor(c.Dst).tensor(c.Q).int(heads).pages(c.KV, device.RowsPerSlot("AnchorMax", rows, c.KV)).plan(c.Plan).
		run(blocks{rows, heads, 1}, 128)
}
