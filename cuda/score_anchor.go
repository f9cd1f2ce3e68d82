//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// The kernels on tensor cores, by the length of a head.
var (
	edgeKernels = map[int]struct{ any, wide string }{64: {"anchor_max_64", "anchor_max_wgmma_64"}, 128: {"anchor_max_128", "anchor_max_wgmma_128"}}
	nearKernels = map[int]string{64: "within_margin_64", 128: "within_margin_128"}
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

// stripesMany reports whether rows of queries suit the kernels on tensor cores.
func stripesMany(rows int, kv device.KV) bool {
	return rows >= manyRows && kv.Len.Dim(0) == 1 && kv.K.DType == device.F16
}

// anchorMaxMany is AnchorMax on tensor cores of any GPU.
func (o *ops) anchorMaxMany(name string, dst, q device.Tensor, kv device.KV, p device.Plan) {
	rows, heads := q.Dim(0), q.Dim(1)
	o.call(name).tensor(dst).tensor(q).int(heads).pages(kv, rows).plan(p).run(blocks{touched(rows), heads, 1}, 128)
}

// anchorMaxAny is AnchorMax for any shape.
func (o *ops) anchorMaxAny(dst, q device.Tensor, kv device.KV, p device.Plan) {
	rows, heads := q.Dim(0), q.Dim(1)
	o.call("anchor_max").tensor(dst).tensor(q).int(heads).pages(kv, device.RowsPerSlot("AnchorMax", rows, kv)).plan(p).
		run(blocks{rows, heads, 1}, 128)
}
