package main

import (
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
// that the largest term is e^0. AVX-512 takes any n, with a mask for the rest;
// AVX2 takes whole registers.
func (m machine) logs() {
	m.function("logTop", "func(top, x *float32, scale, shift float32, n int)", "is the largest term so far: top = max(top, x·scale + shift).")
	top, x := m.arg("top"), m.arg("x")
	scale, shift := m.broadcast("scale"), m.broadcast("shift")
	m.eachLane(m.arg("n"), func(keep Op) {
		t := m.term(x, scale, shift, keep)
		if keep == nil {
			VMAXPS(Mem{Base: top}, t, t)
			VMOVUPS(t, Mem{Base: top})
		} else {
			old := m.reg()
			VMOVUPS_Z(Mem{Base: top}, keep, old)
			VMAXPS(old, t, t)
			VMOVUPS(t, keep, Mem{Base: top})
		}
		m.next(top, x)
	})
	end()

	m.function("logSum", "func(sum, top, x *float32, scale, shift float32, n int)", "adds a term: sum += exp(x·scale + shift - top).")
	sum, top, x := m.arg("sum"), m.arg("top"), m.arg("x")
	scale, shift = m.broadcast("scale"), m.broadcast("shift")
	e := m.newExp(true)
	m.eachLane(m.arg("n"), func(keep Op) {
		t := m.term(x, scale, shift, keep)
		if keep == nil {
			VSUBPS(Mem{Base: top}, t, t)
			e.do(t)
			VADDPS(Mem{Base: sum}, t, t)
			VMOVUPS(t, Mem{Base: sum})
		} else {
			old := m.reg()
			VMOVUPS_Z(Mem{Base: top}, keep, old)
			VSUBPS(old, t, t)
			e.do(t)
			VMOVUPS_Z(Mem{Base: sum}, keep, old)
			VADDPS(old, t, t)
			VMOVUPS(t, keep, Mem{Base: sum})
		}
		m.next(sum, top, x)
	})
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
	if keep == nil {
		VMOVUPS(Mem{Base: x}, t)
	} else {
		VMOVUPS_Z(Mem{Base: x}, keep, t)
	}
	VFMADD213PS(shift, scale, t)
	return t
}

// eachLane runs body for each whole register of n elements and, with AVX-512,
// for what is left with a mask.
func (m machine) eachLane(n Register, body func(keep Op)) {
	whole := GP64()
	MOVQ(n, whole)
	shift := 3
	if m.wide {
		shift = 4
	}
	SHRQ(U8(shift), whole)
	loop(whole, func() { body(nil) })
	if !m.wide {
		return
	}
	done, mask, bits := label("done"), K(), GP64()
	ANDQ(U8(15), n)
	JZ(LabelRef(done))
	MOVQ(U64(0xffff), bits)
	BZHIQ(n, bits, bits)
	KMOVW(bits.As32(), mask)
	body(mask)
	Label(done)
}
