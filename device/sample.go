package device

import (
	"math"

	"github.com/gollm/gollm/device/rng"
)

// Sample draws what stands for more than is read, by random numbers that are addressed by
// the row's position and its head. Rule says what is drawn.
type Sample struct {
	Rule SampleRule
	List List   // ResidualSample, ValueSample: what was drawn, with weights; not Plan.List
	Dst  Tensor // QueryFeatureSample: f32 [rows, heads, dim]; not Q
	Q    Tensor // f32 [rows, heads, dim]
	KV   KV
	Plan Plan // no mixture

	Residual Residual      // ResidualSample
	Draws    ValueDraws    // ValueSample
	Features QueryFeatures // QueryFeatureSample
}

// SampleRule is what a [Sample] draws.
type SampleRule uint8

// The rules of Sample.
const (
	// ResidualSample lists, for each row and set, the fixed positions between the plan's sinks
	// and its recent window with their weights and a sample of the tail with weight n/b
	// (vAttention). A tail of one position, and one whose budget is all of it without
	// replacement, is listed whole with weight 1.
	//
	// A set is a query head, or the heads of a kv head together: as many as List has heads.
	// What is fixed for one head of a set is fixed for all, with the largest weight, and the
	// largest budget of its heads is used. Draws are addressed by the row's position and, as
	// the head, the set: for ForKeys the elements 0 to b-1 of [Draw.Shuffle], or of
	// [Draw.Below] with Replace, are the indices of the sample in the ascending tail; a pilot
	// of its own is drawn for ForPilot.
	//
	// The plan reads None, Blocks or Tokens in its middle; entries of its list that lie in its
	// sinks or its recent window are of these. List has a group for each row.
	ResidualSample SampleRule = iota
	// ValueSample lists, for each row and head, what is drawn of the softmax over what the
	// plan reads, with its weight in the output (SANTA): a plan of these Tokens as a Mixture
	// is an estimate of the plan's attention. Numbers are addressed by the row's position, the
	// head (with Shared, the kv head), and ForValue: tile t of a systematic sampler has number
	// t, draw i of the others number i, counted through the tiles. A score that is NaN counts
	// nothing, and one whose share is no f32 is never drawn: it would be once in 2^126 draws.
	// List has a group for each row and as many heads as Q.
	ValueSample
	// QueryFeatureSample replaces the queries of each row by estimates (SANTA's Bernoulli scores);
	// a query of zeros stays one. Numbers are addressed by the row's position, the head (with
	// Mean, the kv head), and ForFeatures: draw t of feature i has number t·dim + i.
	QueryFeatureSample
	numSampleRules
)

var sampleOps = [numSampleRules]string{
	ResidualSample: "Sample(ResidualSample)", ValueSample: "Sample(ValueSample)", QueryFeatureSample: "Sample(QueryFeatureSample)",
}

func (*Sample) kind() kind   { return kindSample }
func (c *Sample) op() string { return sampleOps[c.Rule] }

// Check panics unless the operands fit together.
func (c *Sample) Check() {
	op := c.op()
	checkAttend(op, c.Q, c.KV, &c.Plan)
	checkKeysAreRead(op, &c.Plan)
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	switch c.Rule {
	case ResidualSample:
		CheckRequests(op, c.Residual.Requests, c.KV)
		checkWeighted(op, &c.List, rows, -1)
		if sets := c.List.Index.Dim(1); sets != heads && sets != c.KV.K.Dim(1) {
			Check(false, op, "a list for %d head groups, want one for each of %d heads or %d kv heads", sets, heads, c.KV.K.Dim(1))
		}
		checkMiddle(op, &c.Plan)
	case ValueSample:
		d := &c.Draws
		CheckRequests(op, d.Requests, c.KV)
		checkWeighted(op, &c.List, rows, heads)
		if d.Samples < 0 || d.Tile%32 != 0 {
			Check(false, op, "%d samples in tiles of %d, want 0 or more in tiles of a multiple of 32", d.Samples, d.Tile)
		}
	case QueryFeatureSample:
		CheckLike(op, "dst", c.Dst, c.Q)
		CheckRequests(op, c.Features.Requests, c.KV)
		if c.Features.Draws < 1 {
			Check(false, op, "%d draws, want at least 1", c.Features.Draws)
		}
	}
}

// Access names what is read and written.
func (c *Sample) Access(a *Access) {
	a.Read(c.Q, c.KV.Pages, c.KV.Len)
	if c.Rule == QueryFeatureSample {
		a.Read(c.Features.Requests)
		a.Write(c.Dst)
		return
	}
	a.Read(c.KV.K, c.Residual.Requests, c.Draws.Requests)
	if c.Rule == ResidualSample && c.Residual.Values {
		a.Read(c.KV.V)
	}
	c.Plan.access(a)
	c.List.write(a)
}

