package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// tiles writes the products of prefill: 6 rows times a strip of columns.
//
//	c[r][·] = scale[r]·c[r][·] + Σ_k a[r][k]·b[k][·],  or without the first term
//
// Shapes: c f32 [6][cols] with stride ldc, a f32 [6][n] with stride lda, b f32
// [n][cols] with stride ldb, scale f32 [6]; strides in bytes, scale may be nil.
// cols is 64, 32 or 16 with AVX-512 and 16 with AVX2.
//
// Registers: 6 × 4 sums, 4 of b, 1 broadcast of a. Each step of k is 24 FMAs
// for 10 loads, so the FMAs are the limit. The sum over k is one chain in order,
// so that a row has the same bits in every tile.
func (m machine) tiles() {
	for _, strips := range []int{4, 2, 1} {
		if m.wide {
			m.tile(strips)
		} else if strips == 2 {
			m.tile(strips)
		}
	}
}

func (m machine) tile(strips int) {
	m.function(fmt.Sprintf("tile%d", strips*m.lanes), "func(c, a, b, scale *float32, n, ldc, lda, ldb int)",
		fmt.Sprintf("multiplies 6 rows with %d columns.", strips*m.lanes))
	a, b, n := m.arg("a"), m.arg("b"), m.arg("n")
	lda, ldb := m.arg("lda"), m.arg("ldb")
	a3 := GP64()
	LEAQ(Mem{Base: a, Index: lda, Scale: 2}, a3)
	ADDQ(lda, a3)
	acc := m.regs(6 * strips)
	for _, r := range acc {
		m.zero(r)
	}
	loop(n, func() {
		v := m.regs(strips)
		for i := range v {
			VMOVUPS(Mem{Base: b, Disp: i * m.bytes()}, v[i])
		}
		for r := range 6 {
			x := m.reg()
			VBROADCASTSS(row3(a, a3, lda, r), x)
			for i := range v {
				VFMADD231PS(v[i], x, acc[r*strips+i])
			}
		}
		ADDQ(ldb, b)
		ADDQ(U8(4), a)
		ADDQ(U8(4), a3)
	})
	c, ldc, scale := m.arg("c"), m.arg("ldc"), m.arg("scale")
	plain, done := label("plain"), label("done")
	TESTQ(scale, scale)
	JZ(LabelRef(plain))
	c3 := GP64()
	LEAQ(Mem{Base: c, Index: ldc, Scale: 2}, c3)
	ADDQ(ldc, c3)
	for r := range 6 {
		s := m.reg()
		VBROADCASTSS(Mem{Base: scale, Disp: 4 * r}, s)
		for i := range strips {
			at := row3(c, c3, ldc, r)
			at.Disp = i * m.bytes()
			VFMADD231PS(at, s, acc[r*strips+i])
			VMOVUPS(acc[r*strips+i], at)
		}
	}
	JMP(LabelRef(done))
	Label(plain)
	for r := range 6 {
		for i := range strips {
			VMOVUPS(acc[r*strips+i], Mem{Base: c, Disp: i * m.bytes()})
		}
		if r < 5 {
			ADDQ(ldc, c)
		}
	}
	Label(done)
	end()
}

// row3 addresses row r of 6, from bases for rows 0 and 3.
func row3(base, base3, stride Register, r int) Mem {
	at := Mem{Base: base}
	if r >= 3 {
		at.Base = base3
	}
	if r%3 > 0 {
		at.Index, at.Scale = stride, uint8(r%3)
	}
	return at
}
