package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// decode writes what one row of queries does with a page.
func (m machine) decode() {
	for _, half := range []bool{true, false} {
		for _, heads := range []int{4, 2, 1} {
			m.scores(half, heads)
			m.scoresAt(half, heads)
			for _, strips := range []int{4, 1} {
				if !m.wide && strips == 4 {
					strips = 2
				}
				m.gather(half, heads, strips)
				m.gatherAt(half, heads, strips)
			}
		}
	}
}

// kind names the element type of a cache.
func kind(half bool) (name string, size int) {
	if half {
		return "Half", 2
	}
	return "Full", 4
}

// widen loads a register of f32 from a cache of either type.
func (m machine) widen(half bool, from Mem, to VecVirtual) {
	if half {
		VCVTPH2PS(from, to)
		return
	}
	VMOVUPS(from, to)
}

// scores is the product of 1, 2 or 4 heads with keys.
//
//	dst[h][j] = Σ_i q[h][i]·k[j][i]
//
// Shapes: dst f32 [heads][64], q f32 [heads][dim], k f16 or f32 [·][dim];
// blocks is how many times 16 (AVX2: 8) over heads keys there are, chunks is
// dim over lanes, ahead is memory that is prefetched, at the offset of the key that
// is read.
//
// Registers: one sum for each head and key of a block, so that a tree of adds
// leaves exactly one register of results.
func (m machine) scores(half bool, heads int) {
	name, size := kind(half)
	m.function(fmt.Sprintf("scores%s%d", name, heads), "func(dst, q *float32, k, ahead *byte, dim, chunks, blocks int)",
		fmt.Sprintf("multiplies %d heads with keys.", heads))
	keys := m.lanes / heads
	dst, q, k, ahead := m.arg("dst"), m.arg("q"), m.arg("k"), m.arg("ahead")
	dim, chunks, blocks := m.arg("dim"), m.arg("chunks"), m.arg("blocks")
	row, qrow := GP64(), GP64() // bytes
	MOVQ(dim, row)
	SHLQ(U8(map[int]uint8{2: 1, 4: 2}[size]), row)
	MOVQ(dim, qrow)
	SHLQ(U8(2), qrow)
	SUBQ(k, ahead)
	loop(blocks, func() {
		acc := m.regs(m.lanes)
		for _, r := range acc {
			m.zero(r)
		}
		qi, c := GP64(), GP64()
		MOVQ(q, qi)
		MOVQ(chunks, c)
		loop(c, func() {
			x := m.regs(heads)
			p := GP64()
			MOVQ(qi, p)
			for h := range x {
				VMOVUPS(Mem{Base: p}, x[h])
				if h < heads-1 {
					ADDQ(qrow, p)
				}
			}
			p = GP64()
			MOVQ(k, p)
			for j := range keys {
				v := m.reg()
				m.widen(half, Mem{Base: p}, v)
				PREFETCHT2(Mem{Base: p, Index: ahead, Scale: 1})
				for h := range x {
					VFMADD231PS(v, x[h], acc[h*keys+j])
				}
				if j < keys-1 {
					ADDQ(row, p)
				}
			}
			ADDQ(U32(m.bytes()), qi)
			ADDQ(U32(size*m.lanes), k)
		})
		m.spread(dst, m.fold(acc), heads)
		ADDQ(U32(4*keys), dst)
		// k has moved one row on; the block has keys of them
		for range keys - 1 {
			ADDQ(row, k)
		}
	})
	end()
}

// fold adds up each of as many registers as they have lanes: lane i of the
// result is the sum of register i.
func (m machine) fold(v []VecVirtual) VecVirtual {
	t := m.reg()
	half := func(lo, hi func(a, b, c Op), n int) {
		for i := range n {
			lo(v[2*i+1], v[2*i], t)
			hi(v[2*i+1], v[2*i], v[2*i])
			VADDPS(t, v[2*i], v[2*i])
			v[i], v[2*i] = v[2*i], v[i]
		}
	}
	half(func(a, b, c Op) { VUNPCKLPS(a, b, c) }, func(a, b, c Op) { VUNPCKHPS(a, b, c) }, len(v)/2)
	half(func(a, b, c Op) { VUNPCKLPD(a, b, c) }, func(a, b, c Op) { VUNPCKHPD(a, b, c) }, len(v)/4)
	if !m.wide {
		half(func(a, b, c Op) { VPERM2F128(U8(0x20), a, b, c) }, func(a, b, c Op) { VPERM2F128(U8(0x31), a, b, c) }, 1)
		return v[0]
	}
	even, odd := func(a, b, c Op) { VSHUFF32X4(U8(0x88), a, b, c) }, func(a, b, c Op) { VSHUFF32X4(U8(0xdd), a, b, c) }
	half(even, odd, 2)
	half(even, odd, 1)
	return v[0]
}

