package cpu

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
)

// Top-p without sorting the row, and without an exponential for each score. Scores are counted in
// buckets of their distance d from the largest, with the first three moments of d about the middle
// of the bucket, from which follows the bucket's mass to within massError:
//
//	Σ e^-d = e^-middle·(n - Σr + Σr²/2 - ...), r = d - middle, |r| <= 1/256
//
// The bucket in which the sum of the best scores reaches its part is sorted, and exponentials are
// added one by one. Where a sum is so near to what is asked for that the error decides, which is
// one row in hundreds, the definition is asked.

const (
	massBuckets = 128 // of a unit of scores
	massUnits   = 40  // beyond, e^-d adds nothing: less than 1e-12 for all scores of a row
	massError   = 1e-8
)

// massBucket is the scores of a bucket.
type massBucket struct{ n, first, second float64 }

// mass is Σ e^-d of bucket i.
func (b *massBucket) mass(i int) float64 {
	if b.n == 0 {
		return 0
	}
	return math.Exp(-(float64(i)+.5)/massBuckets) * (b.n - b.first + b.second/2)
}

// topP selects the smallest set of largest scores whose exponentials, added by falling score,
// sum to at least mass times that of all.
func (s *selector) topP(v *vec.Kernels, x []float32, mass float64) (set []uint64, n int) {
	if len(x) >= minGuessed && mass > 0 && mass < 1 {
		if bound, last, ok := s.crossing(v, x, mass); ok {
			return s.upTo(v, x, bound, last)
		}
	}
	return s.topPSorted(v, x, mass)
}

// upTo selects the scores above bound, and those that are equal to it up to position last.
func (s *selector) upTo(v *vec.Kernels, x []float32, bound float32, last int) (set []uint64, n int) {
	set = grown(&s.set, (len(x)+63)/64)
	n = atLeast(v, set, x, bound)
	for w := last / 64; w < len(set); w++ {
		word := set[w]
		if w == last/64 {
			word &^= 1<<(last%64)<<1 - 1
		}
		for ; word != 0; word &= word - 1 {
			if i := bits.TrailingZeros64(word); x[64*w+i] == bound {
				set[w] &^= 1 << i
				n--
			}
		}
	}
	return set, n
}

// crossing is the last score, and its position, that top-p selects; ok is false where rounding may
// decide.
func (s *selector) crossing(v *vec.Kernels, x []float32, mass float64) (score float32, position int, ok bool) {
	top := s.largestNumber(v, x)
	if math.IsInf(float64(top), 0) || top == -math.MaxFloat32 {
		return 0, 0, false
	}
	s.count(x, float64(top))
	total := 0.0
	for i := range s.buckets {
		s.masses[i] = s.buckets[i].mass(i)
		total += s.masses[i]
	}
	slack, sum := 4*massError*total, 0.0
	for i, m := range s.masses {
		if sum+m >= mass*total {
			return s.crossingIn(x, float64(top), i, sum, mass*total, slack)
		}
		sum += m
	}
	return 0, 0, false
}

// largestNumber is the largest score that is a number, but at least the lowest finite one.
func (s *selector) largestNumber(v *vec.Kernels, x []float32) float32 {
	if s.nans(v, x) == 0 {
		return s.lanes.largest(v, x)
	}
	top := float32(-math.MaxFloat32)
	for _, y := range x {
		if y > top {
			top = y
		}
	}
	return top
}

// count fills the buckets.
func (s *selector) count(x []float32, top float64) {
	if s.buckets == nil {
		s.buckets, s.masses = make([]massBucket, massBuckets*massUnits), make([]float64, massBuckets*massUnits)
	}
	clear(s.buckets)
	for _, y := range x {
		d := (top - float64(y)) * massBuckets
		if !(d < massBuckets*massUnits) {
			continue // also NaN
		}
		i := int(d)
		b, r := &s.buckets[i], (d-float64(i)-.5)/massBuckets
		b.n++
		b.first += r
		b.second += r * r
	}
}

// crossingIn is crossing in a bucket; sum is the mass of those before it.
func (s *selector) crossingIn(x []float32, top float64, bucket int, sum, goal, slack float64) (score float32, position int, ok bool) {
	s.keys = s.keys[:0]
	for j, y := range x {
		if d := (top - float64(y)) * massBuckets; d < massBuckets*massUnits && int(d) == bucket {
			s.keys = append(s.keys, uint64(^orderedBits(y))<<32|uint64(j))
		}
	}
	s.sort()
	for _, key := range s.keys {
		if sum > goal-slack {
			return 0, 0, false
		}
		position = int(uint32(key))
		score = x[position]
		if sum += math.Exp(float64(score) - top); sum > goal+slack {
			return score, position, true
		}
	}
	return 0, 0, false
}
