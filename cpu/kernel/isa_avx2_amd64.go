package kernel

import "github.com/gollm/gollm/device"

// The loops of tiles with AVX2; the numbers are the steps added in 16 bits.
var (
	gemmBlock8AVX2     = gemmBlockTable{nil, gemmBlock8T1AVX2, gemmBlock8T2AVX2, gemmBlock8T3AVX2, gemmBlock8T4AVX2, gemmBlock8T5AVX2, gemmBlock8T6AVX2}
	gemmBlockMin4AVX2  = gemmBlockTable{nil, gemmBlockMin4T1AVX2, gemmBlockMin4T2AVX2, gemmBlockMin4T3AVX2, gemmBlockMin4T4AVX2, gemmBlockMin4T5AVX2, gemmBlockMin4T6AVX2}
	gemmBlock4AVX2     = gemmBlockTable{nil, gemmBlock4T1AVX2, gemmBlock4T2AVX2, gemmBlock4T3AVX2, gemmBlock4T4AVX2, gemmBlock4T5AVX2, gemmBlock4T6AVX2}
	gemmBlockMin2AVX2  = gemmBlockTable{nil, gemmBlockMin2T1AVX2, gemmBlockMin2T2AVX2, gemmBlockMin2T3AVX2, gemmBlockMin2T4AVX2, gemmBlockMin2T5AVX2, gemmBlockMin2T6AVX2}
	gemmBlockSplitAVX2 = gemmBlockTable{nil, gemmBlockSplitT1AVX2, gemmBlockSplitT2AVX2, gemmBlockSplitT3AVX2, gemmBlockSplitT4AVX2, gemmBlockSplitT5AVX2, gemmBlockSplitT6AVX2}
	gemm16Min4AVX2     = gemmTable{nil, gemm16Min4T1AVX2, gemm16Min4T2AVX2, gemm16Min4T3AVX2, gemm16Min4T4AVX2, gemm16Min4T5AVX2, gemm16Min4T6AVX2}
	gemm16By4AVX2      = gemmTable{nil, gemm16By4T1AVX2, gemm16By4T2AVX2, gemm16By4T3AVX2, gemm16By4T4AVX2, gemm16By4T5AVX2, gemm16By4T6AVX2}
	gemm32Min4AVX2     = gemmTable{nil, gemm32Min4T1AVX2, gemm32Min4T2AVX2, gemm32Min4T3AVX2, gemm32Min4T4AVX2, gemm32Min4T5AVX2, gemm32Min4T6AVX2}
	gemm32Min2AVX2     = gemmTable{nil, gemm32Min2T1AVX2, gemm32Min2T2AVX2, gemm32Min2T3AVX2, gemm32Min2T4AVX2, gemm32Min2T5AVX2, gemm32Min2T6AVX2}
	gemm16By2AVX2      = gemmTable{nil, gemm16By2T1AVX2, gemm16By2T2AVX2, gemm16By2T3AVX2, gemm16By2T4AVX2, gemm16By2T5AVX2, gemm16By2T6AVX2}
	gemm32SplitAVX2    = gemmTable{nil, gemm32SplitT1AVX2, gemm32SplitT2AVX2, gemm32SplitT3AVX2, gemm32SplitT4AVX2, gemm32SplitT5AVX2, gemm32SplitT6AVX2}
)

// tiledAVX2 is the tiled product with AVX2.
var tiledAVX2 = tiledLoops{
	device.Q4_0:   {expand: expandRowsQ4_0AVX2, pack: packBlockAVX2, gemmBlock: &gemmBlock8AVX2},
	device.Q4_1:   {expand: expandRowsQ4_1AVX2, pack: packBlockAVX2, gemmBlock: &gemmBlockMin4AVX2},
	device.Q5_0:   {expand: expandRowsQ5_0AVX2, pack: packBlockAVX2, gemmBlock: &gemmBlock4AVX2},
	device.Q5_1:   {expand: expandRowsQ5_1AVX2, pack: packBlockAVX2, gemmBlock: &gemmBlockMin2AVX2},
	device.Q8_0:   {expand: expandRowsQ8_0AVX2, pack: packBlockSplitAVX2, gemmBlock: &gemmBlockSplitAVX2},
	device.IQ4_NL: {expand: expandRowsIQ4_NLAVX2, pack: packBlockSplitAVX2, gemmBlock: &gemmBlockSplitAVX2},
	device.Q2_K:   {expand: expandRowsQ2_KAVX2, pack: pack16AVX2, gemm: &gemm16Min4AVX2},
	device.Q3_K:   {expand: expandRowsQ3_KAVX2, pack: pack16AVX2, gemm: &gemm16By4AVX2},
	device.Q4_K:   {expand: expandRowsQ4_KAVX2, pack: pack32AVX2, gemm: &gemm32Min4AVX2},
	device.Q5_K:   {expand: expandRowsQ5_KAVX2, pack: pack32AVX2, gemm: &gemm32Min2AVX2},
	device.Q6_K:   {expand: expandRowsQ6_KAVX2, pack: pack16AVX2, gemm: &gemm16By2AVX2},
	device.IQ4_XS: {expand: expandRowsIQ4_XSAVX2, pack: pack32SplitAVX2, gemm: &gemm32SplitAVX2},
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
	tiledAVX2.computeTiled(p, b, s, lo, hi)
}

// quantizeAVX2 rounds activations with AVX2.
func quantizeAVX2(dst []actBlock, step int, x []float32, s scaling) {
	quantizeWith([2]quantizeLoop{quantize32AVX2, quantize256AVX2}, dst, step, x, s)
}

// peakAVX2 runs 12 chains of products of 32 bytes or 8 floats.
var peakAVX2 = peakLoops{
	integer: peakBytesAVX2, float: peakFMAAVX2, read: peakReadAVX2,
	integers: 12 * 32 * 2, floats: 12 * 8 * 2,
}
