//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// products computes dst[i] = x·w[i]ᵀ for each i, preparing x once.
func (o *ops) products(dst []device.Tensor, x device.Tensor, w []device.Tensor) bool {
	if o.few(dst, x, normWeights{}, w, store) {
		return true
	}
	var have prepared
	for i := range dst {
		o.product(dst[i], x, w[i], &have)
	}
	return true
}

// few computes products of one row or some if there are kernels for them:
// dst[i] = x·w[i]ᵀ, in one launch for each type among w. gate has one dst for two w.
func (o *ops) few(dst []device.Tensor, x device.Tensor, n normWeights, w []device.Tensor, mode int) bool {
	launch := o.launchSingle
	if !o.suitsSingle(x, n, w) {
		if !o.suitsSeveral(x, n, w) {
			return false
		}
		launch = o.launchSeveral
	}
	if mode == gate && w[0].DType != w[1].DType {
		return false
	}
	var done [16]bool
	if len(w) > len(done) {
		return false
	}
	for i := range w {
		if done[i] {
			continue
		}
		var of [3]int // the products of this launch
		m := 0
		for j := i; j < len(w) && m < len(of); j++ {
			if !done[j] && w[j].DType == w[i].DType {
				of[m], done[j] = j, true
				m++
			}
		}
		launch(dst, x, n, w, mode, of[:m])
	}
	return true
}

// gemvKernels are the kernels for a few rows of F32, and of the other types where those of
// gemv.cu and skinny_gemm.cu have no room: by type, for 1, 2, 4 and 8 rows.
var gemvKernels = map[device.DType][4]string{
	device.F32:  {"gemv_batch_f32_1", "gemv_batch_f32_2", "gemv_batch_f32_4", "gemv_batch_f32_8"},
	device.F16:  {"gemv_batch_f16_1", "gemv_batch_f16_2", "gemv_batch_f16_4", "gemv_batch_f16_8"},
	device.BF16: {"gemv_batch_bf16_1", "gemv_batch_bf16_2", "gemv_batch_bf16_4", "gemv_batch_bf16_8"},
	device.Q4_0: {"gemv_batch_q4_0_1", "gemv_batch_q4_0_2", "gemv_batch_q4_0_4", "gemv_batch_q4_0_8"},
	device.Q8_0: {"gemv_batch_q8_0_1", "gemv_batch_q8_0_2", "gemv_batch_q8_0_4", "gemv_batch_q8_0_8"},
	device.Q4_K: {"gemv_batch_q4_k_1", "gemv_batch_q4_k_2", "gemv_batch_q4_k_4", "gemv_batch_q4_k_8"},
	device.Q5_K: {"gemv_batch_q5_k_1", "gemv_batch_q5_k_2", "gemv_batch_q5_k_4", "gemv_batch_q5_k_8"},
	device.Q6_K: {"gemv_batch_q6_k_1", "gemv_batch_q6_k_2", "gemv_batch_q6_k_4", "gemv_batch_q6_k_8"},
}

// gemvRows is the most rows that these take at once.
const gemvRows = 8

// prepared says what of x the workspaces have.
type prepared struct {
	eight  bool     // with 8 bits
	halves halfRows // in half precision
}

// product queues dst = x·wᵀ with the kernel that suits the type and the shape.
func (o *ops) product(dst, x, w device.Tensor, have *prepared) {
	rows, k := x.Dim(0), x.Dim(1)
	names, fast := gemvKernels[w.DType]
	fast = fast && w.DType.RowSize(k)%16 == 0
	switch {
	case rows == 0:
	case suitsMany(rows, k, w.DType):
		o.many(dst, x, w, manyAround{}, &have.halves)
	case fast && w.DType.Quantized() && rows*eightSize(k) <= workspaceSize:
		if !have.eight {
			o.call("quantize").work(0).tensor(x).int(k).run(blocks{ceil(k, 256), rows, 1}, 256)
			have.eight = true
		}
		o.gemv(dst, w, names, rows, func(c *call, r int) { c.work(r * eightSize(k)) })
	case fast && !w.DType.Quantized() && k%8 == 0:
		o.gemv(dst, w, names, rows, func(c *call, r int) { c.tensor(x.Rows(r, rows)) })
	default:
		o.call("matmul").tensor(dst).tensor(x).tensor(w).int(int(w.DType), rows, w.Dim(0), k, w.DType.RowSize(k)).
			run(blocks{ceil(w.Dim(0), 8), rows, 1}, 256)
	}
}

// eightSize is the bytes of a row of k activations with 8 bits; see gemv_batch.cu.
func eightSize(k int) int { return (k + k/32*4 + k/16*4 + 15) / 16 * 16 }

// gemv queues the product of rows with the kernels that need little shared memory, some
// rows at a time; from gives a call the activations from a row on.
func (o *ops) gemv(dst, w device.Tensor, names [4]string, rows int, from func(c *call, r int)) {
	n, k := w.Dim(0), w.Dim(1)
	each := 8 // rows of w that a block takes
	if !w.DType.Quantized() {
		each = 16
	}
	for r := 0; r < rows; r += gemvRows {
		m := min(gemvRows, rows-r)
		name := names[3]
		for i, most := range [3]int{1, 2, 4} {
			if m <= most {
				name = names[i]
				break
			}
		}
		c := o.call(name).tensor(dst.Rows(r, rows))
		from(c, r)
		c.tensor(w).int(m, n, k, w.DType.RowSize(k)).run(blocks{ceil(n, each), 1, 1}, 256)
	}
}
