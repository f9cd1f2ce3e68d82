package device

import "math"

// Indexes of keys that are more than one tensor: labels of selected channels, bit codes of a
// network, and LSH codes with hash tables.

// Channels selects the channels of a label (Double Sparsity).
type Channels struct {
	Index Tensor // i32 [head groups, n]: channels, below the head dimension; others give 0
	// Levels, when above 1, quantizes a label to that many levels, evenly spaced from its
	// minimum to its maximum, ties to even.
	Levels int
}

// MirrorWords is the number of 32-bit words that [KeyMirror] keeps of a key of dim elements, dim a
// multiple of 8: its elements in bits (8 or 4) each, and a scale.
func MirrorWords(dim, bits int) int { return dim*bits/32 + 1 }

// MirrorBits is the bits of an element of a key of dim elements that takes words, 0 where there
// is no such mirror.
func MirrorBits(dim, words int) int {
	for _, bits := range []int{8, 4} {
		if dim > 0 && dim%8 == 0 && words == MirrorWords(dim, bits) {
			return bits
		}
	}
	return 0
}

// MirrorBlock is the length of the blocks in which keys of dim elements are rotated: the largest
// power of two that divides dim.
func MirrorBlock(dim int) int { return dim & -dim }

// MaxLayers is the maximum number of layers of a [Net].
const MaxLayers = 4

// Net is a small MLP for each head group: layers y = x·Wᵀ + b with an activation between them.
// Unused layers are absent. Its bit code has bit i%32 of word i/32 set where output i is above
// zero (HashAttention).
type Net struct {
	Weight [MaxLayers]Tensor // f32 [head groups, out, in]
	Bias   [MaxLayers]Tensor // f32 [head groups, out]
	Relu   bool              // activation max(0, y), otherwise y / (1 + exp(-y))
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

// Bits is the number of outputs: the length of the bit code.
func (n Net) Bits() int { return n.Weight[n.Layers()-1].Dim(1) }

// Words is the number of 32-bit words of a bit code.
func (n Net) Words() int { return (n.Bits() + 31) / 32 }

// access adds the tensors of a network as read.
func (n *Net) access(a *Access) {
	for i := range n.Layers() {
		a.Read(n.Weight[i], n.Bias[i])
	}
}

// cost is that of rows evaluations for every head group.
func (n *Net) cost(rows int) (c Cost) {
	for i := range n.Layers() {
		c.Add(moved(n.Weight[i], n.Bias[i]))
		c.Ops += 2 * int64(rows) * int64(n.Weight[i].Len())
	}
	return c
}

// Hash is SimHash codes of the stored keys (MagicPIG): for each key the side it is on of random
// hyperplanes through a center. The planes are divided into tables; two vectors collide in a table
// if they are on the same side of all its planes, with probability (1 - angle/π)^planes.
type Hash struct {
	Planes Tensor // f32 [planes, dim]: normals, table after table
	// Codes i32 [slots, kvheads·blocks, 2·planes]: for each block of PageLen positions and each
	// plane 64 bits, low half first; bit i is set if the key at index i is above the plane.
	Codes  Tensor
	Norm   Tensor // f32 [slots, kvheads, width]: distance of each key from the center
	Center Tensor // f32 [slots, kvheads, dim]
	Since  Tensor // i32 [slots, 1]: the center is the mean of keys before this position
	Done   Tensor // i32 [slots, 1]: positions that have codes; 0: there is no center yet

	// Sorted, Buckets and Members are hash tables, which find collisions without reading every
	// code; they may be absent. Bit i of a bucket's number is the side of the table's plane i.
	// Positions are in runs of HashRun, so that indices in a run have 16 bits, two in an element,
	// low half first. Before position Sorted, Members has the indices of a run sorted by bucket,
	// ascending in each, and Buckets the end of each bucket (a counting sort). From there on they
	// are linked lists: Buckets has 1 + the index of the newest position of a bucket, and Members,
	// for each position, 1 + the index of the one before it; 0 ends a list. A backend may leave these
	// lists out, and compare the codes of the positions from Sorted on.
	Sorted  Tensor // i32 [slots, 1]
	Buckets Tensor // i32 [slots, kvheads·runs, tables·buckets]: for each table the ends, then the newest
	Members Tensor // i32 [slots, kvheads·tables, ceil(width/2)]

	Tables        int
	MinCollisions int  // tables that a position must collide in: 1 or 2
	Mean          bool // the center is the mean of keys Sink to Since-Recent-1; otherwise, and if there are none, zero
	Queries       bool // the center is subtracted from queries too

	Sink, Recent int
}

// HashRun is the number of positions of a run.
const HashRun = 1 << 15

// MaxBuckets is the maximum number of buckets of a table.
const MaxBuckets = 1 << 12

// Bucketed reports whether there are hash tables.
func (h *Hash) Bucketed() bool { return !h.Buckets.Absent() }

// Bits is the number of planes of a table.
func (h *Hash) Bits() int { return h.Planes.Dim(0) / h.Tables }

// Chance is the probability that vectors with a cosine collide in at least MinCollisions tables
// of random planes.
func (h *Hash) Chance(cosine float64) float64 {
	angle := math.Acos(max(-1, min(1, cosine)))
	one := power(1-angle/math.Pi, h.Bits())
	if h.MinCollisions == 1 {
		return 1 - power(1-one, h.Tables)
	}
	return 1 - power(1-one, h.Tables-1)*(float64(h.Tables)*one+1-one)
}

// power is x to the n, n at least 0, four times as fast as math.Pow.
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

// minChance is added to a probability before it is inverted, which bounds the importance weight of
// an unlikely collision.
const minChance = 1e-4

// Weight is the importance weight of a position that collided.
func (h *Hash) Weight(cosine float64) float32 { return float32(1 / (h.Chance(cosine) + minChance)) }

// access adds codes and hash tables as read.
func (h *Hash) access(a *Access) {
	a.Read(h.Codes, h.Norm, h.Center, h.Since, h.Done, h.Sorted, h.Buckets, h.Members)
}
