package kernel

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// Quantize writes src in element type dt to dst, which has
// dt.RowSize(len(src)) bytes. It is the plain reference: values are rounded to
// the nearest step of a scale that just covers their group. It makes models
// for tests and tools; quantizers that search for better scales exist.
func Quantize(dt device.DType, dst []byte, src []float32) {
	if want := dt.RowSize(len(src)); len(dst) != want {
		panic(fmt.Sprintf("kernel: Quantize: %d bytes for %d elements of %v, want %d", len(dst), len(src), dt, want))
	}
	block := quantizers[dt]
	if block == nil {
		panic(fmt.Sprintf("kernel: Quantize: no conversion to %v", dt))
	}
	n, size := dt.BlockLen(), dt.BlockSize()
	clear(dst)
	for i := 0; i < len(src); i += n {
		block(dst[:size], src[i:i+n])
		dst = dst[size:]
	}
}

// quantizers convert one block; b is zero before.
var quantizers = map[device.DType]func(b []byte, x []float32){
	device.F32: func(b []byte, x []float32) {
		binary.LittleEndian.PutUint32(b, math.Float32bits(x[0]))
	},
	device.F16: func(b []byte, x []float32) { putHalf(b, x[0]) },
	device.BF16: func(b []byte, x []float32) {
		binary.LittleEndian.PutUint16(b, BFloat16Bits(x[0]))
	},
	device.Q4_0: func(b []byte, x []float32) {
		d := putHalf(b, extreme(x)/-8)
		putNibbles(b[2:], nil, steps(x, d, 0, 8, 15))
	},
	device.Q4_1: func(b []byte, x []float32) {
		lo, hi := bounds(x)
		d, m := putHalf(b, (hi-lo)/15), putHalf(b[2:], lo)
		putNibbles(b[4:], nil, steps(x, d, m, 0, 15))
	},
	device.Q5_0: func(b []byte, x []float32) {
		d := putHalf(b, extreme(x)/-16)
		putNibbles(b[6:], b[2:6], steps(x, d, 0, 16, 31))
	},
	device.Q5_1: func(b []byte, x []float32) {
		lo, hi := bounds(x)
		d, m := putHalf(b, (hi-lo)/31), putHalf(b[2:], lo)
		putNibbles(b[8:], b[4:8], steps(x, d, m, 0, 31))
	},
	device.Q8_0: func(b []byte, x []float32) {
		d := putHalf(b, float32(math.Abs(float64(extreme(x))))/127)
		for i, v := range steps(x, d, 0, 128, 255) {
			b[2+i] = v - 128
		}
	},
	device.IQ4_NL: func(b []byte, x []float32) {
		d := putHalf(b, extreme(x)/-127)
		putNibbles(b[2:], nil, entries(x, d))
	},
	device.Q2_K:   quantizeQ2_K,
	device.Q3_K:   quantizeQ3_K,
	device.Q4_K:   func(b []byte, x []float32) { quantizeFours(b[:16], b[16:], nil, x) },
	device.Q5_K:   func(b []byte, x []float32) { quantizeFours(b[:16], b[48:], b[16:48], x) },
	device.Q6_K:   quantizeQ6_K,
	device.IQ4_XS: quantizeIQ4_XS,
}

// extreme is the value of x with the largest magnitude.
func extreme(x []float32) (e float32) {
	for _, v := range x {
		if math.Abs(float64(v)) > math.Abs(float64(e)) {
			e = v
		}
	}
	return e
}

