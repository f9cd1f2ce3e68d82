package kernel

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// codebook holds the sixteen values of IQ4_NL and IQ4_XS.
var codebook = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// Dequantize writes the values that src stands for into dst. It is the
// definition of every element type; src has dt.RowSize(len(dst)) bytes.
func Dequantize(dt device.DType, dst []float32, src []byte) {
	if want := dt.RowSize(len(dst)); len(src) != want {
		panic(fmt.Sprintf("kernel: Dequantize: %d bytes for %d elements of %v, want %d", len(src), len(dst), dt, want))
	}
	block := dequantizers[dt]
	if block == nil {
		panic(fmt.Sprintf("kernel: Dequantize: no conversion from %v", dt))
	}
	n, size := dt.BlockLen(), dt.BlockSize()
	for i := 0; i < len(dst); i += n {
		block(dst[i:i+n], src[:size])
		src = src[size:]
	}
}

// dequantizers convert one block.
var dequantizers = map[device.DType]func(y []float32, b []byte){
	device.F32: func(y []float32, b []byte) {
		y[0] = math.Float32frombits(binary.LittleEndian.Uint32(b))
	},
	device.F16:    func(y []float32, b []byte) { y[0] = half(b) },
	device.BF16:   func(y []float32, b []byte) { y[0] = BFloat16(binary.LittleEndian.Uint16(b)) },
	device.Q4_0:   dequantizeQ4_0,
	device.Q4_1:   dequantizeQ4_1,
	device.Q5_0:   dequantizeQ5_0,
	device.Q5_1:   dequantizeQ5_1,
	device.Q8_0:   dequantizeQ8_0,
	device.Q2_K:   dequantizeQ2_K,
	device.Q3_K:   dequantizeQ3_K,
	device.Q4_K:   dequantizeQ4_K,
	device.Q5_K:   dequantizeQ5_K,
	device.Q6_K:   dequantizeQ6_K,
	device.IQ4_NL: dequantizeIQ4_NL,
	device.IQ4_XS: dequantizeIQ4_XS,
}

// The blocks of 32. Byte i of the nibbles holds elements i and i+16.

// Q4_0: half d, nibbles [16].
func dequantizeQ4_0(y []float32, b []byte) {
	d, q := half(b), b[2:]
	for i := range 16 {
		y[i] = d * float32(int(q[i]&15)-8)
		y[i+16] = d * float32(int(q[i]>>4)-8)
	}
}

// Q4_1: half d, half m, nibbles [16].
func dequantizeQ4_1(y []float32, b []byte) {
	d, m, q := half(b), half(b[2:]), b[4:]
	for i := range 16 {
		y[i] = float32(d*float32(q[i]&15)) + m
		y[i+16] = float32(d*float32(q[i]>>4)) + m
	}
}

// fifthBit is bit i of the mask at the start of p, as a 16 or a 0.
func fifthBit(p []byte, i int) int {
	return int(binary.LittleEndian.Uint32(p)>>i&1) << 4
}

// Q5_0: half d, fifth bits u32, nibbles [16].
func dequantizeQ5_0(y []float32, b []byte) {
	d, q := half(b), b[6:]
	for i := range 16 {
		y[i] = d * float32(int(q[i]&15)+fifthBit(b[2:], i)-16)
		y[i+16] = d * float32(int(q[i]>>4)+fifthBit(b[2:], i+16)-16)
	}
}

// Q5_1: half d, half m, fifth bits u32, nibbles [16].
func dequantizeQ5_1(y []float32, b []byte) {
	d, m, q := half(b), half(b[2:]), b[8:]
	for i := range 16 {
		y[i] = float32(d*float32(int(q[i]&15)+fifthBit(b[4:], i))) + m
		y[i+16] = float32(d*float32(int(q[i]>>4)+fifthBit(b[4:], i+16))) + m
	}
}

// Q8_0: half d, int8 [32].
func dequantizeQ8_0(y []float32, b []byte) {
	d, q := half(b), b[2:]
	for i := range y {
		y[i] = d * float32(int8(q[i]))
	}
}

// IQ4_NL: half d, nibbles [16] that index the codebook.
func dequantizeIQ4_NL(y []float32, b []byte) {
	d, q := half(b), b[2:]
	for i := range 16 {
		y[i] = d * float32(codebook[q[i]&15])
		y[i+16] = d * float32(codebook[q[i]>>4])
	}
}

// The blocks of 256: groups of 16 or 32 with small integer scales (and mins)
// under one or two half-precision numbers.

