package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/fusion"
)

// ops runs operations eagerly and in order, but for products, which wait for others
// of the same activations.
type ops struct {
	fusion.Window
	d         *dev
	vec       *vec.Kernels
	pool      *Pool
	matmul    *MatMul
	products  []kernel.Product // of the call that runs
	attention attention
	norm      normTask
	gate      gateTask
	sum       addTask
	turn      turnTask
	rope      ropeTable
	sampler   sampler
	sketch    sketcher
	choose    chooseTask
	score     scoreTask
	top       topTask
	most      maxTask
	widen     widenTask
	tail      tailTask
	edges     edgeTask
	near      nearTask
	value     valueTask
	bounds    boundsTask
	bound     boundTask
	parts     partsTask
	lines     lineTask
	tiles     tilesTask
	means     meanTask
	agreement agreeTask
	lineTop   topLinesTask
	blocks    blocksTask
	cover     []coverScratch // by worker
	usage     usageTask
	keep      keepTask
	hash      hashTask
	collide   collideTask
	channel   channelTask
	encode    signTask
	match     matchTask
}

func newOps(d *dev, pool *Pool, kernels *vec.Kernels) *ops {
	o := &ops{d: d, vec: kernels, pool: pool, matmul: NewMatMul(pool)}
	o.Open(o.run, fusion.Pattern{Name: "products", Match: fusion.Products, Run: o.multiply})
	return o
}

// row is row i of a matrix of n columns.
func row[T any](m []T, i, n int) []T { return m[i*n : (i+1)*n] }

// embed copies rows of a table, converted to f32: dst[r] = table[ids[r]]. An id
// outside the table is a failure, and its row becomes zero.
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

// gather copies rows: dst[r] = src[rows[r]]. A row outside src is a failure,
// and becomes zero.
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

// copyAll copies all elements between tensors of one type and length.
func (o *ops) copyAll(c *device.Copy) {
	copy(bytesOf(c.Dst), bytesOf(c.Src))
}

// add adds element by element: dst += x.
func (o *ops) add(c *device.Add) {
	dst, x := c.Dst, c.X
	o.sum = addTask{o.vec, f32s(dst), f32s(x)}
	o.runRows(pieces(x.Len()), piece, &o.sum)
}

// addTask adds pieces.
type addTask struct {
	vec    *vec.Kernels
	dst, x []float32
}

// Do computes pieces lo to hi-1.
func (t *addTask) Do(_, lo, hi int) {
	lo, hi = lo*piece, min(hi*piece, len(t.dst))
	t.vec.Add(t.dst[lo:hi], t.x[lo:hi])
}

// rmsNorm normalizes rows: dst = x / sqrt(mean(x²) + eps) · w, with the mean in
// float64.
func (o *ops) rmsNorm(c *device.RMSNorm) {
	dst, x, w := c.Dst, c.X, c.W
	dim := x.Dim(1)
	o.norm = normTask{o.vec, f32s(dst), f32s(x), f32s(w), dim, c.Eps}
	o.runRows(x.Dim(0), dim, &o.norm)
}

// normTask normalizes rows.
type normTask struct {
	vec    *vec.Kernels
	dst, x []float32 // [rows, dim]
	w      []float32 // [dim]
	dim    int
	eps    float32
}

// Do computes rows lo to hi-1.
func (t *normTask) Do(_, lo, hi int) {
	for r := lo; r < hi; r++ {
		x := row(t.x, r, t.dim)
		mean := t.vec.SumSquares(x) / float64(t.dim)
		t.vec.ScaleMul(row(t.dst, r, t.dim), x, t.w, float32(1/math.Sqrt(mean+float64(t.eps))))
	}
}

// swiGLU gates: dst = silu(gate) · up, where silu(g) = g / (1 + exp(-g)).
func (o *ops) swiGLU(c *device.SwiGLU) {
	dst, gate, up := c.Dst, c.Gate, c.Up
	o.gate = gateTask{o.vec, f32s(dst), f32s(gate), f32s(up)}
	o.runRows(pieces(dst.Len()), piece, &o.gate)
}

// gateTask gates pieces, which may end anywhere in a row.
type gateTask struct {
	vec           *vec.Kernels
	dst, gate, up []float32
}

// Do computes pieces lo to hi-1.
func (t *gateTask) Do(_, lo, hi int) {
	lo, hi = lo*piece, min(hi*piece, len(t.dst))
	t.vec.SwiGLU(t.dst[lo:hi], t.gate[lo:hi], t.up[lo:hi])
}

// piece is how many elements an item has where rows do not matter.
const piece = 1 << 10

// pieces is how many pieces n elements make.
func pieces(n int) int { return (n + piece - 1) / piece }

// fewElements is how many elements one thread computes sooner than others can
// be woken.
const fewElements = 1 << 14

// runRows runs a task of rows, on other threads too if that pays.
func (o *ops) runRows(rows, dim int, t Task) {
	chunk := rows
	if rows*dim > fewElements {
		chunk = max(fewElements/4/max(dim, 1), 1)
	}
	o.pool.RunChunks(rows, chunk, t)
}
