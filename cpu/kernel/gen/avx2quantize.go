package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Rounding of activations as in quantize.go, with AVX2: about 300 vector
// instructions for 256. Defined by quantizeSuper.
func quantizeAVX2() {
	quantizeEveryAVX2("quantize32AVX2", false)
	quantizeEveryAVX2("quantize256AVX2", true)
}

func quantizeEveryAVX2(name string, whole bool) {
	function(name, "func(dst *actBlock, step uintptr, x *float32, supers int)", "rounds 256 activations at a time.")
	dst, x := Load(Param("dst"), GP64()), Load(Param("x"), GP64())
	step, n := Load(Param("step"), GP64()), Load(Param("supers"), GP64())
	Label("super")
	scale, inverse := actScalesAVX2(largestAVX2(x, whole))
	VMOVUPS(scale, Mem{Base: dst, Disp: actScale})
	for g := range 8 {
		roundGroupAVX2(dst, x, inverse, g)
	}
	sumActsAVX2(dst)
	ADDQ(U32(1024), x)
	ADDQ(step, dst)
	DECQ(n)
	JNZ(LabelRef("super"))
	end()
}

// largestAVX2 is the largest magnitude of each 32 activations, u32 [8], or
// eight times that of all.
func largestAVX2(x Register, whole bool) VecVirtual {
	magnitude, other := YMM(), YMM()
	VMOVDQU(repeat(0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff), magnitude)
	v := ymms(8)
	for g := range v {
		VPAND(Mem{Base: x, Disp: 128 * g}, magnitude, v[g])
		for i := 1; i < 4; i++ {
			VPAND(Mem{Base: x, Disp: 128*g + 32*i}, magnitude, other)
			VPMAXUD(other, v[g], v[g])
		}
	}
	for i := range 4 {
		VPUNPCKLDQ(v[2*i+1], v[2*i], other)
		VPUNPCKHDQ(v[2*i+1], v[2*i], v[2*i])
		VPMAXUD(other, v[2*i], v[2*i])
	}
	for i := range 2 {
		VPUNPCKLQDQ(v[4*i+2], v[4*i], other)
		VPUNPCKHQDQ(v[4*i+2], v[4*i], v[4*i])
		VPMAXUD(other, v[4*i], v[4*i])
	}
	m := v[0]
	VPERM2I128(U8(0x20), v[4], m, other)
	VPERM2I128(U8(0x31), v[4], m, m)
	VPMAXUD(other, m, m)
	if whole {
		VPSHUFD(U8(0x4e), m, other)
		VPMAXUD(other, m, m)
		VPSHUFD(U8(0xb1), m, other)
		VPMAXUD(other, m, m)
		VPERMQ(U8(0x4e), m, other)
		VPMAXUD(other, m, m)
	}
	return m
}

// every is eight copies of a dword.
func every(v uint32) Mem { return dwords(v, v, v, v, v, v, v, v) }

// actScalesAVX2 is scale and inverse of eight groups, as actScale defines them.
func actScalesAVX2(m VecVirtual) (scale, inverse VecVirtual) {
	scale, inverse = YMM(), YMM()
	top, infinite, small := YMM(), YMM(), YMM()
	VMOVUPS(every(math.Float32bits(127)), top)
	VDIVPS(top, m, scale)
	VDIVPS(m, top, inverse)
	VPCMPGTD(every(0x7f7fffff), m, infinite)
	VMOVDQU(every(math.Float32bits(0x1p-100)), small)
	VPCMPGTD(m, small, small) // below
	VPANDN(scale, small, scale)
	VPANDN(inverse, small, inverse)
	VPANDN(inverse, infinite, inverse)
	VPANDN(scale, infinite, scale)
	VPAND(every(0x7fc00000), infinite, infinite)
	VPOR(infinite, scale, scale)
	return scale, inverse
}

// roundGroupAVX2 writes the integers of group g.
func roundGroupAVX2(dst, x Register, inverse VecVirtual, g int) {
	f, q := YMM(), ymms(4)
	VMOVDQU(every(uint32(g)), f)
	VPERMPS(inverse, f, f)
	for i := range q {
		VMULPS(Mem{Base: x, Disp: 128*g + 32*i}, f, q[i])
		VCVTPS2DQ(q[i], q[i])
		VPADDD(every(128), q[i], q[i])
		VPAND(every(0xff), q[i], q[i])
	}
	VPACKUSDW(q[1], q[0], q[0])
	VPACKUSDW(q[3], q[2], q[2])
	VPACKUSWB(q[2], q[0], q[0])
	order := YMM()
	VMOVDQU(dwords(0, 4, 1, 5, 2, 6, 3, 7), order)
	VPERMD(q[0], order, q[0])
	VMOVDQU(q[0], Mem{Base: dst, Disp: actQ + 32*g})
}

// sumActsAVX2 writes the sums of the integers.
func sumActsAVX2(dst Register) {
	for h := range 2 {
		v := ymms(4) // of 16 elements in each lane
		for i := range v {
			ones := YMM()
			VMOVDQU(bytes32(1), ones)
			VMOVDQU(Mem{Base: dst, Disp: actQ + 128*h + 32*i}, v[i])
			VPXOR(bytes32(128), v[i], v[i])
			VPMADDUBSW(v[i], ones, v[i])
			VPMADDWD(bytePairs(1, 0), v[i], v[i])
		}
		VPHADDD(v[1], v[0], v[0])
		VPHADDD(v[3], v[2], v[2])
		VPHADDD(v[2], v[0], v[0])
		hi, lo := XMM(), XMM()
		VEXTRACTI128(U8(1), v[0], hi)
		VPUNPCKLDQ(hi, v[0].AsX(), lo)
		VPUNPCKHDQ(hi, v[0].AsX(), hi)
		VPACKSSDW(hi, lo, lo)
		VMOVDQU(lo, Mem{Base: dst, Disp: actSum16 + 16*h})
		// words of groups of 16 to dwords of groups of 32
		VPMADDWD(bytePairs(1, 0), lo, lo)
		VPACKSSDW(lo, lo, hi)
		VMOVQ(hi, Mem{Base: dst, Disp: actSum32 + 8*h})
		VCVTDQ2PS(lo, lo)
		VMULPS(Mem{Base: dst, Disp: actScale + 16*h}, lo, lo)
		VMOVUPS(lo, Mem{Base: dst, Disp: actDsum + 16*h})
	}
}
