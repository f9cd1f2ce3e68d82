package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Unpacking for the tiled product: 256 weights of each of some rows become
// blocks (see layout.go), with the same unpacking as the matrix-vector loops.
//
// Shapes: src: rows, stride bytes apart, as in the file; dst: one block each.
// 20 to 40 vector instructions a row. The lines that the next 256 weights
// start with are prefetched. Defined by expandSuper.
func expand() {
	for _, f := range formats {
		expandRows(f.name, func(dst, src Register, c *expander) {
			c.super(f, dst, src)
		}, func(c *expander) { c.constants = loadConstants(f.masks...) }, f.size)
	}
	for _, f := range blockFormats {
		expandRows(f.name, func(dst, src Register, c *expander) {
			c.blocks(f, dst, src)
		}, func(c *expander) { c.unpacker = newUnpacker(f); c.constants = c.unpacker.constants }, 8*f.size)
	}
}

// expander is what unpacking keeps in registers.
type expander struct {
	constants
	unpacker *unpacker
}

// expandRows emits a loop over rows: setup once, then row for each.
func expandRows(name string, row func(dst, src Register, c *expander), setup func(*expander), size int) {
	function("expandRows"+name, "func(dst *block, src *byte, stride uintptr, rows int)", "unpacks 256 weights of each row.")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	stride, n := Load(Param("stride"), GP64()), Load(Param("rows"), GP64())
	c := &expander{}
	setup(c)
	Label("row")
	for line := 0; line < size; line += 64 {
		PREFETCHT0(Mem{Base: src, Disp: size + line})
	}
	row(dst, src, c)
	ADDQ(stride, src)
	ADDQ(U32(blockSize), dst)
	DECQ(n)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// biased subtracts bias from the bytes of w.
func biased(w VecVirtual, bias int) {
	if bias > 0 {
		b := uint32(bias) * 0x01010101
		VPSUBB(repeat(b, b, b, b), w, w)
	}
}

// super unpacks a block of 256.
func (c *expander) super(f *format, dst, src Register) {
	f.unpack(c.constants, src, func(i int, w VecVirtual) {
		biased(w, f.bias)
		VMOVDQU32(w.AsY(), Mem{Base: dst, Disp: blockW + f.halves[i][0]})
		VEXTRACTI64X4(U8(1), w, Mem{Base: dst, Disp: blockW + f.halves[i][1]})
	})
	switch f.name {
	case "Q4_K", "Q5_K":
		header, s, high := XMM(), XMM(), XMM()
		VMOVDQU32(Mem{Base: src}, header)
		sixBits(header, s, high)
		VMOVQ(s, Mem{Base: dst, Disp: blockScale})
		VPSRLDQ(U8(8), s, s)
		VMOVQ(s, Mem{Base: dst, Disp: blockMin})
		VCVTPH2PS(header, header)
		VMOVQ(header, Mem{Base: dst, Disp: blockD})
	case "Q6_K":
		s := XMM()
		VMOVDQU32(Mem{Base: src, Disp: 192}, s)
		VMOVDQU32(s, Mem{Base: dst, Disp: blockScale})
		halfTo(dst, src, 208)
	case "Q3_K":
		tail, s, high := XMM(), XMM(), XMM()
		VMOVDQU32(Mem{Base: src, Disp: 94}, tail)
		sixBitsQ3(tail, s, high)
		VMOVDQU32(s, Mem{Base: dst, Disp: blockScale})
		halfTo(dst, src, 108)
	case "Q2_K":
		s, m := XMM(), XMM()
		nibble := uint32(0x0f0f0f0f)
		VMOVDQU32(Mem{Base: src}, s)
		VPSRLW(U8(4), s, m)
		VPANDD(repeat(nibble, nibble, nibble, nibble), s, s)
		VPANDD(repeat(nibble, nibble, nibble, nibble), m, m)
		VMOVDQU32(s, Mem{Base: dst, Disp: blockScale})
		VMOVDQU32(m, Mem{Base: dst, Disp: blockMin})
		d := XMM()
		VMOVD(Mem{Base: src, Disp: 80}, d)
		VCVTPH2PS(d, d)
		VMOVQ(d, Mem{Base: dst, Disp: blockD})
	case "IQ4_XS":
		s := YMM()
		scaleDwords(src, s)
		VPMOVDB(s, Mem{Base: dst, Disp: blockScale})
		halfTo(dst, src, 0)
	}
}

// halfTo converts the half-precision d at src+disp.
func halfTo(dst, src Register, disp int) {
	bits, d := GP32(), XMM()
	MOVWLZX(Mem{Base: src, Disp: disp}, bits)
	VMOVD(bits, d)
	VCVTPH2PS(d, d)
	VMOVD(d, Mem{Base: dst, Disp: blockD})
}

// blocks unpacks eight blocks of 32.
func (c *expander) blocks(f *blockFormat, dst, src Register) {
	for i := range 4 {
		w := f.pair(c.unpacker, src, 2*i*f.size)
		biased(w, f.bias)
		VMOVDQU32(w, Mem{Base: dst, Disp: blockW + 64*i})
	}
	d, m := XMM(), XMM()
	VPXORD(d, d, d)
	VPXORD(m, m, m)
	for i := range 8 {
		VPINSRW(U8(i), Mem{Base: src, Disp: i * f.size}, d, d)
		if f.mins {
			VPINSRW(U8(i), Mem{Base: src, Disp: i*f.size + 2}, m, m)
		}
	}
	v := YMM()
	VCVTPH2PS(d, v)
	VMOVUPS(v, Mem{Base: dst, Disp: blockBD})
	VCVTPH2PS(m, v)
	VMOVUPS(v, Mem{Base: dst, Disp: blockBM})
}
