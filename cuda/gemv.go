//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// gemvKernel is the kernel of gemv.cu for a type of weights, and what it needs.
type gemvKernel struct {
	name   string
	qkv    string // with epilogueQKV
	chunk  int    // weights of a chunk
	xSize  int    // bytes of shared memory for a chunk's part of x
	stages int    // bytes of shared memory for a warp's pipeline
	warps  int    // per block, at most
}

// gemvKernels are the kernels by type.
var gemvKernels = map[device.DType]gemvKernel{
	device.F32:  {"gemv_f32", "gemv_qkv_f32", 512, 0, 3 * 2048, 16},
	device.F16:  {"gemv_f16", "gemv_qkv_f16", 1024, 0, 3 * 2048, 16},
	device.BF16: {"gemv_bf16", "gemv_qkv_bf16", 1024, 0, 3 * 2048, 16},
	device.Q4_0: {"gemv_q4_0", "gemv_qkv_q4_0", 2048, 2432, 4 * 1168, 16},
	device.Q8_0: {"gemv_q8_0", "gemv_qkv_q8_0", 2048, 2432, 3 * 2192, 14},
	device.Q4_K: {"gemv_q4_k", "gemv_qkv_q4_k", 2048, 2432, 4 * 1152, 16},
	device.Q5_K: {"gemv_q5_k", "gemv_qkv_q5_k", 2048, 2432, 3 * 1408, 16},
	device.Q6_K: {"gemv_q6_k", "gemv_qkv_q6_k", 2048, 2432, 3 * 1696, 16},
}

// warpsFor is how many warps share a row of k weights, with the same number of chunks each, and
// how many a block has.
func (g gemvKernel) warpsFor(k int) (perRow, perBlock int) {
	chunks := ceil(k, g.chunk)
	perRow = ceil(chunks, ceil(chunks, g.warps))
	return perRow, g.warps / perRow * perRow
}

// maxGEMVSums is the maximum of partial sums of a block.
const maxGEMVSums = 10 << 10

// shared is the bytes of shared memory of a block with so many partial sums.
func (g gemvKernel) shared(k, sums int) int {
	_, warps := g.warpsFor(k)
	return ceil(k, g.chunk)*g.xSize + ceil(sums*4, 16)*16 + warps*g.stages
}

// gemvRoom is the shared memory that both kernels of a type have room for.
func (o *ops) gemvRoom(g gemvKernel) int { return min(o.room(g.name), o.room(g.qkv)) }

// suitsGEMV reports whether the kernels take x·wᵀ for each w.
func (o *ops) suitsGEMV(x device.Tensor, n fusedNorm, w []device.Tensor) bool {
	k := x.Dim(1)
	if x.Dim(0) != 1 || k == 0 || !o.aligned(x, n.W) || !o.aligned(w...) {
		return false
	}
	for _, w := range w {
		g, ok := gemvKernels[w.DType]
		if !ok || k%gemvUnit(w.DType) != 0 || g.shared(k, 2*(ceil(k, g.chunk)+1)) > o.gemvRoom(g) {
			return false
		}
	}
	return true
}

// gemvUnit is what the length of a row must be a multiple of: the two blocks of 32 of a lane, a
// block of a K-quant, or 16 bytes of f16.
func gemvUnit(dt device.DType) int {
	if dt == device.Q4_0 || dt == device.Q8_0 {
		return 64
	}
	return operandUnit(dt)
}

// operandUnit is the same for skinny_gemm.cu: a block of a K-quant, or 16 bytes of f16.
func operandUnit(dt device.DType) int {
	if dt.Quantized() {
		return 256
	}
	return 8
}

// gemv launches products of one row.
func (o *ops) gemv(p *products) {
	g, k := gemvKernels[p.dtype()], p.x.Dim(1)
	items, per, sums := 0, 1, ceil(k, g.chunk) // items, rows of an item, partial sums of a row
	for _, i := range p.of {
		items += p.w[i].Dim(0)
	}
	switch p.epilogue {
	case epilogueSwiGLU: // a row of gate and one of up
		items, per = items/2, 2
	case epilogueQKV: // a rotated pair, with its cosine and sine
		items, per, sums = items/2, 2, sums+1
	}
	// One block per multiprocessor, or several where their sums need too much memory.
	grid := min(o.d.drv.multiprocessors(), items)
	blockSums := func() int { return ceil(items, max(grid, 1)) * per * sums }
	for g.shared(k, blockSums()) > o.gemvRoom(g) || blockSums() > maxGEMVSums {
		grid *= 2
	}
	shared := g.shared(k, blockSums())
	if p.epilogue == epilogueAdd {
		// At most one block per multiprocessor: these launches follow attention, which leaves
		// multiprocessors unequally busy.
		shared = max(shared, o.d.drv.sharedMemory()/2+(4<<10))
	}
	name := g.name
	if p.epilogue == epilogueQKV {
		name = g.qkv
	}
	perRow, warps := g.warpsFor(k)
	c := o.launch(name).tensor(p.x).tensor(p.norm.W).float(float64(p.norm.Eps))
	c.products(p, 0, 1)
	c.int(k, p.dtype().RowSize(k), int(p.epilogue)).bool(p.constant()).int(perRow)
	if p.epilogue == epilogueQKV {
		c.qkv(p.of, &o.matched) // of the pattern that is being run
	}
	c.pdlEarly().runShared(blocks{grid, 1, 1}, warps*32, shared)
}

// qkv appends what epilogueQKV needs: which of q, k and v each product is, the cache, the
// rotation, and the biases.
func (c *launch) qkv(of []int, m *matcher) {
	for i := range 3 {
		if i < len(of) {
			c.int(of[i])
		} else {
			c.int(0)
		}
	}
	r := &m.q.Rotation
	c.pages(m.stored.KV, 1).tensor(m.q.Pos).tensor(r.Freqs).float(float64(r.Scale)).int(r.Freqs.Dim(0)).bool(!r.Interleaved)
	for i := range 3 {
		if i < len(of) {
			c.tensor(m.bias(of[i]))
		} else {
			c.word(0)
		}
	}
}
