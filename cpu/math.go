package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// embed copies rows of a table, dequantized to f32: dst[r] = table[ids[r]]. An id outside the
// table is a failure, and its row becomes zero.
func (o *ops) embed(c *device.Embed) {
	dst, table, ids := c.Dst, c.Table, c.IDs
	vocab, dim := table.Dim(0), table.Dim(1)
	out, src := f32s(dst), bytesOf(table)
	size := table.DType.RowSize(dim)
	for r, id := range i32s(ids) {
		y := row(out, r, dim)
		if id < 0 || int(id) >= vocab {
			o.d.fail("Embed: id %d of row %d, want 0 to %d", id, r, vocab-1)
			clear(y)
			continue
		}
		kernel.Dequantize(table.DType, y, row(src, int(id), size))
	}
}

// gather copies rows: dst[r] = src[rows[r]]. A number outside src is a failure, and its row
// becomes zero.
func (o *ops) gather(c *device.Gather) {
	dst, src, rows := c.Dst, c.Src, c.Rows
	n, dim := src.Dim(0), src.Dim(1)
	out, in := f32s(dst), f32s(src)
	for r, i := range i32s(rows) {
		y := row(out, r, dim)
		if i < 0 || int(i) >= n {
			o.d.fail("Gather: row %d, want 0 to %d", i, n-1)
			clear(y)
			continue
		}
		copy(y, row(in, int(i), dim))
	}
}

// copyTensor copies a tensor to one of the same type and length.
func (o *ops) copyTensor(c *device.Copy) {
	copy(bytesOf(c.Dst), bytesOf(c.Src))
}

// add adds element by element, dst += x, or x to each row of dst.
func (o *ops) add(c *device.Add) {
	o.tasks.add = addTask{o.vec, f32s(c.Dst), f32s(c.X)}
	if c.Row() {
		o.runRows(c.Dst.Dim(0), c.X.Len(), (*addRowTask)(&o.tasks.add))
		return
	}
	o.runRows(pieces(c.X.Len()), piece, &o.tasks.add)
}

// addTask is Add of pieces.
type addTask struct {
	vec    *vec.Kernels
	dst, x []float32
}

// Do computes pieces lo to hi-1.
func (t *addTask) Do(_, lo, hi int) {
	lo, hi = lo*piece, min(hi*piece, len(t.dst))
	t.vec.Add(t.dst[lo:hi], t.x[lo:hi])
}

// addRowTask is Add of a row to each of some.
type addRowTask addTask

// Do computes rows lo to hi-1.
func (t *addRowTask) Do(_, lo, hi int) {
	for r := lo; r < hi; r++ {
		t.vec.Add(row(t.dst, r, len(t.x)), t.x)
	}
}

// rmsNorm normalizes rows: dst = x / sqrt(mean(x²) + eps) · w, with the mean in
// float64.
func (o *ops) rmsNorm(c *device.RMSNorm) {
	dim := c.X.Dim(1)
	o.tasks.rmsNorm = rmsNormTask{o.vec, f32s(c.Dst), f32s(c.X), f32s(c.W), dim, c.Eps}
	o.runRows(c.X.Dim(0), dim, &o.tasks.rmsNorm)
}

// rmsNormTask is RMSNorm of rows.
type rmsNormTask struct {
	vec    *vec.Kernels
	dst, x []float32 // [rows, dim]
	w      []float32 // [dim]
	dim    int
	eps    float32
}

// Do computes rows lo to hi-1.
func (t *rmsNormTask) Do(_, lo, hi int) {
	for r := lo; r < hi; r++ {
		x := row(t.x, r, t.dim)
		mean := t.vec.SumSquares(x) / float64(t.dim)
		t.vec.ScaleMul(row(t.dst, r, t.dim), x, t.w, float32(1/math.Sqrt(mean+float64(t.eps))))
	}
}

// swiGLU is dst = silu(gate) · up, where silu(g) = g / (1 + exp(-g)).
func (o *ops) swiGLU(c *device.SwiGLU) {
	o.tasks.swiGLU = swiGLUTask{o.vec, f32s(c.Dst), f32s(c.Gate), f32s(c.Up)}
	o.runRows(pieces(c.Dst.Len()), piece, &o.tasks.swiGLU)
}

// swiGLUTask is SwiGLU of pieces.
type swiGLUTask struct {
	vec           *vec.Kernels
	dst, gate, up []float32
}

// Do computes pieces lo to hi-1.
func (t *swiGLUTask) Do(_, lo, hi int) {
	lo, hi = lo*piece, min(hi*piece, len(t.dst))
	t.vec.SwiGLU(t.dst[lo:hi], t.gate[lo:hi], t.up[lo:hi])
}

// piece is how many elements an item of an element-wise call has.
const piece = 1 << 10

// pieces is how many pieces n elements make.
func pieces(n int) int { return (n + piece - 1) / piece }

// minParallelElements is how many elements one thread computes in less time than it takes to
// wake the others.
const minParallelElements = 1 << 14

// runRows runs a task of rows of dim elements, on all threads where that pays.
func (o *ops) runRows(rows, dim int, t Task) {
	chunk := rows
	if rows*dim > minParallelElements {
		chunk = max(minParallelElements/4/max(dim, 1), 1)
	}
	o.pool.RunChunks(rows, chunk, t)
}
