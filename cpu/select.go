package cpu

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
)

// selector finds the largest scores of a row. A few of the scores say between
// which two bounds the least of the best lies; what is above both is in, and
// only what lies between is ranked. The guess costs time when it is wrong, and
// changes nothing else.
type selector struct {
	set    []uint64 // bit i of word w is position 64·w+i: chosen
	likely []uint64 // above the lower bound
	keys   []uint64 // to be ranked; see sortable
	sample []uint64
	order  []uint64 // for sorting

	best    []int32 // by falling score
	weights []float64
}

// Bounds are guessed from one of sampleEach scores, at most sampleMost, in rows
// of at least guessed.
const (
	sampleEach = 16
	sampleMost = 1024
	guessed    = 4096
)

// pick chooses the k largest scores above -Inf, ties to the lowest position, and
// returns them as a set and how many they are. The set is good until the next
// call.
func (s *selector) pick(v *vec.Kernels, x []float32, k int) (set []uint64, n int) {
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

// pickShare is pick of the fewest of the largest scores whose exponentials are a
// share of all. They are added in the order of scores.
func (s *selector) pickShare(v *vec.Kernels, x []float32, share float64) (set []uint64, n int) {
	set = grown(&s.set, (len(x)+63)/64)
	n = atLeast(v, set, x, -math.MaxFloat32)
	best := grown(&s.best, n)
	s.rank(best, x, set)
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
	for sum := 0.0; n < len(best) && !(sum >= share*total); n++ {
		sum += weights[n]
		set[best[n]/64] |= 1 << (best[n] % 64)
	}
	return set, n
}

// nans is how many scores are not numbers.
func (s *selector) nans(v *vec.Kernels, x []float32) int {
	return len(x) - atLeast(v, grown(&s.likely, (len(x)+63)/64), x, negInf)
}

// dropNaNs makes scores that are not numbers -Inf, and counts them.
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

// atLeast is the scores of at least a bound, and how many they are.
func atLeast(v *vec.Kernels, set []uint64, x []float32, bound float32) (n int) {
	v.AtLeast(set, x, bound)
	for _, w := range set {
		n += bits.OnesCount64(w)
	}
	return n
}

// guess is two bounds between which the least of the k best of x probably lies.
func (s *selector) guess(x []float32, k int) (low, high float32) {
	low, high = -math.MaxFloat32, float32(math.Inf(1))
	if len(x) < guessed || k <= 0 || k >= len(x) {
		return low, high
	}
	size := min(len(x)/sampleEach, sampleMost)
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
	most := min(int(rank+slack), size)
	largest(s.sample, most)
	low = max(low, x[^uint32(least(s.sample[:most]))])
	if few := int(rank - slack); few > 0 {
		largest(s.sample[:most], few)
		high = x[^uint32(least(s.sample[:few]))]
	}
	if !(low >= -math.MaxFloat32) { // NaN
		low = -math.MaxFloat32
	}
	if !(high > low) { // a score that many share
		high = float32(math.Inf(1))
	}
	return low, high
}

// least is the least of x.
func least(x []uint64) uint64 {
	l := x[0]
	for _, v := range x {
		l = min(l, v)
	}
	return l
}

// rank writes a set as positions by falling score, ties to the lowest position.
func (s *selector) rank(dst []int32, x []float32, set []uint64) (n int) {
	s.keys = s.keys[:0]
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			j := w*64 + bits.TrailingZeros64(word)
			s.keys = append(s.keys, uint64(^rising(x[j]))<<32|uint64(j))
		}
	}
	s.sort()
	for n < len(dst) && n < len(s.keys) {
		dst[n] = int32(uint32(s.keys[n]))
		n++
	}
	return n
}

// sort sorts the keys by their high halves, a byte at a time from the lowest;
// keys with the same high half stay in order.
func (s *selector) sort() {
	to := grown(&s.order, len(s.keys))
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
