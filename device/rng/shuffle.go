package rng

import "math/bits"

// Shuffle is a random permutation of 0 to n-1 with random access: a Feistel network over the
// fewest bits that hold n-1, at least shuffleBits, with cycle walking (it is repeated until the
// result is below n), followed by a rotation modulo n by a random offset, which makes every
// single element uniform.
type Shuffle struct {
	n           uint32
	left, right uint // bits of the halves
	keys        [shuffleRounds]uint32
	offset      uint32
}

const (
	shuffleRounds = 6
	shuffleBits   = 8 // with fewer, some pairs of elements are likelier than others
)

// Shuffle is the permutation of n elements, 1 to 2^31, at the address: blocks 0 and 1 of its
// words are the round keys and the offset.
func (d Address) Shuffle(n int) Shuffle {
	width := uint(max(shuffleBits, bits.Len32(uint32(n-1))))
	s := Shuffle{n: uint32(n), left: width / 2, right: width - width/2}
	w0, w1 := d.Words(0), d.Words(1)
	copy(s.keys[:4], w0[:])
	copy(s.keys[4:], w1[:2])
	s.offset = below(w1[2], s.n)
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
	if x += s.offset; x >= s.n {
		x -= s.n
	}
	return int(x)
}

// step is one pass of the Feistel network.
func (s *Shuffle) step(x uint32) uint32 {
	l, r := x>>s.right, x&(1<<s.right-1)
	for i := 0; i < shuffleRounds; i += 2 {
		l ^= mix(r, s.keys[i]) >> (32 - s.left)
		r ^= mix(l, s.keys[i+1]) >> (32 - s.right)
	}
	return l<<s.right | r
}

// mix is the round function; the caller uses its upper bits.
func mix(x, key uint32) uint32 {
	x = (x ^ key) * 0x9E3779B1
	return (x ^ x>>15) * 0x85EBCA77
}

// Below is number i of the address as an integer of 0 to n-1: word i times n, the upper half.
func (d Address) Below(i uint32, n int) int {
	w := d.Words(i / 4)
	return int(below(w[i%4], uint32(n)))
}

// below maps a random word to 0 to n-1.
func below(word, n uint32) uint32 {
	hi, _ := bits.Mul32(word, n)
	return hi
}
