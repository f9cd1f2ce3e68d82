package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A kernel that takes any number of elements runs its body once for each whole
// register and once under a mask for what is left, so that an element comes out
// the same wherever it lies. The body gets the mask, nil for a whole register: a
// mask register with AVX-512, lanes of all ones or zeros with AVX2.

// eachLane runs body over n elements.
func (m machine) eachLane(n Register, body func(keep Op)) {
	whole := GP64()
	MOVQ(n, whole)
	SHRQ(U8(map[int]uint8{8: 3, 16: 4}[m.lanes]), whole)
	loop(whole, func() { body(nil) })
	done := label("done")
	ANDQ(U8(uint8(m.lanes-1)), n)
	JZ(LabelRef(done))
	body(m.mask(n))
	Label(done)
}

// mask is the first n lanes, fewer than there are.
func (m machine) mask(n Register) Op {
	if m.wide {
		bits, mask := GP64(), K()
		MOVQ(U64(0xffff), bits)
		BZHIQ(n, bits, bits)
		KMOVW(bits.As32(), mask)
		return mask
	}
	if masks.Base == nil {
		masks = GLOBL("masks"+m.suffix, attr.RODATA|attr.NOPTR)
		for i := range m.lanes {
			DATA(4*i, U32(0xffffffff))
		}
		for i := range m.lanes {
			DATA(4*(m.lanes+i), U32(0))
		}
	}
	at, mask := GP64(), m.reg()
	LEAQ(masks.Offset(m.bytes()), at)
	NEGQ(n)
	VMOVUPS(Mem{Base: at, Index: n, Scale: 4}, mask)
	return mask
}

// masks is a register full of ones before one full of zeros: the mask of n lanes
// begins n lanes before the zeros.
var masks Mem

// fetch loads a register, zeros in lanes that keep leaves out.
func (m machine) fetch(from Mem, keep Op, to VecVirtual) {
	switch {
	case keep == nil:
		VMOVUPS(from, to)
	case m.wide:
		VMOVUPS_Z(from, keep, to)
	default:
		VMASKMOVPS(from, keep, to)
	}
}

// operand is memory as an instruction takes it: as it is for a whole register,
// and otherwise in a register of its own.
func (m machine) operand(from Mem, keep Op) Op {
	if keep == nil {
		return from
	}
	r := m.reg()
	m.fetch(from, keep, r)
	return r
}

// store writes the lanes of a register that keep does not leave out.
func (m machine) store(from VecVirtual, keep Op, to Mem) {
	switch {
	case keep == nil:
		VMOVUPS(from, to)
	case m.wide:
		VMOVUPS(from, keep, to)
	default:
		VMASKMOVPS(from, keep, to)
	}
}