// bounds is the range of x.
func bounds(x []float32) (lo, hi float32) {
	lo, hi = x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

// step is round((v−m)/d) + offset, between 0 and top.
func step(v, d, m float32, offset, top int) byte {
	if d == 0 {
		return byte(offset)
	}
	q := math.RoundToEven(float64((v-m)/d)) + float64(offset)
	return byte(min(max(q, 0), float64(top)))
}

// steps is step for each value.
func steps(x []float32, d, m float32, offset, top int) []byte {
	q := make([]byte, len(x))
	for i, v := range x {
		q[i] = step(v, d, m, offset, top)
	}
	return q
}

// entry is the index of the codebook value nearest to v/d.
func entry(v, d float32) (nearest byte) {
	if d == 0 {
		return 8
	}
	for i, c := range codebook {
		if distance(v/d, c) < distance(v/d, codebook[nearest]) {
			nearest = byte(i)
		}
	}
	return nearest
}

func distance(v float32, c int8) float64 { return math.Abs(float64(v) - float64(c)) }

// entries is entry for each value.
func entries(x []float32, d float32) []byte {
	q := make([]byte, len(x))
	for i, v := range x {
		q[i] = entry(v, d)
	}
	return q
}

// putNibbles stores 32 values of 4 bits, or 5 with the fifth bits in high.
func putNibbles(b, high []byte, q []byte) {
	for i := range 16 {
		b[i] = q[i]&15 | q[i+16]<<4
	}
	for i, v := range q {
		if high != nil {
			high[i/8] |= v >> 4 << (i % 8)
		}
	}
}

// group16 and group32 are group g of a block of 256.
func group16(x []float32, g int) []float32 { return x[g*16:][:16] }
func group32(x []float32, g int) []float32 { return x[g*32:][:32] }

// ranges is, for each group of n values, the scale that spreads them over 0 to
// top steps and how far below zero the first step lies.
func ranges(x []float32, n, top int) (scales, mins []float32) {
	for ; len(x) > 0; x = x[n:] {
		lo, hi := bounds(x[:n])
		lo, hi = min(lo, 0), max(hi, 0)
		scales = append(scales, (hi-lo)/float32(top))
		mins = append(mins, -lo)
	}
	return scales, mins
}

// quantizeFours writes Q4_K and, with high bits, Q5_K.
func quantizeFours(header, q, high []byte, x []float32) {
	top := 15
	if high != nil {
		top = 31
	}
	scales, mins := ranges(x, 32, top)
	d, dmin := putHalf(header, extreme(scales)/63), putHalf(header[2:], extreme(mins)/63)
	for g := range 8 {
		s, m := step(scales[g], d, 0, 0, 63), step(mins[g], dmin, 0, 0, 63)
		putScaleMinQ4(header[4:], g, s, m)
		for i, v := range steps(group32(x, g), d*float32(s), -dmin*float32(m), 0, top) {
			q[g/2*32+i] |= v & 15 << (g % 2 * 4)
			if high != nil {
				high[i] |= v >> 4 << g
			}
		}
	}
}

// putScaleMinQ4 is the inverse of scaleMinQ4.
func putScaleMinQ4(b []byte, g int, s, m byte) {
	if g < 4 {
		b[g] |= s
		b[g+4] |= m
		return
	}
	b[g+4] |= s&15 | m<<4
	b[g-4] |= s >> 4 << 6
	b[g] |= m >> 4 << 6
}

func quantizeQ2_K(b []byte, x []float32) {
	scales, mins := ranges(x, 16, 3)
	d, dmin := putHalf(b[80:], extreme(scales)/15), putHalf(b[82:], extreme(mins)/15)
	for g := range 16 {
		s, m := step(scales[g], d, 0, 0, 15), step(mins[g], dmin, 0, 0, 15)
		b[g] = s | m<<4
		for i, v := range steps(group16(x, g), d*float32(s), -dmin*float32(m), 0, 3) {
			putPair(b[16:80], g*16+i, v)
		}
	}
}

// putPair stores two bits of element i where Q2_K and Q3_K have them.
func putPair(q []byte, i int, v byte) { q[i/128*32+i%32] |= v & 3 << (i / 32 % 4 * 2) }

// signedScales is, for each group of n values, the scale that maps the one with
// the largest magnitude to lowest.
func signedScales(x []float32, n int, lowest float32) (scales []float32) {
	for ; len(x) > 0; x = x[n:] {
		scales = append(scales, extreme(x[:n])/lowest)
	}
	return scales
}

func quantizeQ3_K(b []byte, x []float32) {
	scales := signedScales(x, 16, -4)
	d := putHalf(b[108:], extreme(scales)/-32)
	for g := range 16 {
		s := step(scales[g], d, 0, 32, 63)
		b[96+g%8] |= s & 15 << (g / 8 * 4)
		b[104+g%4] |= s >> 4 << (g / 4 * 2)
		for i, v := range steps(group16(x, g), d*float32(int(s)-32), 0, 4, 7) {
			k := g*16 + i
			putPair(b[32:96], k, v)
			b[k%32] |= v >> 2 << (k / 32)
		}
	}
}

func quantizeQ6_K(b []byte, x []float32) {
	scales := signedScales(x, 16, -32)
	d := putHalf(b[208:], extreme(scales)/-128)
	for g := range 16 {
		s := int8(int(step(scales[g], d, 0, 128, 255)) - 128)
		b[192+g] = byte(s)
		for i, v := range steps(group16(x, g), d*float32(s), 0, 32, 63) {
			k := g*16 + i
			b[k/128*64+k%64] |= v & 15 << (k / 64 % 2 * 4)
			b[128+k/128*32+k%32] |= v >> 4 << (k / 32 % 4 * 2)
		}
	}
}

func quantizeIQ4_XS(b []byte, x []float32) {
	scales := signedScales(x, 32, -127)
	d := putHalf(b, extreme(scales)/-32)
	for g := range 8 {
		s := step(scales[g], d, 0, 32, 63)
		b[4+g/2] |= s & 15 << (g % 2 * 4)
		b[2+g/4] |= s >> 4 << (g % 4 * 2)
		putNibbles(b[8+g*16:][:16], nil, entries(group32(x, g), d*float32(int(s)-32)))
	}
}
