package cpu

import (
	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/device"
)

// MatMul multiplies by a transposed matrix: dst = x·wᵀ.
func (o *ops) MatMul(dst, x, w device.Tensor) {
	o.products = append(o.products[:0], product(dst, x, w))
	o.matmul.Run(floats(x), x.Dim(0), o.products...)
}

// MatMuls computes dst[i] = x·w[i]ᵀ for each i, preparing x once.
func (o *ops) MatMuls(dst []device.Tensor, x device.Tensor, w []device.Tensor) {
	device.Check(len(dst) == len(w), "MatMul", "%d results for %d matrices", len(dst), len(w))
	o.products = o.products[:0]
	for i := range dst {
		o.products = append(o.products, product(dst[i], x, w[i]))
	}
	o.matmul.Run(floats(x), x.Dim(0), o.products...)
}

// product checks the shapes of dst = x·wᵀ and finds its memory.
func product(dst, x, w device.Tensor) kernel.Product {
	const op = "MatMul"
	device.CheckShape(op, "w", w, w.DType, -1, -1)
	n, k := w.Dim(0), w.Dim(1)
	device.CheckShape(op, "x", x, device.F32, -1, k)
	device.CheckShape(op, "dst", dst, device.F32, x.Dim(0), n)
	return kernel.Product{Dst: floats(dst), W: kernel.NewMatrix(w.DType, n, k, bytesOf(w))}
}

// floats is an F32 matrix as the kernels take it.
func floats(t device.Tensor) kernel.Floats {
	return kernel.Floats{Data: f32s(t), Stride: t.RowLen()}
}
