package main

import (
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Matrix-vector product with AVX2: 4 rows × 1 token, the whole row.
//
//	out[r] = Σ_k w[r][k]·x[k], arithmetic as in dot.go
//
// Shapes: w: 4 rows, stride bytes apart, as in the file; act: the blocks of the
// token, step bytes apart; out: f32 [4].
//
// The signed activations of a block lie on the stack, where VPMADDUBSW reads
// them: unsigned weights, of up to 6 bits, need no other instruction, and the
// sums of the activations take their bias back. Weights of 8 bits pass their
// signs to the activations and are taken as magnitudes.
//
// Vector instructions for 256 weights of a row: Q4_K 12 unpack + 10 scales + 32
// products + 8 shared by 4 rows = 62; Q6_K 79; Q8_0 62, of which 32 products and
// 30 to add up and scale each block. Defined by computeGo.
func gemvAVX2() {
	for _, f := range formats {
		g := newGemvAVX2(f.name, f.size, f.bias, f.mins, f.signed)
		g.loop(func() { g.super(f.group) })
		g.end()
	}
	for _, f := range blockFormats {
		g := newGemvAVX2(f.name, 8*f.size, f.bias&127, f.mins, f.signed || f.name == "Q8_0")
		g.loop(func() { g.blocks(f) })
		g.end()
	}
}

// gemvRow is the state of one loop.
type gemvRow struct {
	name         string
	bias         int // what is subtracted from the unsigned weights
	mins, signed bool
	*rows
	act, step Register
	result    VecVirtual // f32 [4 rows], XMM
	stack     Mem        // signed activations i8 [256], bias times sums of 32 i32 [8]
}

func newGemvAVX2(name string, size, bias int, mins, signed bool) *gemvRow {
	function("gemv"+name+"AVX2",
		"func(out *float32, w *byte, stride uintptr, act *actBlock, step uintptr, supers int)",
		"multiplies 4 rows with 1 token.")
	g := &gemvRow{name: name, bias: bias, mins: mins, signed: signed, stack: AllocLocal(256 + 32)}
	g.rows = newRows(size, "supers")
	g.act, g.step = Load(Param("act"), GP64()), Load(Param("step"), GP64())
	g.result = XMM()
	VPXOR(g.result, g.result, g.result)
	return g
}

func (g *gemvRow) end() {
	out := Load(Param("out"), GP64())
	VMOVUPS(g.result, Mem{Base: out})
	end()
}

// activations puts the signed activations on the stack.
func (g *gemvRow) activations() {
	flip := YMM()
	VMOVDQU(bytes32(128), flip)
	for i := range 8 {
		q := YMM()
		VPXOR(Mem{Base: g.act, Disp: actQ + 32*i}, flip, q)
		VMOVDQU(q, g.stack.Offset(32*i))
	}
}

// pairs is the products of weights k to k+31, added in pairs: i16.
func (g *gemvRow) pairs(k int, w VecVirtual) VecVirtual {
	p := YMM()
	if !g.signed {
		VPMADDUBSW(g.stack.Offset(k), w, p)
		return p
	}
	VMOVDQU(g.stack.Offset(k), p)
	VPSIGNB(w, p, p)
	VPABSB(w, w)
	VPMADDUBSW(p, w, p)
	return p
}

// super adds a block of 256 of each row.
func (g *gemvRow) super(group int) {
	g.activations()
	sums, mins := ymms(4), ymms(4)
	scale := g.halves()
	for r, p := range g.row {
		g.prefetch(r, 0, g.size)
		s := g.scales(r, mins[r])
		started := false
		if g.bias > 0 { // the bias starts the sum: −bias·Σ scale·Σq
			g.negative(s, sums[r])
			started = true
		}
		unpackAVX2[g.name](p, func(k int, w VecVirtual) {
			x, t := g.pairs(k, w), YMM()
			VPSHUFB(wordOf(k/32), s, t)
			if !started {
				VPMADDWD(t, x, sums[r])
				started = true
				return
			}
			VPMADDWD(t, x, x)
			VPADDD(x, sums[r], sums[r])
		})
	}
	dx, d := XMM(), XMM()
	VBROADCASTSS(Mem{Base: g.act, Disp: actScale}, dx)
	VMULPS(dx, scale.AsX(), d)
	sum := reduceRowsAVX2(sums)
	VCVTDQ2PS(sum, sum)
	VFMADD231PS(d, sum, g.result)
	if g.mins {
		VEXTRACTF128(U8(1), scale, d)
		VMULPS(dx, d, d)
		m := reduceRowsAVX2(mins)
		VCVTDQ2PS(m, m)
		VFNMADD231PS(d, m, g.result)
	}
	ADDQ(g.step, g.act)
}

// negative is −bias·Σq of groups times their scales s.
func (g *gemvRow) negative(s, sum VecVirtual) {
	q, zero := YMM(), YMM()
	VMOVDQU(Mem{Base: g.act, Disp: actSum16}, q)
	// Words 0 to 7 of s are the even groups, the others the odd ones.
	order := []byte{0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15}
	VPSHUFB(table(append(order, order...)), q, q)
	VPERMQ(U8(0|2<<2|1<<4|3<<6), q, q)
	clearYMM(zero)
	VPSUBW(q, zero, q)
	VPMADDWD(q, s, sum)
	VPSLLD(U8(bits.TrailingZeros(uint(g.bias))), sum, sum)
}

// halves converts d of 4 rows, and dmin in the upper half.
func (g *gemvRow) halves() VecVirtual {
	x, f := XMM(), YMM()
	VPXOR(x, x, x)
	at := map[string]int{"Q6_K": 208, "Q3_K": 108, "Q2_K": 80}[g.name]
	for r, p := range g.row {
		VPINSRW(U8(r), Mem{Base: p, Disp: at}, x, x)
		if g.mins {
			VPINSRW(U8(4+r), Mem{Base: p, Disp: at + 2}, x, x)
		}
	}
	VCVTPH2PS(x, f)
	return f
}

// scales loads the scales of row r as words, those of even groups of 16 in the
// lower half; mins is parts of Σ min·Σq.
func (g *gemvRow) scales(r int, mins VecVirtual) VecVirtual {
	p, s := g.row[r], YMM()
	even := []byte{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}
	x := XMM()
	switch g.name {
	case "Q4_K", "Q5_K":
		VMOVDQU(Mem{Base: p}, x)
		six := sixBitsAVX2(x)
		VPMOVZXBW(six, s)
		VEXTRACTI128(U8(1), s, mins.AsX())
		VPMADDWD(Mem{Base: g.act, Disp: actSum32}, mins.AsX(), mins.AsX())
		VPERMQ(U8(0|1<<2|0<<4|1<<6), s, s)
		return s
	case "Q2_K":
		VMOVDQU(Mem{Base: p}, x)
		VPMOVZXBW(x, mins)
		VPSRLW(U8(4), mins, mins)
		VPMADDWD(Mem{Base: g.act, Disp: actSum16}, mins, mins)
		VPAND(bytes32(15), x, x)
	case "Q6_K":
		VMOVDQU(Mem{Base: p, Disp: 192}, x)
	case "Q3_K":
		VMOVDQU(Mem{Base: p, Disp: 94}, x)
		VMOVDQU(sixBitsQ3AVX2(x), x)
	case "IQ4_XS":
		VPMOVSXBW(scalesIQ4AVX2(p), s.AsX())
		VINSERTI128(U8(1), s.AsX(), s, s)
		return s
	}
	VPSHUFB(table(even), x, x)
	VPMOVSXBW(x, s)
	return s
}

// blocks adds eight blocks of 32 of each row.
func (g *gemvRow) blocks(f *blockFormat) {
	g.activations()
	if g.bias > 0 {
		x := YMM()
		VPMOVSXWD(Mem{Base: g.act, Disp: actSum32}, x)
		VPSLLD(U8(bits.TrailingZeros(uint(g.bias))), x, x)
		VMOVDQU(x, g.stack.Offset(256))
	}
	for i := range 8 {
		var sums []VecVirtual
		for r, p := range g.row {
			if i*f.size/64 != (i+1)*f.size/64 {
				g.prefetch(r, i*f.size, i*f.size+1)
			}
			x := g.pairs(32*i, blockAVX2(f, p, i*f.size))
			VPMADDWD(bytePairs(1, 0), x, x)
			sums = append(sums, x)
		}
		sum, t := reduceRowsAVX2(sums), XMM()
		if g.bias > 0 {
			VPBROADCASTD(g.stack.Offset(256+4*i), t)
			VPSUBD(t, sum, sum)
		}
		VCVTDQ2PS(sum, sum)
		h, scale := XMM(), YMM()
		VPXOR(h, h, h)
		for r, p := range g.row {
			VPINSRW(U8(r), Mem{Base: p, Disp: i * f.size}, h, h)
			if g.mins {
				VPINSRW(U8(4+r), Mem{Base: p, Disp: i*f.size + 2}, h, h)
			}
		}
		VCVTPH2PS(h, scale)
		VBROADCASTSS(Mem{Base: g.act, Disp: actScale + 4*i}, t)
		VMULPS(scale.AsX(), t, t)
		VFMADD231PS(t, sum, g.result)
		if g.mins {
			m := XMM()
			VEXTRACTF128(U8(1), scale, m)
			VBROADCASTSS(Mem{Base: g.act, Disp: actDsum + 4*i}, t)
			VFMADD231PS(m, t, g.result)
		}
	}
	ADDQ(g.step, g.act)
}

// bytePairs is 16 copies of two bytes.
func bytePairs(lo, hi byte) Mem {
	var b []byte
	for range 16 {
		b = append(b, lo, hi)
	}
	return table(b)
}
