package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// The loops of peak.go with AVX2: an iteration is 12 independent products of 32
// bytes, each added in 16 bits, or of 8 floats.
func peakAVX2() {
	chainsAVX2("peakBytesAVX2", func(a, x, y Op) {
		p := YMM()
		VPMADDUBSW(x, y, p)
		VPADDW(p, a, a)
	})
	chainsAVX2("peakFMAAVX2", func(a, x, y Op) { VFMADD231PS(x, y, a) })
	peakReadAVX2()
}

func chainsAVX2(name string, step func(a, x, y Op)) {
	function(name, "func(turns int)", "runs 12 chains of products.")
	n := Load(Param("turns"), GP64())
	x, y, acc := YMM(), YMM(), ymms(12)
	clearYMM(x, y)
	clearYMM(acc...)
	Label("turn")
	for _, a := range acc {
		step(a, x, y)
	}
	DECQ(n)
	JNZ(LabelRef("turn"))
	end()
}

func peakReadAVX2() {
	function("peakReadAVX2", "func(data *byte, turns int)", "reads turns times 512 bytes.")
	data := Load(Param("data"), GP64())
	n := Load(Param("turns"), GP64())
	acc := YMM()
	clearYMM(acc)
	Label("turn")
	for i := range 16 {
		if i%2 == 0 {
			PREFETCHT0(Mem{Base: data, Disp: 4096 + 32*i})
		}
		VPOR(Mem{Base: data, Disp: 32 * i}, acc, acc)
	}
	ADDQ(U32(512), data)
	DECQ(n)
	JNZ(LabelRef("turn"))
	end()
}
