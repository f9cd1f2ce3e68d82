package cpu

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
)

// lanes reduces a long row of scores, none of them NaN, in partial results.
type lanes struct {
	top, sum [16 * vec.Tile]float32
}

// logSum is ln Σ exp(x): -Inf of nothing, and +Inf where a score is.
func (l *lanes) logSum(v *vec.Kernels, x []float32) float64 {
	top := v.Largest(x)
	if math.IsInf(float64(top), 1) {
		return math.Inf(1)
	}
	for i := range l.top {
		l.top[i], l.sum[i] = top, 0
	}
	for at := 0; at < len(x); at += len(l.sum) {
		v.LogSum(l.sum[:], l.top[:], x[at:min(at+len(l.sum), len(x))], 1, 0)
	}
	total := 0.0
	for _, y := range l.sum {
		total += float64(y)
	}
	return float64(top) + math.Log(total)
}

// rowSoftmax turns a long row of scores into exponentials.
type rowSoftmax struct {
	number          []uint64          // a bit for each score, 0 where it is NaN
	nans            int               // scores that were NaN
	top, sum, scale []float32         // state of the softmax of each tile
	largest         [vec.Tile]float32 // element i: of all tiles' score i
}

// exponentials replaces scores in units of ln 2, a whole number of tiles, by 2^(score - the
// largest), and NaN by 0. All tiles use the largest of the row, so equal scores give equal
// numbers.
func (s *rowSoftmax) exponentials(k *vec.Kernels, scores []float32) {
	tiles := len(scores) / vec.Tile
	number, top, sum := grown(&s.number, tiles), grown(&s.top, tiles), grown(&s.sum, tiles)
	k.AtLeast(number, scores, negInf)
	s.nans = 0
	for i := range s.largest {
		s.largest[i] = -math.MaxFloat32
	}
	for i := range tiles {
		for w := ^number[i]; w != 0; w &= w - 1 {
			scores[i*vec.Tile+bits.TrailingZeros64(w)] = negInf
			s.nans++
		}
		k.LogTop(s.largest[:], row(scores, i, vec.Tile), 1, 0)
	}
	highest := float32(-math.MaxFloat32)
	for _, x := range s.largest {
		highest = max(highest, x)
	}
	for i := range tiles {
		top[i], sum[i] = highest, 0
	}
	k.Softmax(scores, top, sum, grown(&s.scale, tiles))
}

// sum64 is the sum of x in float64, in four partial sums.
func sum64(x []float32) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		a += float64(x[0])
		b += float64(x[1])
		c += float64(x[2])
		d += float64(x[3])
	}
	for _, v := range x {
		a += float64(v)
	}
	return a + b + (c + d)
}
