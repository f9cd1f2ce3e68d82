package kernel

import (
	"github.com/gollm/gollm/device"
	"golang.org/x/sys/cpu"
)

// nativeLoops is the loops beyond portable Go that this processor can run.
func nativeLoops() []loops {
	x := &cpu.X86
	var all []loops
	if x.HasAVX2 && x.HasFMA && x.HasF16C {
		all = append(all, loops{AVX2, computeAVX2, quantizeAVX2, &peakAVX2})
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI && x.HasFMA {
		all = append(all, loops{AVX512, computeAVX512, quantizeAVX512, &peakAVX512})
	}
	return all
}

// The loops of tiles with AVX-512.
var (
	gemmBlock    = gemmBlockTable{nil, gemmBlockT1, gemmBlockT2, gemmBlockT3, gemmBlockT4, gemmBlockT5, gemmBlockT6}
	gemmBlockMin = gemmBlockTable{nil, gemmBlockMinT1, gemmBlockMinT2, gemmBlockMinT3, gemmBlockMinT4, gemmBlockMinT5, gemmBlockMinT6}
	gemm16Min    = gemmTable{nil, gemm16MinT1, gemm16MinT2, gemm16MinT3, gemm16MinT4, gemm16MinT5, gemm16MinT6}
	gemm16       = gemmTable{nil, gemm16T1, gemm16T2, gemm16T3, gemm16T4, gemm16T5, gemm16T6}
	gemm32Min    = gemmTable{nil, gemm32MinT1, gemm32MinT2, gemm32MinT3, gemm32MinT4, gemm32MinT5, gemm32MinT6}
	gemm32       = gemmTable{nil, gemm32T1, gemm32T2, gemm32T3, gemm32T4, gemm32T5, gemm32T6}
)

// tiledAVX512 is the tiled product with AVX-512.
var tiledAVX512 = tiledLoops{
	device.Q4_0:   {expand: expandRowsQ4_0, pack: packBlock, gemmBlock: &gemmBlock},
	device.Q4_1:   {expand: expandRowsQ4_1, pack: packBlock, gemmBlock: &gemmBlockMin},
	device.Q5_0:   {expand: expandRowsQ5_0, pack: packBlock, gemmBlock: &gemmBlock},
	device.Q5_1:   {expand: expandRowsQ5_1, pack: packBlock, gemmBlock: &gemmBlockMin},
	device.Q8_0:   {expand: expandRowsQ8_0, pack: packBlock, gemmBlock: &gemmBlock},
	device.IQ4_NL: {expand: expandRowsIQ4_NL, pack: packBlock, gemmBlock: &gemmBlock},
	device.Q2_K:   {expand: expandRowsQ2_K, pack: pack16, gemm: &gemm16Min},
	device.Q3_K:   {expand: expandRowsQ3_K, pack: pack16, gemm: &gemm16},
	device.Q4_K:   {expand: expandRowsQ4_K, pack: pack32, gemm: &gemm32Min},
	device.Q5_K:   {expand: expandRowsQ5_K, pack: pack32, gemm: &gemm32Min},
	device.Q6_K:   {expand: expandRowsQ6_K, pack: pack16, gemm: &gemm16},
	device.IQ4_XS: {expand: expandRowsIQ4_XS, pack: pack32, gemm: &gemm32},
}

// gemvAVX512 is the matrix-vector product with AVX-512.
var gemvAVX512 = gemvLoops{
	device.Q4_K:   {gemvQ4_KT1, gemvQ4_KT2},
	device.Q5_K:   {gemvQ5_KT1, gemvQ5_KT2},
	device.Q6_K:   {gemvQ6_KT1, gemvQ6_KT2},
	device.Q3_K:   {gemvQ3_KT1, gemvQ3_KT2},
	device.Q2_K:   {gemvQ2_KT1, gemvQ2_KT2},
	device.IQ4_XS: {gemvIQ4_XST1, nil},
	device.Q8_0:   {gemvQ8_0T1, gemvQ8_0T2},
	device.Q4_0:   {gemvQ4_0T1, gemvQ4_0T2},
	device.Q4_1:   {gemvQ4_1T1, gemvQ4_1T2},
	device.Q5_0:   {gemvQ5_0T1, gemvQ5_0T2},
	device.Q5_1:   {gemvQ5_1T1, gemvQ5_1T2},
	device.IQ4_NL: {gemvIQ4_NLT1, gemvIQ4_NLT2},
}

// floatAVX512 is the product with float matrices with AVX-512.
var floatAVX512 = floatLoops{
	tile: tileTokens,
	gemv: map[device.DType][2]func(out *float32, w *byte, stride uintptr, x *float32, xStride uintptr, steps int){
		device.F32:  {gemvF32T1, gemvF32T2},
		device.F16:  {gemvF16T1, gemvF16T2},
		device.BF16: {gemvBF16T1, gemvBF16T2},
	},
	convert: map[device.DType]func(dst *float32, src *byte, steps int){
		device.F16: convertF16, device.BF16: convertBF16,
	},
	gemm:   [tileTokens + 1]func(acc *float32, w *byte, stride uintptr, x *float32, xStride uintptr, steps int){nil, gemmF32T1, gemmF32T2, gemmF32T3, gemmF32T4, gemmF32T5, gemmF32T6},
	reduce: reduceF32,
}

// computeAVX512 picks the loop for the type and the number of tokens.
func computeAVX512(p *Product, b *Batch, s *Scratch, lo, hi int) {
	if !p.W.DType.Quantized() {
		floatAVX512.computeFloat(p, b, s, lo, hi)
		return
	}
	if _, ok := gemvAVX512[p.W.DType]; ok && b.Tokens <= gemvTokens && b.Cols%superLen == 0 {
		gemvAVX512.computeGemv(p, b, s, lo, hi)
		return
	}
	tiledAVX512.computeTiled(p, b, s, lo, hi)
}

// quantizeAVX512 rounds activations with AVX-512.
func quantizeAVX512(dst []actBlock, step int, x []float32, s scaling) {
	quantizeWith([2]quantizeLoop{quantize32, quantize256}, dst, step, x, s)
}

// quantizeLoop rounds 256 activations at a time, into blocks step bytes apart.
type quantizeLoop = func(dst *actBlock, step uintptr, x *float32, supers int)

// quantizeWith rounds whole blocks with the loop of the scaling, and the rest as
// defined.
func quantizeWith(quantize [2]quantizeLoop, dst []actBlock, step int, x []float32, s scaling) {
	n := len(x) / superLen
	if n > 0 {
		quantize[s](&dst[0], uintptr(step*actSize), &x[0], n)
	}
	if len(x) > n*superLen {
		quantizeGo(dst[n*step:], step, x[n*superLen:], s)
	}
}

// peakAVX512 runs 24 chains of products of 64 bytes or 16 floats.
var peakAVX512 = peakLoops{
	integer: peakVNNI, float: peakFMA, read: peakRead,
	integers: 24 * 64 * 2, floats: 24 * 16 * 2,
}
