//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// Products of some rows; see skinny_gemm.cu.

// severalKernel is the kernels of a type, for up to 8, 16 and, if there is one, 32 rows,
// and what a launch of one needs.
type severalKernel struct {
	names   [3]string
	operand string // the kernel that prepares x
	terms   int    // numbers of 16 bits that one of x becomes
	slice   int    // weights of a row that a warp takes
	slot    int    // bytes of a stage of a warp's ring
	stages  int    // of 16 warps
}

// severalKernels are the kernels for some rows, by type.
var severalKernels = map[device.DType]severalKernel{
	device.F16:  {[3]string{"skinny_gemm_f16_8", "skinny_gemm_f16_16", "skinny_gemm_f16_32"}, "pack_operand_f16", 2, 128, 2048, 5},
	device.BF16: {[3]string{"skinny_gemm_bf16_8", "skinny_gemm_bf16_16"}, "pack_operand_bf16", 3, 64, 2048, 5},
	device.Q4_0: {[3]string{"skinny_gemm_q4_0_8", "skinny_gemm_q4_0_16", "skinny_gemm_q4_0_32"}, "pack_operand_quantized", 1, 256, 16 * 144, 5},
	device.Q8_0: {[3]string{"skinny_gemm_q8_0_8", "skinny_gemm_q8_0_16", "skinny_gemm_q8_0_32"}, "pack_operand_quantized", 1, 256, 16 * 272, 3},
	device.Q4_K: {[3]string{"skinny_gemm_q4_k_8", "skinny_gemm_q4_k_16", "skinny_gemm_q4_k_32"}, "pack_operand_quantized", 1, 256, 16 * 144, 5},
	device.Q5_K: {[3]string{"skinny_gemm_q5_k_8", "skinny_gemm_q5_k_16", "skinny_gemm_q5_k_32"}, "pack_operand_quantized", 1, 256, 16 * 176, 4},
	device.Q6_K: {[3]string{"skinny_gemm_q6_k_8", "skinny_gemm_q6_k_16", "skinny_gemm_q6_k_32"}, "pack_operand_quantized", 1, 256, 16 * 240, 3},
}

const (
	severalHeight = 16 // rows of w in a tile
	severalColumn = 20 // floats from one row of x to the next in the sums of a warp
)

// suitsSeveral reports whether x·wᵀ is a product of some rows for which there is a
// kernel.
func (o *ops) suitsSeveral(x device.Tensor, n normWeights, w []device.Tensor) bool {
	rows, k := x.Dim(0), x.Dim(1)
	if rows < 2 || rows >= manyRows || k == 0 || o.d.address(x)%16 != 0 || o.d.address(n.W)%16 != 0 {
		return false
	}
	items, fits := 0, true
	for _, w := range w {
		least := 8
		if w.DType.Quantized() {
			least = 256
		}
		s, ok := severalKernels[w.DType]
		aligned := 16 // rows start on so many bytes
		if w.DType == device.Q6_K {
			aligned = 2
		}
		if !ok || k%least != 0 || w.DType.RowSize(k)%aligned != 0 || int(o.d.address(w))%aligned != 0 || w.Dim(0) == 0 {
			return false
		}
		items += ceil(w.Dim(0), severalHeight)
		fits = fits && s.of(8).fits(k, items, o.d.drv.multiprocessors())
		for _, l := range []severalLaunch{s.of(8), s.of(16), s.of(s.most())} {
			fits = fits && l.shared(w.DType) <= o.room(l.name)
		}
	}
	return fits
}

// severalLaunch is a kernel for a number of rows.
type severalLaunch struct {
	severalKernel
	name        string
	cols, warps int
}

// most is how many rows a launch takes.
func (s severalKernel) most() int {
	if s.names[2] == "" {
		return 16
	}
	return 32
}

// of is the kernel for a number of rows, which are no more than most.
func (s severalKernel) of(rows int) severalLaunch {
	switch {
	case rows > 16:
		return severalLaunch{s, s.names[2], 32, 8}
	case rows > 8:
		return severalLaunch{s, s.names[1], 16, 16}
	}
	return severalLaunch{s, s.names[0], 8, 16}
}

