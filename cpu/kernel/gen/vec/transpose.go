package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// transpose turns a square of keys into columns: as many keys as a register has
// lanes, over dim elements.
//
//	dst[i][key] = float(k[key][i])
//
// Shapes: k f16 [lanes][dim], dst f32 [dim][64], at the square's first column.
// blocks is dim / lanes.
func (m machine) transpose() {
	m.function("columns", "func(dst *float32, k *uint16, dim, blocks int)", "turns keys into columns.")
	dst, k, stride, blocks := m.arg("dst"), m.arg("k"), m.arg("dim"), m.arg("blocks")
	SHLQ(U8(1), stride)
	loop(blocks, func() {
		p := GP64()
		MOVQ(k, p)
		v := m.regs(m.lanes)
		for i := range v {
			VCVTPH2PS(Mem{Base: p}, v[i])
			if i < len(v)-1 {
				ADDQ(stride, p)
			}
		}
		m.square(v)
		for i := range v {
			VMOVUPS(v[i], Mem{Base: dst, Disp: 256 * i})
		}
		ADDQ(U32(256*m.lanes), dst)
		ADDQ(U32(2*m.lanes), k)
	})
	end()
}

// square transposes as many registers as they have lanes, in place.
func (m machine) square(v []VecVirtual) {
	n := len(v)
	t := m.reg()
	// within each 128-bit lane, 4 by 4
	for i := 0; i < n; i += 2 {
		VUNPCKLPS(v[i+1], v[i], t)
		VUNPCKHPS(v[i+1], v[i], v[i+1])
		VMOVAPS(t, v[i])
	}
	for i := 0; i < n; i += 4 {
		// v0 = 0a 0b 1a 1b, v1 = 2a 2b 3a 3b, v2, v3 the same of c and d
		VUNPCKLPD(v[i+2], v[i], t)
		VUNPCKHPD(v[i+2], v[i], v[i+2])
		VMOVAPS(t, v[i])
		VUNPCKLPD(v[i+3], v[i+1], t)
		VUNPCKHPD(v[i+3], v[i+1], v[i+3])
		VMOVAPS(t, v[i+1])
		v[i+1], v[i+2] = v[i+2], v[i+1]
	}
	if !m.wide {
		for i := range 4 {
			VPERM2F128(U8(0x20), v[i+4], v[i], t)
			VPERM2F128(U8(0x31), v[i+4], v[i], v[i+4])
			VMOVAPS(t, v[i])
		}
		return
	}
	// v[4g+j], 128-bit lane q: element 4q+j of keys 4g..4g+3
	for j := range 4 {
		a, b, c, d := v[j], v[4+j], v[8+j], v[12+j]
		ab, cd := t, m.reg()
		VSHUFF32X4(U8(0x44), b, a, ab) // a0 a1 b0 b1
		VSHUFF32X4(U8(0xee), b, a, a)  // a2 a3 b2 b3
		VSHUFF32X4(U8(0x44), d, c, cd) // c0 c1 d0 d1
		VSHUFF32X4(U8(0xee), d, c, c)  // c2 c3 d2 d3
		VSHUFF32X4(U8(0x88), c, a, b)  // a2 b2 c2 d2
		VSHUFF32X4(U8(0xdd), c, a, d)  // a3 b3 c3 d3
		VSHUFF32X4(U8(0x88), cd, ab, a)
		VSHUFF32X4(U8(0xdd), cd, ab, c)
		v[j], v[4+j], v[8+j], v[12+j] = a, c, b, d
	}
}
