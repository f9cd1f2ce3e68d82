package vec

// Kernels is a set of kernels for one kind of machine. All slices of a call
// have the lengths that the first one implies; a dst may be an x unless it says
// otherwise.
type Kernels struct {
	Name string // for example "AVX-512"

	// Add adds: dst[i] += x[i].
	Add func(dst, x []float32)
	// SumSquares is Σ x[i]², accumulated in float64.
	SumSquares func(x []float32) float64
	// ScaleMul scales: dst[i] = x[i] · scale · w[i].
	ScaleMul func(dst, x, w []float32, scale float32)
	// SwiGLU gates: dst[i] = g / (1 + exp(-g)) · up[i] with g = gate[i].
	SwiGLU func(dst, gate, up []float32)
	// RotateHalves turns the pairs (x[i], x[i+n]) by the angles whose cosines
	// and sines are given, n of them.
	RotateHalves func(x, cos, sin []float32)
	// RotatePairs turns the pairs (x[2i], x[2i+1]).
	RotatePairs func(x, cos, sin []float32)
	// ToHalf rounds to IEEE half precision, ties to even; what is too large
	// becomes an infinity.
	ToHalf func(dst []uint16, x []float32)
	// FromHalf widens half precision, which is exact.
	FromHalf func(dst []float32, x []uint16)
}

// Best is the fastest set that this machine runs.
func Best() *Kernels { return Go }

// All lists the sets that this machine runs, the definition first.
func All() []*Kernels { return []*Kernels{Go} }
