package sparse

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/device/rng"
)

// sketchBasis is the projection of a sketch, f32 [width, dim]: random signs,
// then distinct random columns of the Hadamard matrix, x padded with zeros to a
// power of two; divided by √width, so that products keep their mean over draws.
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
		for i := range width { // the first of a random order
			j := i + int(draw.Uniform(uint32(dim+i))*float32(padded-i))
			columns[i], columns[j] = columns[j], columns[i]
		}
	}
	return hadamard(signs, columns[:width]), width
}

// hadamard is columns of the Hadamard matrix with the signs of x's elements,
// divided by √width.
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

// identity is the identity matrix of n columns.
func identity(n int) []float32 {
	m := make([]float32, n*n)
	for i := range n {
		m[i*n+i] = 1
	}
	return m
}
