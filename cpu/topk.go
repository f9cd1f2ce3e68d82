package cpu

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
)

// selector is top-k and top-p of a row of scores. For top-k, a sample of the scores gives two
// bounds between which the k-th largest probably lies, and what lies there is moved together; the
// k-th largest is found by counting what is above the middle of two bounds. A wrong guess costs
// time and changes no result.
type selector struct {
	set    []uint64  // selected positions: bit i of word w is position 64·w+i
	front  []uint64  // the best of them, of bestFirst
	some   []float32 // scores between two bounds
	sample []float32

	keys, buffer []uint64 // of sort

	best    []int32 // positions by falling score
	weights []float64
}

// Bounds are guessed from one of sampleEach scores, at most maxSample, in rows of at least
// minGuessed.
const (
	sampleEach = 16
	maxSample  = 1024
	minGuessed = 4096
)

// topK selects the k largest scores above -Inf, ties to the lowest position, and returns the
// set of their positions, which the next call overwrites, and their number.
func (s *selector) topK(v *vec.Kernels, x []float32, k int) (set []uint64, n int) {
	set = grown(&s.set, (len(x)+63)/64)
	if k <= 0 {
		clear(set)
		return set, 0
	}
	bound := s.ranked(v, x, k)
	n = atLeast(v, set, x, bound)
	if n > k {
		dropTies(set, x, bound, n-k)
		n = k
	}
	return set, n
}

// ranked is the k-th largest score, or -MaxFloat32 where fewer are above -Inf.
func (s *selector) ranked(v *vec.Kernels, x []float32, k int) float32 {
	if len(x) >= minGuessed && k < len(x) {
		low, high := s.guess(v, x, k)
		some := grown(&s.some, len(x)+vec.BetweenSlack)
		if n, above := v.Between(some, x, low, high); above < k && k <= above+n {
			return rankedIn(v, some[:n], k-above, low, high)
		}
	}
	return rankedIn(v, x, k, -math.MaxFloat32, float32(math.Inf(1)))
}

// rankedIn is the k-th largest of x between two bounds, or low where fewer than k are at least low.
func rankedIn(v *vec.Kernels, x []float32, k int, low, high float32) float32 {
	lo, hi := orderedBits(low), orderedBits(high)
	for lo < hi {
		middle := hi - (hi-lo)/2
		if v.Count(x, fromOrdered(middle)) >= k {
			lo = middle
		} else {
			hi = middle - 1
		}
	}
	return fromOrdered(lo)
}

// dropTies takes the last n positions whose score is bound out of a set.
func dropTies(set []uint64, x []float32, bound float32, n int) {
	for w := len(set) - 1; w >= 0 && n > 0; w-- {
		for word := set[w]; word != 0 && n > 0; {
			i := 63 - bits.LeadingZeros64(word)
			word &^= 1 << i
			if x[64*w+i] == bound {
				set[w] &^= 1 << i
				n--
			}
		}
	}
}

// topPSorted is the definition of topP.
func (s *selector) topPSorted(v *vec.Kernels, x []float32, mass float64) (set []uint64, n int) {
	set = grown(&s.set, (len(x)+63)/64)
	n = atLeast(v, set, x, -math.MaxFloat32)
	best := grown(&s.best, n)
	s.order(best, x, set)
	clear(set)
	if n == 0 {
		return set, 0
	}
	weights := grown(&s.weights, n)
	top, total := float64(x[best[0]]), 0.0
	for i, j := range best {
		weights[i] = math.Exp(float64(x[j]) - top)
		total += weights[i]
	}
	n = 0
	for sum := 0.0; n < len(best) && !(sum >= mass*total); n++ {
		sum += weights[n]
		set[best[n]/64] |= 1 << (best[n] % 64)
	}
	return set, n
}

// nans is how many scores are NaN.
func nans(v *vec.Kernels, x []float32) int { return len(x) - v.Count(x, negInf) }

// dropNaNs replaces NaN by -Inf, and counts them.
func dropNaNs(v *vec.Kernels, x []float32) (n int) {
	if n = nans(v, x); n == 0 {
		return 0
	}
	for i, y := range x {
		if y != y {
			x[i] = negInf
		}
	}
	return n
}

