//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// anchorMax is the largest score of each row over what a plan reads whatever its
// list says.
func (o *ops) anchorMax(dst, q device.Tensor, kv device.KV, p device.Plan) {
	rows, heads := q.Dim(0), q.Dim(1)
	names, ok := edgeKernels[q.Dim(2)]
	switch {
	case !ok || !stripesMany(rows, kv):
		o.anchorMaxAny(dst, q, kv, p)
	case o.d.drv.wide():
		edges := device.Plan{Span: p.Span, Sink: p.Sink, Recent: p.Recent, Align: p.Align, Selected: device.None}
		o.wide(names.wide, dst, q, kv, edges, heads/kv.K.Dim(1)%2 == 0, 2)
	default:
		o.anchorMaxMany(names.any, dst, q, kv, p)
	}
}

// anchorMaxMany is AnchorMax on tensor cores of any GPU.
func (o *ops) anchorMaxMany(name string, dst, q device.Tensor, kv device.KV, p device.Plan) {
	rows, heads := q.Dim(0), q.Dim(1)
	o.call(name).tensor(dst).tensor(q).int(heads).pages(kv, rows).plan(p).run(blocks{touched(rows), heads, 1}, 128)
}

// The kernels on tensor cores, by the length of a head.
var (
	edgeKernels = map[int]struct{ any, wide string }{64: {"anchor_max_64", "anchor_max_wgmma_64"}, 128: {"anchor_max_128", "anchor_max_wgmma_128"}}
	nearKernels = map[int]string{64: "within_margin_64", 128: "within_margin_128"}
)

// stripesMany reports whether rows of queries suit the kernels on tensor cores.
func stripesMany(rows int, kv device.KV) bool {
	return rows >= manyRows && kv.Len.Dim(0) == 1 && kv.K.DType == device.F16
}

// anchorMaxAny is AnchorMax for any shape.
func (o *ops) anchorMaxAny(dst, q device.Tensor, kv device.KV, p device.Plan) {
	rows, heads := q.Dim(0), q.Dim(1)
	o.call("anchor_max").tensor(dst).tensor(q).int(heads).pages(kv, device.RowsPerSlot("AnchorMax", rows, kv)).plan(p).
		run(blocks{rows, heads, 1}, 128)
}

// meanRows averages the rows of blocks of positions.
func (o *ops) meanRows(dst, x device.Tensor, kv device.KV, block int) {
	const op = "MeanRows"
	n := x.Len() / max(x.Dim(0), 1)
	if block < 1 || dst.DType != device.F32 || x.DType != device.F32 || dst.Len() != n*dst.Dim(0) {
		device.Check(false, op, "x %v and dst %v in blocks of %d, want f32, rows of one length and blocks of at least 1", x, dst, block)
	}
	perSlot := device.RowsPerSlot(op, x.Dim(0), kv)
	o.call("mean_rows").tensor(dst).tensor(x).int(dst.Dim(0), n, block).pages(kv, perSlot).
		run(blocks{groups(perSlot, block), ceil(n, 256), kv.Len.Dim(0)}, 256)
}

// groups is how many groups of positions the newest n rows of a slot lie in at most.
func groups(n, group int) int { return (max(n, 1)+group-2)/group + 1 }

// withinMargin lists what is near the largest scores of the blocks of each group.
func (o *ops) withinMargin(c *device.Select) {
	const op = "WithinMargin"
	l, q, kv := &c.List, c.Q, c.KV
	heads, words := q.Dim(1), kv.Pages.Dim(1)
	if need := 16 * l.Index.Dim(0) * heads * words; need > workspaceSize {
		o.d.keep(fmt.Errorf("%s: %d lists of up to %d pages need %d bytes of workspace, there are %d", op, l.Index.Dim(0)*heads, words, need, workspaceSize))
		return
	}
	many, ok := nearKernels[q.Dim(2)]
	if !ok || !stripesMany(c.Rows, kv) {
		many = ""
	}
	o.near(many, c)
}

// near is WithinMargin by a kernel on tensor cores, or by that for any shape when its
// name is empty.
func (o *ops) near(many string, c *device.Select) {
	l, q, kv := &c.List, c.Q, c.KV
	heads, words, group := q.Dim(1), kv.Pages.Dim(1), max(l.Group, 1)
	call := func(name string, x, y, threads int) {
		o.call(name).tensor(q).tensor(c.Scores).work(0).int(heads, q.Dim(0), c.Block, words).float(float64(c.Below)).int(c.Twice).
			tensor(l.Index).tensor(l.Count).tensor(l.Weight).int(l.Index.Dim(0), l.Index.Dim(2), group).pages(kv, c.Rows).plan(c.Plan).
			run(blocks{groups(c.Rows, group) * x, y, kv.Len.Dim(0)}, threads)
	}
	if many == "" {
		call("within_margin", heads, min(words, 256), 256)
	} else {
		call(many, kv.K.Dim(1), min(words, 64), 128)
	}
	call("margin_list", heads, 1, 256)
}
