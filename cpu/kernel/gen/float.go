package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Products with float rows, 4 rows at a time, 16 elements of k in a vector.
//
//	acc[t][r][i] = Σ w[r][k]·x[t][k] over k mod 16 = i, by fma in order of k
//
// Shapes: w: 4 rows, stride bytes apart; x: f32 tokens, xStride bytes apart;
// steps: k/16. A row needs a conversion (F16: 2 instructions on ports 0 and 5,
// BF16: 2, F32: 0) and one VFMADD231PS a token for 16 elements.
//
// gemvF16 and its like convert as they go and finish with the fixed tree of
// dot.go: out is f32 [tokens][4]. The tiled product converts 4 rows into a
// scratch (convertF16) that serves all tokens: gemmF32 then has 24 sums, 4
// weights and one token's vector in registers, 24 products to 10 loads; it
// continues sums acc, f32 [tokens][4][16], which reduceF32 finishes. Defined
// by dotFloats.
func float() {
	for _, f := range floatFormats {
		for tokens := 1; tokens <= 2; tokens++ {
			gemvFloat(f, tokens)
		}
		if f.size == 2 {
			convert(f)
		}
	}
	for tokens := 1; tokens <= 6; tokens++ {
		gemmFloat(tokens)
	}
	reduceF32()
}

// floatFormat is how to load 16 elements.
type floatFormat struct {
	name string
	size int // bytes of an element
	load func(from Mem, to VecVirtual)
}

var floatFormats = []floatFormat{
	{"F32", 4, func(from Mem, to VecVirtual) { VMOVUPS(from, to) }},
	{"F16", 2, func(from Mem, to VecVirtual) { VCVTPH2PS(from, to) }},
	{"BF16", 2, func(from Mem, to VecVirtual) {
		VPMOVZXWD(from, to)
		VPSLLD(U8(16), to, to)
	}},
}

// floatRows loads the pointers to 4 rows, from parameters w and stride.
func floatRows() (row [4]Register) {
	row[0] = Load(Param("w"), GP64())
	stride := Load(Param("stride"), GP64())
	for r := 1; r < 4; r++ {
		row[r] = GP64()
		LEAQ(Mem{Base: row[r-1], Index: stride, Scale: 1}, row[r])
	}
	return row
}

func gemvFloat(f floatFormat, tokens int) {
	function(fmt.Sprintf("gemv%sT%d", f.name, tokens),
		"func(out *float32, w *byte, stride uintptr, x *float32, xStride uintptr, steps int)",
		fmt.Sprintf("multiplies 4 rows with %d tokens.", tokens))
	g := newRows(16*f.size, "steps")
	x := []Register{Load(Param("x"), GP64())}
	if tokens == 2 {
		second := Load(Param("xStride"), GP64())
		ADDQ(x[0], second)
		x = append(x, second)
	}
	acc := zeroed(4 * tokens)
	in := []VecVirtual{ZMM(), ZMM()}
	g.loop(func() {
		for t := range tokens {
			VMOVUPS(Mem{Base: x[t]}, in[t])
			ADDQ(U32(64), x[t])
		}
		for r, p := range g.row {
			w := ZMM()
			g.prefetch(r, 0, g.size)
			f.load(Mem{Base: p}, w)
			for t := range tokens {
				VFMADD231PS(w, in[t], acc[4*t+r])
			}
		}
	})
	out := Load(Param("out"), GP64())
	for t := range tokens {
		VMOVUPS(reduceFloats(acc[4*t:]), Mem{Base: out, Disp: 16 * t})
	}
	VZEROUPPER()
	RET()
}

func zeroed(n int) []VecVirtual {
	v := make([]VecVirtual, n)
	for i := range v {
		v[i] = ZMM()
		VPXORD(v[i], v[i], v[i])
	}
	return v
}

