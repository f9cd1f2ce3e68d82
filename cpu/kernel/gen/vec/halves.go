package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// halves writes the conversions between f32 and f16.
func (m machine) halves() {
	m.function("toHalf", "func(dst *uint16, x *float32, n int)", "rounds to half precision, ties to even.")
	dst, x, n := m.arg("dst"), m.arg("x"), m.arg("n")
	loop(n, func() {
		v := m.reg()
		VMOVUPS(Mem{Base: x}, v)
		VCVTPS2PH(U8(0), v, Mem{Base: dst})
		ADDQ(U32(m.bytes()/2), dst)
		m.next(x)
	})
	end()

	m.function("fromHalf", "func(dst *float32, x *uint16, n int)", "widens half precision.")
	d, h, n := m.arg("dst"), m.arg("x"), m.arg("n")
	loop(n, func() {
		v := m.reg()
		VCVTPH2PS(Mem{Base: h}, v)
		VMOVUPS(v, Mem{Base: d})
		ADDQ(U32(m.bytes()/2), h)
		m.next(d)
	})
	end()
}
