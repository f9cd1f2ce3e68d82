package sparse

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/device/rng"
)

// sketchBasis is the projection matrix of a sketch, f32 [width, dim]. kind=srht is the
// subsampled randomized Hadamard transform: x is zero-padded to a power of two, its signs
// are flipped at random, and distinct random rows of the Hadamard matrix are kept, divided
// by √width, so that the expectation of a product of sketches is the product.
func sketchBasis(kind string, dim, width int, draw rng.Address) (basis []float32, rows int) {
	padded := 1 << bits.Len(uint(dim-1))
	width = min(width, padded)
	signs, columns := make([]float32, dim), make([]int, padded)
	for i := range columns {
		columns[i] = i
	}
	for i := range signs {
		signs[i] = 1
	}
	switch kind {
	case "exact":
		return identity(dim), dim
	case "srht":
		for i := range signs {
			if draw.Uniform(uint32(i)) < 0.5 {
				signs[i] = -1
			}
		}
		for i := range width { // a partial Fisher-Yates shuffle
			j := i + int(draw.Uniform(uint32(dim+i))*float32(padded-i))
			columns[i], columns[j] = columns[j], columns[i]
		}
	}
	return hadamard(signs, columns[:width]), width
}

// hadamard is columns of the Hadamard matrix times the sign flips of x's elements,
// divided by √len(columns).
func hadamard(signs []float32, columns []int) []float32 {
	var basis []float32
	for _, c := range columns {
		for i, s := range signs {
			if bits.OnesCount(uint(c&i))%2 == 1 {
				s = -s
			}
			basis = append(basis, s/float32(math.Sqrt(float64(len(columns)))))
		}
	}
	return basis
}

// identity is the n×n identity matrix.
func identity(n int) []float32 {
	m := make([]float32, n*n)
	for i := range n {
		m[i*n+i] = 1
	}
	return m
}
