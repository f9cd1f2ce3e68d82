package device

import (
	"math"

	"github.com/gollm/gollm/device/rng"
)

// Sample makes randomized estimates of attention: a few entries, with weights, stand for all.
// Random numbers are addressed by the row's position and head (package device/rng), so the result
// depends on neither chunks nor batches. Lists of idle slots are left alone.
type Sample struct {
	Rule SampleRule
	List List   // ResidualSample, ValueSample: the sample, with weights; not Plan.List
	Dst  Tensor // QueryFeatureSample: f32 [rows, heads, dim]; not Q
	Q    Tensor // f32 [rows, heads, dim]
	KV   KV
	Plan Plan // no mixture

	Residual Residual      // ResidualSample
	Draws    ValueDraws    // ValueSample
	Features QueryFeatures // QueryFeatureSample
}

// SampleRule is what a [Sample] estimates.
type SampleRule uint8

// The rules of Sample.
const (
	// ResidualSample lists, for each row and head group, what the plan reads of its selected
	// region, with its weights, and a uniform sample of b of the n residual positions with
	// weight n/b each (vAttention, Desai et al. 2025). A residual of one position, and one whose
	// budget is all of it without replacement, is listed whole with weight 1.
	//
	// As many head groups as List has heads. A position that the plan reads for one head of a
	// group is read for all, with the largest weight, and the group uses the largest budget of
	// its heads. Random numbers are addressed by the row's position and, as the head, the head
	// group. For [rng.ForKeys] the elements 0 to b-1 of [rng.Address.Shuffle], or of
	// [rng.Address.Below] with Replace, are the sampled indices of the residual in ascending
	// order; a pilot of its own is sampled for [rng.ForPilot].
	//
	// The plan selects None, Blocks or Tokens; entries of its list that are in its sinks or its
	// recent window belong to those. List has a group for each row.
	ResidualSample SampleRule = iota
	// ValueSample lists, for each row and head, positions sampled in proportion to their softmax
	// over what the plan reads, with their weights in the output (SANTA): a plan of these
	// Tokens as a Mixture estimates the plan's attention. Random numbers are addressed by the
	// row's position, the head (with Shared, the kv head), and [rng.ForValue]: tile t of a
	// systematic sampler uses number t, draw i of the others number i, counted through the
	// tiles. A NaN score has no mass, and a position whose probability underflows f32 is never
	// sampled. List has a group for each row and as many heads as Q.
	ValueSample
	// QueryFeatureSample replaces each query by a sparse unbiased estimate (SANTA's Bernoulli
	// scores); a zero query stays zero. Random numbers are addressed by the row's position, the
	// head (with Mean, the kv head), and [rng.ForFeatures]: draw t of feature i uses number
	// t·dim + i.
	QueryFeatureSample
	numSampleRules
)

var sampleOps = [numSampleRules]string{
	ResidualSample: "Sample(ResidualSample)", ValueSample: "Sample(ValueSample)", QueryFeatureSample: "Sample(QueryFeatureSample)",
}

var kindSample = register[Sample]()

func (*Sample) kind() kind { return kindSample }

func (c *Sample) op() string {
	checkRule("Sample", "rule", c.Rule, numSampleRules)
	return sampleOps[c.Rule]
}

// Check panics unless the operands fit together.
func (c *Sample) Check() {
	op := c.op()
	checkAttend(op, c.Q, c.KV, &c.Plan)
	checkNoMixture(op, &c.Plan)
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	switch c.Rule {
	case ResidualSample:
		CheckRequests(op, c.Residual.Requests, c.KV)
		checkAmount(op, "a pilot", c.Residual.Pilot)
		checkWeighted(op, &c.List, rows, -1)
		if groups := c.List.Index.Dim(1); groups != heads && groups != c.KV.K.Dim(1) {
			Check(false, op, "a list for %d head groups, want one for each of %d heads or %d kv heads", groups, heads, c.KV.K.Dim(1))
		}
		checkRegion(op, &c.Plan)
	case ValueSample:
		d := &c.Draws
		CheckRequests(op, d.Requests, c.KV)
		checkWeighted(op, &c.List, rows, heads)
		checkRule(op, "sampler", d.Sampler, numSamplers)
		checkRule(op, "allotment to tiles", d.Tiles, numTiles)
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
	a.Read(c.Residual.Requests, c.Draws.Requests)
	if c.Rule != ResidualSample || c.Residual.Scored() {
		a.Read(c.KV.K)
	}
	if c.Rule == ResidualSample && c.Residual.Scored() && c.Residual.Values {
		a.Read(c.KV.V)
	}
	c.Plan.access(a)
	c.List.write(a)
}

// Cost is the queries, the keys that are scored, and the lists; of a residual whose
// sample the keys size, the positions that are listed.
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
	if c.Rule == ResidualSample && !c.Residual.Scored() {
		of = 0
	}
	r := s.reads(&plan, c.KV, c.Q.Dim(0), c.Q.Dim(1))
	cost.Bytes += of*c.KV.rowBytes(r.rows) + s.listBytes(&c.List, c.KV, c.Q.Dim(0))
	cost.Ops = 2 * of * r.pairs * int64(c.Q.Dim(2))
	return cost
}

