package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// scoresAt is scores of keys that do not follow each other: key j starts at
// element at[j] of k. Row j of what comes next, at element next[j], is fetched
// into the cache meanwhile.
//
//	dst[h][j] = Σ_i q[h][i]·k[at[j]+i]
//
// Shapes: at, next int [16·n]; the others, and the registers, as in scores.
func (m machine) scoresAt(half bool, heads int) {
	name, size := kind(half)
	m.function(fmt.Sprintf("scoresAt%s%d", name, heads), "func(dst, q *float32, k *byte, at, next *int, dim, chunks, blocks int)",
		fmt.Sprintf("multiplies %d heads with keys that lie apart.", heads))
	keys := m.lanes / heads
	dst, q, k, at, next := m.arg("dst"), m.arg("q"), m.arg("k"), m.arg("at"), m.arg("next")
	qrow, chunks, blocks := m.arg("dim"), m.arg("chunks"), m.arg("blocks")
	SHLQ(U8(2), qrow) // bytes
	lines := GP64()   // cache lines of a row: as many steps fetch, one each
	MOVQ(chunks, lines)
	switch per := 64 / (size * m.lanes); per {
	case 2, 4:
		ADDQ(U8(uint8(per-1)), lines)
		SHRQ(U8(uint8(per/2)), lines)
	}
	loop(blocks, func() {
		acc := m.regs(m.lanes)
		for _, r := range acc {
			m.zero(r)
		}
		qi, ki, ahead, c := GP64(), GP64(), GP64(), GP64()
		MOVQ(q, qi)
		MOVQ(k, ki)
		MOVQ(k, ahead)
		step := func(fetch bool) {
			x := m.regs(heads)
			p := GP64()
			MOVQ(qi, p)
			for h := range x {
				VMOVUPS(Mem{Base: p}, x[h])
				if h < heads-1 {
					ADDQ(qrow, p)
				}
			}
			for j := range keys {
				v, row := m.reg(), GP64()
				MOVQ(Mem{Base: at, Disp: 8 * j}, row)
				m.widen(half, Mem{Base: ki, Index: row, Scale: uint8(size)}, v)
				if fetch {
					MOVQ(Mem{Base: next, Disp: 8 * j}, row)
					PREFETCHT2(Mem{Base: ahead, Index: row, Scale: uint8(size)})
				}
				for h := range x {
					VFMADD231PS(v, x[h], acc[h*keys+j])
				}
			}
			ADDQ(U32(m.bytes()), qi)
			ADDQ(U32(size*m.lanes), ki)
		}
		MOVQ(lines, c)
		loop(c, func() {
			step(true)
			ADDQ(U32(64), ahead)
		})
		MOVQ(chunks, c)
		SUBQ(lines, c)
		loop(c, func() { step(false) })
		m.spread(dst, m.fold(acc), heads)
		ADDQ(U32(4*keys), dst)
		ADDQ(U32(8*keys), at)
		ADDQ(U32(8*keys), next)
	})
	end()
}

// gatherAt is gather of values that do not follow each other: value j starts at
// element at[j] of v.
//
//	acc[h][·] = scale[h]·acc[h][·] + Σ_j p[h][j]·v[at[j]+·]
//
// Shapes: at, next int [n], as in scoresAt; the others as in gather.
func (m machine) gatherAt(half bool, heads, strips int) {
	name, size := kind(half)
	m.function(fmt.Sprintf("gatherAt%s%dx%d", name, heads, strips*m.lanes), "func(acc, p, scale *float32, v *byte, at, next *int, dim, n int)",
		fmt.Sprintf("adds values that lie apart to %d heads.", heads))
	dst, p, scale, v := m.arg("acc"), m.arg("p"), m.arg("scale"), m.arg("v")
	at, next, arow, n := m.arg("at"), m.arg("next"), m.arg("dim"), m.arg("n")
	SHLQ(U8(2), arow) // bytes
	acc := m.scaled(dst, scale, arow, heads, strips)
	loop(n, func() {
		x, row := m.regs(strips), GP64()
		MOVQ(Mem{Base: at}, row)
		for i := range x {
			m.widen(half, Mem{Base: v, Index: row, Scale: uint8(size), Disp: i * size * m.lanes}, x[i])
		}
		MOVQ(Mem{Base: next}, row)
		for line := 0; line < strips*m.lanes*size; line += 64 {
			PREFETCHT2(Mem{Base: v, Index: row, Scale: uint8(size), Disp: line})
		}
		m.accumulate(acc, x, p, heads)
		ADDQ(U8(8), at)
		ADDQ(U8(8), next)
		ADDQ(U8(4), p)
	})
	m.write(acc, dst, arow, heads)
	end()
}

