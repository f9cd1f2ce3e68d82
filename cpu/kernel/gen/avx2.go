package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The loops for AVX2, FMA and F16C. They use VEX encodings only, so at most 16
// registers of 32 bytes; names end in AVX2.

// bytes32 is 32 copies of a byte.
func bytes32(v int) Mem {
	b := make([]byte, 32)
	for i := range b {
		b[i] = byte(v)
	}
	return table(b)
}

// ymms is n fresh registers.
func ymms(n int) []VecVirtual {
	v := make([]VecVirtual, n)
	for i := range v {
		v[i] = YMM()
	}
	return v
}

// clearYMM zeroes v.
func clearYMM(v ...VecVirtual) {
	for _, x := range v {
		VPXOR(x, x, x)
	}
}

// end returns with the upper halves clear, as Go code expects them.
func end() {
	VZEROUPPER()
	RET()
}

// reduceRowsAVX2 adds up each of four vectors of dwords: i32 [4 rows].
func reduceRowsAVX2(v []VecVirtual) Register {
	VPHADDD(v[1], v[0], v[0])
	VPHADDD(v[3], v[2], v[2])
	VPHADDD(v[2], v[0], v[0])
	hi := XMM()
	VEXTRACTI128(U8(1), v[0], hi)
	VPADDD(v[0].AsX(), hi, hi)
	return hi
}

// wordOf repeats word i in both halves of a register.
func wordOf(i int) Mem {
	var b []byte
	for range 16 {
		b = append(b, byte(2*i), byte(2*i+1))
	}
	return table(b)
}
