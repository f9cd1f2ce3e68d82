package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Products with float rows as in float.go, with 16 elements of k in two
// registers. gemmF32 keeps 3 tokens times 4 rows of one of the two in
// registers, and passes over k for each: 12 products to 7 loads. Defined by
// dotFloats.
func floatAVX2() {
	for _, f := range floatFormats {
		gemvFloatAVX2(f)
		if f.size == 2 {
			convertAVX2(f)
		}
	}
	for tokens := 1; tokens <= 3; tokens++ {
		gemmFloatAVX2(tokens)
	}
	reduceF32AVX2()
}

// eight loads elements 8h to 8h+7 of a step at p+disp.
func (f floatFormat) eight(p Register, h int) VecVirtual {
	w, from := YMM(), Mem{Base: p, Disp: 8 * h * f.size}
	if f.name == "F16" {
		VCVTPH2PS(from, w)
	} else {
		f.load(from, w)
	}
	return w
}

func gemvFloatAVX2(f floatFormat) {
	function(fmt.Sprintf("gemv%sAVX2", f.name),
		"func(out *float32, w *byte, stride uintptr, x *float32, xStride uintptr, steps int)",
		"multiplies 4 rows with 1 token.")
	g := newRows(16*f.size, "steps")
	x := Load(Param("x"), GP64())
	acc, in := ymms(8), ymms(2)
	clearYMM(acc...)
	g.loop(func() {
		for h := range in {
			VMOVUPS(Mem{Base: x, Disp: 32 * h}, in[h])
		}
		ADDQ(U32(64), x)
		for r, p := range g.row {
			g.prefetch(r, 0, g.size)
			for h := range in {
				VFMADD231PS(f.eight(p, h), in[h], acc[2*r+h])
			}
		}
	})
	sum := reduceFloatsAVX2(acc)
	out := Load(Param("out"), GP64())
	VMOVUPS(sum, Mem{Base: out})
	end()
}

// reduceFloatsAVX2 adds up each of four pairs of vectors in the order of dot.go.
func reduceFloatsAVX2(v []VecVirtual) Register {
	var row [4]Register
	for r := range row {
		VADDPS(v[2*r+1], v[2*r], v[2*r])
		VEXTRACTF128(U8(1), v[2*r], v[2*r+1].AsX())
		row[r] = v[2*r].AsX()
		VADDPS(v[2*r+1].AsX(), row[r], row[r])
	}
	var pair [2]VecVirtual
	hi := XMM()
	for i := range pair {
		pair[i] = XMM()
		VUNPCKLPS(row[2*i+1], row[2*i], pair[i])
		VUNPCKHPS(row[2*i+1], row[2*i], hi)
		VADDPS(hi, pair[i], pair[i])
	}
	sum := XMM()
	VUNPCKLPD(pair[1], pair[0], sum)
	VUNPCKHPD(pair[1], pair[0], hi)
	VADDPS(hi, sum, sum)
	return sum
}

func convertAVX2(f floatFormat) {
	function("convert"+f.name+"AVX2", "func(dst *float32, src *byte, steps int)", "converts 16 elements a step.")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("steps"), GP64())
	Label("step")
	PREFETCHT0(Mem{Base: src, Disp: 1024})
	for h := range 2 {
		VMOVUPS(f.eight(src, h), Mem{Base: dst, Disp: 32 * h})
	}
	ADDQ(U32(16*f.size), src)
	ADDQ(U32(64), dst)
	DECQ(n)
	JNZ(LabelRef("step"))
	end()
}

func gemmFloatAVX2(tokens int) {
	function(fmt.Sprintf("gemmF32T%dAVX2", tokens),
		"func(acc *float32, w *byte, stride uintptr, x *float32, xStride uintptr, steps int)",
		fmt.Sprintf("continues the sums of 4 rows with %d tokens.", tokens))
	row, x := floatRows(), Load(Param("x"), GP64())
	xStride := Load(Param("xStride"), GP64())
	out := Load(Param("acc"), GP64())
	n, at := GP64(), GP64()
	for h := range 2 {
		Load(Param("steps"), n)
		MOVQ(U32(32*h), at)
		acc := ymms(4 * tokens)
		for i := range acc {
			VMOVUPS(Mem{Base: out, Disp: 64*i + 32*h}, acc[i])
		}
		ADDQ(U32(32*h), x)
		label := fmt.Sprintf("step%d", h)
		Label(label)
		in := ymms(tokens)
		for t := range in {
			m := Mem{Base: x}
			if t > 0 {
				m.Index, m.Scale = xStride, uint8(t)
			}
			VMOVUPS(m, in[t])
		}
		for r := range row {
			w := YMM()
			VMOVUPS(Mem{Base: row[r], Index: at, Scale: 1}, w)
			for t := range in {
				VFMADD231PS(w, in[t], acc[4*t+r])
			}
		}
		ADDQ(U32(64), at)
		ADDQ(U32(64), x)
		DECQ(n)
		JNZ(LabelRef(label))
		for i := range acc {
			VMOVUPS(acc[i], Mem{Base: out, Disp: 64*i + 32*h})
		}
		Load(Param("x"), x)
	}
	end()
}

func reduceF32AVX2() {
	function("reduceF32AVX2", "func(out, acc *float32)", "adds up the 16 sums of each of 4 rows.")
	out, acc := Load(Param("out"), GP64()), Load(Param("acc"), GP64())
	v := ymms(8)
	for i := range v {
		VMOVUPS(Mem{Base: acc, Disp: 32 * i}, v[i])
	}
	VMOVUPS(reduceFloatsAVX2(v), Mem{Base: out})
	end()
}
