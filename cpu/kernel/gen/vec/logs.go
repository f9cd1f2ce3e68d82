package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// logs writes the two halves of a running sum of logarithms, term by term of
// t = x·scale + shift:
//
//	top = max(top, t)        sum = sum + e^(t - top)
//
// Shapes: top, sum, x f32 [n]. Both compute t with the same fused operation, so
// that the largest term is e^0.
func (m machine) logs() {
	m.function("logTop", "func(top, x *float32, scale, shift float32, n int)", "is the largest term so far: top = max(top, x·scale + shift).")
	top, x := m.arg("top"), m.arg("x")
	scale, shift := m.broadcast("scale"), m.broadcast("shift")
	m.eachLane(m.arg("n"), func(keep Op) {
		t := m.term(x, scale, shift, keep)
		VMAXPS(m.operand(Mem{Base: top}, keep), t, t)
		m.store(t, keep, Mem{Base: top})
		m.next(top, x)
	})
	end()

	m.function("logSum", "func(sum, top, x *float32, scale, shift float32, n int)", "adds a term: sum += exp(x·scale + shift - top).")
	sum, top, x := m.arg("sum"), m.arg("top"), m.arg("x")
	scale, shift = m.broadcast("scale"), m.broadcast("shift")
	e := m.newExp(true)
	m.eachLane(m.arg("n"), func(keep Op) {
		t := m.term(x, scale, shift, keep)
		VSUBPS(m.operand(Mem{Base: top}, keep), t, t)
		e.do(t)
		VADDPS(m.operand(Mem{Base: sum}, keep), t, t)
		m.store(t, keep, Mem{Base: sum})
		m.next(sum, top, x)
	})
	end()
}

// exps writes exponentials and adds them up in float64:
//
//	dst = e^(x - top)
//
// Shapes: dst, x f32 [n]. What is not among the n elements adds nothing: it is below every bound.
func (m machine) exps() {
	m.function("exps", "func(dst, x *float32, top float32, n int) float64", "writes exponentials, and returns their sum.")
	dst, x, top := m.arg("dst"), m.arg("x"), m.broadcast("top")
	lo, hi, nothing := m.reg(), m.reg(), m.load(m.constant(float32(math.Inf(-1))))
	m.zero(lo)
	m.zero(hi)
	e := m.newExp(true)
	m.eachLane(m.arg("n"), func(keep Op) {
		t := m.reg()
		switch {
		case keep == nil:
			VMOVUPS(Mem{Base: x}, t)
		case m.wide:
			VMOVAPS(nothing, t)
			VMOVUPS(Mem{Base: x}, keep, t)
		default:
			m.fetch(Mem{Base: x}, keep, t)
			VBLENDVPS(keep, t, nothing, t)
		}
		VSUBPS(top, t, t)
		e.do(t)
		m.store(t, keep, Mem{Base: dst})
		a, b := m.reg(), m.reg()
		VCVTPS2PD(m.lower(t), a)
		if m.wide {
			VEXTRACTF64X4(U8(1), t, t.AsY())
		} else {
			VEXTRACTF128(U8(1), t, t.AsX())
		}
		VCVTPS2PD(m.lower(t), b)
		VADDPD(a, lo, lo)
		VADDPD(b, hi, hi)
		m.next(dst, x)
	})
	VADDPD(hi, lo, lo)
	Store(m.across64(lo), ReturnIndex(0))
	end()
}

// broadcast is a register full of a parameter.
func (m machine) broadcast(name string) VecVirtual {
	r := m.reg()
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(p.Addr, r)
	return r
}

// term is x·scale + shift of the next register.
func (m machine) term(x Register, scale, shift VecVirtual, keep Op) VecVirtual {
	t := m.reg()
	m.fetch(Mem{Base: x}, keep, t)
	VFMADD213PS(shift, scale, t)
	return t
}
