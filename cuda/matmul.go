//go:build cuda || cudaemu

package cuda

import (
	"math/bits"

	"github.com/gollm/gollm/device"
)

// products computes dst[i] = x·w[i]ᵀ for each i. x is converted for all of them once.
func (o *ops) products(dst []device.Tensor, x device.Tensor, w []device.Tensor) {
	if o.skinny(dst, x, fusedNorm{}, w, epilogueStore) {
		return
	}
	var have converted
	for i := range dst {
		o.product(dst[i], x, w[i], &have)
	}
}

// converted says which conversions of x are in device memory.
type converted struct {
	q8  bool    // all rows, quantized to int8, in the workspace
	f16 f16Rows // in operands
}

// product computes dst = x·wᵀ by the kernel that suits the type and the shape.
func (o *ops) product(dst, x, w device.Tensor, have *converted) {
	rows, k := x.Dim(0), x.Dim(1)
	names, ok := gemvBatchKernels[w.DType]
	switch {
	case rows == 0:
	case suitsGEMM(rows, k, w.DType):
		o.gemm(dst, x, w, gemmFusion{}, &have.f16)
	case ok && w.DType.Quantized() && rows*q8RowSize(k) <= workspaceSize:
		if !have.q8 {
			o.launch("quantize").work(0).tensor(x).int(k).run(blocks{ceil(k, 256), rows, 1}, 256)
			have.q8 = true
		}
		o.gemvBatch(dst, w, names, rows, func(c *launch, r int) { c.work(r * q8RowSize(k)) })
	case ok && !w.DType.Quantized() && k%8 == 0:
		o.gemvBatch(dst, w, names, rows, func(c *launch, r int) { c.tensor(x.Rows(r, rows)) })
	default:
		o.launch("matmul").tensor(dst).tensor(x).tensor(w).int(int(w.DType), rows, w.Dim(0), k, w.DType.RowSize(k)).
			run(blocks{ceil(w.Dim(0), 8), rows, 1}, 256)
	}
}

// fusedNorm is an RMSNorm of the rows of x that is fused into a product; without W there is none.
type fusedNorm struct {
	W   device.Tensor // f32 [dim]
	Eps float32
}

// epilogue is what is fused behind a product, as in gemv.cu and skinny_gemm.cu.
type epilogue int

const (
	epilogueStore  epilogue = iota // dst[i] = x·w[i]ᵀ
	epilogueAdd                    // dst[i] += x·w[i]ᵀ
	epilogueSwiGLU                 // dst[0] = silu(x·w[0]ᵀ) · (x·w[1]ᵀ)
	epilogueQKV                    // RoPE and append of q, k and v; of gemv.cu alone
)

// maxProducts is the maximum of products of one x that are taken at once.
const maxProducts = 16

// skinny computes the products of one row by gemv.cu, or of a decode batch by skinny_wgmma.cu or
// skinny_gemm.cu, with a norm in front and an epilogue, in one launch for up to three matrices of a type. It
// reports whether the operands suit the kernels.
func (o *ops) skinny(dst []device.Tensor, x device.Tensor, n fusedNorm, w []device.Tensor, e epilogue) bool {
	single, wgmma := o.suitsGEMV(x, n, w), o.suitsSkinnyWGMMA(x, n, w)
	if !single && !wgmma && !o.suitsSkinnyGEMM(x, n, w) {
		return false
	}
	if e == epilogueSwiGLU && w[0].DType != w[1].DType || len(w) > maxProducts {
		return false
	}
	var done [maxProducts]bool
	for i := range w {
		if done[i] {
			continue
		}
		var of [3]int // the products of this launch
		count := 0
		for j := i; j < len(w) && count < len(of); j++ {
			if !done[j] && w[j].DType == w[i].DType {
				of[count], done[j] = j, true
				count++
			}
		}
		p := products{dst, x, n, w, e, of[:count]}
		switch {
		case single:
			o.gemv(&p)
		case wgmma:
			o.skinnyWGMMA(&p, i > 0)
		default:
			o.skinnyGEMM(&p)
		}
	}
	return true
}

