//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// MatMul multiplies by a transposed matrix: dst = x·wᵀ.
func (o *ops) MatMul(dst, x, w device.Tensor) {
	const op = "MatMul"
	device.CheckShape(op, "w", w, w.DType, -1, -1)
	n, k := w.Dim(0), w.Dim(1)
	device.CheckShape(op, "x", x, device.F32, -1, k)
	rows := x.Dim(0)
	device.CheckShape(op, "dst", dst, device.F32, rows, n)
	o.call("matmul").tensor(dst).tensor(x).tensor(w).int(int(w.DType), rows, n, k, w.DType.RowSize(k)).
		run(blocks{ceil(n, 8), rows, 1}, 256)
}
