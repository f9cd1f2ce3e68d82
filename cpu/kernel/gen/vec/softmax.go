package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// softmax adds a tile of 64 scores to the running softmax of each row:
//
//	M = max(m, max s); c = 2^(m-M); s = 2^(s-M); l = l·c + Σ s; m = M
//
// Shapes: s f32 [rows][64], read and written; m, l read and written and c
// written, f32 [rows]. Where the largest stays the largest, c is 1 without a
// computation. With weights w f32 [64], it is s = w·2^(s-M).
func (m machine) softmax(weighted bool) {
	var w Register
	if weighted {
		m.function("weightedSoftmax", "func(s, w, top, sum, scale *float32, rows int)", "adds 64 weighted scores to the softmax of each row.")
		w = m.arg("w")
	} else {
		m.function("softmax", "func(s, top, sum, scale *float32, rows int)", "adds 64 scores to the softmax of each row.")
	}
	s, top, sum, scale, rows := m.arg("s"), m.arg("top"), m.arg("sum"), m.arg("scale"), m.arg("rows")
	e := m.newExp(false)
	loop(rows, func() {
		n := 64 / m.lanes
		wide := 4
		v := m.regs(min(n, wide))
		// the largest
		big := m.reg()
		for i := range n {
			if i == 0 {
				VMOVUPS(Mem{Base: s}, big)
				continue
			}
			VMAXPS(Mem{Base: s, Disp: i * m.bytes()}, big, big)
		}
		peak := m.across(big, func(a Op, b, c Op) { VMAXPS(a, b, c) })
		old := XMM()
		VMOVSS(Mem{Base: top}, old)
		VMAXSS(old, peak, peak)
		same, done := label("same"), label("done")
		c := m.reg()
		VUCOMISS(old, peak)
		JE(LabelRef(same))
		VMOVSS(peak, Mem{Base: top})
		VSUBSS(peak, old, old)
		VBROADCASTSS(old, c)
		e.do(c)
		JMP(LabelRef(done))
		Label(same)
		VMOVUPS(e.one, c)
		Label(done)
		VMOVSS(c.AsX(), Mem{Base: scale})
		all := m.reg()
		VBROADCASTSS(peak, all)
		total := m.reg()
		m.zero(total)
		for i := range n {
			r := v[i%len(v)]
			VMOVUPS(Mem{Base: s, Disp: i * m.bytes()}, r)
			VSUBPS(all, r, r)
			e.do(r)
			if weighted {
				VMULPS(Mem{Base: w, Disp: i * m.bytes()}, r, r)
			}
			VMOVUPS(r, Mem{Base: s, Disp: i * m.bytes()})
			VADDPS(r, total, total)
		}
		part := m.across(total, func(a Op, b, c Op) { VADDPS(a, b, c) })
		VFMADD231SS(Mem{Base: sum}, c.AsX(), part)
		VMOVSS(part, Mem{Base: sum})
		ADDQ(U32(256), s)
		for _, p := range []Register{top, sum, scale} {
			ADDQ(U8(4), p)
		}
	})
	end()
}

// across folds the lanes of r into the first of an xmm register.
func (m machine) across(r VecVirtual, fold func(a, b, c Op)) VecVirtual {
	y := YMM()
	if m.wide {
		VEXTRACTF64X4(U8(1), r, y)
		fold(y, r.AsY(), y)
	} else {
		VMOVAPS(r, y)
	}
	x, t := XMM(), XMM()
	VEXTRACTF128(U8(1), y, x)
	fold(x, y.AsX(), x)
	VPERMILPS(U8(0x4e), x, t)
	fold(t, x, x)
	VPERMILPS(U8(0xb1), x, t)
	fold(t, x, x)
	return x
}
