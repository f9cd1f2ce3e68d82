//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// MatMul multiplies by a transposed matrix: dst = x·wᵀ.
func (o *ops) MatMul(dst, x, w device.Tensor) {
	checkProduct(dst, x, w)
	o.one = [3]device.Tensor{dst, w}
	if o.few(o.one[:1], x, device.Norm{}, o.one[1:2], store) {
		return
	}
	var have halfRows
	o.product(dst, x, w, &have)
}

// MatMuls computes dst[i] = x·w[i]ᵀ for each i, preparing x once.
func (o *ops) MatMuls(dst []device.Tensor, x device.Tensor, w []device.Tensor) {
	if len(dst) != len(w) {
		device.Check(false, "MatMul", "%d results for %d matrices", len(dst), len(w))
	}
	for i := range dst {
		checkProduct(dst[i], x, w[i])
	}
	if o.few(dst, x, device.Norm{}, w, store) {
		return
	}
	var have halfRows
	for i := range dst {
		o.product(dst[i], x, w[i], &have)
	}
}

// checkProduct panics unless the shapes of dst = x·wᵀ fit together.
func checkProduct(dst, x, w device.Tensor) {
	const op = "MatMul"
	device.CheckShape(op, "w", w, w.DType, -1, -1)
	n, k := w.Dim(0), w.Dim(1)
	device.CheckShape(op, "x", x, device.F32, -1, k)
	device.CheckShape(op, "dst", dst, device.F32, x.Dim(0), n)
}

// product queues dst = x·wᵀ with the kernel that suits the type and the shape. have says
// which rows of x are there in half precision.
func (o *ops) product(dst, x, w device.Tensor, have *halfRows) {
	rows, n, k := x.Dim(0), w.Dim(0), x.Dim(1)
	switch {
	case rows == 0:
	case suitsMany(rows, k, w.DType):
		o.many(dst, x, w, manyAround{}, have)
	case w.DType == device.F32 && k%8 == 0:
		o.plain(dst, x, w)
	default:
		o.call("matmul").tensor(dst).tensor(x).tensor(w).int(int(w.DType), rows, n, k, w.DType.RowSize(k)).
			run(blocks{ceil(n, 8), rows, 1}, 256)
	}
}

// plain queues the product of rows with f32 weights, up to 8 rows at a time.
func (o *ops) plain(dst, x, w device.Tensor) {
	n, k := w.Dim(0), w.Dim(1)
	for r := 0; r < x.Dim(0); r += 8 {
		m := min(8, x.Dim(0)-r)
		name := "gemv_8"
		switch {
		case m <= 2:
			name = "gemv_2"
		case m <= 4:
			name = "gemv_4"
		}
		o.call(name).tensor(dst.Rows(r, r+m)).tensor(x.Rows(r, r+m)).tensor(w).int(m, n, k).run(blocks{ceil(n, 16), 1, 1}, 256)
	}
}
