package kernel

import "github.com/gollm/gollm/device"

// rowsAVX2 is the product with quantized matrices with AVX2.
var rowsAVX2 = rowLoops{
	expand: map[device.DType]func(dst *block, src *byte, stride uintptr, rows int){
		device.Q4_0:   expandRowsQ4_0AVX2,
		device.Q4_1:   expandRowsQ4_1AVX2,
		device.Q5_0:   expandRowsQ5_0AVX2,
		device.Q5_1:   expandRowsQ5_1AVX2,
		device.Q8_0:   expandRowsQ8_0AVX2,
		device.IQ4_NL: expandRowsIQ4_NLAVX2,
		device.Q2_K:   expandRowsQ2_KAVX2,
		device.Q3_K:   expandRowsQ3_KAVX2,
		device.Q4_K:   expandRowsQ4_KAVX2,
		device.Q5_K:   expandRowsQ5_KAVX2,
		device.Q6_K:   expandRowsQ6_KAVX2,
		device.IQ4_XS: expandRowsIQ4_XSAVX2,
	},
	dot: map[scheme]func(acc *float32, rows *block, act *actBlock){
		{0, false}:  dotBlocksAVX2,
		{0, true}:   dotBlocksMinAVX2,
		{16, false}: dot16AVX2,
		{16, true}:  dot16MinAVX2,
		{32, false}: dot32AVX2,
		{32, true}:  dot32MinAVX2,
	},
}

// gemvAVX2 is the matrix-vector product with AVX2.
var gemvAVX2 = gemvLoops{
	device.Q4_K:   {gemvQ4_KAVX2},
	device.Q5_K:   {gemvQ5_KAVX2},
	device.Q6_K:   {gemvQ6_KAVX2},
	device.Q3_K:   {gemvQ3_KAVX2},
	device.Q2_K:   {gemvQ2_KAVX2},
	device.IQ4_XS: {gemvIQ4_XSAVX2},
	device.Q8_0:   {gemvQ8_0AVX2},
	device.Q4_0:   {gemvQ4_0AVX2},
	device.Q4_1:   {gemvQ4_1AVX2},
	device.Q5_0:   {gemvQ5_0AVX2},
	device.Q5_1:   {gemvQ5_1AVX2},
	device.IQ4_NL: {gemvIQ4_NLAVX2},
}

// floatAVX2 is the product with float matrices with AVX2, FMA and F16C.
var floatAVX2 = floatLoops{
	tile: 3,
	gemv: map[device.DType][2]func(out *float32, w *byte, stride uintptr, x *float32, xStride uintptr, steps int){
		device.F32:  {gemvF32AVX2},
		device.F16:  {gemvF16AVX2},
		device.BF16: {gemvBF16AVX2},
	},
	convert: map[device.DType]func(dst *float32, src *byte, steps int){
		device.F16: convertF16AVX2, device.BF16: convertBF16AVX2,
	},
	gemm:   [tileTokens + 1]func(acc *float32, w *byte, stride uintptr, x *float32, xStride uintptr, steps int){nil, gemmF32T1AVX2, gemmF32T2AVX2, gemmF32T3AVX2},
	reduce: reduceF32AVX2,
}

// computeAVX2 picks the loop for the type and the number of tokens.
func computeAVX2(p *Product, b *Batch, s *Scratch, lo, hi int) {
	if !p.W.DType.Quantized() {
		floatAVX2.computeFloat(p, b, s, lo, hi)
		return
	}
	if b.Tokens <= gemvTokens && b.Cols%superLen == 0 {
		gemvAVX2.computeGemv(p, b, s, lo, hi)
		return
	}
	rowsAVX2.computeRows(p, b, s, lo, hi)
}
