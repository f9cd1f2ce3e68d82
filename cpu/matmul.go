package cpu

import (
	"math"
	"unsafe"

	"github.com/gollm/gollm/device"
)

// MatMul multiplies by a transposed matrix: dst = x·wᵀ.
func (o *ops) MatMul(dst, x, w device.Tensor) {
	const op = "MatMul"
	device.CheckShape(op, "w", w, w.DType, -1, -1)
	n, k := w.Dim(0), w.Dim(1)
	device.CheckShape(op, "x", x, device.F32, -1, k)
	rows := x.Dim(0)
	device.CheckShape(op, "dst", dst, device.F32, rows, n)
	out, in, src := f32s(dst), f32s(x), bytesOf(w)
	size := w.DType.RowSize(k)
	wide := make([]float32, k)
	for i := range n {
		o.widen(wide, row(src, i, size), w.DType)
		for r := range rows {
			var sum float64
			for j, v := range row(in, r, k) {
				sum += float64(v) * float64(wide[j])
			}
			out[r*n+i] = float32(sum)
		}
	}
}

// MatMuls computes dst[i] = x·w[i]ᵀ for each i.
func (o *ops) MatMuls(dst []device.Tensor, x device.Tensor, w []device.Tensor) {
	device.Check(len(dst) == len(w), "MatMuls", "%d results for %d matrices", len(dst), len(w))
	for i := range dst {
		o.MatMul(dst[i], x, w[i])
	}
}

// widen converts a row of any type to f32.
func (o *ops) widen(dst []float32, src []byte, dt device.DType) {
	p := unsafe.Pointer(unsafe.SliceData(src))
	switch dt {
	case device.F32:
		copy(dst, unsafe.Slice((*float32)(p), len(dst)))
	case device.F16:
		o.vec.FromHalf(dst, unsafe.Slice((*uint16)(p), len(dst)))
	case device.BF16:
		for i, v := range unsafe.Slice((*uint16)(p), len(dst)) {
			dst[i] = math.Float32frombits(uint32(v) << 16)
		}
	default:
		device.Check(false, "widen", "%v is not supported yet", dt)
	}
}
