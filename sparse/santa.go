package sparse

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// SANTA and S2ANTA (stochastic attention that reads a sample of the values): in
// decode all keys are read and the softmax p is computed, and then S positions
// J are drawn from it; y = (1/S)·Σ v_J, so that V is read where something was
// drawn and nowhere else. With F the running sum of p, draw k of S is the first
// position where F passes
//
//   - sys:   (k + U)/S, one U for all draws;
//   - strat: (k + U_k)/S, a U for each draw;
//   - iid:   U_k.
//
// All are unbiased: the mean over U is attention.
//
// exec=prop is how the kernels of the paper share the samples between tiles:
// alloc=systematic draws as if there were one tile, which is exact and does not
// depend on tiles; alloc=largest_remainder is the paper's, which rounds each
// tile's share to whole samples and is biased by that. exec=flash gives every
// tile max(1, S/tiles) and adds their means up by the tiles' weights: unbiased,
// without a look at all tiles, and it needs more samples.
//
// Differences from the published kernels: random numbers depend on the layer and
// the position, not only on head and tile; counts are differences of one running
// sum, so that they add up to S. share=group uses the same numbers for the heads
// of a kv head: each stays unbiased, and fewer rows of V are read.
//
// scores=bernoulli adds the paper's noise to the scores: feature i of a query q is
// hit by a draw with probability |q_i|/max|q|, and bits draws make an estimate of
// q whose mean is q, with zeros where nothing hit. bernoulli=strat draws one of
// equal shares each time, group=mean_query draws for the heads of a kv head
// together, by the mean of their sizes, and scales each head by its own. The
// scores are right in the mean, their softmax is not. It saves reads only where
// keys are stored by feature, which they are not here: it is an experiment on
// accuracy.
//
// After another system the softmax is over what that one reads, weights
// included, and the mean is that system's output.

// santaOptions are the settings of santa.
type santaOptions struct {
	Samples int    `opt:"samples" unit:"draws" doc:"values drawn for each head; with exec=flash at least one for each tile"`
	Sampler string `opt:"sampler" oneof:"sys strat iid" doc:"one random number for all draws, one for each of equal shares, or independent draws"`
	Exec    string `opt:"exec" oneof:"prop flash" doc:"samples in proportion to the tiles' weights, or the same number for each"`
	Alloc   string `opt:"alloc" oneof:"systematic largest_remainder" doc:"of prop: exact, or whole numbers for each tile"`
	Share   string `opt:"share" oneof:"head group" doc:"random numbers for each query head, or for each kv head"`
	Scores  string `opt:"scores" oneof:"exact bernoulli" doc:"softmax of the scores, or of scores with sampled features of the query"`
	Bits    int    `opt:"bits" unit:"draws" doc:"of scores=bernoulli: draws for each feature"`
	By      string `opt:"bernoulli" oneof:"strat standard" doc:"draws of features in equal shares, or independent ones"`
	Group   string `opt:"group" oneof:"per_head mean_query" doc:"draws of features for each query head, or for the heads of a kv head together"`
	Tile    int    `opt:"tile" unit:"positions" doc:"a multiple of 32; 0 is 32 up to 1536 positions, 64 up to 3072, 256 beyond"`
}

// maxDraws bounds what can be asked for: draws are counted one by one, and more of
// them than a context has positions read nearly everything. Without it a slip of the
// pen would be a step that does not end.
const maxDraws = 1 << 20

// check refuses what cannot be drawn; without a draw every output would be zero.
func (o santaOptions) check() error {
	err := errors.Join(between("samples", o.Samples, 1, maxDraws), between("bits", o.Bits, 1, maxDraws), atLeast("tile", o.Tile, 0))
	if o.Tile%32 != 0 {
		err = errors.Join(err, fmt.Errorf("option tile: %d, want a multiple of 32", o.Tile))
	}
	return err
}

// draws is the options as the operation takes them.
func (o santaOptions) draws(seed uint64) device.ValueDraws {
	d := device.ValueDraws{Draw: rng.Address{Seed: seed}, Samples: o.Samples, Tile: o.Tile, Shared: o.Share == "group"}
	d.Sampler = map[string]device.Sampler{"sys": device.Systematic, "strat": device.Stratified, "iid": device.Independent}[o.Sampler]
	switch {
	case o.Exec == "flash":
		d.Tiles = device.Equal
	case o.Alloc == "largest_remainder":
		d.Tiles = device.Remainder
	}
	return d
}

// features is how the features of queries are drawn; no draws where they are not.
func (o santaOptions) features(seed uint64) device.QueryFeatures {
	if o.Scores == "exact" {
		return device.QueryFeatures{}
	}
	return device.QueryFeatures{Draw: rng.Address{Seed: seed}, Draws: o.Bits, Strata: o.By == "strat", Mean: o.Group == "mean_query"}
}

var santaEntry = entry(Doc{
	Name: "santa", Title: "values sampled by their softmax",
	Source: "SANTA and S2ANTA, stochastic attention by sampling values",
	Stage:  Value, Decode: true, Draws: true,
	Granularity: "positions, per query head",
	Reads:       "all of K that is selected; at most as many rows of V as samples",
	Presets: map[string]string{
		"prop":  "samples=128,alloc=largest_remainder",
		"flash": "samples=2048,exec=flash",
		"gsm8k": "samples=256",
		// the features that the paper reads of keys, as noise
		"bernoulli": "scores=bernoulli,bits=8,group=mean_query",
	},
}, santaOptions{
	Samples: 128, Sampler: "sys", Exec: "prop", Alloc: "systematic", Share: "head",
	Scores: "exact", Bits: 8, By: "strat", Group: "per_head",
}, newSanta)

// santa holds what is drawn.
type santa struct {
	draws    device.ValueDraws
	features device.QueryFeatures
	queries  device.Tensor // f32 [slots, heads, dim]: estimates; absent with scores=exact
	list     device.List   // a group for each slot
}

func newSanta(o santaOptions, env *Env) (Method, error) {
	d := o.draws(env.Seed)
	s := &santa{draws: d, features: o.features(env.Seed), list: env.List(env.Slots, env.Heads, d.MaxPositions(env.MaxLen), true)}
	if s.features.Draws > 0 {
		s.queries = env.Scratch(device.F32, env.Slots, env.Heads, env.HeadDim)
	}
	return s, nil
}

// Name is "santa".
func (*santa) Name() string { return "santa" }

// Decode draws from what the plan reads.
func (s *santa) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	d, list := s.draws, listRows(s.list, p.Rows())
	d.Draw.Layer, d.Requests = uint32(layer), p.Requests
	device.Do(p.Queue, device.Sample{Rule: device.ValueSample, List: list, Q: s.asked(p, layer, q), KV: p.KV(layer), Plan: plan, Draws: d})
	return device.Plan{Span: plan.Span, Selected: device.Tokens, List: list, Mixture: true}
}

// asked is the queries that scores are computed of.
func (s *santa) asked(p *Pass, layer int, q device.Tensor) device.Tensor {
	f := s.features
	if f.Draws == 0 {
		return q
	}
	f.Draw.Layer, f.Requests = uint32(layer), p.Requests
	estimates := s.queries.Rows(0, p.Rows())
	device.Do(p.Queue, device.Sample{Rule: device.QueryFeatureSample, Dst: estimates, Q: q, KV: p.KV(layer), Features: f})
	return estimates
}
