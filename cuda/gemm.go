//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// halveKernels make half precision of a type; halve_any does of all others.
var halveKernels = map[device.DType]string{
	device.F32: "to_f16_f32", device.BF16: "to_f16_bf16", device.Q4_0: "to_f16_q4_0", device.Q8_0: "to_f16_q8_0",
	device.Q4_K: "to_f16_q4_k", device.Q5_K: "to_f16_q5_k", device.Q6_K: "to_f16_q6_k",
}

// manyRows is the number of rows from which on products are those of half precision.
const manyRows = 64

// suitsMany reports whether a product is made in half precision on tensor cores.
func suitsMany(rows, k int, w device.DType) bool {
	return rows >= manyRows && k%32 == 0 && w != device.F32 && w != device.I32 && 2*k <= halvesSize/4
}

// halfRows is the rows of x that are in memory in half precision: from lo to hi-1.
type halfRows struct{ lo, hi int }

// manyAround is what happens around a product of many rows: x is normalized before,
// unless norm.W is absent, and what dst held is added.
type manyAround struct {
	norm normWeights
	add  bool
}

// manySuit reports whether products by all of w are made in half precision on tensor
// cores, with what is around them.
func (o *ops) manySuit(x device.Tensor, around manyAround, w []device.Tensor) bool {
	if n := around.norm.W; !n.Absent() && (o.d.address(x)%16 != 0 || o.d.address(n)%16 != 0) {
		return false
	}
	for _, w := range w {
		if !suitsMany(x.Dim(0), x.Dim(1), w.DType) {
			return false
		}
	}
	return true
}

// many queues dst = x·wᵀ in half precision: as many rows of x and then of w as there
// is memory for at a time. have says which rows of x are there already.
func (o *ops) many(dst, x, w device.Tensor, around manyAround, have *halfRows) {
	rows, n, k := x.Dim(0), w.Dim(0), x.Dim(1)
	maxX := halvesSize / 3 / (2 * k)
	forX := min(rows, maxX) * 2 * k
	forX = (forX + 255) / 256 * 256
	each := n
	if w.DType != device.F16 {
		room := (halvesSize - forX) / (2 * k)
		each = min(n, max(room/256*256, min(room, 255)), maxBlocks/256*256)
	}
	halfX, halfW := o.d.halves.at, o.d.halves.at+uintptr(forX)
	for r := 0; r < rows; r += maxX {
		m := min(maxX, rows-r)
		if (halfRows{r, r + m}) != *have {
			*have = halfRows{r, r + m}
			if around.norm.W.Absent() {
				o.halve(halfX, x.Rows(r, r+m))
			} else {
				o.call("to_f16_rmsnorm").word(uint64(halfX)).tensor(x.Rows(r, r+m)).tensor(around.norm.W).int(k).
					float(float64(around.norm.Eps)).run(blocks{m, 1, 1}, 256)
			}
		}
		for c := 0; c < n; c += each {
			part := w.Rows(c, min(c+each, n))
			at := halfW
			if w.DType == device.F16 {
				at = o.d.address(part)
			} else {
				o.halve(at, part)
			}
			o.multiply(o.d.address(dst.Rows(r, rows))+uintptr(4*c), halfX, at, m, part.Dim(0), k, n, around.add)
		}
	}
}

// manyNormed computes dst[i] = norm(x)·w[i]ᵀ of many rows.
func (o *ops) manyNormed(dst []device.Tensor, x device.Tensor, n normWeights, w []device.Tensor) bool {
	around := manyAround{norm: n}
	if !o.manySuit(x, around, w) {
		return false
	}
	var have halfRows
	for i := range dst {
		o.many(dst[i], x, w[i], around, &have)
	}
	return true
}

// manyAdded computes dst += x·wᵀ of many rows.
func (o *ops) manyAdded(dst, x, w device.Tensor) bool {
	if !suitsMany(x.Dim(0), x.Dim(1), w.DType) {
		return false
	}
	var have halfRows
	o.many(dst, x, w, manyAround{add: true}, &have)
	return true
}

// feed computes x += (silu(norm(x)·gateᵀ) · (norm(x)·upᵀ))·downᵀ of many rows. What
// is between the products exists in half precision alone.
func (o *ops) feed(x device.Tensor, n normWeights, w, wide []device.Tensor) bool {
	if x.Dim(0) < manyRows {
		return false
	}
	rows, ff := x.Dim(0), w[2].Dim(1)
	if rows > halvesSize/3/(2*ff) || !suitsMany(rows, ff, w[2].DType) || !o.manyNormed(wide, x, n, w[:2]) {
		return false
	}
	o.call("to_f16_swiglu").word(uint64(o.d.halves.at)).tensor(wide[0]).tensor(wide[1]).int(rows*ff/8).
		run(blocks{min(ceil(rows*ff, 8*256), 1<<14), 1, 1}, 256)
	have := halfRows{0, rows}
	o.many(x, wide[0], w[2], manyAround{add: true}, &have)
	return true
}

// halve queues the conversion of a matrix to half precision.
func (o *ops) halve(dst uintptr, x device.Tensor) {
	rows, k := x.Dim(0), x.Dim(1)
	name, ok := halveKernels[x.DType]
	if !ok {
		name = "to_f16_any"
	}
	c := o.call(name).word(uint64(dst)).tensor(x).int(int(x.DType), rows, k, x.DType.RowSize(k))
	if x.DType.Quantized() {
		c.run(blocks{ceil(k, 128*32), rows, 1}, 128)
		return
	}
	c.run(blocks{min(ceil(rows*k, 8*256), 1<<14), 1, 1}, 256)
}

// maxBlocks is how many blocks a launch may have in y and z.
const maxBlocks = 65535

// Products of many rows by our own kernels: rows and columns of dst that a block
// computes, and the shared memory that it needs.
const (
	gemmTile   = 128
	gemmShared = 3 * 2 * gemmTile * (32 + 8) * 2
	wideRows   = 128
	wideCols   = 256
	wideShared = 4 * (wideRows + wideCols) * 64 * 2
)

// multiply queues dst = x·wᵀ, or dst += x·wᵀ: dst f32 [rows, n] in rows of ld, x and
// w in half precision.
func (o *ops) multiply(dst, x, w uintptr, rows, n, k, ld int, add bool) {
	if (dst|x|w)%256 == 0 && o.d.drv.hasLibrary() {
		if err := o.d.drv.multiply(dst, x, w, rows, n, k, ld, add, o.d.halves.at+uintptr(halvesSize)); err != nil {
			o.d.keep(fmt.Errorf("MatMul: %w", err))
		}
		return
	}
	o.ours(o.d.drv.wide() && k%64 == 0, dst, x, w, rows, n, k, ld, add)
}

// ours is multiply by our own kernels; wide says by which.
func (o *ops) ours(wide bool, dst, x, w uintptr, rows, n, k, ld int, add bool) {
	name, at, shared := "gemm", blocks{ceil(rows, gemmTile), ceil(n, gemmTile), 1}, gemmShared
	if wide {
		name, at, shared = "gemm_wgmma", blocks{ceil(rows, wideRows), ceil(n, wideCols), 1}, wideShared
	}
	o.call(name).word(uint64(dst)).word(uint64(x)).word(uint64(w)).int(rows, n, k, ld).bool(add).runShared(at, 256, shared)
}
