//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// gemmRows is the least rows of x for a GEMM with f16 operands.
const gemmRows = 64

// suitsGEMM reports whether x·wᵀ is one, on tensor cores.
func suitsGEMM(rows, k int, w device.DType) bool {
	return rows >= gemmRows && k%32 == 0 && w != device.F32 && w != device.I32 && 2*k <= operandsSize/4
}

// suitsGEMMs is suitsGEMM for each w, with a norm in front.
func (o *ops) suitsGEMMs(x device.Tensor, n fusedNorm, w []device.Tensor) bool {
	if !n.W.Absent() && !o.aligned(x, n.W) {
		return false
	}
	for _, w := range w {
		if !suitsGEMM(x.Dim(0), x.Dim(1), w.DType) {
			return false
		}
	}
	return true
}

// f16Rows is the rows of x that operands holds in f16: from lo to hi-1.
type f16Rows struct{ lo, hi int }

// gemmFusion is what is fused into a GEMM: a norm of x, and adding to what dst holds.
type gemmFusion struct {
	norm fusedNorm
	add  bool
}

// gemm computes dst = x·wᵀ with f16 operands, in tiles of as many rows of x and of w as
// operands has room for. have says which rows of x are there already.
func (o *ops) gemm(dst, x, w device.Tensor, f gemmFusion, have *f16Rows) {
	rows, n, k := x.Dim(0), w.Dim(0), x.Dim(1)
	maxRows := operandsSize / 3 / (2 * k)
	sizeX := ceil(min(rows, maxRows)*2*k, 256) * 256
	each := n // rows of w at a time
	if w.DType != device.F16 {
		room := (operandsSize - sizeX) / (2 * k)
		each = min(n, max(room/256*256, min(room, 255)), maxGridYZ/256*256)
	}
	x16, w16 := o.d.operands.at, o.d.operands.at+uintptr(sizeX)
	for r := 0; r < rows; r += maxRows {
		m := min(maxRows, rows-r)
		if (f16Rows{r, r + m}) != *have {
			*have = f16Rows{r, r + m}
			o.toF16Norm(x16, x.Rows(r, r+m), f.norm)
		}
		for c := 0; c < n; c += each {
			part, at := w.Rows(c, min(c+each, n)), w16
			if w.DType == device.F16 {
				at = o.d.address(part)
			} else {
				o.toF16(at, part)
			}
			o.multiply(o.d.address(dst.Rows(r, rows))+uintptr(4*c), x16, at, m, part.Dim(0), k, n, f.add)
		}
	}
}

// gemmNorm computes dst[i] = norm(x)·w[i]ᵀ.
func (o *ops) gemmNorm(dst []device.Tensor, x device.Tensor, n fusedNorm, w []device.Tensor) bool {
	if !o.suitsGEMMs(x, n, w) {
		return false
	}
	var have f16Rows
	for i := range dst {
		o.gemm(dst[i], x, w[i], gemmFusion{norm: n}, &have)
	}
	return true
}

// gemmAdd computes dst += x·wᵀ.
func (o *ops) gemmAdd(dst, x, w device.Tensor) bool {
	if !suitsGEMM(x.Dim(0), x.Dim(1), w.DType) {
		return false
	}
	var have f16Rows
	o.gemm(dst, x, w, gemmFusion{add: true}, &have)
	return true
}

// gemmFeedForward computes x += (silu(norm(x)·w[0]ᵀ) · (norm(x)·w[1]ᵀ))·w[2]ᵀ, with the first
// two products in wide. The input of the last one exists in f16 only.
func (o *ops) gemmFeedForward(x device.Tensor, n fusedNorm, w, wide []device.Tensor) bool {
	if x.Dim(0) < gemmRows || o.suitsSkinnyWGMMA(x, n, w[:2]) {
		return false
	}
	rows, ff := x.Dim(0), w[2].Dim(1)
	if rows > operandsSize/3/(2*ff) || !suitsGEMM(rows, ff, w[2].DType) || !o.gemmNorm(wide, x, n, w[:2]) {
		return false
	}
	o.launch("to_f16_swiglu").word(uint64(o.d.operands.at)).tensor(wide[0]).tensor(wide[1]).int(rows*ff/8).
		run(blocks{min(ceil(rows*ff, 8*256), 1<<14), 1, 1}, 256)
	have := f16Rows{0, rows}
	o.gemm(x, wide[0], w[2], gemmFusion{add: true}, &have)
	return true
}

