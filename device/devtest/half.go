package devtest

import "math"

// halfValue is the value of a half precision number, by its definition: sign,
// 5 bits of exponent with bias 15, 10 bits of fraction.
func halfValue(h uint16) float64 {
	sign, exp, frac := 1.0, int(h>>10&31), float64(h&1023)
	if h>>15 == 1 {
		sign = -1
	}
	switch {
	case exp == 31 && frac != 0:
		return math.NaN()
	case exp == 31:
		return math.Inf(int(sign))
	case exp == 0:
		return sign * math.Ldexp(frac, -24)
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

// toHalf is the half precision number nearest to v, the even one of two: a whole
// number of units, where the unit is 2⁻¹⁰ of the power of two below v and no less
// than 2⁻²⁴. 65520 and more is infinity.
func toHalf(v float64) uint16 {
	sign := uint16(0)
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	if v >= 65520 {
		return sign | 0x7c00
	}
	exp := -14
	if v >= 0x1p-14 {
		exp = math.Ilogb(v)
	}
	units := uint16(math.RoundToEven(math.Ldexp(v, 10-exp)))
	return sign | uint16(exp+14)<<10 + units // 1024 units carry into the exponent
}

// halves rounds each number to half precision; the values are what was kept.
func halves(x []float32) (bits []uint16, values []float32) {
	bits, values = make([]uint16, len(x)), make([]float32, len(x))
	for i, v := range x {
		bits[i] = toHalf(float64(v))
		values[i] = float32(halfValue(bits[i]))
	}
	return bits, values
}