// reduceFloats adds up each of four vectors in the order of dot.go.
func reduceFloats(v []VecVirtual) Register {
	for _, a := range v[:4] {
		hi := ZMM()
		VEXTRACTF64X4(U8(1), a, hi.AsY())
		VADDPS(hi.AsY(), a.AsY(), a.AsY())
		VEXTRACTF32X4(U8(1), a.AsY(), hi.AsX())
		VADDPS(hi.AsX(), a.AsX(), a.AsX())
	}
	var pair [2]VecVirtual
	hi := XMM()
	for i := range pair {
		pair[i] = XMM()
		VUNPCKLPS(v[2*i+1].AsX(), v[2*i].AsX(), pair[i])
		VUNPCKHPS(v[2*i+1].AsX(), v[2*i].AsX(), hi)
		VADDPS(hi, pair[i], pair[i])
	}
	sum := XMM()
	VUNPCKLPD(pair[1], pair[0], sum)
	VUNPCKHPD(pair[1], pair[0], hi)
	VADDPS(hi, sum, sum)
	return sum
}

func convert(f floatFormat) {
	function("convert"+f.name, "func(dst *float32, src *byte, steps int)", "converts 16 elements a step.")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("steps"), GP64())
	v := ZMM()
	Label("step")
	PREFETCHT0(Mem{Base: src, Disp: 1024})
	f.load(Mem{Base: src}, v)
	VMOVUPS(v, Mem{Base: dst})
	ADDQ(U32(16*f.size), src)
	ADDQ(U32(64), dst)
	DECQ(n)
	JNZ(LabelRef("step"))
	VZEROUPPER()
	RET()
}

func gemmFloat(tokens int) {
	function(fmt.Sprintf("gemmF32T%d", tokens),
		"func(acc *float32, w *byte, stride uintptr, x *float32, xStride uintptr, steps int)",
		fmt.Sprintf("continues the sums of 4 rows with %d tokens.", tokens))
	row := floatRows()
	x := [2]Register{Load(Param("x"), GP64()), GP64()}
	xStride := Load(Param("xStride"), GP64())
	LEAQ(Mem{Base: x[0], Index: xStride, Scale: 2}, x[1])
	ADDQ(xStride, x[1])
	n := Load(Param("steps"), GP64())
	out := Load(Param("acc"), GP64())
	acc := make([]VecVirtual, 4*tokens)
	for i := range acc {
		acc[i] = ZMM()
		VMOVUPS(Mem{Base: out, Disp: 64 * i}, acc[i])
	}
	at := GP64()
	XORQ(at, at)
	w, in := [4]VecVirtual{ZMM(), ZMM(), ZMM(), ZMM()}, ZMM()
	Label("step")
	for r := range w {
		VMOVUPS(Mem{Base: row[r], Index: at, Scale: 1}, w[r])
	}
	for t := range tokens {
		m := Mem{Base: x[t/3]}
		if t%3 > 0 {
			m.Index, m.Scale = xStride, uint8(t%3)
		}
		VMOVUPS(m, in)
		for r := range w {
			VFMADD231PS(w[r], in, acc[4*t+r])
		}
	}
	ADDQ(U32(64), at)
	ADDQ(U32(64), x[0])
	ADDQ(U32(64), x[1])
	DECQ(n)
	JNZ(LabelRef("step"))
	for i := range acc {
		VMOVUPS(acc[i], Mem{Base: out, Disp: 64 * i})
	}
	VZEROUPPER()
	RET()
}

func reduceF32() {
	function("reduceF32", "func(out, acc *float32)", "adds up the 16 sums of each of 4 rows.")
	out, acc := Load(Param("out"), GP64()), Load(Param("acc"), GP64())
	v := make([]VecVirtual, 4)
	for i := range v {
		v[i] = ZMM()
		VMOVUPS(Mem{Base: acc, Disp: 64 * i}, v[i])
	}
	VMOVUPS(reduceFloats(v), Mem{Base: out})
	VZEROUPPER()
	RET()
}
