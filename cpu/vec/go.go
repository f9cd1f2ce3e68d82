package vec

import "math"

// Go is the definition of every kernel.
var Go = &Kernels{
	Name:         "portable Go",
	Add:          add,
	SumSquares:   sumSquares,
	ScaleMul:     scaleMul,
	SwiGLU:       swiGLU,
	RotateHalves: rotateHalves,
	RotatePairs:  rotatePairs,
	ToHalf:       toHalf,
	FromHalf:     fromHalf,
}

func add(dst, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += x[i]
	}
}

func sumSquares(x []float32) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

func scaleMul(dst, x, w []float32, scale float32) {
	x, w = x[:len(dst)], w[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * scale * w[i]
	}
}

func swiGLU(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	for i := range dst {
		g := float64(gate[i])
		dst[i] = float32(g / (1 + math.Exp(-g)) * float64(up[i]))
	}
}

func rotateHalves(x, cos, sin []float32) {
	n := len(cos)
	a, b := x[:n], x[n:2*n]
	for i, c := range cos {
		s := sin[i]
		a[i], b[i] = a[i]*c-b[i]*s, a[i]*s+b[i]*c
	}
}

func rotatePairs(x, cos, sin []float32) {
	for i, c := range cos {
		s, a, b := sin[i], x[2*i], x[2*i+1]
		x[2*i], x[2*i+1] = a*c-b*s, a*s+b*c
	}
}

func toHalf(dst []uint16, x []float32) {
	for i := range dst {
		dst[i] = Half(x[i])
	}
}

func fromHalf(dst []float32, x []uint16) {
	for i := range dst {
		dst[i] = Float(x[i])
	}
}

// Half rounds v to IEEE half precision, ties to even. What is too large becomes
// an infinity, what is too small a zero of the same sign, and a NaN stays one.
func Half(v float32) uint16 {
	b := math.Float32bits(v)
	sign, b := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case b > 0x7f800000: // NaN: keep it quiet, with the top of its payload
		return sign | 0x7e00 | uint16(b>>13&0x1ff)
	case b >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case b < 0x38800000: // below 2⁻¹⁴: a multiple of 2⁻²⁴, which the sum with 0.5 rounds to
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((b-112<<23+0xfff+b>>13&1)>>13)
}

// Float is the value of a half precision number.
func Float(h uint16) float32 {
	sign, b := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	switch {
	case b >= 0x7c00: // infinity or NaN, which becomes quiet
		b = b<<13 | 0x7f800000
		if b > 0x7f800000 {
			b |= 0x400000
		}
	case b < 0x400: // a multiple of 2⁻²⁴
		b = math.Float32bits(float32(b) * 0x1p-24)
	default:
		b = b<<13 + 112<<23
	}
	return math.Float32frombits(sign | b)
}