// products are those of a launch: of numbers them in dst and w, whose types are the same.
type products struct {
	dst      []device.Tensor
	x        device.Tensor // f32 [rows, k]
	norm     fusedNorm
	w        []device.Tensor
	epilogue epilogue
	of       []int
}

// dtype is the type of the matrices.
func (p *products) dtype() device.DType { return p.w[p.of[0]].DType }

// constant reports whether no kernel writes the matrices, so that they may be read before
// pdl_wait.
func (p *products) constant() bool {
	for _, i := range p.of {
		if !p.w[i].Memory().(*memory).constant {
			return false
		}
	}
	return true
}

// products appends three results, from row lo to hi-1 of each, three matrices, and the rows of
// each matrix; those that there are not are 0.
func (c *launch) products(p *products, lo, hi int) {
	for i := range 3 {
		if i < len(p.of) && p.of[i] < len(p.dst) {
			c.tensor(p.dst[p.of[i]].Rows(lo, hi))
		} else {
			c.word(0)
		}
	}
	for i := range 3 {
		if i < len(p.of) {
			c.tensor(p.w[p.of[i]])
		} else {
			c.word(0)
		}
	}
	for i := range 3 {
		if i < len(p.of) {
			c.int(p.w[p.of[i]].Dim(0))
		} else {
			c.word(0)
		}
	}
}

// gemvBatchKernels are the simple kernels for up to 1, 2, 4 and 8 rows of x: of F32, and of the
// other types where gemv.cu and skinny_gemm.cu have too little shared memory.
var gemvBatchKernels = map[device.DType][4]string{
	device.F32:  {"gemv_batch_f32_1", "gemv_batch_f32_2", "gemv_batch_f32_4", "gemv_batch_f32_8"},
	device.F16:  {"gemv_batch_f16_1", "gemv_batch_f16_2", "gemv_batch_f16_4", "gemv_batch_f16_8"},
	device.BF16: {"gemv_batch_bf16_1", "gemv_batch_bf16_2", "gemv_batch_bf16_4", "gemv_batch_bf16_8"},
	device.Q4_0: {"gemv_batch_q4_0_1", "gemv_batch_q4_0_2", "gemv_batch_q4_0_4", "gemv_batch_q4_0_8"},
	device.Q8_0: {"gemv_batch_q8_0_1", "gemv_batch_q8_0_2", "gemv_batch_q8_0_4", "gemv_batch_q8_0_8"},
	device.Q4_K: {"gemv_batch_q4_k_1", "gemv_batch_q4_k_2", "gemv_batch_q4_k_4", "gemv_batch_q4_k_8"},
	device.Q5_K: {"gemv_batch_q5_k_1", "gemv_batch_q5_k_2", "gemv_batch_q5_k_4", "gemv_batch_q5_k_8"},
	device.Q6_K: {"gemv_batch_q6_k_1", "gemv_batch_q6_k_2", "gemv_batch_q6_k_4", "gemv_batch_q6_k_8"},
}

// gemvBatchRows is the maximum of rows of x per launch.
const gemvBatchRows = 8

// q8RowSize is the bytes of a row of k activations in int8: see gemv_batch.cu.
func q8RowSize(k int) int { return (k + k/32*4 + k/16*4 + 15) / 16 * 16 }

// gemvBatch computes a product by those kernels, up to 8 rows at a time; x appends the
// activations from row r on.
func (o *ops) gemvBatch(dst, w device.Tensor, names [4]string, rows int, x func(c *launch, r int)) {
	n, k := w.Dim(0), w.Dim(1)
	each := 8 // rows of w per block
	if !w.DType.Quantized() {
		each = 16
	}
	for r := 0; r < rows; r += gemvBatchRows {
		m := min(gemvBatchRows, rows-r)
		c := o.launch(names[bits.Len(uint(m-1))]).tensor(dst.Rows(r, rows))
		x(c, r)
		c.tensor(w).int(m, n, k, w.DType.RowSize(k)).run(blocks{ceil(n, each), 1, 1}, 256)
	}
}
