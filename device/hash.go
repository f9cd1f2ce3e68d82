package device

import "math"

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

	Tables  int
	Least   int  // tables to collide in: 1 or 2
	Mean    bool // the center is the mean of keys Sink to Since-Recent-1; otherwise, and of none, zero
	Queries bool // the center is taken from queries, too

	Sink, Recent int
}

// HashRun is how many positions are counted by numbers of 16 bits.
const HashRun = 1 << 15

// MostBuckets bounds the buckets of a table.
const MostBuckets = 1 << 12

// Bucketed reports whether positions are in buckets.
func (h Hash) Bucketed() bool { return !h.Buckets.Absent() }

// Bits is the planes of a table.
func (h Hash) Bits() int { return h.Planes.Dim(0) / h.Tables }

// Chance is the probability that vectors with a cosine collide in at least Least
// tables of random planes.
func (h Hash) Chance(cosine float64) float64 {
	angle := math.Acos(max(-1, min(1, cosine)))
	one := power(1-angle/math.Pi, h.Bits())
	if h.Least == 1 {
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

// leastChance is added to probabilities before they divide, so that a position
// that was never likely does not weigh without bound.
const leastChance = 1e-4

// Weight is the weight of a position that collided.
func (h Hash) Weight(cosine float64) float32 { return float32(1 / (h.Chance(cosine) + leastChance)) }

// Hasher finds keys that lie where a query does, by codes. Its calls have one
// row for each slot, the newest position.
type Hasher interface {
	// HashKeys makes the codes of the positions that have none, and that of the
	// newest. Without a center it makes that first; a newest position before Since
	// lowers Since to it and starts again.
	HashKeys(h Hash, kv KV)
	// ListCollisions lists for each row and head the positions of the plan's
	// middle that collide with the query in Least tables, with weight 1 / (chance
	// + 1e-4): the sum of their weighted exponentials is that of the middle in the
	// mean over planes, but for the 1e-4. A vector of length zero has cosine 0
	// with any, and a key that is not finite is never listed. l has a group for each row, as many heads as q, and weights.
	// q f32 [slots, heads, dim].
	ListCollisions(l List, h Hash, q Tensor, kv KV, p Plan)
}

// CheckHash panics unless the tensors of h belong together and to kv.
func CheckHash(op string, h Hash, kv KV) {
	CheckKV(op, kv)
	slots, kvHeads, dim := kv.Len.Dim(0), kv.K.Dim(1), kv.K.Dim(3)
	CheckShape(op, "planes", h.Planes, F32, -1, dim)
	planes := h.Planes.Dim(0)
	if h.Tables < 1 || planes%max(h.Tables, 1) != 0 || h.Least < 1 || h.Least > 2 {
		Check(false, op, "%d planes in %d tables, at least %d collisions, want whole tables and 1 or 2", planes, h.Tables, h.Least)
	}
	CheckShape(op, "codes", h.Codes, I32, slots, -1, 2*planes)
	if h.Codes.Dim(1)%kvHeads != 0 {
		Check(false, op, "codes %v for %d kv heads", h.Codes, kvHeads)
	}
	CheckShape(op, "norm", h.Norm, F32, slots, kvHeads, -1)
	CheckShape(op, "center", h.Center, F32, slots, kvHeads, dim)
	CheckShape(op, "since", h.Since, I32, slots, 1)
	CheckShape(op, "done", h.Done, I32, slots, 1)
	if !h.Bucketed() {
		return
	}
	buckets, width := 1<<h.Bits(), h.Norm.Dim(2)
	if h.Bits() > 12 {
		Check(false, op, "%d planes in a table, want at most 12 for %d buckets", h.Bits(), MostBuckets)
	}
	runs := (width + HashRun - 1) / HashRun
	CheckShape(op, "sorted", h.Sorted, I32, slots, 1)
	CheckShape(op, "buckets", h.Buckets, I32, slots, kvHeads*runs, h.Tables*buckets)
	CheckShape(op, "members", h.Members, I32, slots, kvHeads*h.Tables, (width+1)/2)
}

// CheckCollisions panics unless the arguments of ListCollisions fit together.
func CheckCollisions(l List, h Hash, q Tensor, kv KV, p Plan) {
	const op = "ListCollisions"
	CheckHash(op, h, kv)
	(&Attend{Dst: q, Q: q, KV: kv, Plan: p}).Check()
	rows, heads := q.Dim(0), q.Dim(1)
	CheckShape(op, "q", q, F32, kv.Len.Dim(0), heads, -1)
	CheckShape(op, "list", l.Index, I32, rows, heads, -1)
	CheckShape(op, "list count", l.Count, I32, rows, heads)
	CheckShape(op, "list weight", l.Weight, F32, rows, heads, l.Index.Dim(2))
	checkMiddle(op, p)
}
