package kernel

import (
	"encoding/binary"
	"unsafe"

	"github.com/gollm/gollm/device"
)

// superLen is how many elements of a row the quantized products handle at a
// time: one block of the K-quants, eight of the others.
const superLen = 256

// block is 256 weights of a row, unpacked but not multiplied out:
//
//	blocks of 256: weight k = d·scale[g]·w[k] − dmin·min[g], g the group of k
//	blocks of 32:  weight k = blockD[k/32]·w[k] + blockM[k/32]
//
// The vector loops know the offsets of the fields.
type block struct {
	w      [256]int8
	scale  [16]int8  // per group of 32 (8 used) or 16
	min    [16]uint8 // likewise
	d      float32
	dmin   float32
	_      [24]byte   // keeps the next fields at 320
	blockD [8]float32 // per block of 32
	blockM [8]float32 // likewise
}

// scheme says how the integers of a quantized type combine.
type scheme struct {
	group int  // elements under one integer scale; 0: none, blocks of 32
	mins  bool // has mins (blocks of 256) or a constant (blocks of 32)
}

// schemes holds the scheme of each quantized type.
var schemes = map[device.DType]scheme{
	device.Q4_0: {0, false}, device.Q4_1: {0, true},
	device.Q5_0: {0, false}, device.Q5_1: {0, true},
	device.Q8_0: {0, false}, device.IQ4_NL: {0, false},
	device.Q2_K: {16, true}, device.Q3_K: {16, false},
	device.Q4_K: {32, true}, device.Q5_K: {32, true},
	device.Q6_K: {16, false}, device.IQ4_XS: {32, false},
}

// expandSuper unpacks up to 256 weights of a row: one block of 256, or up to
// eight of 32. What src does not cover is zero.
func expandSuper(dt device.DType, b *block, src []byte) {
	if dt.BlockLen() == superLen {
		expand256[dt](b, src)
		return
	}
	*b = block{}
	size, expand := dt.BlockSize(), expand32[dt]
	for i := 0; i*size < len(src); i++ {
		expand(b, i, src[i*size:])
	}
}

// expand32 unpack block i of eight of a type with blocks of 32.
var expand32 = map[device.DType]func(b *block, i int, p []byte){
	device.Q4_0: func(b *block, i int, p []byte) {
		b.blockD[i] = half(p)
		expandNibbles(b.w[i*32:][:32], p[2:18], 0, -8)
	},
	device.Q4_1: func(b *block, i int, p []byte) {
		b.blockD[i], b.blockM[i] = half(p), half(p[2:])
		expandNibbles(b.w[i*32:][:32], p[4:20], 0, 0)
	},
	device.Q5_0: func(b *block, i int, p []byte) {
		b.blockD[i] = half(p)
		expandNibbles(b.w[i*32:][:32], p[6:22], binary.LittleEndian.Uint32(p[2:]), -16)
	},
	device.Q5_1: func(b *block, i int, p []byte) {
		b.blockD[i], b.blockM[i] = half(p), half(p[2:])
		expandNibbles(b.w[i*32:][:32], p[8:24], binary.LittleEndian.Uint32(p[4:]), 0)
	},
	device.Q8_0: func(b *block, i int, p []byte) {
		b.blockD[i] = half(p)
		for k, v := range p[2:34] {
			b.w[i*32+k] = int8(v)
		}
	},
	device.IQ4_NL: func(b *block, i int, p []byte) {
		b.blockD[i] = half(p)
		expandCodebook(b.w[i*32:][:32], p[2:18])
	},
}

// expandNibbles writes nibble + 16·high bit + offset for 32 elements: those of
// the low nibbles, then those of the high ones.
func expandNibbles(w []int8, q []byte, high uint32, offset int8) {
	for i, v := range q {
		w[i] = int8(v&15) + int8(high>>i&1<<4) + offset
		w[i+16] = int8(v>>4) + int8(high>>(i+16)&1<<4) + offset
	}
}

// expandCodebook is expandNibbles through the codebook.
func expandCodebook(w []int8, q []byte) {
	for i, v := range q {
		w[i] = codebook[v&15]
		w[i+16] = codebook[v>>4]
	}
}

// expand256 unpack a block of a type with blocks of 256.
var expand256 = map[device.DType]func(b *block, p []byte){
	device.Q2_K: func(b *block, p []byte) {
		b.d, b.dmin = half(p[80:]), half(p[82:])
		for g, s := range p[:16] {
			b.scale[g], b.min[g] = int8(s&15), s>>4
		}
		expandPairs(b.w[:], p[16:80], nil)
	},
	device.Q3_K: func(b *block, p []byte) {
		b.d = half(p[108:])
		for g := range b.scale {
			b.scale[g] = int8(scaleQ3(p[96:108], g))
		}
		expandPairs(b.w[:], p[32:96], p[:32])
	},
	device.Q4_K: func(b *block, p []byte) {
		expandScalesQ4(b, p)
		expandFours(b.w[:], p[16:144], nil)
	},
	device.Q5_K: func(b *block, p []byte) {
		expandScalesQ4(b, p)
		expandFours(b.w[:], p[48:176], p[16:48])
	},
	device.Q6_K: expandQ6_K,
	device.IQ4_XS: func(b *block, p []byte) {
		b.d = half(p)
		for g := range 8 {
			b.scale[g] = int8(scaleIQ4(p, g))
			expandCodebook(b.w[g*32:][:32], p[8+g*16:][:16])
		}
	},
}

// expandPairs unpacks the 2-bit values of Q2_K and, with high bits, Q3_K.
func expandPairs(w []int8, q, high []byte) {
	for i := range w {
		w[i] = int8(q[i/128*32+i%32] >> (i / 32 % 4 * 2) & 3)
		if high != nil {
			w[i] += int8(high[i%32]>>(i/32)&1*4) - 4
		}
	}
}

// expandFours unpacks the nibbles of Q4_K and, with fifth bits, Q5_K.
func expandFours(w []int8, q, high []byte) {
	for i := range w {
		w[i] = int8(q[i/64*32+i%32] >> (i / 32 % 2 * 4) & 15)
		if high != nil {
			w[i] += int8(high[i%32] >> (i / 32) & 1 << 4)
		}
	}
}

// expandScalesQ4 unpacks the 16 bytes that open a Q4_K or Q5_K block.
func expandScalesQ4(b *block, p []byte) {
	b.d, b.dmin = half(p), half(p[2:])
	for g := range 8 {
		s, m := scaleMinQ4(p[4:16], g)
		b.scale[g], b.min[g] = int8(s), m
	}
}

func expandQ6_K(b *block, p []byte) {
	b.d = half(p[208:])
	for g, s := range p[192:208] {
		b.scale[g] = int8(s)
	}
	low, high := p[:128], p[128:192]
	for i := range b.w {
		v := low[i/128*64+i%64]>>(i/64%2*4)&15 | high[i/128*32+i%32]>>(i/32%4*2)&3<<4
		b.w[i] = int8(v) - 32
	}
}

// The layout that the vector loops are generated for.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(block{}.scale)-256]
	_ = [1]struct{}{}[unsafe.Offsetof(block{}.d)-288]
	_ = [1]struct{}{}[unsafe.Offsetof(block{}.blockD)-320]
	_ = [1]struct{}{}[unsafe.Sizeof(block{})-384]
)
