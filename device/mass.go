package device

import "math"

// Softmax mass, a sum of softmax weights, is stored in f32 in an order-preserving encoding:
// a mass of at least MinMass as it is, a smaller one as its base-2 logarithm, which is negative
// and rises with the mass, and 0 as the lowest finite number. So a key that dominates the softmax
// does not flush the others to zero, and ranking by the encoded numbers ranks by mass.

// MinMass is the smallest softmax mass that is stored as it is.
const MinMass = 0x1p-100

// EncodeMass is the encoding of a mass; NaN stays NaN.
func EncodeMass(sum float64) float32 {
	switch {
	case !(sum < MinMass):
		return float32(sum)
	case sum > 0:
		return float32(math.Log2(sum))
	}
	return -math.MaxFloat32
}

// DecodeMass is the mass that a number encodes.
func DecodeMass(held float32) float64 {
	if held < 0 {
		return math.Exp2(float64(held))
	}
	return float64(held)
}
