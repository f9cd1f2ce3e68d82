package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// mirror writes the products of queries of 8 bits with keys of 8 and 4 bits.
func (m machine) mirror() {
	for _, bits := range []int{8, 4} {
		for _, heads := range []int{4, 2, 1} {
			m.mirrorScores(bits, heads)
		}
	}
}

// mirrorScores is the product of 1, 2 or 4 heads with the 64 low-bit keys of a page.
//
//	dst[h][j] = (f32(q[h][n] + Σ_w Σ_b q[h][w].b·k[w][j].b)·scale[j])·unit[h]
//
// Shapes: dst f32 [heads][64]; q [heads][n+1], n words of four signed bytes and what undoes the
// offset of the keys' bytes; unit f32 [heads]; k [words+1][64], words of four unsigned bytes or
// eight halves of them, then scale f32 [64]. n is words, or twice as many for 4 bits; ahead is
// memory that is prefetched.
//
// Registers: a sum for each head and vector of keys, all 64 keys at once with AVX-512 and 16 with
// AVX2. With AVX-512 a word of 16 keys and a head is one VPDPBUSD (for 4 bits two), whose unsigned
// operand is the keys'. AVX2 has no such product without saturation: bytes of 8 bits are taken in
// two steps as 16-bit numbers, and those of 4 bits are small enough for VPMADDUBSW.
func (m machine) mirrorScores(bits, heads int) {
	m.function(fmt.Sprintf("mirror%dScores%d", bits, heads), "func(dst *float32, q *int32, unit *float32, k, ahead *int32, words int)",
		fmt.Sprintf("multiplies %d heads with keys of %d bits.", heads, bits))
	dst, q, unit, k, ahead, words := m.arg("dst"), m.arg("q"), m.arg("unit"), m.arg("k"), m.arg("ahead"), m.arg("words")
	vectors, blocks := 4, 1
	if !m.wide {
		vectors, blocks = 2, 4
	}
	row, block := GP64(), GP64() // bytes of a head in q
	MOVQ(words, row)
	SHLQ(U8(map[int]uint8{8: 2, 4: 3}[bits]), row)
	ADDQ(U8(4), row)
	SUBQ(k, ahead)
	MOVQ(U32(blocks), block)
	loop(block, func() {
		acc, ki, qi, n := m.regs(heads*vectors), GP64(), GP64(), GP64()
		for _, r := range acc {
			m.zero(r)
		}
		MOVQ(k, ki)
		MOVQ(q, qi)
		MOVQ(words, n)
		loop(n, func() {
			keys := m.mirrorKeys(ki, ahead, vectors, bits)
			for part, v := range keys {
				m.mirrorMultiply(acc, v, qi, row, heads, 4*part, bits)
			}
			ADDQ(U32(256), ki)
			ADDQ(U8(uint8(4*8/bits)), qi)
		})
		m.mirrorWrite(acc, dst, qi, ki, unit, row, heads, vectors)
		ADDQ(U32(vectors*m.bytes()), k)
		ADDQ(U32(vectors*m.bytes()), dst)
	})
	end()
}

// mirrorKeys loads a word of the keys of each vector: as it is, or low and high halves of bytes.
func (m machine) mirrorKeys(k, ahead Register, vectors, bits int) [][]VecVirtual {
	low := m.regs(vectors)
	for i, v := range low {
		from := Mem{Base: k, Disp: i * m.bytes()}
		m.loadInts(from, v)
		if i*m.bytes()%64 == 0 {
			PREFETCHT2(Mem{Base: k, Index: ahead, Scale: 1, Disp: from.Disp})
		}
	}
	if bits == 8 {
		return [][]VecVirtual{low}
	}
	high, mask := m.regs(vectors), m.words(0x0f0f0f0f)
	for i := range low {
		VPSRLD(U8(4), low[i], high[i])
		m.and(mask, low[i])
		m.and(mask, high[i])
	}
	return [][]VecVirtual{low, high}
}

// mirrorMultiply adds the products of one word of each head, disp bytes from q on, to the sums.
func (m machine) mirrorMultiply(acc, keys []VecVirtual, q, row Register, heads, disp, bits int) {
	at := GP64()
	MOVQ(q, at)
	var odd []VecVirtual
	if !m.wide && bits == 8 {
		odd = m.regs(len(keys))
		for i, v := range keys {
			VPSRLW(U8(8), v, odd[i])
			m.and(m.words(0x00ff00ff), v)
		}
	}
	for h := range heads {
		x := m.reg()
		VPBROADCASTD(Mem{Base: at, Disp: disp}, x)
		for i, v := range keys {
			sum := acc[h*len(keys)+i]
			switch {
			case m.wide:
				VPDPBUSD(x, v, sum)
			case bits == 4:
				t := m.reg()
				VPMADDUBSW(x, v, t)
				VPMADDWD(m.words(0x00010001), t, t)
				VPADDD(t, sum, sum)
			}
		}
		if odd != nil {
			m.mirrorPairs(acc[h*len(keys):], keys, odd, x)
		}
		if h < heads-1 {
			ADDQ(row, at)
		}
	}
}

// mirrorPairs adds the products of a head's word x with bytes of keys that are 16-bit numbers:
// bytes 0 and 2 in even, 1 and 3 in odd.
func (m machine) mirrorPairs(acc, even, odd []VecVirtual, x VecVirtual) {
	xe, t := m.reg(), m.reg()
	VPSLLW(U8(8), x, xe)
	VPSRAW(U8(8), xe, xe)
	VPSRAW(U8(8), x, x)
	for i := range even {
		VPMADDWD(xe, even[i], t)
		VPADDD(t, acc[i], acc[i])
		VPMADDWD(x, odd[i], t)
		VPADDD(t, acc[i], acc[i])
	}
}

// mirrorWrite writes scores: q and k have come to the last word of a head and to the scales.
func (m machine) mirrorWrite(acc []VecVirtual, dst, q, k, unit, row Register, heads, vectors int) {
	for h := range heads {
		offset, u := m.reg(), m.reg()
		VPBROADCASTD(Mem{Base: q}, offset)
		VBROADCASTSS(Mem{Base: unit, Disp: 4 * h}, u)
		for i := range vectors {
			v := acc[h*vectors+i]
			VPADDD(offset, v, v)
			VCVTDQ2PS(v, v)
			VMULPS(Mem{Base: k, Disp: i * m.bytes()}, v, v)
			VMULPS(u, v, v)
			VMOVUPS(v, Mem{Base: dst, Disp: 256*h + i*m.bytes()})
		}
		if h < heads-1 {
			ADDQ(row, q)
		}
	}
}

// loadInts loads a register of integers.
func (m machine) loadInts(from Mem, to VecVirtual) {
	if m.wide {
		VMOVDQU32(from, to)
		return
	}
	VMOVDQU(from, to)
}

// and clears the bits of x that keep does not have.
func (m machine) and(keep Op, x VecVirtual) {
	if m.wide {
		VPANDD(keep, x, x)
		return
	}
	VPAND(keep, x, x)
}

// integers are the 32-bit numbers that the file holds.
var integers = map[uint32]Mem{}

// words is a register full of an integer, or as much memory where registers are few.
func (m machine) words(v uint32) Op {
	at, ok := integers[v]
	if !ok {
		at = GLOBL(fmt.Sprintf("u32_%08x", v)+m.suffix, attr.RODATA|attr.NOPTR)
		for i := range 8 {
			DATA(4*i, U32(v))
		}
		integers[v] = at
	}
	if !m.wide {
		return at
	}
	r := m.reg()
	VPBROADCASTD(at, r)
	return r
}
