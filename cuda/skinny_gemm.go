//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// skinnyKernel is the kernels of skinny_gemm.cu for a type of weights, and what they need.
type skinnyKernel struct {
	names  [3]string // for up to 8, 16 and, where there is one, 32 rows of x
	pack   string    // the kernel that packs x into B fragments
	terms  int       // 16-bit floats that a float of x is the sum of
	slice  int       // weights of a slice of k
	stage  int       // bytes of a stage of a warp's pipeline
	stages int       // of 16 warps
}

// skinnyKernels are the kernels by type.
var skinnyKernels = map[device.DType]skinnyKernel{
	device.F16:  {[3]string{"skinny_gemm_f16_8", "skinny_gemm_f16_16", "skinny_gemm_f16_32"}, "pack_operand_f16", 2, 128, 2048, 5},
	device.BF16: {[3]string{"skinny_gemm_bf16_8", "skinny_gemm_bf16_16"}, "pack_operand_bf16", 3, 64, 2048, 5},
	device.Q4_0: {[3]string{"skinny_gemm_q4_0_8", "skinny_gemm_q4_0_16", "skinny_gemm_q4_0_32"}, "pack_operand_quantized", 1, 256, 16 * 144, 5},
	device.Q8_0: {[3]string{"skinny_gemm_q8_0_8", "skinny_gemm_q8_0_16", "skinny_gemm_q8_0_32"}, "pack_operand_quantized", 1, 256, 16 * 272, 3},
	device.Q4_K: {[3]string{"skinny_gemm_q4_k_8", "skinny_gemm_q4_k_16", "skinny_gemm_q4_k_32"}, "pack_operand_quantized", 1, 256, 16 * 144, 5},
	device.Q5_K: {[3]string{"skinny_gemm_q5_k_8", "skinny_gemm_q5_k_16", "skinny_gemm_q5_k_32"}, "pack_operand_quantized", 1, 256, 16 * 176, 4},
	device.Q6_K: {[3]string{"skinny_gemm_q6_k_8", "skinny_gemm_q6_k_16", "skinny_gemm_q6_k_32"}, "pack_operand_quantized", 1, 256, 16 * 240, 3},
}

const (
	skinnyTile   = 16 // rows of w in a tile
	skinnyStride = 20 // floats between the rows of a warp's partial sums, padded
)

// suitsSkinnyGEMM reports whether the kernels take x·wᵀ for each w.
func (o *ops) suitsSkinnyGEMM(x device.Tensor, n fusedNorm, w []device.Tensor) bool {
	rows, k := x.Dim(0), x.Dim(1)
	if rows < 2 || rows >= gemmRows || k == 0 || !o.aligned(x, n.W) {
		return false
	}
	tiles, fits := 0, true
	for _, w := range w {
		s, ok := skinnyKernels[w.DType]
		alignment := 16 // bytes
		if w.DType == device.Q6_K {
			alignment = 2
		}
		if !ok || k%operandUnit(w.DType) != 0 || w.DType.RowSize(k)%alignment != 0 || int(o.d.address(w))%alignment != 0 || w.Dim(0) == 0 {
			return false
		}
		tiles += ceil(w.Dim(0), skinnyTile)
		fits = fits && s.variant(8).fits(k, tiles, o.d.drv.multiprocessors())
		for _, v := range []skinnyVariant{s.variant(8), s.variant(16), s.variant(s.maxRows())} {
			fits = fits && v.shared(w.DType) <= o.room(v.name)
		}
	}
	return fits
}

// skinnyVariant is a kernel for up to 8, 16 or 32 rows of x: cols is n of the GEMM.
type skinnyVariant struct {
	skinnyKernel
	name        string
	cols, warps int
}

// maxRows is the maximum of rows of x per launch.
func (s skinnyKernel) maxRows() int {
	if s.names[2] == "" {
		return 16
	}
	return 32
}

// variant is the kernel for a number of rows, at most maxRows.
func (s skinnyKernel) variant(rows int) skinnyVariant {
	switch {
	case rows > 16:
		return skinnyVariant{s, s.names[2], 32, 8}
	case rows > 8:
		return skinnyVariant{s, s.names[1], 16, 16}
	}
	return skinnyVariant{s, s.names[0], 8, 16}
}

// sumBuffers is how many buffers of partial sums a block has.
func (v skinnyVariant) sumBuffers(dt device.DType) int {
	if dt == device.Q8_0 && v.cols > 8 {
		return 1
	}
	return 2
}