// spread stores the lanes of r, [heads][keys], with 64 floats between heads.
func (m machine) spread(dst Register, r VecVirtual, heads int) {
	switch {
	case heads == 1:
		VMOVUPS(r, Mem{Base: dst})
	case heads == 2 && m.wide:
		VMOVUPS(r.AsY(), Mem{Base: dst})
		VEXTRACTF64X4(U8(1), r, Mem{Base: dst, Disp: 256})
	case heads == 2:
		VMOVUPS(r.AsX(), Mem{Base: dst})
		VEXTRACTF128(U8(1), r, Mem{Base: dst, Disp: 256})
	case m.wide:
		VMOVUPS(r.AsX(), Mem{Base: dst})
		for h := 1; h < 4; h++ {
			VEXTRACTF32X4(U8(uint8(h)), r, Mem{Base: dst, Disp: 256 * h})
		}
	default: // 2 keys of 4 heads
		t := XMM()
		VEXTRACTF128(U8(1), r, t)
		VMOVLPS(r.AsX(), Mem{Base: dst})
		VMOVHPS(r.AsX(), Mem{Base: dst, Disp: 256})
		VMOVLPS(t, Mem{Base: dst, Disp: 512})
		VMOVHPS(t, Mem{Base: dst, Disp: 768})
	}
}

// gather adds values with weights to the results of 1, 2 or 4 heads, over one
// strip of registers.
//
//	acc[h][·] = scale[h]·acc[h][·] + Σ_j p[h][j]·v[j][·]
//
// Shapes: acc f32 [heads][dim] and v f16 or f32 [n][dim], at the strip's first
// element, p f32 [heads][64], scale f32 [heads]; ahead as in scores.
func (m machine) gather(half bool, heads, strips int) {
	name, size := kind(half)
	m.function(fmt.Sprintf("gather%s%dx%d", name, heads, strips*m.lanes), "func(acc, p, scale *float32, v, ahead *byte, dim, n int)",
		fmt.Sprintf("adds values to %d heads.", heads))
	dst, p, scale, v, ahead := m.arg("acc"), m.arg("p"), m.arg("scale"), m.arg("v"), m.arg("ahead")
	dim, n := m.arg("dim"), m.arg("n")
	row, arow := GP64(), GP64()
	MOVQ(dim, row)
	SHLQ(U8(map[int]uint8{2: 1, 4: 2}[size]), row)
	MOVQ(dim, arow)
	SHLQ(U8(2), arow)
	SUBQ(v, ahead)
	acc := m.scaled(dst, scale, arow, heads, strips)
	loop(n, func() {
		x := m.regs(strips)
		for i := range x {
			m.widen(half, Mem{Base: v, Disp: i * size * m.lanes}, x[i])
		}
		PREFETCHT2(Mem{Base: v, Index: ahead, Scale: 1})
		if strips*m.lanes*size > 64 {
			PREFETCHT2(Mem{Base: v, Index: ahead, Scale: 1, Disp: 64})
		}
		m.accumulate(acc, x, p, heads)
		ADDQ(row, v)
		ADDQ(U8(4), p)
	})
	m.write(acc, dst, arow, heads)
	end()
}

// scaled is a strip of the results of heads, arow bytes apart, times scale.
func (m machine) scaled(dst, scale, arow Register, heads, strips int) []VecVirtual {
	acc := m.regs(heads * strips)
	at := GP64()
	MOVQ(dst, at)
	for h := range heads {
		s := m.reg()
		VBROADCASTSS(Mem{Base: scale, Disp: 4 * h}, s)
		for i := range strips {
			VMULPS(Mem{Base: at, Disp: i * m.bytes()}, s, acc[h*strips+i])
		}
		if h < heads-1 {
			ADDQ(arow, at)
		}
	}
	return acc
}

// accumulate adds a strip x of values with the weight of each head at p.
func (m machine) accumulate(acc, x []VecVirtual, p Register, heads int) {
	for h := range heads {
		w := m.reg()
		VBROADCASTSS(Mem{Base: p, Disp: 256 * h}, w)
		for i := range x {
			VFMADD231PS(x[i], w, acc[h*len(x)+i])
		}
	}
}

// write writes a strip of the results of heads, arow bytes apart.
func (m machine) write(acc []VecVirtual, dst, arow Register, heads int) {
	strips := len(acc) / heads
	for h := range heads {
		for i := range strips {
			VMOVUPS(acc[h*strips+i], Mem{Base: dst, Disp: i * m.bytes()})
		}
		if h < heads-1 {
			ADDQ(arow, dst)
		}
	}
}
