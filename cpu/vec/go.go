package vec

import (
	"math"

	"github.com/gollm/gollm/cpu/kernel"
)

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
		dst[i] = kernel.Float16Bits(x[i])
	}
}

func fromHalf(dst []float32, x []uint16) {
	for i := range dst {
		dst[i] = kernel.Float16(x[i])
	}
}
