package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Rounding of activations to int8 with one scale per 32 or per 256.
//
//	scale = largest magnitude / 127, q = round(x·127/largest) + 128
//
// Shapes: x: f32 [256·supers]; dst: actBlock [supers], step bytes apart, all fields
// written.
// Magnitudes are compared as integers, which puts NaN above infinity. About
// 110 vector instructions for 256. Defined by quantizeSuper.
func quantize() {
	quantizeEvery("quantize32", false)
	quantizeEvery("quantize256", true)
}

func quantizeEvery(name string, whole bool) {
	function(name, "func(dst *actBlock, step uintptr, x *float32, supers int)", "rounds 256 activations at a time.")
	dst, x := Load(Param("dst"), GP64()), Load(Param("x"), GP64())
	step, n := Load(Param("step"), GP64()), Load(Param("supers"), GP64())
	ones := ZMM()
	VMOVDQU32(repeat(0x01010101, 0x01010101, 0x01010101, 0x01010101), ones)
	Label("super")
	scale, inverse := actScales(largest(x, whole))
	VMOVUPS(scale, Mem{Base: dst, Disp: actScale})
	roundActs(dst, x, inverse)
	sumActs(dst, ones, scale)
	ADDQ(U32(1024), x)
	ADDQ(step, dst)
	DECQ(n)
	JNZ(LabelRef("super"))
	VZEROUPPER()
	RET()
}

// largest is the largest magnitude of each 32 activations, u32 [8], or eight
// times that of all.
func largest(x Register, whole bool) VecVirtual {
	magnitude := ZMM()
	VMOVDQU32(repeat(0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff), magnitude)
	var four [2]Register
	for h := range 2 {
		var v [4]VecVirtual
		for g := range v {
			other := ZMM()
			v[g] = ZMM()
			at := 512*h + 128*g
			VPANDD(Mem{Base: x, Disp: at}, magnitude, v[g])
			VPANDD(Mem{Base: x, Disp: at + 64}, magnitude, other)
			VPMAXUD(other, v[g], v[g])
		}
		four[h] = maxRows(v)
	}
	m := YMM()
	VINSERTI32X4(U8(1), four[1], four[0].(VecVirtual).AsY(), m)
	if whole {
		other := YMM()
		VPSHUFD(U8(0x4e), m, other)
		VPMAXUD(other, m, m)
		VPSHUFD(U8(0xb1), m, other)
		VPMAXUD(other, m, m)
		VSHUFI32X4(U8(1), m, m, other)
		VPMAXUD(other, m, m)
	}
	return m
}

// maxRows is the largest dword of each of four vectors.
func maxRows(v [4]VecVirtual) Register {
	x := reduceLanes(v, func(a, b, dst Op) { VPMAXUD(a, b, dst) })
	hi := ZMM()
	VEXTRACTI64X4(U8(1), x, hi.AsY())
	VPMAXUD(x.AsY(), hi.AsY(), x.AsY())
	VEXTRACTI32X4(U8(1), x.AsY(), hi.AsX())
	VPMAXUD(x.AsX(), hi.AsX(), hi.AsX())
	return hi.AsX()
}

// actScales is scale and inverse of eight groups, as actScale defines them.
func actScales(m VecVirtual) (scale, inverse VecVirtual) {
	scale, inverse = YMM(), YMM()
	top, infinite, small := YMM(), K(), K()
	VPBROADCASTD(dwords(math.Float32bits(127)), top)
	VDIVPS(top, m, scale)
	VDIVPS(m, top, inverse)
	limit, zero, nan := YMM(), YMM(), YMM()
	VPXORD(zero, zero, zero)
	VPBROADCASTD(dwords(0x7f800000), limit)
	VPCMPUD(U8(5), limit, m, infinite) // not below
	VPBROADCASTD(dwords(0x7fc00000), nan)
	VMOVDQA32(nan, infinite, scale)
	VMOVDQA32(zero, infinite, inverse)
	VPBROADCASTD(dwords(math.Float32bits(0x1p-100)), limit)
	VPCMPUD(U8(1), limit, m, small) // below
	VMOVDQA32(zero, small, scale)
	VMOVDQA32(zero, small, inverse)
	return scale, inverse
}

// roundActs writes the integers.
func roundActs(dst, x Register, inverse VecVirtual) {
	offset := ZMM()
	VPBROADCASTD(dwords(128), offset)
	for g := range 8 {
		f := ZMM()
		index := uint32(g)
		VMOVDQU32(repeat(index, index, index, index), f)
		VPERMPS(inverse.AsZ(), f, f)
		for h := range 2 {
			q := ZMM()
			VMULPS(Mem{Base: x, Disp: 128*g + 64*h}, f, q)
			VCVTPS2DQ(q, q)
			VPADDD(offset, q, q)
			VPMOVDB(q, Mem{Base: dst, Disp: actQ + 32*g + 16*h})
		}
	}
}

// sumActs writes the sums of the integers.
func sumActs(dst Register, ones, scale VecVirtual) {
	var v [4]VecVirtual
	for i := range v {
		q := ZMM()
		v[i] = ZMM()
		VMOVDQU32(Mem{Base: dst, Disp: actQ + 64*i}, q)
		VPXORD(v[i], v[i], v[i])
		VPDPBUSD(ones, q, v[i])
	}
	lanes := reduceLanes(v, add) // lane l, dword i: group 4i+l
	sum, offset := ZMM(), ZMM()
	VMOVDQU32(dwords(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sum)
	VPERMD(lanes, sum, sum)
	VPBROADCASTD(dwords(16*128), offset)
	VPSUBD(offset, sum, sum)
	words, pairs := YMM(), YMM()
	VPMOVDW(sum, words)
	VMOVDQU32(words, Mem{Base: dst, Disp: actSum16})
	VPMADDWD(repeat(0x00010001, 0x00010001, 0x00010001, 0x00010001), words, pairs)
	VPMOVDW(pairs, Mem{Base: dst, Disp: actSum32})
	VCVTDQ2PS(pairs, pairs)
	VMULPS(scale, pairs, pairs)
	VMOVUPS(pairs, Mem{Base: dst, Disp: actDsum})
}