// atLeast finds what is not below a bound.
//
//	bit i of bits[w] is x[64·w+i] >= bound
//
// Shapes: bits u64 [words], x f32 [64·words].
func (m machine) atLeast() {
	m.function("atLeast", "func(bits *uint64, x *float32, bound float32, words int)", "finds what is not below a bound.")
	set, x, bound, words := m.arg("bits"), m.arg("x"), m.broadcast("bound"), m.arg("words")
	loop(words, func() {
		all := GP64()
		XORQ(all, all)
		for i := 64/m.lanes - 1; i >= 0; i-- {
			some := GP64()
			from := Mem{Base: x, Disp: i * m.bytes()}
			if m.wide {
				k := K()
				VCMPPS(U8(2), from, bound, k) // bound <= x
				KMOVW(k, some.As32())
			} else {
				v := m.reg()
				VCMPPS(U8(2), from, bound, v)
				VMOVMSKPS(v, some.As32())
			}
			SHLQ(U8(uint8(m.lanes)), all)
			ORQ(some, all)
		}
		MOVQ(all, Mem{Base: set})
		ADDQ(U8(8), set)
		ADDQ(U32(256), x)
	})
	end()
}

// positions lists the bits of a set, ascending, with AVX-512 alone: a register of
// positions is compressed by 16 bits at a time, and its front is stored under a mask
// (VPCOMPRESSD to memory is microcode on some processors, 30 times as slow).
//
// Shapes: set u64 [words], dst i32 [bits that are set]; returns how many.
func (m machine) positions() {
	if !m.wide {
		return
	}
	m.function("positions", "func(dst *int32, set *uint64, words int) int", "lists the bits of a set.")
	dst, set, words := m.arg("dst"), m.arg("set"), m.arg("words")
	counting := GLOBL("counting"+m.suffix, attr.RODATA|attr.NOPTR)
	for i := range 16 {
		DATA(4*i, U32(uint32(i)))
	}
	here, step, start := m.reg(), m.reg(), GP64()
	VMOVUPS(counting, here)
	sixteen := GP32()
	MOVL(U32(16), sixteen)
	VPBROADCASTD(sixteen, step)
	MOVQ(dst, start)
	sixteenBits := GP32()
	MOVL(U32(0xffff), sixteenBits)
	loop(words, func() {
		word, n, keep, front := GP64(), GP64(), K(), K()
		MOVQ(Mem{Base: set}, word)
		for i := range 4 {
			some := GP32()
			MOVWLZX(word.As16(), some)
			KMOVW(some, keep)
			POPCNTL(some, n.As32())
			list, bits := m.reg(), GP32()
			VPCOMPRESSD_Z(here, keep, list)
			BZHIL(n.As32(), sixteenBits, bits)
			KMOVW(bits, front)
			VMOVDQU32(list, front, Mem{Base: dst})
			LEAQ(Mem{Base: dst, Index: n, Scale: 4}, dst)
			VPADDD(step, here, here)
			if i < 3 {
				SHRQ(U8(16), word)
			}
		}
		ADDQ(U8(8), set)
	})
	SUBQ(start, dst)
	SHRQ(U8(2), dst)
	Store(dst, ReturnIndex(0))
	end()
}

// places finds where the rows of 64 positions start, with AVX-512 alone. It
// returns 0 if all are found; a position outside [lo, lo+span) is not looked up.
//
//	at[i] = starts[j/64] + head + j%64·dim, j = positions[i]
//
// Shapes: at int [64], positions i32 [64], starts int [·], below 0 where there is
// no page.
func (m machine) places() {
	if !m.wide {
		return
	}
	m.function("places", "func(at *int, positions *int32, starts *int, lo, span, head, dim int) int", "finds where the rows of 64 positions start.")
	at, positions, starts := m.arg("at"), m.arg("positions"), m.arg("starts")
	all := func(name string) VecVirtual {
		r := m.reg()
		VPBROADCASTQ(m.arg(name), r)
		return r
	}
	lo, span, head, dim := all("lo"), all("span"), all("head"), all("dim")
	low, zero, bits := m.reg(), m.reg(), GP64()
	MOVQ(U32(63), bits)
	VPBROADCASTQ(bits, low)
	m.zero(zero)
	bad, some, n := K(), K(), GP64()
	KXORW(bad, bad, bad)
	MOVQ(U32(8), n)
	loop(n, func() {
		j, t, start, keep := m.reg(), m.reg(), m.reg(), K()
		VPMOVSXDQ(Mem{Base: positions}, j)
		VPSUBQ(lo, j, t)
		VPCMPUQ(U8(5), span, t, some) // outside
		KORW(some, bad, bad)
		VPCMPUQ(U8(1), span, t, keep)
		VPSRLQ(U8(6), j, t)
		m.zero(start)
		VPGATHERQQ(Mem{Base: starts, Index: t, Scale: 8}, keep, start)
		VPCMPQ(U8(1), zero, start, some) // no page
		KORW(some, bad, bad)
		VPANDQ(low, j, j)
		VPMULUDQ(dim, j, j)
		VPADDQ(head, start, start)
		VPADDQ(start, j, j)
		VMOVDQU64(j, Mem{Base: at})
		ADDQ(U8(32), positions)
		ADDQ(U8(64), at)
	})
	KMOVW(bad, bits.As32())
	Store(bits, ReturnIndex(0))
	end()
}
