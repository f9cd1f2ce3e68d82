package device

import "math"

// MinMass is the least sum of softmax weights that a tensor of them holds as it
// is. A smaller one is held as its logarithm to base 2: that is negative and rises with
// the sum, so that numbers are in the order of sums, and none of them is lost because a
// key lies far above the others. A sum of 0 is the lowest number.
const MinMass = 0x1p-100

// EncodeMass is the number that holds a sum of weights.
func EncodeMass(sum float64) float32 {
	switch {
	case !(sum < MinMass):
		return float32(sum)
	case sum > 0:
		return float32(math.Log2(sum))
	}
	return -math.MaxFloat32
}

// DecodeMass is the sum of weights that a number holds.
func DecodeMass(held float32) float64 {
	if held < 0 {
		return math.Exp2(float64(held))
	}
	return float64(held)
}
