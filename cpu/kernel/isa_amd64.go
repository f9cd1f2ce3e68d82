package kernel

import (
	"github.com/gollm/gollm/device"
	"golang.org/x/sys/cpu"
)

// nativeLoops is the loops beyond portable Go that this processor can run.
func nativeLoops() []loops {
	x := &cpu.X86
	var all []loops
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI && x.HasFMA {
		all = append(all, loops{AVX512, computeAVX512, quantizeGo})
	}
	return all
}

type (
	gemmTable      = [tileTokens + 1]func(acc *float32, p *panel, act *actBlock, stride uintptr)
	gemmBlockTable = [tileTokens + 1]func(acc *float32, p *panel, act *actBlock, stride uintptr, blocks int)
)

// tiledAVX512 is the tiled product with AVX-512.
var tiledAVX512 = tiledLoops{
	expand: map[device.DType]func(dst *block, src *byte, stride uintptr, rows int){},
	pack:   map[int]func(dst *panel, rows *block){0: packBlock, 16: pack16, 32: pack32},
	gemm: map[scheme]*gemmTable{
		{16, false}: {nil, gemm16T1, gemm16T2, gemm16T3, gemm16T4, gemm16T5, gemm16T6},
		{16, true}:  {nil, gemm16MinT1, gemm16MinT2, gemm16MinT3, gemm16MinT4, gemm16MinT5, gemm16MinT6},
		{32, false}: {nil, gemm32T1, gemm32T2, gemm32T3, gemm32T4, gemm32T5, gemm32T6},
		{32, true}:  {nil, gemm32MinT1, gemm32MinT2, gemm32MinT3, gemm32MinT4, gemm32MinT5, gemm32MinT6},
	},
	gemmBlock: map[scheme]*gemmBlockTable{
		{0, false}: {nil, gemmBlockT1, gemmBlockT2, gemmBlockT3, gemmBlockT4, gemmBlockT5, gemmBlockT6},
		{0, true}:  {nil, gemmBlockMinT1, gemmBlockMinT2, gemmBlockMinT3, gemmBlockMinT4, gemmBlockMinT5, gemmBlockMinT6},
	},
}

// computeAVX512 picks the loop for the type and the number of tokens.
func computeAVX512(p *Product, b *Batch, s *Scratch, lo, hi int) {
	if !p.W.DType.Quantized() {
		computeGo(p, b, s, lo, hi)
		return
	}
	tiledAVX512.computeTiled(p, b, s, lo, hi)
}
