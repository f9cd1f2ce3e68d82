package cpu

import (
	"math"
	"math/bits"
	"slices"

	"github.com/gollm/gollm/cpu/vec"
)

// selector is top-k and top-p of a row of scores. For top-k, a sample of the scores gives two
// bounds between which the k-th largest probably lies: what is above both is selected, and
// only what lies between is ranked. A wrong guess costs time and changes no result.
type selector struct {
	set    []uint64 // selected positions: bit i of word w is position 64·w+i
	likely []uint64 // positions above the lower bound
	keys   []uint64 // to be ranked; see sortable
	sample []uint64
	buffer []uint64 // of sort

	best    []int32 // positions by falling score
	weights []float64

	lanes   lanes // of top-p
	buckets []massBucket
	masses  []float64 // of buckets
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
	if cap(s.keys) < len(x) {
		s.keys = make([]uint64, 0, len(x)+len(x)/2)
	}
	words := (len(x) + 63) / 64
	set, likely := grown(&s.set, words), grown(&s.likely, words)
	low, high := s.guess(x, k)
	n = atLeast(v, set, x, high)
	if n > k {
		clear(set)
		n = 0
	}
	m := atLeast(v, likely, x, low)
	if m < k && low > -math.MaxFloat32 {
		m = atLeast(v, likely, x, -math.MaxFloat32)
	}
	if m <= k {
		return likely, m
	}
	s.keys = s.keys[:0]
	for w, word := range likely {
		for word &^= set[w]; word != 0; word &= word - 1 {
			j := w*64 + bits.TrailingZeros64(word)
			s.keys = append(s.keys, sortable(x[j], j))
		}
	}
	largest(s.keys, k-n)
	for _, key := range s.keys[:k-n] {
		j := ^uint32(key)
		set[j/64] |= 1 << (j % 64)
	}
	return set, k
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
func (s *selector) nans(v *vec.Kernels, x []float32) int {
	return len(x) - atLeast(v, grown(&s.likely, (len(x)+63)/64), x, negInf)
}

// dropNaNs replaces NaN by -Inf, and counts them.
func (s *selector) dropNaNs(v *vec.Kernels, x []float32) (n int) {
	if n = s.nans(v, x); n == 0 {
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
func (s *selector) guess(x []float32, k int) (low, high float32) {
	low, high = -math.MaxFloat32, float32(math.Inf(1))
	if len(x) < minGuessed || k <= 0 || k >= len(x) {
		return low, high
	}
	size := min(len(x)/sampleEach, maxSample)
	step := len(x)/size - 1 | 1 // odd, because contexts have even periods
	s.sample = s.sample[:0]
	for i := range size {
		v := x[i*step]
		if !(v > negInf) {
			v = negInf
		}
		s.sample = append(s.sample, sortable(v, i*step))
	}
	rank := float64(k) * float64(size) / float64(len(x))
	slack := 2*math.Sqrt(rank) + 2
	upper := min(int(rank+slack), size)
	largest(s.sample, upper)
	low = max(low, x[^uint32(slices.Min(s.sample[:upper]))])
	if lower := int(rank - slack); lower > 0 {
		largest(s.sample[:upper], lower)
		high = x[^uint32(slices.Min(s.sample[:lower]))]
	}
	if !(low >= -math.MaxFloat32) { // NaN
		low = -math.MaxFloat32
	}
	if !(high > low) { // many scores are equal
		high = float32(math.Inf(1))
	}
	return low, high
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
