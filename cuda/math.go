//go:build cuda || cudaemu

package cuda

import (
	"github.com/gollm/gollm/device"
)

// ops queues operations, in order.
type ops struct {
	d      *dev
	making call

	one [3]device.Tensor // what a call gives as slices

	turn turn // of a call of FuseHeads
}

// ceil is how many parts of size each n elements make.
func ceil(n, each int) int { return (n + each - 1) / each }

// many bounds the blocks of a launch whose threads take more than one element.
const many = 1 << 12

// Embed copies rows of a table, converted to f32.
func (o *ops) Embed(dst, table, ids device.Tensor) {
	device.CheckEmbed(dst, table, ids)
	vocab, dim := table.Dim(0), table.Dim(1)
	o.call("embed").tensor(dst).tensor(table).tensor(ids).
		int(int(table.DType), vocab, dim, table.DType.RowSize(dim)).failures().
		run(blocks{ids.Dim(0), ceil(dim, 1024), 1}, 256)
}

// Gather copies rows: dst[r] = src[rows[r]].
func (o *ops) Gather(dst, src, rows device.Tensor) {
	device.CheckGather(dst, src, rows)
	n, dim := src.Dim(0), src.Dim(1)
	o.call("gather").tensor(dst).tensor(src).tensor(rows).int(n, dim).failures().
		run(blocks{rows.Dim(0), ceil(dim, 1024), 1}, 256)
}

// Copy copies all elements between tensors of one type and length.
func (o *ops) Copy(dst, src device.Tensor) {
	device.CheckCopy(dst, src)
	if dst.Size() > 0 {
		o.d.keep(o.d.drv.copy(o.d.address(dst), o.d.address(src), dst.Size()))
	}
}

// Add adds element by element: dst += x.
func (o *ops) Add(dst, x device.Tensor) {
	device.CheckAdd(dst, x)
	o.call("add").tensor(dst).tensor(x).int(x.Len()).run(blocks{min(ceil(x.Len(), 256), many), 1, 1}, 256)
}

// RMSNorm normalizes rows: dst = x / sqrt(mean(x²) + eps) · w.
func (o *ops) RMSNorm(dst, x, w device.Tensor, eps float32) {
	device.CheckRMSNorm(dst, x, w)
	rows, dim := x.Dim(0), x.Dim(1)
	o.call("rmsnorm").tensor(dst).tensor(x).tensor(w).int(dim).float(float64(eps)).
		run(blocks{rows, 1, 1}, threadsFor(dim, 1024))
}

// threadsFor is enough threads for n elements of a row, four each, no more than most.
func threadsFor(n, most int) int {
	return min(max(ceil(n, 4*32)*32, 32), most)
}

// ropeHeads is how many heads a thread of the kernel rope turns.
const ropeHeads = 4

// Rope rotates pairs of each head in place by pos times the pair's frequency.
func (o *ops) Rope(x, pos device.Tensor, r device.Rope) {
	device.CheckRope(x, pos, r)
	rows, heads, dim, pairs := x.Dim(0), x.Dim(1), x.Dim(2), r.Freqs.Dim(0)
	o.call("rope").tensor(x).tensor(pos).tensor(r.Freqs).float(float64(r.Scale)).
		int(heads, dim, pairs).bool(r.Interleaved).
		run(blocks{rows, ceil(heads, ropeHeads), 1}, min(ceil(max(pairs, 1), 32)*32, 128))
}

// SwiGLU gates: dst = silu(gate) · up.
func (o *ops) SwiGLU(dst, gate, up device.Tensor) {
	device.CheckSwiGLU(dst, gate, up)
	o.call("swiglu").tensor(dst).tensor(gate).tensor(up).int(dst.Len()).
		run(blocks{min(ceil(dst.Len(), 256), many), 1, 1}, 256)
}
