//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// maxGrid bounds the blocks of elementwise kernels, which loop over the rest.
const maxGrid = 1 << 12

// embed copies rows of a table, converted to f32.
func (o *ops) embed(c *device.Embed) {
	vocab, dim, dt := c.Table.Dim(0), c.Table.Dim(1), c.Table.DType
	o.launch("embed").tensor(c.Dst).tensor(c.Table).tensor(c.IDs).
		int(int(dt), vocab, dim, dt.RowSize(dim)).failures().
		run(blocks{c.IDs.Dim(0), ceil(dim, 1024), 1}, 256)
}

// gather copies rows: dst[r] = src[rows[r]].
func (o *ops) gather(c *device.Gather) {
	n, dim := c.Src.Dim(0), c.Src.Dim(1)
	o.launch("gather").tensor(c.Dst).tensor(c.Src).tensor(c.Rows).int(n, dim).failures().
		run(blocks{c.Rows.Dim(0), ceil(dim, 1024), 1}, 256)
}

// copyTensor copies all elements between tensors of one type and length.
func (o *ops) copyTensor(c *device.Copy) {
	if c.Dst.Size() > 0 {
		o.d.keep(o.d.drv.copy(o.d.address(c.Dst), o.d.address(c.Src), c.Dst.Size()))
	}
}

// add adds element by element, dst += x, or x to each row of dst.
func (o *ops) add(c *device.Add) {
	n := c.Dst.Len()
	o.launch("add").tensor(c.Dst).tensor(c.X).int(n, c.X.Len()).run(blocks{min(ceil(n, 256), maxGrid), 1, 1}, 256)
}

// rmsNorm normalizes rows: dst = x / sqrt(mean(x²) + eps) · w.
func (o *ops) rmsNorm(c *device.RMSNorm) {
	rows, dim := c.X.Dim(0), c.X.Dim(1)
	o.launch("rmsnorm").tensor(c.Dst).tensor(c.X).tensor(c.W).int(dim).float(float64(c.Eps)).
		run(blocks{rows, 1, 1}, threadsFor(dim, 1024))
}

// threadsFor is the threads of a block for a row of n elements, four per thread, in whole
// warps and at most limit.
func threadsFor(n, limit int) int {
	return min(max(ceil(n, 4*32)*32, 32), limit)
}

// ropeHeads is the heads per thread of the kernel rope.
const ropeHeads = 4

// rope rotates pairs of each head in place by pos times the pair's frequency.
func (o *ops) rope(c *device.Rope) {
	rows, heads, dim, pairs := c.X.Dim(0), c.X.Dim(1), c.X.Dim(2), c.Freqs.Dim(0)
	o.launch("rope").tensor(c.X).tensor(c.Pos).tensor(c.Freqs).float(float64(c.Scale)).
		int(heads, dim, pairs).bool(c.Interleaved).
		run(blocks{rows, ceil(heads, ropeHeads), 1}, min(ceil(max(pairs, 1), 32)*32, 128))
}

// swiGLU gates: dst = silu(gate) · up.
func (o *ops) swiGLU(c *device.SwiGLU) {
	n := c.Dst.Len()
	o.launch("swiglu").tensor(c.Dst).tensor(c.Gate).tensor(c.Up).int(n).
		run(blocks{min(ceil(n, 256), maxGrid), 1, 1}, 256)
}