// shared is the bytes of shared memory of a block.
func (v skinnyVariant) shared(dt device.DType) int {
	return 4*v.sumBuffers(dt)*v.warps*v.cols*skinnyStride + 4*v.cols + 16*v.stages*v.stage
}

// packedSize is the bytes of x in B fragments, without the scales and sums of squares behind.
func (v skinnyVariant) packedSize(k int) int {
	return 2 * v.terms * ceil(k, v.slice) * v.slice * v.cols
}

// splitKAt is the offset of the split-K partial sums in the workspace, behind all of x.
func (v skinnyVariant) splitKAt(k int) int {
	return ceil(v.packedSize(k)+8*ceil(k, v.slice)*v.cols, 256) * 256
}

// fits reports whether the workspace holds the partial sums of the deepest split-K.
func (v skinnyVariant) fits(k, tiles, multiprocessors int) bool {
	return v.splitKAt(k)+4*skinnyTile*v.cols*(tiles+multiprocessors)*ceil(ceil(k, v.slice), v.warps) <= workspaceSize
}

// skinnyGrid is how a launch divides a GEMM: ranges of up to tiles tiles, each of which splits
// blocks compute by split-K with across slices of k each.
type skinnyGrid struct{ ranges, splits, across, tiles int }

// grid divides items of per tiles among the multiprocessors. It minimizes the bytes that a
// block reads, with the cost of loading x and of reducing split-K counted in the bytes that
// could be read meanwhile.
func (v skinnyVariant) grid(multiprocessors, items, per, k, sliceBytes int) skinnyGrid {
	var best skinnyGrid
	minCost, slices := 0, ceil(k, v.slice)
	for splits := ceil(slices, v.warps); splits <= slices; splits++ {
		across := ceil(slices, splits)
		ranges := max(1, min(items, multiprocessors/splits))
		deep, perRange := v.warps/across, ceil(items, ranges) // deep: tiles in flight
		tiles := perRange * per
		if ceil(slices, across) != splits || v.splitKAt(k)+4*skinnyTile*v.cols*tiles*ranges*splits > workspaceSize {
			continue
		}
		cost := ceil(perRange, deep)*per*deep*across*sliceBytes + 16*across*v.slice
		if splits > 1 {
			cost += 48<<10 + splits*tiles<<11
		}
		if best.ranges == 0 || cost < minCost {
			best, minCost = skinnyGrid{ranges, splits, across, tiles}, cost
		}
	}
	return best
}

// skinnyGEMM launches products of a decode batch, up to 32 rows at a time.
func (o *ops) skinnyGEMM(p *products) {
	k, s, units := p.x.Dim(1), skinnyKernels[p.dtype()], o.d.drv.multiprocessors()
	items, per := 0, 1 // per: tiles of an item
	for _, i := range p.of {
		items += ceil(p.w[i].Dim(0), skinnyTile)
	}
	if p.epilogue == epilogueSwiGLU { // a tile of gate and one of up
		items, per = items/2, 2
	}
	for r, rows := 0, 0; r < p.x.Dim(0); r += rows {
		rows = min(s.maxRows(), p.x.Dim(0)-r)
		for rows > 8 && !s.variant(rows).fits(k, items*per, units) {
			rows = min(rows/2, 16)
		}
		o.skinnyRows(p, s.variant(rows), r, rows, items, per)
	}
}

// skinnyRows launches them for rows from r on: x is packed, and then multiplied.
func (o *ops) skinnyRows(p *products, v skinnyVariant, r, rows, items, per int) {
	k, dt := p.x.Dim(1), p.dtype()
	grid := v.grid(o.d.drv.multiprocessors(), items, per, k, skinnyTile*dt.RowSize(v.slice))
	slices, unit := ceil(k, v.slice), v.packedSize(k)
	squares := unit + 4*slices*v.cols
	o.launch(v.pack).work(0).work(unit).work(squares).tensor(p.x.Rows(r, r+rows)).tensor(p.norm.W).int(rows, k).pdlEarly().
		run(blocks{slices, v.cols / 8, 1}, 32)
	c := o.launch(v.name).work(0).work(unit).work(squares).bool(!p.norm.W.Absent()).float(float64(p.norm.Eps))
	c.products(p, r, r+rows)
	c.int(rows, k, dt.RowSize(k), int(p.epilogue)).bool(p.constant()).work(v.splitKAt(k)).counters().
		int(grid.ranges, grid.splits, grid.across, grid.tiles).pdlEarly().
		runShared(blocks{grid.ranges * grid.splits, 1, 1}, 32*v.warps, v.shared(dt))
}