// Cost is the queries, the keys whose scores are made, and the lists: of a tail those that
// are listed in the end.
func (c *Sample) Cost(s Stored) Cost {
	cost := moved(c.Q, c.Dst)
	if c.Rule == QueryFeatureSample {
		return cost
	}
	plan, of := c.Plan, int64(1)
	if c.Rule == ResidualSample {
		plan.Selected, plan.List = Tokens, c.List
		if c.Residual.Values {
			of = 2
		}
	}
	r := s.reads(&plan, c.KV, c.Q.Dim(0), c.Q.Dim(1))
	cost.Bytes += of*c.KV.rowBytes(r.rows) + s.listBytes(&c.List, c.KV, c.Q.Dim(0))
	cost.Ops = 2 * of * r.pairs * int64(c.Q.Dim(2))
	return cost
}

// Tail says how positions that a plan leaves out are sampled, so that a few of
// them stand for all. What is read whatever the sample says is fixed: it is what
// the plan reads. The tail is what the span lets the row see besides.
//
// A pilot sample of the tail says how far its weights exp(q·k/√dim) are spread,
// and that how large the sample must be. A sample of b of n positions is read
// with weight n/b, so that the sums over the fixed positions and the sample
// estimate those over everything. Weights are relative to the largest that is fixed or in
// the pilot: one that is too small to be counted beside it moves no sum.
type Residual struct {
	Draw     rng.Address // Seed, Request and Layer; the rest is filled in for each row and set
	Requests Tensor      // i32 [slots]: the Request of each slot; absent is that of Draw for all
	Pilot    Amount      // size of the pilot, a share being of the tail; at least 2. Zero samples nothing
	Eps      float64     // relative error aimed at; 0 reads the whole tail
	Z        float64     // how many standard deviations Eps is

	Values  bool // aim at the error of the output, otherwise at that of the sum of weights
	Finite  bool // count on the tail being finite: a smaller sample
	Fresh   bool // the pilot is a sample of its own, otherwise the first of the sample
	Replace bool // draw with replacement; what is drawn twice is read once, with weight n/b
	Listed  bool // positions on the plan's list are of the tail too; drawn, they keep their weight
}

// Spread is what the fixed positions and a pilot say about a row's sums. All
// weights are relative to one and the same.
type ResidualSpread struct {
	Positions int     // positions of the tail
	Sum       float64 // estimate of the sum of all weights
	Var       float64 // variance of the weights of the tail
	Norm      float64 // length of the estimate of the sum of all weighted values
	Trace     float64 // sum over dimensions of the variance of weighted values of the tail
}

// Need is the size of the sample for an error of Eps, before it is rounded and
// bounded. With Values half the error is for the sum of values and half for the
// sum of weights, split in proportion to their relative spreads, so that both
// need the same.
func (t Residual) Need(s ResidualSpread) float64 {
	n := float64(s.Positions)
	spread, eps := n*math.Sqrt(s.Var)/s.Sum, t.Eps
	if t.Values {
		spread += n * math.Sqrt(s.Trace) / s.Norm
		eps /= 2
	}
	if spread == 0 && eps > 0 {
		return 0
	}
	need := t.Z * spread / eps
	need *= need
	if t.Finite {
		need /= 1 + need/n
	}
	return need
}

// Budget is the size of the sample of a tail of n positions with a pilot: n, the
// whole tail, where the need is larger or is no number.
func (t Residual) Budget(need float64, n, pilot int) int {
	if t.Eps == 0 || !(need < float64(n)) {
		return n
	}
	return min(n, max(pilot, int(math.Ceil(need))))
}

// PilotOf is the size of the pilot of a tail of n positions, n at least 2.
func (t Residual) PilotSize(n int) int { return min(n, max(2, t.Pilot.Of(n))) }

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
type ValueDraws struct {
	Draw     rng.Address // Seed, Request and Layer; the rest is filled in for each row and head
	Requests Tensor      // i32 [slots]: the Request of each slot; absent is that of Draw for all
	Samples  int         // 0 reads nothing
	Sampler  Sampler
	Tiles    Tiles
	Tile     int  // positions, a multiple of 32; 0 depends on how many there are, see [ValueDraws.TileSize]
	Shared   bool // the heads of a kv head use the same random numbers
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
func (d ValueDraws) TileSize(n int) int {
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
func (d ValueDraws) MaxPositions(n int) int {
	most := d.Samples
	if d.Tiles == Equal && n > 0 {
		for _, m := range []int{min(n, 1536), min(n, 3072), n} {
			most = max(most, (m+d.TileSize(m)-1)/d.TileSize(m))
		}
	}
	return max(1, min(most, n))
}

// Features says how the features of a query are sampled. Feature i of a query q
// is hit by a draw with probability |q_i|/norm, norm being its largest size, and
// becomes norm·sign(q_i)·hits/Draws. The mean over draws is q. Features that no
// draw hits are zero, and need not be read of the keys.
type QueryFeatures struct {
	Draw     rng.Address // Seed, Request and Layer; the rest is filled in for each row and head
	Requests Tensor      // i32 [slots]: the Request of each slot; absent is that of Draw for all
	Draws    int         // at least 1
	// Strata counts a hit where (t + u)/Draws is below the probability, t being
	// the number of the draw; otherwise where u is.
	Strata bool
	// Mean draws for the heads of a kv head together, by the mean of their sizes;
	// each head's feature is then its own times the estimate over that mean.
	Mean bool
}
