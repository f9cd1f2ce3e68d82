package device

import "math/bits"

// Shuffle is a random permutation of 0 to n-1 of which single elements can be
// asked for: a Feistel network on the fewest bits that hold n-1, at least
// shuffleBits, repeated until its result is below n, and then a turn by a random
// number, so that every element alone is uniform.
type Shuffle struct {
	n           uint32
	left, right uint // bits of the halves
	keys        [shuffleRounds]uint32
	turn        uint32
}

const (
	shuffleRounds = 6
	shuffleBits   = 8 // with less, some pairs of elements would be likelier than others
)

// Shuffle is the permutation of n elements, 1 to 2^31, of the address.
func (d Draw) Shuffle(n int) Shuffle {
	width := uint(max(shuffleBits, bits.Len32(uint32(n-1))))
	s := Shuffle{n: uint32(n), left: width / 2, right: width - width/2}
	w0, w1 := d.Words(0), d.Words(1)
	copy(s.keys[:4], w0[:])
	copy(s.keys[4:], w1[:2])
	s.turn = below(w1[2], s.n)
	return s
}

// At is element i.
func (s *Shuffle) At(i int) int {
	x := uint32(i)
	for {
		if x = s.step(x); x < s.n {
			break
		}
	}
	if x += s.turn; x >= s.n {
		x -= s.n
	}
	return int(x)
}

// step is the Feistel network: in turn each half is changed by the other.
func (s *Shuffle) step(x uint32) uint32 {
	l, r := x>>s.right, x&(1<<s.right-1)
	for i := 0; i < shuffleRounds; i += 2 {
		l ^= mix(r, s.keys[i]) >> (32 - s.left)
		r ^= mix(l, s.keys[i+1]) >> (32 - s.right)
	}
	return l<<s.right | r
}

// mix scatters x, whose upper bits count.
func mix(x, key uint32) uint32 {
	x = (x ^ key) * 0x9E3779B1
	return (x ^ x>>15) * 0x85EBCA77
}

// Below is number i of the address, uniform in 0 to n-1.
func (d Draw) Below(i uint32, n int) int {
	w := d.Words(i / 4)
	return int(below(w[i%4], uint32(n)))
}

// below maps a random word to 0 to n-1.
func below(word, n uint32) uint32 {
	hi, _ := bits.Mul32(word, n)
	return hi
}
