package cpu

import (
	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/device"
)

// MatMul multiplies activations with weight matrices on a pool. It owns the quantized
// activations and the scratch of each worker, so that a call allocates nothing once both have
// grown to the sizes in use.
//
// A MatMul runs one call at a time.
type MatMul struct {
	pool     *Pool
	batch    kernel.Batch
	products []kernel.Product
	parts    []part
	scratch  []kernel.Scratch // by worker
	prepare  prepareTask
	compute  computeTask
}

// part is a range of output rows of one product: an item.
type part struct {
	product, lo, hi int
}

// NewMatMul makes a MatMul that runs on pool.
func NewMatMul(pool *Pool) *MatMul {
	m := &MatMul{pool: pool, scratch: make([]kernel.Scratch, pool.Workers())}
	m.prepare.m, m.compute.m = m, m
	return m
}

// Run computes products of the same activations x, float32 [tokens, K]: for each of them
// Dst[t][r] = Σ_k x[t][k]·W[r][k]. An output does not depend on the other tokens, the other
// products or the number of workers.
func (m *MatMul) Run(x kernel.Floats, tokens int, products ...kernel.Product) {
	if tokens == 0 || len(products) == 0 {
		return
	}
	m.products = append(m.products[:0], products...)
	m.batch.Reset(x, tokens, products[0].W.Cols)
	m.parts = m.parts[:0]
	for i := range m.products {
		p := &m.products[i]
		p.Check(&m.batch)
		m.batch.Need(p.W.DType)
		m.cut(i, p)
	}
	if m.batch.Quantizes() {
		m.pool.RunChunks(tokens, prepareTokens(tokens), &m.prepare)
	}
	m.pool.RunChunks(len(m.parts), 1, &m.compute)
}

// cut appends the parts of product i.
func (m *MatMul) cut(i int, p *kernel.Product) {
	rows := p.PartRows(&m.batch, m.pool.Workers())
	for lo := 0; lo < p.W.Rows; lo += rows {
		m.parts = append(m.parts, part{i, lo, min(lo+rows, p.W.Rows)})
	}
}

// prepareTokens is how many tokens an item of quantization has; a few take less time than
// waking another worker.
func prepareTokens(tokens int) int { return max(4, min(tokens/8, 32)) }

// prepareTask quantizes activations: item i is token i.
type prepareTask struct{ m *MatMul }

func (p *prepareTask) Do(_, lo, hi int) { p.m.batch.Prepare(lo, hi) }

// computeTask computes parts: item i is part i.
type computeTask struct{ m *MatMul }

func (c *computeTask) Do(worker, lo, hi int) {
	for _, part := range c.m.parts[lo:hi] {
		c.m.products[part.product].Compute(&c.m.batch, &c.m.scratch[worker], part.lo, part.hi)
	}
}

// multiply computes products of the same activations, which are quantized once.
func (o *ops) multiply(calls []device.Call) bool {
	o.products = o.products[:0]
	for _, c := range calls {
		o.scored.follow(c)
		o.products = append(o.products, product(c.(*device.MatMul)))
	}
	x := calls[0].(*device.MatMul).X
	o.matmul.Run(floats(x), x.Dim(0), o.products...)
	return true
}

// product is a call in the form of package kernel.
func product(c *device.MatMul) kernel.Product {
	return kernel.Product{Dst: floats(c.Dst), W: kernel.NewMatrix(c.W.DType, c.W.Dim(0), c.W.Dim(1), bytesOf(c.W))}
}

// floats is an F32 matrix in the form of package kernel.
func floats(t device.Tensor) kernel.Floats {
	return kernel.Floats{Data: f32s(t), Stride: t.RowLen()}
}
