package cpu

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
)

// shares turns a long row of scores into exponentials.
type shares struct {
	nan             []uint64          // a bit for each score, 0 where it is not a number
	nans            int               // how many are not
	top, sum, scale []float32         // of the softmax of each tile
	most            [vec.Tile]float32 // of every tile's score number i
}

// of replaces scores, whole tiles of them in units of ln 2, by 2^(score - the
// largest), NaN by 0, so that the same scores give the same numbers. It returns
// the sum of each tile.
func (s *shares) of(k *vec.Kernels, scores []float32) (sum []float32) {
	tiles := len(scores) / vec.Tile
	nan, top, sum := grown(&s.nan, tiles), grown(&s.top, tiles), grown(&s.sum, tiles)
	k.AtLeast(nan, scores, negInf)
	s.nans = 0
	for i := range s.most {
		s.most[i] = -math.MaxFloat32
	}
	for i := range tiles {
		for w := ^nan[i]; w != 0; w &= w - 1 {
			scores[i*vec.Tile+bits.TrailingZeros64(w)] = negInf
			s.nans++
		}
		k.LogTop(s.most[:], row(scores, i, vec.Tile), 1, 0)
	}
	highest := float32(-math.MaxFloat32)
	for _, x := range s.most {
		highest = max(highest, x)
	}
	for i := range tiles {
		top[i], sum[i] = highest, 0
	}
	k.Softmax(scores, top, sum, grown(&s.scale, tiles))
	return sum
}
