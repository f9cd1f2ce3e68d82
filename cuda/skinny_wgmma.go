//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// wgmmaKernel is the kernels of skinny_wgmma.cu for a type of weights, and what they need.
type wgmmaKernel struct {
	names [4]string // for up to 8, 16, 32 and 64 rows of x
	pitch int       // bytes of a row of a unit in shared memory
}

// wgmmaKernels are the kernels by type.
var wgmmaKernels = map[device.DType]wgmmaKernel{
	device.Q4_0: {[4]string{"skinny_wgmma_q4_0_8", "skinny_wgmma_q4_0_16", "skinny_wgmma_q4_0_32", "skinny_wgmma_q4_0_64"}, 144},
	device.Q8_0: {[4]string{"skinny_wgmma_q8_0_8", "skinny_wgmma_q8_0_16", "skinny_wgmma_q8_0_32", "skinny_wgmma_q8_0_64"}, 272},
	device.Q4_K: {[4]string{"skinny_wgmma_q4_k_8", "skinny_wgmma_q4_k_16", "skinny_wgmma_q4_k_32", "skinny_wgmma_q4_k_64"}, 144},
	device.Q5_K: {[4]string{"skinny_wgmma_q5_k_8", "skinny_wgmma_q5_k_16", "skinny_wgmma_q5_k_32", "skinny_wgmma_q5_k_64"}, 176},
	device.Q6_K: {[4]string{"skinny_wgmma_q6_k_8", "skinny_wgmma_q6_k_16", "skinny_wgmma_q6_k_32", "skinny_wgmma_q6_k_64"}, 240},
}

// Of the kernels: a unit is wgmmaUnit rows of w by wgmmaSlice of k.
const (
	wgmmaUnit    = 128
	wgmmaSlice   = 256
	maxWGMMARows = 64 // of x
)

// wgmmaVariant is a kernel for up to columns rows of x, with its shared memory in bytes.
type wgmmaVariant struct {
	name            string
	columns, shared int
}

// variant is the kernel for a number of rows, at most maxWGMMARows.
func (g wgmmaKernel) variant(rows int) wgmmaVariant {
	i := 0
	for 8<<i < rows {
		i++
	}
	stage := wgmmaUnit*g.pitch + 2*wgmmaSlice*(8<<i)
	return wgmmaVariant{g.names[i], 8 << i, min(225<<10/stage, 6) * stage}
}

// wgmmaWork is where x, the scales of its rows, and the partial sums are in the workspace, and its
// size.
type wgmmaWork struct{ scales, parts, size int }

func (v wgmmaVariant) work(k, blocks int) wgmmaWork {
	scales := 2 * k * v.columns
	parts := scales + 256
	return wgmmaWork{scales, parts, parts + blocks*2*wgmmaUnit*v.columns*4}
}

// suitsSkinnyWGMMA reports whether the kernels take x·wᵀ for each w.
func (o *ops) suitsSkinnyWGMMA(x device.Tensor, n fusedNorm, w []device.Tensor) bool {
	rows, k := x.Dim(0), x.Dim(1)
	if rows < minWGMMARows || rows > maxWGMMARows || k == 0 || k%wgmmaSlice != 0 || !o.d.drv.hasWGMMA() || !o.aligned(x, n.W) {
		return false
	}
	for _, w := range w {
		g, ok := wgmmaKernels[w.DType]
		if !ok || w.Dim(0) == 0 || w.DType != device.Q6_K && !o.aligned(w) || o.d.address(w)%2 != 0 {
			return false
		}
		v := g.variant(rows)
		if v.shared > o.room(v.name) || v.work(k, o.d.drv.multiprocessors()).size > workspaceSize {
			return false
		}
	}
	return true
}

// minWGMMARows is the least rows of x for which they are faster than skinny_gemm.cu.
const minWGMMARows = 2

// skinnyWGMMA launches products of a decode batch. x is packed first, unless it is.
func (o *ops) skinnyWGMMA(p *products, packed bool) {
	rows, k := p.x.Dim(0), p.x.Dim(1)
	v := wgmmaKernels[p.dtype()].variant(rows)
	tiles := 0
	for _, i := range p.of {
		tiles += ceil(p.w[i].Dim(0), wgmmaUnit)
	}
	if p.epilogue == epilogueSwiGLU { // half of gate and half of up
		tiles = ceil(p.w[p.of[0]].Dim(0), wgmmaUnit/2)
	}
	units := tiles * (k / wgmmaSlice)
	grid := ceil(units, ceil(units, o.d.drv.multiprocessors())) // fewer blocks if none has more units for it
	at := v.work(k, grid)
	if !packed {
		o.launch("pack_columns").work(0).work(at.scales).tensor(p.x).tensor(p.norm.W).float(float64(p.norm.Eps)).int(rows, k).pdlEarly().
			run(blocks{v.columns, 1, 1}, min(1024, ceil(k/16, 32)*32))
	}
	c := o.launch(v.name).work(0).work(at.scales)
	c.products(p, 0, rows)
	c.int(rows, k, p.dtype().RowSize(k), int(p.epilogue)).bool(p.constant()).work(at.parts).counters().pdlEarly().
		runShared(blocks{grid, 1, 1}, 256, v.shared)
}
