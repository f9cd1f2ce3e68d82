package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
)

// lanes reduce a long row of scores, none of them NaN, a tile at a time.
type lanes struct {
	top, sum [vec.Tile]float32
}

// largest is the largest score, or the lowest number where that is larger.
func (l *lanes) largest(v *vec.Kernels, x []float32) float32 {
	for i := range l.top {
		l.top[i] = -math.MaxFloat32
	}
	for at := 0; at < len(x); at += vec.Tile {
		v.LogTop(l.top[:], x[at:min(at+vec.Tile, len(x))], 1, 0)
	}
	top := l.top[0]
	for _, y := range l.top {
		top = max(top, y)
	}
	return top
}

// logSum is ln Σ exp(x): -Inf where there is nothing, and +Inf where a score is.
func (l *lanes) logSum(v *vec.Kernels, x []float32) float64 {
	top := l.largest(v, x)
	if math.IsInf(float64(top), 1) {
		return math.Inf(1)
	}
	for i := range l.top {
		l.top[i], l.sum[i] = top, 0
	}
	for at := 0; at < len(x); at += vec.Tile {
		v.LogSum(l.sum[:], l.top[:], x[at:min(at+vec.Tile, len(x))], 1, 0)
	}
	total := 0.0
	for _, y := range l.sum {
		total += float64(y)
	}
	return float64(top) + math.Log(total)
}
