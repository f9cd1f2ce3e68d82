package cpu

import "github.com/gollm/gollm/cpu/vec"

// row is row i of a matrix of n columns.
func row[T any](m []T, i, n int) []T { return m[i*n : (i+1)*n] }

// grown is s with room for n elements, n of them in use.
func grown[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n+n/2)
	}
	*s = (*s)[:cap(*s)]
	return (*s)[:n]
}

// perWorker is scratch with an element for each worker of a pool.
func perWorker[T any](p *Pool, scratch []T) []T {
	for len(scratch) < p.Workers() {
		var empty T
		scratch = append(scratch, empty)
	}
	return scratch
}

// fitRows is rows with room for n elements of the type that the cache has.
func fitRows(r vec.Rows, n int, half bool) vec.Rows {
	switch {
	case half && len(r.Half) < n:
		return vec.Rows{Half: make([]uint16, n)}
	case !half && len(r.Full) < n:
		return vec.Rows{Full: make([]float32, n)}
	}
	return r
}
