package ruler

import "math/bits"

// twister is MT19937, the generator behind CPython's random and NumPy's legacy
// functions. Official files are made with both, so both are here, number for
// number.
type twister struct {
	state [twisterLen]uint32
	at    int // of state; twisterLen: all are used up
}

const (
	twisterLen   = 624
	twisterShift = 397
)

// seedPlain is how NumPy seeds: one word.
func (t *twister) seedPlain(seed uint32) {
	t.state[0] = seed
	for i := 1; i < twisterLen; i++ {
		t.state[i] = 1812433253*(t.state[i-1]^t.state[i-1]>>30) + uint32(i)
	}
	t.at = twisterLen
}

// seedArray is how CPython seeds: the words of a number, the lowest first.
func (t *twister) seedArray(key []uint32) {
	t.seedPlain(19650218)
	i, j := 1, 0
	for range max(twisterLen, len(key)) {
		t.state[i] = (t.state[i] ^ (t.state[i-1]^t.state[i-1]>>30)*1664525) + key[j] + uint32(j)
		i = t.wrap(i + 1)
		j = (j + 1) % len(key)
	}
	for range twisterLen - 1 {
		t.state[i] = (t.state[i] ^ (t.state[i-1]^t.state[i-1]>>30)*1566083941) - uint32(i)
		i = t.wrap(i + 1)
	}
	t.state[0] = 1 << 31
}

// wrap brings an index of seedArray back to 1.
func (t *twister) wrap(i int) int {
	if i < twisterLen {
		return i
	}
	t.state[0] = t.state[twisterLen-1]
	return 1
}

// next is the next 32 bits.
func (t *twister) next() uint32 {
	if t.at == twisterLen {
		t.refill()
	}
	y := t.state[t.at]
	t.at++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// refill makes the next words.
func (t *twister) refill() {
	for i := range twisterLen {
		y := t.state[i]&(1<<31) | t.state[(i+1)%twisterLen]&(1<<31-1)
		t.state[i] = t.state[(i+twisterShift)%twisterLen] ^ y>>1 ^ y&1*0x9908b0df
	}
	t.at = 0
}

// random draws what CPython's random module draws.
type random struct{ twister }

// newRandom is random.Random(seed).
func newRandom(seed uint64) *random {
	key := []uint32{uint32(seed)}
	if high := uint32(seed >> 32); high > 0 {
		key = append(key, high)
	}
	r := new(random)
	r.seedArray(key)
	return r
}

// bits is getrandbits(k), k from 0 to 32.
func (r *random) bits(k int) uint32 {
	if k == 0 {
		return 0
	}
	return r.next() >> (32 - k)
}

// below is uniform in [0, n), n from 1 to 1<<31.
func (r *random) below(n int) int {
	k := bits.Len(uint(n))
	for {
		if x := int(r.bits(k)); x < n {
			return x
		}
	}
}

// between is randint(low, high), both ends included.
func (r *random) between(low, high int) int { return low + r.below(high-low+1) }

// float is random(), in [0, 1).
func (r *random) float() float64 {
	a, b := r.next()>>5, r.next()>>6
	return (float64(a)*(1<<26) + float64(b)) / (1 << 53)
}

// letters is the string of choices(alphabet, k=n).
func (r *random) letters(alphabet string, n int) string {
	word := make([]byte, n)
	for i := range word {
		word[i] = alphabet[int(r.float()*float64(len(alphabet)))]
	}
	return string(word)
}

// shuffle is random.shuffle.
func shuffle[T any](r *random, list []T) {
	for i := len(list) - 1; i > 0; i-- {
		j := r.below(i + 1)
		list[i], list[j] = list[j], list[i]
	}
}

// sample is random.sample(range(n), k): k distinct numbers of [0, n), k ≤ n.
func (r *random) sample(n, k int) []int {
	picked := make([]int, k)
	if n <= poolLimit(k) {
		pool := make([]int, n)
		for i := range pool {
			pool[i] = i
		}
		for i := range picked {
			j := r.below(n - i)
			picked[i], pool[j] = pool[j], pool[n-i-1]
		}
		return picked
	}
	seen := make(map[int]bool, k)
	for i := range picked {
		j := r.below(n)
		for seen[j] {
			j = r.below(n)
		}
		seen[j] = true
		picked[i] = j
	}
	return picked
}

// poolLimit is the population up to which CPython copies it to draw k.
func poolLimit(k int) int {
	limit := 21
	if k > 5 {
		power := 1 // 4 to the ceiling of log4 of 3k
		for power < 3*k {
			power *= 4
		}
		limit += power
	}
	return limit
}

// legacy draws what NumPy's legacy random functions draw.
type legacy struct{ twister }

// newLegacy is after numpy.random.seed(seed).
func newLegacy(seed uint64) *legacy {
	l := new(legacy)
	l.seedPlain(uint32(seed))
	return l
}

// between is randint(low, high): high is not included.
func (l *legacy) between(low, high int) int {
	most := uint32(high - 1 - low)
	mask := uint32(1)<<bits.Len32(most) - 1
	for {
		if x := l.next() & mask; x <= most {
			return low + int(x)
		}
	}
}