// turns is how many times a block has room for the sums of its warps.
func (l severalLaunch) turns(dt device.DType) int {
	if dt == device.Q8_0 && l.cols > 8 {
		return 1
	}
	return 2
}

// shared is the bytes of shared memory that a block needs.
func (l severalLaunch) shared(dt device.DType) int {
	return 4*l.turns(dt)*l.warps*l.cols*severalColumn + 4*l.cols + 16*l.stages*l.slot
}

// operandSize is the bytes of x as a launch takes it, without the sums beside it.
func (l severalLaunch) operandSize(k int) int {
	return 2 * l.terms * ceil(k, l.slice) * l.slice * l.cols
}

// partsAt is where the workspace has what blocks leave: behind what a launch takes of x.
func (l severalLaunch) partsAt(k int) int {
	return ceil(l.operandSize(k)+8*ceil(k, l.slice)*l.cols, 256) * 256
}

// fits reports whether the workspace holds what blocks leave of items if they take as
// many slices of k as they can.
func (l severalLaunch) fits(k, items, units int) bool {
	return l.partsAt(k)+4*severalHeight*l.cols*(items+units)*ceil(ceil(k, l.slice), l.warps) <= workspaceSize
}

// share is how a launch divides a product: ranges of items of per tiles each, which
// splits blocks work at, each at across slices of k.
type share struct{ ranges, splits, across, tiles int }

// share chooses how to divide items. What a block reads decides, and what it costs
// besides to give out x and to add up what several blocks have, in bytes that could be
// read meanwhile.
func (l severalLaunch) share(units, items, per, k, sliceBytes int) share {
	var best share
	least, slices := 0, ceil(k, l.slice)
	for splits := ceil(slices, l.warps); splits <= slices; splits++ {
		across := ceil(slices, splits)
		ranges := max(1, min(items, units/splits))
		deep, most := l.warps/across, ceil(items, ranges)
		tiles := most * per
		if ceil(slices, across) != splits || l.partsAt(k)+4*severalHeight*l.cols*tiles*ranges*splits > workspaceSize {
			continue
		}
		cost := ceil(most, deep)*per*deep*across*sliceBytes + 16*across*l.slice
		if splits > 1 {
			cost += 48<<10 + splits*tiles<<11
		}
		if best.ranges == 0 || cost < least {
			best, least = share{ranges, splits, across, tiles}, cost
		}
	}
	return best
}

// launchSeveral queues the products that of numbers, whose types are the same.
func (o *ops) launchSeveral(dst []device.Tensor, x device.Tensor, n normWeights, w []device.Tensor, mode int, of []int) {
	dt, k := w[of[0]].DType, x.Dim(1)
	s := severalKernels[dt]
	fixed, items := true, 0
	for _, i := range of {
		fixed = fixed && w[i].Memory().(*memory).fixed
		items += ceil(w[i].Dim(0), severalHeight)
	}
	per := 1 // tiles of an item
	if mode == gate {
		items, per = items/2, 2
	}
	for r, rows := 0, 0; r < x.Dim(0); r += rows {
		rows = min(s.most(), x.Dim(0)-r)
		for rows > 8 && !s.of(rows).fits(k, items*per, o.d.drv.multiprocessors()) {
			rows = min(rows/2, 16)
		}
		l := s.of(rows)
		sh := l.share(o.d.drv.multiprocessors(), items, per, k, severalHeight*dt.RowSize(s.slice))
		slices, unit := ceil(k, s.slice), l.operandSize(k)
		squares := unit + 4*slices*l.cols
		o.call(s.operand).work(0).work(unit).work(squares).tensor(x.Rows(r, r+rows)).tensor(n.W).int(rows, k).pdlEarly().
			run(blocks{slices, l.cols / 8, 1}, 32)
		shared := l.shared(dt)
		c := o.call(l.name).work(0).work(unit).work(squares).bool(!n.W.Absent()).float(float64(n.Eps))
		c.products(dst, w, of, r, r+rows)
		c.int(rows, k, dt.RowSize(k), mode).bool(fixed).work(l.partsAt(k)).word(uint64(o.d.counts.at)).
			int(sh.ranges, sh.splits, sh.across, sh.tiles).pdlEarly().
			runShared(blocks{sh.ranges * sh.splits, 1, 1}, 32*l.warps, shared)
	}
}
