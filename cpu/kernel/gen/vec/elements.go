package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// elements writes the kernels that go through rows once. n is the number of
// registers' worth of elements, so callers handle the rest; that of swiGLU, whose
// rest would come out otherwise, is the number of elements.
func (m machine) elements() {
	m.function("add", "func(dst, x *float32, n int)", "adds: dst += x.")
	dst, x, n := m.arg("dst"), m.arg("x"), m.arg("n")
	loop(n, func() {
		v := m.reg()
		VMOVUPS(Mem{Base: x}, v)
		VADDPS(Mem{Base: dst}, v, v)
		VMOVUPS(v, Mem{Base: dst})
		m.next(dst, x)
	})
	end()

	m.function("addScaled", "func(dst, x *float32, scale float32, n int)", "adds: dst += x · scale.")
	dst, x = m.arg("dst"), m.arg("x")
	by := m.broadcast("scale")
	n = m.arg("n")
	loop(n, func() {
		v := m.reg()
		VMOVUPS(Mem{Base: dst}, v)
		VFMADD231PS(Mem{Base: x}, by, v)
		VMOVUPS(v, Mem{Base: dst})
		m.next(dst, x)
	})
	end()

	m.function("scaleMul", "func(dst, x, w *float32, scale float32, n int)", "scales: dst = x · scale · w.")
	dst, x = m.arg("dst"), m.arg("x")
	w := m.arg("w")
	s := m.reg()
	scale, _ := Param("scale").Resolve()
	VBROADCASTSS(scale.Addr, s)
	n = m.arg("n")
	loop(n, func() {
		v := m.reg()
		VMULPS(Mem{Base: x}, s, v)
		VMULPS(Mem{Base: w}, v, v)
		VMOVUPS(v, Mem{Base: dst})
		m.next(dst, x, w)
	})
	end()

	m.sumSquares()
	m.swiGLU()
	m.rotateHalves()
	m.rotatePairs()
}

// arg loads a parameter of one word.
func (m machine) arg(name string) Register { return Load(Param(name), GP64()) }

// next moves pointers on by one register.
func (m machine) next(pointers ...Register) {
	for _, p := range pointers {
		ADDQ(U32(m.bytes()), p)
	}
}

// sumSquares is Σ x² in float64: each half of a register widens to as many
// doubles as a register holds.
func (m machine) sumSquares() {
	m.function("sumSquares", "func(x *float32, n int) float64", "is Σ x².")
	x, n := m.arg("x"), m.arg("n")
	a, b := m.reg(), m.reg()
	m.zero(a)
	m.zero(b)
	loop(n, func() {
		lo, hi := m.reg(), m.reg()
		VCVTPS2PD(Mem{Base: x}, lo)
		VCVTPS2PD(Mem{Base: x, Disp: m.bytes() / 2}, hi)
		VFMADD231PD(lo, lo, a)
		VFMADD231PD(hi, hi, b)
		m.next(x)
	})
	VADDPD(b, a, a)
	sum := a.AsY()
	if m.wide {
		t := YMM()
		VEXTRACTF64X4(U8(1), a, t)
		VADDPD(t, sum, sum)
	}
	t := XMM()
	VEXTRACTF128(U8(1), sum, t)
	VADDPD(t, a.AsX(), t)
	VHADDPD(t, t, t)
	Store(t, ReturnIndex(0))
	end()
}

// exp replaces x by e^x, or 2^x. The argument is cut into a whole power of two
// and a rest of at most half of it, for which a polynomial of Cephes serves
// (S. Moshier). What is below the smallest normal number becomes zero.
type exp struct {
	m            machine
	natural      bool
	low, high    Op // what is below low becomes zero, what is above high is cut
	perTwo       Op // powers of two in one of e
	ln2hi, ln2lo Op // ln 2 in two parts
	c            []Op
	one          Op
}

func (m machine) newExp(natural bool) *exp {
	e := &exp{m: m, natural: natural, one: m.constant(1)}
	coefs := []float32{1.535336188319500e-4, 1.339887440266574e-3, 9.618437357674640e-3, 5.550332471162809e-2, 2.402264791363012e-1, 6.931472028550421e-1}
	e.low, e.high = m.constant(-125.5), m.constant(127)
	if natural {
		coefs = []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1}
		e.low, e.high = m.constant(-87), m.constant(88)
		e.perTwo, e.ln2hi, e.ln2lo = m.constant(1.44269504088896341), m.constant(0.693359375), m.constant(-2.12194440e-4)
	}
	for _, c := range coefs {
		e.c = append(e.c, m.constant(c))
	}
	return e
}

