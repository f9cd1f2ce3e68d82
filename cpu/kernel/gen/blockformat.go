package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// blockFormat says how the vector loops unpack a type with blocks of 32: two
// blocks to a vector of 64 bytes. A block opens with a half-precision d, then
// the constant m where there is one.
type blockFormat struct {
	name   string
	size   int  // bytes of a block
	bias   int  // what is subtracted from the unsigned weights
	mins   bool // has a constant m
	signed bool // vectors hold signed weights and no bias
	masks  []uint32
	// pair emits the weights of the blocks at p+disp and p+disp+size.
	pair func(u *unpacker, p Register, disp int) VecVirtual
}

// blockFormats are the types with blocks of 32.
var blockFormats = []*blockFormat{
	{name: "Q8_0", size: 34, bias: 128, masks: []uint32{0x80808080}, pair: pairQ8_0},
	{name: "Q4_0", size: 18, bias: 8, masks: []uint32{0x0f0f0f0f},
		pair: func(u *unpacker, p Register, disp int) VecVirtual { return u.fours(p, disp+2, 18) }},
	{name: "Q4_1", size: 20, mins: true, masks: []uint32{0x0f0f0f0f},
		pair: func(u *unpacker, p Register, disp int) VecVirtual { return u.fours(p, disp+4, 20) }},
	{name: "Q5_0", size: 22, bias: 16, masks: []uint32{0x0f0f0f0f, 0x10101010},
		pair: func(u *unpacker, p Register, disp int) VecVirtual { return u.fives(p, disp+2, 22) }},
	{name: "Q5_1", size: 24, mins: true, masks: []uint32{0x0f0f0f0f, 0x10101010},
		pair: func(u *unpacker, p Register, disp int) VecVirtual { return u.fives(p, disp+4, 24) }},
	{name: "IQ4_NL", size: 18, signed: true, masks: []uint32{0x0f0f0f0f},
		pair: func(u *unpacker, p Register, disp int) VecVirtual {
			w := u.fours(p, disp+2, 18)
			VPSHUFB(w, u.book, w)
			return w
		}},
}

// unpacker is what unpacking a blockFormat keeps in registers.
type unpacker struct {
	*blockFormat
	constants
	shifts VecVirtual    // 0 for lanes of low nibbles, 4 for those of high ones
	second OpmaskVirtual // the dwords of the second block
	book   VecVirtual
}

func newUnpacker(f *blockFormat) *unpacker {
	u := &unpacker{blockFormat: f, constants: loadConstants(f.masks...)}
	if f.name == "Q8_0" {
		return u
	}
	u.shifts, u.second = ZMM(), K()
	VMOVDQU32(dwords(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4), u.shifts)
	bits := GP32()
	MOVL(U32(0xff00), bits)
	KMOVW(bits, u.second)
	if f.signed {
		u.book = loadCodebook()
	}
	return u
}

func pairQ8_0(u *unpacker, p Register, disp int) VecVirtual {
	w := ZMM()
	VMOVDQU32(Mem{Base: p, Disp: disp + 2}, w.AsY())
	VINSERTI64X4(U8(1), Mem{Base: p, Disp: disp + 2 + 34}, w, w)
	VPXORD(u.constants[0x80808080], w, w)
	return w
}

// fours emits the nibbles of the blocks whose nibbles start at p+disp.
func (u *unpacker) fours(p Register, disp, size int) VecVirtual {
	w := ZMM()
	VBROADCASTI32X4(Mem{Base: p, Disp: disp}, w)
	VBROADCASTI32X4(Mem{Base: p, Disp: disp + size}, u.second, w)
	VPSRLVD(u.shifts, w, w)
	VPANDD(u.constants[0x0f0f0f0f], w, w)
	return w
}

// fives emits nibbles with the fifth bits that lie before them.
func (u *unpacker) fives(p Register, disp, size int) VecVirtual {
	w := u.fours(p, disp+4, size)
	lo, hi, fifth := GP64(), GP64(), K()
	MOVL(Mem{Base: p, Disp: disp}, lo.As32())
	MOVL(Mem{Base: p, Disp: disp + size}, hi.As32())
	SHLQ(U8(32), hi)
	ORQ(lo, hi)
	KMOVQ(hi, fifth)
	VPADDB(u.constants[0x10101010], w, fifth, w)
	return w
}