// Q2_K: (scale, min) nibbles [16], 2-bit values [64], half d, half dmin.
// Byte l of a run of 32 holds elements l, l+32, l+64 and l+96.
func dequantizeQ2_K(y []float32, b []byte) {
	scales, q, d, dmin := b[:16], b[16:80], half(b[80:]), half(b[82:])
	for i := range y {
		s := scales[i/16]
		v := q[i/128*32+i%32] >> (i / 32 % 4 * 2) & 3
		y[i] = float32(float32(d*float32(s&15))*float32(v)) - dmin*float32(s>>4)
	}
}

// Q3_K: high bits [32], low 2-bit values [64] as in Q2_K, 6-bit scales [12],
// half d. A clear high bit subtracts 4.
func dequantizeQ3_K(y []float32, b []byte) {
	high, q, scales, d := b[:32], b[32:96], b[96:108], half(b[108:])
	for i := range y {
		v := int(q[i/128*32+i%32]>>(i/32%4*2)&3) - 4
		v += int(high[i%32]>>(i/32)&1) * 4
		y[i] = float32(d*float32(scaleQ3(scales, i/16))) * float32(v)
	}
}

// scaleQ3 is scale g of 16 of a Q3_K block: the low four bits lie in nibbles
// of the first eight bytes, the high two in the last four.
func scaleQ3(s []byte, g int) int {
	low := s[g%8] >> (g / 8 * 4) & 15
	high := s[8+g%4] >> (g / 4 * 2) & 3
	return int(low|high<<4) - 32
}

// scaleMinQ4 is scale and min g of 8 of a Q4_K or Q5_K block: 6 bits each.
// The first four lie whole in bytes 0-3 and 4-7, whose top bits complete the
// nibbles of bytes 8-11 to the last four.
func scaleMinQ4(s []byte, g int) (scale, min byte) {
	if g < 4 {
		return s[g] & 63, s[g+4] & 63
	}
	return s[g+4]&15 | s[g-4]>>6<<4, s[g+4]>>4 | s[g]>>6<<4
}

// Q4_K: half d, half dmin, scales and mins [12], nibbles [128]. Byte l of a
// run of 32 holds elements l and l+32.
func dequantizeQ4_K(y []float32, b []byte) {
	d, dmin, q := half(b), half(b[2:]), b[16:]
	for i := range y {
		s, m := scaleMinQ4(b[4:16], i/32)
		v := q[i/64*32+i%32] >> (i / 32 % 2 * 4) & 15
		y[i] = float32(float32(d*float32(s))*float32(v)) - dmin*float32(m)
	}
}

// Q5_K: as Q4_K, with fifth bits [32] before the nibbles: bit g of byte l
// belongs to element l of group g.
func dequantizeQ5_K(y []float32, b []byte) {
	d, dmin, high, q := half(b), half(b[2:]), b[16:48], b[48:]
	for i := range y {
		s, m := scaleMinQ4(b[4:16], i/32)
		v := q[i/64*32+i%32]>>(i/32%2*4)&15 | high[i%32]>>(i/32)&1<<4
		y[i] = float32(float32(d*float32(s))*float32(v)) - dmin*float32(m)
	}
}

// Q6_K: low nibbles [128], high 2-bit values [64], int8 scales [16], half d.
// In each half of 128, byte l of 64 nibbles holds elements l and l+64, byte l
// of 32 high bits elements l, l+32, l+64 and l+96.
func dequantizeQ6_K(y []float32, b []byte) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for i := range y {
		v := low[i/128*64+i%64]>>(i/64%2*4)&15 | high[i/128*32+i%32]>>(i/32%4*2)&3<<4
		y[i] = float32(d*float32(int8(scales[i/16]))) * float32(int(v)-32)
	}
}

// IQ4_XS: half d, high scale bits u16, low scale nibbles [4], nibbles [128]
// that index the codebook, 16 bytes to a group of 32 as in IQ4_NL.
func dequantizeIQ4_XS(y []float32, b []byte) {
	d, q := half(b), b[8:]
	for i := range y {
		v := q[i/32*16+i%16] >> (i / 16 % 2 * 4) & 15
		y[i] = float32(d*float32(scaleIQ4(b, i/32))) * float32(codebook[v])
	}
}

// scaleIQ4 is scale g of 8 of the IQ4_XS block b.
func scaleIQ4(b []byte, g int) int {
	low := b[4+g/2] >> (g % 2 * 4) & 15
	high := binary.LittleEndian.Uint16(b[2:]) >> (g * 2) & 3
	return int(low) | int(high)<<4 - 32
}