// atLeast sets set to the positions of the scores of at least bound, and counts them.
func atLeast(v *vec.Kernels, set []uint64, x []float32, bound float32) (n int) {
	v.AtLeast(set, x, bound)
	for _, w := range set {
		n += bits.OnesCount64(w)
	}
	return n
}

// guess is two bounds between which the k-th largest of x probably lies.
func (s *selector) guess(v *vec.Kernels, x []float32, k int) (low, high float32) {
	low, high = -math.MaxFloat32, float32(math.Inf(1))
	sample := s.sampled(x, min(len(x)/sampleEach, maxSample))
	rank := float64(k) * float64(len(sample)) / float64(len(x))
	slack := 2*math.Sqrt(rank) + 2
	low = rankedIn(v, sample, int(rank+slack), low, high)
	if fewer := int(rank - slack); fewer > 0 {
		high = rankedIn(v, sample, fewer, low, high)
	}
	return low, high
}

// sampled is n scores of x, evenly spread.
func (s *selector) sampled(x []float32, n int) []float32 {
	step := len(x)/n - 1 | 1 // odd, because contexts have even periods
	sample := grown(&s.sample, n)
	for i := range sample {
		sample[i] = x[i*step]
	}
	return sample
}

// bestFirst lists what topK selects of k, and before the others the best first of them.
func (s *selector) bestFirst(v *vec.Kernels, dst []int32, x []float32, k, first int) (n int) {
	if first > 0 && first < k {
		set, _ := s.topK(v, x, first)
		n = v.Positions(dst, set)
		s.front = append(s.front[:0], set...)
	}
	set, _ := s.topK(v, x, k)
	for w := range set[:len(set)*min(n, 1)] {
		set[w] &^= s.front[w]
	}
	return n + v.Positions(dst[n:], set)
}

// order writes the positions of a set by falling score, ties to the lowest position.
func (s *selector) order(dst []int32, x []float32, set []uint64) (n int) {
	s.keys = s.keys[:0]
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			j := w*64 + bits.TrailingZeros64(word)
			s.keys = append(s.keys, uint64(^orderedBits(x[j]))<<32|uint64(j))
		}
	}
	s.sort()
	for n < len(dst) && n < len(s.keys) {
		dst[n] = int32(uint32(s.keys[n]))
		n++
	}
	return n
}

// sort is a stable radix sort of the keys by their high halves.
func (s *selector) sort() {
	to := grown(&s.buffer, len(s.keys))
	for shift := 32; shift < 64; shift += 8 {
		var count [256]int
		for _, key := range s.keys {
			count[byte(key>>shift)]++
		}
		sum := 0
		for i, n := range count {
			count[i] = sum
			sum += n
		}
		for _, key := range s.keys {
			at := &count[byte(key>>shift)]
			to[*at] = key
			*at++
		}
		s.keys, to = to, s.keys
	}
}

// orderedBits is an integer that orders as the score does; both zeros are one.
func orderedBits(score float32) uint32 {
	b := math.Float32bits(score + 0)
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

// fromOrdered is the score that orders as an integer says.
func fromOrdered(b uint32) float32 {
	return math.Float32frombits(b ^ (^uint32(int32(b)>>31) | 1<<31))
}

// sortable is an integer that orders by score, then by position, the lowest last: the larger
// of two is selected first. Its low half is ^position.
func sortable(score float32, position int) uint64 {
	return uint64(orderedBits(score))<<32 | uint64(^uint32(position))
}

// largest moves the k largest of x to its front, in any order (quickselect). No two elements
// are equal.
func largest(x []uint64, k int) {
	lo, hi := 0, len(x)
	for hi-lo > 8 && lo < k && k < hi {
		pivot := median(x[lo], x[lo+(hi-lo)/2], x[hi-1]) // neither the largest nor the smallest
		part, n := x[lo:hi], 0
		for j, v := range part {
			part[j], part[n] = part[n], v
			_, larger := bits.Sub64(pivot, v, 0) // no branch: it would be mispredicted half the time
			n += int(larger)
		}
		if k <= lo+n {
			hi = lo + n
		} else {
			lo += n
		}
	}
	for i := lo + 1; i < hi && lo < k && k < hi; i++ {
		for j := i; j > lo && x[j] > x[j-1]; j-- {
			x[j], x[j-1] = x[j-1], x[j]
		}
	}
}

// median is the median of three.
func median(a, b, c uint64) uint64 { return max(min(a, b), min(max(a, b), c)) }