// do writes the code for one register.
func (e *exp) do(x VecVirtual) {
	m := e.m
	var keep Op = K()
	if !m.wide {
		keep = m.reg()
	}
	VCMPPS(U8(5), e.low, x, keep) // not x < low, so that a NaN stays one
	VMAXPS(x, m.load(e.low), x)
	VMINPS(x, m.load(e.high), x)
	n, f := m.reg(), m.reg()
	if e.natural {
		VMULPS(e.perTwo, x, n)
		m.round(n, n)
		VMOVAPS(x, f)
		VFNMADD231PS(e.ln2hi, n, f)
		VFNMADD231PS(e.ln2lo, n, f)
	} else {
		m.round(x, n)
		VSUBPS(n, x, f)
	}
	p := m.reg()
	VMOVUPS(e.c[0], p)
	for _, c := range e.c[1:] {
		VFMADD213PS(c, f, p)
	}
	VFMADD213PS(e.one, f, p)
	if m.wide {
		VSCALEFPS_Z(n, p, keep, x)
		return
	}
	VCVTPS2DQ(n, n)
	VPSLLD(U8(23), n, n)
	VPADDD(n, p, p)
	VANDPS(keep, p, x)
}

// round rounds to whole numbers.
func (m machine) round(x, n VecVirtual) {
	if m.wide {
		VRNDSCALEPS(U8(8), x, n)
		return
	}
	VROUNDPS(U8(8), x, n)
}

// swiGLU is g / (1 + e^-g) · up.
func (m machine) swiGLU() {
	m.function("swiGLU", "func(dst, gate, up *float32, n int)", "gates: dst = gate / (1 + exp(-gate)) · up.")
	dst, gate, up, n := m.arg("dst"), m.arg("gate"), m.arg("up"), m.arg("n")
	e := m.newExp(true)
	m.eachLane(n, func(keep Op) {
		g, x := m.reg(), m.reg()
		m.fetch(Mem{Base: gate}, keep, g)
		m.zero(x)
		VSUBPS(g, x, x)
		e.do(x)
		VADDPS(e.one, x, x)
		VDIVPS(x, g, x)
		VMULPS(m.operand(Mem{Base: up}, keep), x, x)
		m.store(x, keep, Mem{Base: dst})
		m.next(dst, gate, up)
	})
	end()
}

// rotateHalves turns (x[i], x[i+pairs]).
func (m machine) rotateHalves() {
	m.function("rotateHalves", "func(x, y, cos, sin *float32, n int)", "turns the pairs (x, y).")
	x, y, cos, sin, n := m.arg("x"), m.arg("y"), m.arg("cos"), m.arg("sin"), m.arg("n")
	loop(n, func() {
		c, s, a, b, u := m.reg(), m.reg(), m.reg(), m.reg(), m.reg()
		VMOVUPS(Mem{Base: cos}, c)
		VMOVUPS(Mem{Base: sin}, s)
		VMOVUPS(Mem{Base: x}, a)
		VMOVUPS(Mem{Base: y}, b)
		VMULPS(b, s, u)
		VFMSUB231PS(a, c, u) // a·c - b·s
		VMULPS(b, c, b)
		VFMADD231PS(a, s, b) // a·s + b·c
		VMOVUPS(u, Mem{Base: x})
		VMOVUPS(b, Mem{Base: y})
		m.next(x, y, cos, sin)
	})
	end()
}

// rotatePairs turns (x[2i], x[2i+1]); n counts registers of x, so each step
// spreads half a register of cosines and sines over pairs.
func (m machine) rotatePairs() {
	m.function("rotatePairs", "func(x, cos, sin *float32, n int)", "turns neighbours.")
	x, cos, sin, n := m.arg("x"), m.arg("cos"), m.arg("sin"), m.arg("n")
	idx := m.reg()
	data := GLOBL("pairIndex"+m.suffix, attr.RODATA|attr.NOPTR)
	for i := range m.lanes {
		DATA(4*i, U32(uint32(i/2)))
	}
	VMOVUPS(data, idx)
	loop(n, func() {
		c, s, a, b := m.reg(), m.reg(), m.reg(), m.reg()
		if m.wide {
			VMOVUPS(Mem{Base: cos}, c.AsY())
			VMOVUPS(Mem{Base: sin}, s.AsY())
		} else {
			VMOVUPS(Mem{Base: cos}, c.AsX())
			VMOVUPS(Mem{Base: sin}, s.AsX())
		}
		VPERMPS(c, idx, c)
		VPERMPS(s, idx, s)
		VMOVUPS(Mem{Base: x}, a)
		VPERMILPS(U8(0xb1), a, b) // neighbours swapped
		VMULPS(b, s, b)
		VFMADDSUB231PS(a, c, b) // even lanes a·c - b·s, odd a·c + b·s
		VMOVUPS(b, Mem{Base: x})
		ADDQ(U32(m.bytes()), x)
		ADDQ(U32(m.bytes()/2), cos)
		ADDQ(U32(m.bytes()/2), sin)
	})
	end()
}