// Residual is the parameters of ResidualSample. The residual is every position that the span lets
// the row see and the plan does not read.
//
// A pilot sample of it estimates the variance of the weights exp(q·k/√dim), and from that follows
// the budget b (vAttention). Weights are relative to the largest one that the
// plan reads or the pilot has; what underflows beside it changes no sum.
type Residual struct {
	Draw     rng.Address // Seed, Request and Layer; the rest is filled in for each row and head group
	Requests Tensor      // i32 [slots]: the Request of each slot; absent: that of Draw for all
	Pilot    Amount      // size of the pilot, a share being of the residual; at least 2. Zero samples nothing
	Eps      float64     // target of the relative error; 0 reads the whole residual
	Z        float64     // Eps in standard deviations: the quantile of the confidence; 0: the sample has the pilot's size, and no key is read

	Values  bool // bound the error of the output, otherwise that of the softmax denominator
	Finite  bool // apply the finite population correction
	Fresh   bool // the pilot is a separate sample, otherwise the first entries of the sample
	Replace bool // sample with replacement; a repeated position is listed once, with weight n/b
	Listed  bool // positions of the plan's list are in the residual too; sampled, they keep their weight
}

// ResidualSpread is what the positions that are read and the pilot say about a row, all weights
// with the same scale.
type ResidualSpread struct {
	Positions int     // of the residual
	Sum       float64 // estimate of the sum of all weights: the softmax denominator
	Var       float64 // variance of the weights of the residual
	Norm      float64 // norm of the estimate of the sum of all weighted values: the numerator
	Trace     float64 // trace of the covariance of the weighted values of the residual
}

// Scored reports whether keys are read to size the sample: otherwise there is none (no pilot), it
// is the whole residual (Eps 0), or it has the size of the pilot (Z 0).
func (t Residual) Scored() bool { return t.Pilot != (Amount{}) && t.Eps > 0 && t.Z > 0 }

// Need is the sample size for an error of Eps, not rounded or bounded:
// (Z·n·√Var/(Sum·Eps))². With Values, Eps is split between numerator and denominator in
// proportion to their relative spreads, so that both need the same size.
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

// Budget is the sample size of a residual of n positions: need rounded up, at least the pilot;
// n, the whole residual, where need is larger or NaN.
func (t Residual) Budget(need float64, n, pilot int) int {
	if t.Eps == 0 || !(need < float64(n)) {
		return n
	}
	return min(n, max(pilot, int(math.Ceil(need))))
}

// PilotSize is the size of the pilot of a residual of n positions, n at least 2.
func (t Residual) PilotSize(n int) int { return min(n, max(2, t.Pilot.Of(n))) }

// ValueDraws is the parameters of ValueSample. A position that is drawn c times has weight
// c/Samples, so the expectation of the estimate is attention.
//
// Draw k of S is the position where the cumulative sum of S·softmax reaches k + u_k, with one
// random u for all draws (Systematic) or one for each (Stratified), or S·u_k (Independent).
//
// The positions that a row reads, in ascending order, are divided into tiles. With Remainder and
// Equal each tile has a number of samples, a cumulative sum and u of its own, so that tiles can
// be processed in parallel.
type ValueDraws struct {
	Draw     rng.Address // Seed, Request and Layer; the rest is filled in for each row and head
	Requests Tensor      // i32 [slots]: the Request of each slot; absent: that of Draw for all
	Samples  int         // S; 0 reads nothing
	Sampler  Sampler
	Tiles    Tiles
	Tile     int  // positions, a multiple of 32; 0: by the number of positions, see [ValueDraws.TileSize]
	Shared   bool // the heads of a kv head use the same random numbers
}

// Sampler is a sampling scheme.
type Sampler uint8

// The samplers.
const (
	Systematic Sampler = iota
	Stratified
	Independent
	numSamplers
)

// Tiles is how samples are allotted to tiles.
type Tiles uint8

// The allotments.
const (
	OneTile Tiles = iota // one cumulative sum over everything
	// Remainder gives each tile floor(Samples·mass), and one more to the tiles with the largest
	// remainders, ties to the first.
	Remainder
	// Equal gives each tile max(1, Samples/tiles); the estimates of the tiles are summed,
	// weighted by their mass.
	Equal
	numTiles
)

// TileSize is the length of the tiles of a row that reads n positions.
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

// MaxPositions is the maximum number of distinct positions sampled by a row that reads up to n.
func (d ValueDraws) MaxPositions(n int) int {
	limit := d.Samples
	if d.Tiles == Equal && n > 0 {
		for _, m := range []int{min(n, 1536), min(n, 3072), n} {
			limit = max(limit, (m+d.TileSize(m)-1)/d.TileSize(m))
		}
	}
	return max(1, min(limit, n))
}

// QueryFeatures is the parameters of QueryFeatureSample. A draw hits feature i of a query q with
// probability |q_i|/norm, norm being max_i |q_i|, and the estimate is norm·sign(q_i)·hits/Draws,
// whose expectation is q_i. Features that no draw hits are 0, and those of keys need not be read.
type QueryFeatures struct {
	Draw     rng.Address // Seed, Request and Layer; the rest is filled in for each row and head
	Requests Tensor      // i32 [slots]: the Request of each slot; absent: that of Draw for all
	Draws    int         // at least 1
	// Strata makes draw t a hit where (t + u)/Draws is below the probability, otherwise where
	// u is: stratified sampling.
	Strata bool
	// Mean samples once for the heads of a kv head, by their mean |q_i|; a head's estimate is
	// then q_i times the estimate of the mean divided by the mean.
	Mean bool
}