// toF16Kernels convert to f16, by type; to_f16_any converts all others.
var toF16Kernels = map[device.DType]string{
	device.F32: "to_f16_f32", device.BF16: "to_f16_bf16", device.Q4_0: "to_f16_q4_0", device.Q8_0: "to_f16_q8_0",
	device.Q4_K: "to_f16_q4_k", device.Q5_K: "to_f16_q5_k", device.Q6_K: "to_f16_q6_k",
}

// toF16 converts a matrix to f16.
func (o *ops) toF16(dst uintptr, x device.Tensor) {
	rows, k := x.Dim(0), x.Dim(1)
	name, ok := toF16Kernels[x.DType]
	if !ok {
		name = "to_f16_any"
	}
	c := o.launch(name).word(uint64(dst)).tensor(x).int(int(x.DType), rows, k, x.DType.RowSize(k))
	if x.DType.Quantized() {
		c.run(blocks{ceil(k, 128*32), rows, 1}, 128)
		return
	}
	c.run(blocks{min(ceil(rows*k, 8*256), 1<<14), 1, 1}, 256)
}

// toF16Norm is toF16 behind a norm, if there is one.
func (o *ops) toF16Norm(dst uintptr, x device.Tensor, n fusedNorm) {
	if n.W.Absent() {
		o.toF16(dst, x)
		return
	}
	o.launch("to_f16_rmsnorm").word(uint64(dst)).tensor(x).tensor(n.W).int(x.Dim(1)).
		float(float64(n.Eps)).run(blocks{x.Dim(0), 1, 1}, 256)
}

// maxGridYZ is the limit of a grid in y and z.
const maxGridYZ = 65535

// Tiles of dst that a block of gemm.cu and of gemm_wgmma.cu computes, and the bytes of shared
// memory of its pipeline.
const (
	gemmTile    = 128
	gemmShared  = 3 * 2 * gemmTile * (32 + 8) * 2
	wgmmaRows   = 128
	wgmmaCols   = 256
	wgmmaShared = 4 * (wgmmaRows + wgmmaCols) * 64 * 2
)

// multiply computes dst = x·wᵀ, or dst += x·wᵀ, by cuBLASLt if it is there: dst f32 [rows, n]
// with a row stride of ld floats, x and w f16.
func (o *ops) multiply(dst, x, w uintptr, rows, n, k, ld int, add bool) {
	if (dst|x|w)%256 == 0 && o.d.drv.hasLibrary() {
		if err := o.d.drv.multiply(dst, x, w, rows, n, k, ld, add, o.d.operands.at+uintptr(operandsSize)); err != nil {
			o.d.keep(fmt.Errorf("MatMul: %w", err))
		}
		return
	}
	o.ownGEMM(o.d.drv.hasWGMMA() && k%64 == 0, dst, x, w, rows, n, k, ld, add)
}

// ownGEMM is multiply by our own kernels, gemm_wgmma.cu or gemm.cu.
func (o *ops) ownGEMM(wgmma bool, dst, x, w uintptr, rows, n, k, ld int, add bool) {
	name, grid, shared := "gemm", blocks{ceil(rows, gemmTile), ceil(n, gemmTile), 1}, gemmShared
	if wgmma {
		name, grid, shared = "gemm_wgmma", blocks{ceil(rows, wgmmaRows), ceil(n, wgmmaCols), 1}, wgmmaShared
	}
	o.launch(name).word(uint64(dst)).word(uint64(x)).word(uint64(w)).int(rows, n, k, ld).bool(add).runShared(grid, 256, shared)
}
