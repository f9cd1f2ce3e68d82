package main

import (
	"encoding/binary"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// format says how the vector loops unpack a type with blocks of 256: as four
// vectors of 64 bytes.
type format struct {
	name   string
	size   int       // bytes of a block
	group  int       // weights under one scale
	halves [4][2]int // first element of the two halves of each vector
	bias   int       // what is subtracted from the unsigned weights
	mins   bool
	signed bool // vectors hold signed weights of up to 7 bits and no bias
	// unpack emits the four vectors of the block at p, one after the other.
	unpack func(c constants, p Register, emit func(i int, w VecVirtual))
	masks  []uint32 // constants that unpack needs
}

var (
	pairHalves = [4][2]int{{0, 128}, {32, 160}, {64, 192}, {96, 224}}
	fourHalves = [4][2]int{{0, 64}, {32, 96}, {128, 192}, {160, 224}}
	sixHalves  = [4][2]int{{0, 32}, {64, 96}, {128, 160}, {192, 224}}
)

// formats are the types with blocks of 256.
var formats = []*format{
	{name: "Q4_K", size: 144, group: 32, halves: fourHalves, mins: true,
		masks: []uint32{0x0f0f0f0f}, unpack: unpackQ4_K},
	{name: "Q5_K", size: 176, group: 32, halves: fourHalves, mins: true,
		masks: []uint32{0x0f0f0f0f, 0x10101010}, unpack: unpackQ5_K},
	{name: "Q6_K", size: 210, group: 16, halves: sixHalves, bias: 32,
		masks: []uint32{0x0f0f0f0f, 0x30303030}, unpack: unpackQ6_K},
	{name: "Q3_K", size: 110, group: 16, halves: pairHalves, bias: 4,
		masks: []uint32{0x03030303, 0x04040404}, unpack: unpackQ3_K},
	{name: "Q2_K", size: 84, group: 16, halves: pairHalves, mins: true,
		masks: []uint32{0x03030303}, unpack: unpackQ2_K},
	{name: "IQ4_XS", size: 136, group: 32, halves: sixHalves, signed: true,
		masks: []uint32{0x0f0f0f0f}, unpack: unpackIQ4_XS},
}

// constants are vectors of one repeated dword, loaded before a loop.
type constants map[uint32]VecVirtual

func loadConstants(values ...uint32) constants {
	c := constants{}
	for _, v := range values {
		c[v] = ZMM()
		VPBROADCASTD(dwords(v), c[v])
	}
	return c
}

// dwords is a table of dwords.
func dwords(values ...uint32) Mem {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return table(b)
}

// halfCounts is sixteen shift counts: lo for the first eight dwords, hi for
// the others. Negative counts rotate to the right.
func halfCounts(lo, hi int) Mem {
	var v []uint32
	for i := range 16 {
		n := lo
		if i >= 8 {
			n = hi
		}
		v = append(v, uint32(n&31))
	}
	return dwords(v...)
}

// nibbles emits the low and the high nibbles of 64 bytes.
func nibbles(c constants, src Mem) (lo, hi VecVirtual) {
	x := ZMM()
	lo, hi = ZMM(), ZMM()
	VMOVDQU32(src, x)
	VPANDD(c[0x0f0f0f0f], x, lo)
	VPSRLW(U8(4), x, hi)
	VPANDD(c[0x0f0f0f0f], hi, hi)
	return lo, hi
}

// orBits adds to w the masked bits of high, rotated left by lo in the first
// half of the vector and by hi in the second.
func orBits(w, high, mask VecVirtual, lo, hi int) {
	bits := ZMM()
	VPROLVD(halfCounts(lo, hi), high, bits)
	VPTERNLOGD(U8(0xf8), mask, bits, w)
}

func unpackQ4_K(c constants, p Register, emit func(int, VecVirtual)) {
	for i := range 2 {
		lo, hi := nibbles(c, Mem{Base: p, Disp: 16 + 64*i})
		emit(2*i, lo)
		emit(2*i+1, hi)
	}
}

func unpackQ5_K(c constants, p Register, emit func(int, VecVirtual)) {
	high := ZMM()
	VBROADCASTI64X4(Mem{Base: p, Disp: 16}, high)
	for i := range 2 {
		lo, hi := nibbles(c, Mem{Base: p, Disp: 48 + 64*i})
		orBits(lo, high, c[0x10101010], 4-4*i, 2-4*i) // groups 4i and 4i+2
		emit(2*i, lo)
		orBits(hi, high, c[0x10101010], 3-4*i, 1-4*i)
		emit(2*i+1, hi)
	}
}

func unpackQ6_K(c constants, p Register, emit func(int, VecVirtual)) {
	for i := range 2 {
		high := ZMM()
		VBROADCASTI64X4(Mem{Base: p, Disp: 128 + 32*i}, high)
		lo, hi := nibbles(c, Mem{Base: p, Disp: 64 * i})
		orBits(lo, high, c[0x30303030], 4, 2)
		emit(2*i, lo)
		orBits(hi, high, c[0x30303030], 0, -2)
		emit(2*i+1, hi)
	}
}

// pairs emits 2-bit values number i of the four in each byte of x.
func pairs(c constants, x VecVirtual, i int) VecVirtual {
	w := ZMM()
	if i == 0 {
		VPANDD(c[0x03030303], x, w)
		return w
	}
	VPSRLW(U8(2*i), x, w)
	VPANDD(c[0x03030303], w, w)
	return w
}

func unpackQ3_K(c constants, p Register, emit func(int, VecVirtual)) {
	x, high := ZMM(), ZMM()
	VMOVDQU32(Mem{Base: p, Disp: 32}, x)
	VBROADCASTI64X4(Mem{Base: p}, high)
	for i := range 4 {
		w := pairs(c, x, i)
		orBits(w, high, c[0x04040404], 2-i, -2-i)
		emit(i, w)
	}
}

func unpackQ2_K(c constants, p Register, emit func(int, VecVirtual)) {
	x := ZMM()
	VMOVDQU32(Mem{Base: p, Disp: 16}, x)
	for i := range 4 {
		emit(i, pairs(c, x, i))
	}
}

// codebook holds the sixteen values of IQ4_NL and IQ4_XS.
var codebook = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func loadCodebook() VecVirtual {
	var b []byte
	for _, v := range codebook {
		b = append(b, byte(v))
	}
	book := ZMM()
	VBROADCASTI32X4(table(b), book)
	return book
}

// interleave selects lanes 2h and 2h+1 of the low nibbles, each followed by the
// same lane of the high nibbles.
func interleave(h int) Mem {
	var b []byte
	for lane := range 4 {
		for word := range 2 {
			q := 2*(2*h+lane/2) + word + 8*(lane%2)
			b = append(b, byte(q), 0, 0, 0, 0, 0, 0, 0)
		}
	}
	return table(b)
}

func unpackIQ4_XS(c constants, p Register, emit func(int, VecVirtual)) {
	book := loadCodebook()
	for i := range 2 {
		lo, hi := nibbles(c, Mem{Base: p, Disp: 8 + 64*i})
		VPSHUFB(lo, book, lo)
		VPSHUFB(hi, book, hi)
		for h := range 2 {
			w := ZMM()
			VMOVDQU64(interleave(h), w)
			VPERMI2Q(hi, lo, w)
			emit(2*i+h, w)
		}
	}
}
