package kernel

import (
	"encoding/binary"
	"math"
)

// Float16 is the value of the IEEE half-precision number with bits h.
func Float16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 31
	frac := uint32(h & 0x3ff)
	switch exp {
	case 0: // zero and subnormals: frac * 2^-24, exact in float32
		f := float32(frac) * 0x1p-24
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// Float16Bits rounds f to half precision, ties to even.
func Float16Bits(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x477ff000: // 65520 and more round to infinity
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: count units of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(b))*0x1p24))
	}
	b += 0xfff + b>>13&1
	return sign | uint16(b>>13-112<<10)
}

// BFloat16 is the value of the bfloat16 number with bits h.
func BFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// BFloat16Bits rounds f to bfloat16, ties to even.
func BFloat16Bits(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// half reads the half-precision number at the start of p.
func half(p []byte) float32 { return Float16(binary.LittleEndian.Uint16(p)) }

// putHalf rounds f to half precision at the start of p and returns the value
// that was stored.
func putHalf(p []byte, f float32) float32 {
	h := Float16Bits(f)
	binary.LittleEndian.PutUint16(p, h)
	return Float16(h)
}
