// Package rng makes random numbers by address, as the counter-based generators of JAX or
// cuRAND do, instead of taking the next one of a stream: replaying, batching or splitting work
// changes no number. Every backend has the same generator and gives the same bits.
package rng

import "math/bits"

// Purpose says what a random number is for; it is part of its address, so that
// two uses never see the same numbers.
type Purpose uint32

// The purposes.
const (
	ForToken    Purpose = iota + 1 // sampling the next token
	ForPilot                       // a pilot sample that sizes a budget
	ForKeys                        // sampled keys
	ForValue                       // sampled values
	ForSigns                       // signs and coordinates of a sketch
	ForFeatures                    // features of queries
	ForPlanes                      // planes that codes of keys are made with
)

// Address is the address of a random number. The number depends on the address
// and on nothing else: not on chunks, batches, threads or backends.
type Address struct {
	Seed    uint64
	Request uint32 // 24 bits are used
	Layer   uint32 // 12 bits
	Head    uint32 // 12 bits
	Pos     uint32
	Purpose Purpose // 8 bits
}

// Philox is the counter-based generator Philox4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", 2011): four words of a counter and a key.
func Philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	const m0, m1, w0, w1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
	for range 10 {
		hi0, lo0 := bits.Mul32(m0, ctr[0])
		hi1, lo1 := bits.Mul32(m1, ctr[2])
		ctr = [4]uint32{hi1 ^ ctr[1] ^ key[0], lo1, hi0 ^ ctr[3] ^ key[1], lo0}
		key[0] += w0
		key[1] += w1
	}
	return ctr
}

// Words is block i of the address: four random words. The key is the seed; the counter is
// (i, Pos, Request<<8 | Purpose, Layer<<12 | Head).
func (d Address) Words(i uint32) [4]uint32 {
	ctr := [4]uint32{
		i,
		d.Pos,
		d.Request<<8 | uint32(d.Purpose)&0xff,
		d.Layer<<12 | d.Head&0xfff,
	}
	return Philox(ctr, [2]uint32{uint32(d.Seed), uint32(d.Seed >> 32)})
}

// Uniform is number i of the address: the upper 24 bits of word i, in [0, 1).
func (d Address) Uniform(i uint32) float32 {
	w := d.Words(i / 4)
	return float32(w[i%4]>>8) * (1.0 / (1 << 24))
}
