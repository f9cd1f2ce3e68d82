package sparse

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// SANTA and S2ANTA: stochastic attention by sampling values. A decode step computes the
// softmax p over all keys and samples S positions J from it:
//
//	y = (1/S)·Σ v_J
//
// so that only sampled rows of V are read. Sampling inverts the cumulative sum F of p:
// draw k of S is the first position where F exceeds
//
//   - sampler=sys:   (k + U)/S, systematic, one U for all draws;
//   - sampler=strat: (k + U_k)/S, stratified, a U for each draw;
//   - sampler=iid:   U_k, independent.
//
// Each is unbiased: the expectation over U is attention. After another method the softmax
// is over the plan of that method, weights included, and the expectation is its output.
//
// The kernels of the paper split the sequence into tiles:
//   - exec=prop: samples in proportion to the softmax mass of the tiles. alloc=systematic
//     samples as if there were one tile, which is exact and does not depend on tiles;
//     alloc=largest_remainder is the paper's, which rounds the samples of each tile to
//     whole numbers and is biased by that.
//   - exec=flash: max(1, S/tiles) samples in every tile, whose means are combined by the
//     softmax mass of the tiles: unbiased, in one pass over the tiles, with more samples.
//
// Sampled query features. scores=bernoulli estimates q before the scores: a Bernoulli
// draw keeps feature i with probability |q_i|/max|q|, and the mean of bits draws is
// unbiased, with zeros where no draw kept the feature. bernoulli=strat stratifies the
// draws; group=mean_query shares them between the heads of a GQA group, by their mean
// magnitude, and scales each head by its own. The scores are unbiased, their softmax is
// not. It would save reads of K only where keys are stored by feature, which they are not
// here: it is an experiment on accuracy.
//
// Differences from the published kernels:
//   - Random numbers are addressed by layer and position too, not only by head and tile.
//   - Counts are differences of one cumulative sum, so that they add up to S.
//   - share=group uses the same numbers for the heads of a GQA group: each head stays
//     unbiased, and fewer rows of V are read.

// santaOptions are the options of santa.
type santaOptions struct {
	Samples int    `opt:"samples" unit:"draws" doc:"values sampled for each head; with exec=flash at least one for each tile"`
	Sampler string `opt:"sampler" oneof:"sys strat iid" doc:"systematic, stratified or independent draws"`
	Exec    string `opt:"exec" oneof:"prop flash" doc:"samples in proportion to the softmax mass of the tiles, or the same number for each"`
	Alloc   string `opt:"alloc" oneof:"systematic largest_remainder" doc:"of prop: exact, or whole numbers for each tile"`
	Share   string `opt:"share" oneof:"head group" doc:"random numbers for each query head, or for each kv head"`
	Scores  string `opt:"scores" oneof:"exact bernoulli" doc:"softmax of the scores, or of scores with sampled features of the query"`
	Bits    int    `opt:"bits" unit:"draws" doc:"of scores=bernoulli: draws for each feature"`
	By      string `opt:"bernoulli" oneof:"strat standard" doc:"stratified draws of features, or independent ones"`
	Group   string `opt:"group" oneof:"per_head mean_query" doc:"draws of features for each query head, or one for the heads of a kv head"`
	Index   string `opt:"index" oneof:"exact" doc:"draws are by the exact softmax: that of keys in fewer bits would bias the estimate"`
	Tile    int    `opt:"tile" unit:"positions" doc:"a multiple of 32; 0 is 32 up to 1536 positions, 64 up to 3072, 256 beyond"`
}

// maxDraws is the maximum of samples and bits. Draws are computed one by one, and more of
// them than a context has positions read nearly everything.
const maxDraws = 1 << 20

// check refuses options that leave no sample: every output would be zero.
func (o santaOptions) check() error {
	err := errors.Join(between("samples", o.Samples, 1, maxDraws), between("bits", o.Bits, 1, maxDraws), atLeast("tile", o.Tile, 0))
	if o.Tile%32 != 0 {
		err = errors.Join(err, fmt.Errorf("option tile: %d, want a multiple of 32", o.Tile))
	}
	return err
}

// draws is the rule of the call.
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

// features is the rule that samples query features, without draws for exact scores.
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
		// the paper's sampling of features, as noise
		"bernoulli": "scores=bernoulli,bits=8,group=mean_query",
	},
}, santaOptions{
	Samples: 128, Sampler: "sys", Exec: "prop", Alloc: "systematic", Share: "head",
	Scores: "exact", Bits: 8, By: "strat", Group: "per_head", Index: "exact",
}, newSanta)

// santa is the rules and the scratch.
type santa struct {
	draws    device.ValueDraws
	features device.QueryFeatures
	queries  device.Tensor // f32 [slots, heads, dim]: estimates; absent with scores=exact
	list     device.List   // [slots, heads, sampled positions], weighted
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

// Decode samples positions of the plan by their softmax and makes them the plan.
func (s *santa) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	d, list := s.draws, listRows(s.list, p.Rows())
	d.Draw.Layer, d.Requests = uint32(layer), p.Requests
	device.Do(p.Queue, device.Sample{
		Rule: device.ValueSample, List: list, Q: s.estimated(p, layer, q), KV: p.KV(layer), Plan: plan, Draws: d,
	})
	return device.Plan{Span: plan.Span, Selected: device.Tokens, List: list, Mixture: true}
}

// estimated is the queries of the scores: q, or an estimate by sampled features.
func (s *santa) estimated(p *Pass, layer int, q device.Tensor) device.Tensor {
	f := s.features
	if f.Draws == 0 {
		return q
	}
	f.Draw.Layer, f.Requests = uint32(layer), p.Requests
	estimates := s.queries.Rows(0, p.Rows())
	device.Do(p.Queue, device.Sample{Rule: device.QueryFeatureSample, Dst: estimates, Q: q, KV: p.KV(layer), Features: f})
	return estimates
}
