package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// labels is the product of one head with the channel labels of a page.
//
//	dst[j] = Σ_i q[i]·k[i][j]
//
// Shapes: dst f32 [64], q f32 [n], k f16 [n][64], at least one row; ahead is memory that is
// prefetched, at the offset that is read.
//
// Registers: a sum for each key. The sum runs in order, so that it has the bits of a tile.
func (m machine) labels() {
	m.function("labels", "func(dst, q *float32, k, ahead *uint16, n int)", "multiplies a head with channel labels.")
	dst, q, k, ahead, n := m.arg("dst"), m.arg("q"), m.arg("k"), m.arg("ahead"), m.arg("n")
	vectors, parts := 4, GP64()
	rows := n
	SUBQ(k, ahead)
	MOVQ(U32(64/(vectors*m.lanes)), parts)
	loop(parts, func() {
		acc, qi, ki, c := m.regs(vectors), GP64(), GP64(), GP64()
		for _, r := range acc {
			m.zero(r)
		}
		MOVQ(q, qi)
		MOVQ(k, ki)
		MOVQ(rows, c)
		loop(c, func() {
			x := m.reg()
			VBROADCASTSS(Mem{Base: qi}, x)
			PREFETCHT1(Mem{Base: ki, Index: ahead, Scale: 1})
			if m.wide {
				PREFETCHT1(Mem{Base: ki, Index: ahead, Scale: 1, Disp: 64})
			}
			for i, sum := range acc {
				v := m.reg()
				VCVTPH2PS(Mem{Base: ki, Disp: i * m.bytes() / 2}, v)
				VFMADD231PS(v, x, sum)
			}
			ADDQ(U8(4), qi)
			ADDQ(U32(128), ki)
		})
		for i, sum := range acc {
			VMOVUPS(sum, Mem{Base: dst, Disp: i * m.bytes()})
		}
		ADDQ(U32(vectors*m.bytes()), dst)
		ADDQ(U32(vectors*m.bytes()/2), k)
	})
	end()
}

// signs is how the sign bits of a head agree with those of the 64 keys of a page, with AVX-512
// alone, for keys of one word of 32 bits, and of four.
//
//	dst[j] = 32·words - 2·|q xor k[j]|
//
// Shapes: dst f32 [64], q u32 [words], k u32 [64][words].
//
// The bits of a byte are counted by its halves and a table (VPSHUFB). Bytes are added up by products
// with one for keys of a word. For keys of four a register has four of them, whose bytes are added by
// VPSADBW, two sums for each key. Four registers make one of sixteen sums: keys r·4+i become words
// i·4+r, and a permutation puts them in order.
func (m machine) signs() {
	if !m.wide {
		return
	}
	table := GLOBL("bitsOfHalves"+m.suffix, attr.RODATA|attr.NOPTR)
	for i, b := range []byte{0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4} {
		DATA(i, U8(b))
	}
	m.signsOfOne(table)
	m.signsOfFour(table)
}

// signBytes is how many bits of each byte differ between a query and the keys at k.
func (m machine) signBytes(query, counts VecVirtual, low Op, k Mem) VecVirtual {
	x, y := m.reg(), m.reg()
	VPXORD(k, query, x)
	VPSRLD(U8(4), x, y)
	VPANDD(low, x, x)
	VPANDD(low, y, y)
	VPSHUFB(x, counts, x)
	VPSHUFB(y, counts, y)
	VPADDB(y, x, x)
	return x
}

// signWrite writes width less twice the sums.
func (m machine) signWrite(sums VecVirtual, width Op, dst Mem) {
	VPADDD(sums, sums, sums)
	VPSUBD(sums, width, sums)
	VCVTDQ2PS(sums, sums)
	VMOVUPS(sums, dst)
}

func (m machine) signsOfOne(table Mem) {
	m.function("signs1", "func(dst *float32, q, k *int32)", "compares 32 sign bits with those of a page.")
	dst, q, k := m.arg("dst"), m.arg("q"), m.arg("k")
	query, counts := m.reg(), m.reg()
	VPBROADCASTD(Mem{Base: q}, query)
	VBROADCASTI32X4(table, counts)
	low, width, bytes, pairs := m.words(0x0f0f0f0f), m.words(32), m.words(0x01010101), m.words(0x00010001)
	for i := range 4 {
		x := m.signBytes(query, counts, low, Mem{Base: k, Disp: 64 * i})
		VPMADDUBSW(bytes, x, x)
		VPMADDWD(pairs, x, x)
		m.signWrite(x, width, Mem{Base: dst, Disp: 64 * i})
	}
	end()
}

func (m machine) signsOfFour(table Mem) {
	m.function("signs4", "func(dst *float32, q, k *int32)", "compares 128 sign bits with those of a page.")
	dst, q, k := m.arg("dst"), m.arg("q"), m.arg("k")
	order := GLOBL("keysInOrder"+m.suffix, attr.RODATA|attr.NOPTR)
	for i := range 16 {
		DATA(4*i, U32(uint32(i%4*4+i/4)))
	}
	query, counts, zero, inOrder := m.reg(), m.reg(), m.reg(), m.reg()
	VBROADCASTI32X4(Mem{Base: q}, query)
	VBROADCASTI32X4(table, counts)
	VMOVDQU32(order, inOrder)
	m.zero(zero)
	low, width, n := m.words(0x0f0f0f0f), m.words(128), GP64()
	MOVQ(U32(4), n)
	loop(n, func() {
		var sums [4]VecVirtual
		for r := range sums {
			sums[r] = m.signBytes(query, counts, low, Mem{Base: k, Disp: 64 * r})
			VPSADBW(zero, sums[r], sums[r])
		}
		for _, r := range []int{0, 2} { // words r, r+1 of each key's two sums
			t := m.reg()
			VPSLLQ(U8(32), sums[r+1], sums[r+1])
			VPORD(sums[r+1], sums[r], sums[r])
			VPSHUFD(U8(0x4e), sums[r], t)
			VPADDD(t, sums[r], sums[r])
		}
		all := m.reg()
		VPUNPCKLQDQ(sums[2], sums[0], all)
		VPERMD(all, inOrder, all)
		m.signWrite(all, width, Mem{Base: dst})
		ADDQ(U32(256), k)
		ADDQ(U8(64), dst)
	})
	end()
}
