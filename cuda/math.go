//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// many bounds the blocks of a launch whose threads take more than one element.
const many = 1 << 12

// embed copies rows of a table, converted to f32.
func (o *ops) embed(c *device.Embed) {
	dst, table, ids := c.Dst, c.Table, c.IDs
	vocab, dim := table.Dim(0), table.Dim(1)
	o.call("embed").tensor(dst).tensor(table).tensor(ids).
		int(int(table.DType), vocab, dim, table.DType.RowSize(dim)).failures().
		run(blocks{ids.Dim(0), ceil(dim, 1024), 1}, 256)
}

// gather copies rows: dst[r] = src[rows[r]].
func (o *ops) gather(c *device.Gather) {
	dst, src, rows := c.Dst, c.Src, c.Rows
	n, dim := src.Dim(0), src.Dim(1)
	o.call("gather").tensor(dst).tensor(src).tensor(rows).int(n, dim).failures().
		run(blocks{rows.Dim(0), ceil(dim, 1024), 1}, 256)
}

// copyAll copies all elements between tensors of one type and length.
func (o *ops) copyAll(c *device.Copy) {
	dst, src := c.Dst, c.Src
	if dst.Size() > 0 {
		o.d.keep(o.d.drv.copy(o.d.address(dst), o.d.address(src), dst.Size()))
	}
}

// add adds element by element: dst += x.
func (o *ops) add(c *device.Add) {
	dst, x := c.Dst, c.X
	o.call("add").tensor(dst).tensor(x).int(x.Len()).run(blocks{min(ceil(x.Len(), 256), many), 1, 1}, 256)
}

// rmsNorm normalizes rows: dst = x / sqrt(mean(x²) + eps) · w.
func (o *ops) rmsNorm(c *device.RMSNorm) {
	dst, x, w, eps := c.Dst, c.X, c.W, c.Eps
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

// rope rotates pairs of each head in place by pos times the pair's frequency.
func (o *ops) rope(c *device.Rope) {
	x, pos, r := c.X, c.Pos, &c.Rotation
	rows, heads, dim, pairs := x.Dim(0), x.Dim(1), x.Dim(2), r.Freqs.Dim(0)
	o.call("rope").tensor(x).tensor(pos).tensor(r.Freqs).float(float64(r.Scale)).
		int(heads, dim, pairs).bool(r.Interleaved).
		run(blocks{rows, ceil(heads, ropeHeads), 1}, min(ceil(max(pairs, 1), 32)*32, 128))
}

// swiGLU gates: dst = silu(gate) · up.
func (o *ops) swiGLU(c *device.SwiGLU) {
	dst, gate, up := c.Dst, c.Gate, c.Up
	o.call("swiglu").tensor(dst).tensor(gate).tensor(up).int(dst.Len()).
		run(blocks{min(ceil(dst.Len(), 256), many), 1, 1}, 256)
}
