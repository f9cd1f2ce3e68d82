package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/cpu/vec"
)

// Top-p without sorting the row. The scores that top-p selects are those above some score, the
// crossing, and some that equal it. A sample gives two bounds between which it probably lies; what
// lies there is moved together, and halved until few scores are left, whose exponentials are
// added one by one. Sums are of float64. Where one is so near to what is asked for that the error
// may decide, the definition is asked.

const (
	massSample = 256  // scores that bounds are guessed from
	massRange  = 30   // how far below the largest score bounds are looked for
	massSteps  = 12   // so often the range is halved
	maxAdded   = 64   // scores whose exponentials are added one by one
	massError  = 1e-9 // relative, of a sum of exponentials and of the definition's
)

// topP selects the smallest set of largest scores whose exponentials, added by falling score,
// sum to at least mass times that of all.
func (s *selector) topP(v *vec.Kernels, x []float32, mass float64) (set []uint64, n int) {
	if len(x) >= minGuessed && mass > 0 && mass < 1 {
		if bound, dropped, ok := s.crossing(v, x, mass); ok {
			set = grown(&s.set, (len(x)+63)/64)
			n = atLeast(v, set, x, bound) - dropped
			dropTies(set, x, bound, dropped)
			return set, n
		}
	}
	return s.topPSorted(v, x, mass)
}

// massBounds is two bounds of the crossing: above is the mass of what is above both, and some the
// scores between them.
type massBounds struct {
	top, low, high float32
	above          float64
	some           []float32
}

// crossing is the last score that top-p selects, and how many that equal it are not selected; ok
// is false where rounding may decide.
func (s *selector) crossing(v *vec.Kernels, x []float32, mass float64) (score float32, dropped int, ok bool) {
	m := massBounds{top: v.Largest(x)}
	if math.IsInf(float64(m.top), 0) || m.top == -math.MaxFloat32 {
		return 0, 0, false
	}
	m.low, m.high = s.guessMass(v, x, m.top, mass)
	total, above := v.Masses(x, m.top, m.high)
	goal := mass * total
	if m.above = above; above >= goal { // a wrong guess
		m.low, m.high, m.above = m.high, m.top, 0
	}
	buffer := grown(&s.some, len(x)+vec.BetweenSlack)
	n, _ := v.Between(buffer, x, m.low, m.high)
	if between, _ := v.Masses(buffer[:n], m.top, m.top); m.above+between < goal { // likewise
		m.above += between
		m.low, m.high = -math.MaxFloat32, fromOrdered(orderedBits(m.low)-1)
		n, _ = v.Between(buffer, x, m.low, m.high)
	}
	m.some = buffer[:n]
	m.narrow(v, goal)
	return m.add(goal, massError*total)
}

// guessMass is two bounds between which the crossing probably lies.
func (s *selector) guessMass(v *vec.Kernels, x []float32, top float32, mass float64) (low, high float32) {
	sample := s.sampled(x, massSample)
	total, _ := v.Masses(sample, top, top)
	slack := 3 * math.Sqrt(mass*(1-mass)/massSample)
	bounds := [2]float32{-math.MaxFloat32, top}
	for i, part := range []float64{mass + slack, mass - slack} {
		if part <= 0 || part >= 1 {
			continue
		}
		lo, hi := top-massRange, top
		for range massSteps {
			middle := lo + (hi-lo)/2
			if _, above := v.Masses(sample, top, middle); above < part*total {
				hi = middle
			} else {
				lo = middle
			}
		}
		bounds[i] = [2]float32{lo, hi}[i]
	}
	return bounds[0], max(bounds[0], bounds[1])
}

// narrow halves the range of scores until few are left, or all are equal.
func (m *massBounds) narrow(v *vec.Kernels, goal float64) {
	lo, hi := orderedBits(m.low), orderedBits(m.high) // not those of m: both zeros are one
	for len(m.some) > maxAdded && lo < hi {
		middle := lo + (hi-lo)/2
		if _, above := v.Masses(m.some, m.top, fromOrdered(middle)); m.above+above >= goal {
			lo = middle + 1
		} else {
			m.above += above
			hi = middle
		}
		n, _ := v.Between(m.some[:len(m.some)+vec.BetweenSlack], m.some, fromOrdered(lo), fromOrdered(hi))
		m.some = m.some[:n]
	}
}

// add finds the crossing among the scores that are left, by falling score.
func (m *massBounds) add(goal, slack float64) (score float32, dropped int, ok bool) {
	slices.Sort(m.some)
	sum := m.above
	for i := len(m.some) - 1; i >= 0; i-- {
		if sum > goal-slack {
			return 0, 0, false
		}
		score = m.some[i]
		if sum += math.Exp(float64(score) - float64(m.top)); sum > goal+slack {
			first, _ := slices.BinarySearch(m.some, score)
			return score, i - first, true
		}
	}
	return 0, 0, false
}
