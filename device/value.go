package device

// Draws says how positions are drawn in proportion to their softmax. What is
// drawn c times has weight c/Samples, so that the mean over draws is attention.
//
// With strata, draw k of S is the position where the running sum of S·softmax
// reaches k + u_k: with one u for all draws (Systematic), one for each
// (Stratified), or, without strata, at S·u_k (Independent).
//
// The positions that a row reads, in ascending order, are cut into tiles of Tile.
// Tiles matter where each draws for itself: each has its own share of the
// samples, its own running sum, which ends at that share, and its own u.
type Draws struct {
	Draw    Draw   // Seed, Request and Layer; the rest is filled in for each row and head
	Of      Tensor // i32 [slots]: the Request of each slot; absent is that of Draw for all
	Samples int    // 0 reads nothing
	Sampler Sampler
	Tiles   Tiles
	Tile    int  // positions, a multiple of 32; 0 depends on how many there are, see [Draws.TileOf]
	Shared  bool // the heads of a kv head use the same random numbers
}

// Sampler is a way to draw.
type Sampler uint8

// The samplers.
const (
	Systematic Sampler = iota
	Stratified
	Independent
)

// Tiles is what tiles are for.
type Tiles uint8

// The uses of tiles.
const (
	OneTile Tiles = iota // everything is drawn together
	// Remainder gives each tile the whole part of its share of the samples, and
	// one more to those with the largest remainders, ties to the first.
	Remainder
	// Equal gives each tile max(1, Samples/tiles); their means are added up by
	// the tiles' weights.
	Equal
)

// TileOf is the tile of a row that reads n positions.
func (d Draws) TileOf(n int) int {
	switch {
	case d.Tile > 0:
		return d.Tile
	case n <= 1536:
		return 32
	case n <= 3072:
		return 64
	}
	return 256
}

// Most is how many positions can be drawn by rows that read up to n positions.
func (d Draws) Most(n int) int {
	most := d.Samples
	if d.Tiles == Equal && n > 0 {
		for _, m := range []int{min(n, 1536), min(n, 3072), n} {
			most = max(most, (m+d.TileOf(m)-1)/d.TileOf(m))
		}
	}
	return max(1, min(most, n))
}

// ValueSampler draws the values that are read, in proportion to their weights.
type ValueSampler interface {
	// SampleValues lists, for each row and head, what is drawn of the softmax
	// over what the plan reads, with its weight in the output: a plan of these
	// Tokens as a Mixture is an estimate of the plan's attention. Numbers are
	// addressed by the row's position, the head (with Shared, the kv head), and
	// ForValue: tile t of a systematic sampler has number t, draw i of the others
	// number i, counted through the tiles. A score that is NaN counts nothing, and
	// one whose share is no f32 is never drawn: it would be once in 2^126 draws.
	//
	// l has a group for each row, as many heads as q, weights, and is not p.List;
	// p is not a mixture. q f32 [rows, heads, dim].
	SampleValues(l List, q Tensor, kv KV, p Plan, d Draws)
}

// CheckDraws panics unless the arguments of SampleValues fit together.
func CheckDraws(l List, q Tensor, kv KV, p Plan, d Draws) {
	const op = "SampleValues"
	(&Attend{Dst: q, Q: q, KV: kv, Plan: p}).Check()
	CheckRequests(op, d.Of, kv)
	CheckShape(op, "list", l.Index, I32, q.Dim(0), q.Dim(1), -1)
	CheckShape(op, "list count", l.Count, I32, q.Dim(0), q.Dim(1))
	CheckShape(op, "list weight", l.Weight, F32, q.Dim(0), q.Dim(1), l.Index.Dim(2))
	if d.Samples < 0 || d.Tile%32 != 0 {
		Check(false, op, "%d samples in tiles of %d, want 0 or more in tiles of a multiple of 32", d.Samples, d.Tile)
	}
	if p.Mixture {
		Check(false, op, "a plan that is a mixture, want one whose keys are read")
	}
}
