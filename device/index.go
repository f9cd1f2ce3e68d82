package device

import "math"

// What is kept beside the pages to choose by, besides tensors that need no description:
// some channels of keys, the signs of a network, and codes of locality sensitive hashing.

// Channels are the numbers of a vector that its label has. A set is a head, or
// the heads of a kv head.
type Channels struct {
	Index Tensor // i32 [sets, n]: below the length of a head
	// Levels, when above 1, rounds the numbers of a label to so many steps, evenly
	// from its least number to its largest, halves to even.
	Levels int
}

// MaxLayers is the most layers that a [Net] has.
const MaxLayers = 4

// Net is a small network for each set: layers y = x·Wᵀ + b with a function
// between them. Unused layers are absent. The signs of its result are bits: bit
// i%32 of word i/32 says that number i is above zero.
type Net struct {
	Weight [MaxLayers]Tensor // f32 [sets, out, in]
	Bias   [MaxLayers]Tensor // f32 [sets, out]
	Relu   bool              // max(0, y), otherwise y / (1 + exp(-y))
}

// Layers is the number of layers.
func (n Net) Layers() int {
	for i, w := range n.Weight {
		if w.Absent() {
			return i
		}
	}
	return MaxLayers
}

// Bits is how many numbers the network gives.
func (n Net) Bits() int { return n.Weight[n.Layers()-1].Dim(1) }

// Words is how many 32-bit words the signs take.
func (n Net) Words() int { return (n.Bits() + 31) / 32 }

// access adds the tensors of a network, which are read.
func (n *Net) access(a *Access) {
	for i := range n.Layers() {
		a.Read(n.Weight[i], n.Bias[i])
	}
}

// cost is that of the network for some rows of every set.
func (n *Net) cost(rows int) (c Cost) {
	for i := range n.Layers() {
		c.Add(moved(n.Weight[i], n.Bias[i]))
		c.Ops += 2 * int64(rows) * int64(n.Weight[i].Len())
	}
	return c
}

// Hash is codes of stored keys: on which side of planes through a center they
// lie. The planes are cut into tables; two vectors collide in a table when no
// plane of it lies between them, which for random planes has the probability
// (1 - angle/π)^planes.
type Hash struct {
	Planes Tensor // f32 [planes, dim]: normals; those of a table follow each other
	// Codes i32 [slots, kvheads·blocks, 2·planes]: for each block of PageLen
	// positions and each plane 64 bits, the low half first; bit i says that the key
	// at index i is above the plane.
	Codes  Tensor
	Norm   Tensor // f32 [slots, kvheads, width]: length of each key from the center
	Center Tensor // f32 [slots, kvheads, dim]
	Since  Tensor // i32 [slots, 1]: positions that the center may be the mean of
	Done   Tensor // i32 [slots, 1]: positions with codes; 0 has no center yet

	// Sorted, Buckets and Members are the buckets of each table, so that what
	// collides is found without looking at every code; they may be absent. Bit i of
	// a bucket's number is the side of the table's plane i. Positions are counted
	// in runs of HashRun, and numbers are of 16 bits, the low half of an element
	// first. Up to position Sorted a run's part of Members is indices, by bucket and
	// ascending, and Buckets says where each bucket ends; from there on Buckets has
	// 1 + the index of a bucket's newest position, and Members has for a position 1 +
	// the index of the one before it in its bucket; 0 is none.
	Sorted  Tensor // i32 [slots, 1]
	Buckets Tensor // i32 [slots, kvheads·runs, tables·buckets]: of each table ends, then newest
	Members Tensor // i32 [slots, kvheads·tables, width/2, rounded up]

	Tables        int
	MinCollisions int  // tables to collide in: 1 or 2
	Mean          bool // the center is the mean of keys Sink to Since-Recent-1; otherwise, and of none, zero
	Queries       bool // the center is taken from queries, too

	Sink, Recent int
}

// HashRun is how many positions are counted by numbers of 16 bits.
const HashRun = 1 << 15

// MaxBuckets bounds the buckets of a table.
const MaxBuckets = 1 << 12

// Bucketed reports whether positions are in buckets.
func (h Hash) Bucketed() bool { return !h.Buckets.Absent() }

// Bits is the planes of a table.
func (h Hash) Bits() int { return h.Planes.Dim(0) / h.Tables }

// Chance is the probability that vectors with a cosine collide in at least Least
// tables of random planes.
func (h Hash) Chance(cosine float64) float64 {
	angle := math.Acos(max(-1, min(1, cosine)))
	one := power(1-angle/math.Pi, h.Bits())
	if h.MinCollisions == 1 {
		return 1 - power(1-one, h.Tables)
	}
	return 1 - power(1-one, h.Tables-1)*(float64(h.Tables)*one+1-one)
}

// power is x to the n, n at least 0; math.Pow takes four times as long.
func power(x float64, n int) float64 {
	y := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 > 0 {
			y *= x
		}
		x *= x
	}
	return y
}

// minChance is added to probabilities before they divide, so that a position
// that was never likely does not weigh without bound.
const minChance = 1e-4

// Weight is the weight of a position that collided.
func (h Hash) Weight(cosine float64) float32 { return float32(1 / (h.Chance(cosine) + minChance)) }

// access adds what is read of codes and buckets.
func (h *Hash) access(a *Access) {
	a.Read(h.Codes, h.Norm, h.Center, h.Since, h.Done, h.Sorted, h.Buckets, h.Members)
}
