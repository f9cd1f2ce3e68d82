package sparse

import (
	"errors"
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// Sketch&Walk: training-free sparse attention by sketches and walks. Blocks of 64
// positions are scored by sketches, low-dimensional random projections of the blocks' mean
// query and mean key over all heads, and the scores of all sparse layers up to this one are
// chained as a walk over blocks. With sketches q̃, k̃ of r numbers and exponent s:
//
//  1. Sketch: q̃_i, k̃_j of the mean query and key of each block.
//  2. Score: Â_ij = q̃_i·k̃_j / √r,   W_ij = Â_ij^s
//  3. Walk: R_l = R_(l-1)·W_l, and R = W in the first layer of the walk.
//  4. Select: the rows of block i read block 0, block i, and the blocks j with the
//     largest R_ij.
//
// In decode, q̃_i is the sketch of the current position's query. Layers 0 and 1 are dense.
//
// Row i of ln|Â| is stored beside the page of block i, so that a decode step computes one
// row. arith=scaled rescales rows of R only: in float64 Â needs no scale, and a scale does
// not change the selection.
//
// Differences from the paper, each with the option that undoes it:
//   - W is lower triangular, so that the walk is causal and the selection does not depend
//     on prefill chunks (causal).
//   - R is stored as logarithms: products over 30 layers underflow float32 (arith).
//   - The budget is a share of each row's own blocks, not of the prompt's (budget).
//   - Means divide by the positions that a block has; a block that decode completes is
//     represented by its mean, not by its last query (row).
//   - Decode always reads block 0 and as many blocks as prefill would (forced).
//   - The walk begins at the first sparse layer (walk_start).

// sketchwalkOptions are the options of sketchwalk.
type sketchwalkOptions struct {
	Density  float64 `opt:"density" unit:"share of blocks" doc:"how much each row reads, at least two blocks"`
	Tau      int     `opt:"tau" unit:"blocks" doc:"number of blocks that each row reads; 0 is by density"`
	Exponent int     `opt:"exponent" doc:"power s that sharpens the scores of blocks"`
	Width    int     `opt:"r" unit:"numbers" doc:"length of a sketch, at most the head dimension rounded up to a power of two"`
	Seed     int     `opt:"seed" doc:"added to the seed of the run for the random projection of the sketch"`
	Causal   string  `opt:"causal" oneof:"tri none" doc:"mask of the walk; none needs the whole prompt at once"`
	Power    string  `opt:"power" oneof:"elementwise matrix" doc:"what the exponent is a power of"`
	Score    string  `opt:"score" oneof:"raw relu softmax" doc:"function of the products of sketches before the power"`
	Walk     string  `opt:"walk" oneof:"product onehop" doc:"whether scores are chained over layers; onehop is the control"`
	Start    string  `opt:"walk_start" oneof:"first_sparse 0" doc:"the layer where the walk begins"`
	Arith    string  `opt:"arith" oneof:"log scaled" doc:"logarithms, or signed float64 with rows scaled"`
	Sketch   string  `opt:"sketch" oneof:"srht hadamard_prefix exact" doc:"projection of the means; exact keeps them whole"`
	Budget   string  `opt:"budget" oneof:"row total" doc:"density of each row's blocks, or of the prompt's"`
	Forced   string  `opt:"forced" oneof:"first_current literal" doc:"in decode: first and own block within the budget, or own block besides one less"`
	Row      string  `opt:"row" oneof:"blockmean last_token" doc:"query of a block that decode completed"`
	Diag     string  `opt:"diag" oneof:"token blockmean" doc:"query that scores the own block in decode"`
	Heads    string  `opt:"heads" oneof:"mean_qk mean_score each" doc:"average queries and keys over heads, the products of heads, or what score makes of the products of each query head"`

	Dense       int           `opt:"dense" unit:"layers" doc:"first layers that are dense"`
	Sink        device.Amount `opt:"sink" unit:"blocks or share of them" doc:"first blocks that each row reads, within density; at least one"`
	Recent      device.Amount `opt:"recent" unit:"blocks or share of them" doc:"blocks up to its own that each row reads, within density; at least one"`
	Last        int           `opt:"last" unit:"blocks" doc:"blocks at the end of a prompt whose rows read everything"`
	Query       string        `opt:"query" oneof:"token block" doc:"query of a decode step's row: its own, or the mean of those of its block so far"`
	Temperature float64       `opt:"temperature" doc:"what products are divided by before score=softmax"`
	Damping     float64       `opt:"damping" doc:"part of a row that is the walk so far, the rest being the layer's own scores; 1 is only the walk"`
	Steps       int           `opt:"steps" doc:"steps of a damped walk in each layer"`
}

func (o sketchwalkOptions) check() error {
	err := errors.Join(atLeast("tau", o.Tau, 0), atLeast("r", o.Width, 1), atLeast("seed", o.Seed, 0))
	if o.Tau == 1 {
		err = errors.Join(err, errors.New("option tau: 1, want 0 or at least 2: the first and the row's own block"))
	}
	if !(o.Density > 0 && o.Density <= 1) {
		err = errors.Join(err, fmt.Errorf("option density: %v, want more than 0 and at most 1", o.Density))
	}
	if o.Exponent < 1 || o.Exponent > 32 {
		err = errors.Join(err, fmt.Errorf("option exponent: %d, want 1 to 32", o.Exponent))
	}
	if o.Score == "raw" && o.Arith == "log" && (o.Exponent%2 == 1 || o.Power == "matrix") {
		err = errors.Join(err, errors.New("an odd exponent and power=matrix keep the signs of scores, which logarithms cannot: add arith=scaled, or score=relu"))
	}
	return errors.Join(err, o.checkEdges(), o.checkDamping())
}

// checkEdges checks what is read besides the best blocks.
func (o sketchwalkOptions) checkEdges() error {
	err := errors.Join(atLeast("dense", o.Dense, 0), atLeast("last", o.Last, 0))
	if edge := (device.Amount{Count: 1}); o.Forced == "literal" && (o.Sink != edge || o.Recent != edge) {
		err = errors.Join(err, errors.New("options sink and recent: forced=literal reads only its own block always; leave them out, or forced=literal"))
	}
	return err
}

// checkDamping checks the options of a damped walk and the temperature.
func (o sketchwalkOptions) checkDamping() error {
	var err error
	if !(o.Temperature > 0) || math.IsInf(o.Temperature, 1) {
		err = fmt.Errorf("option temperature: %v, want a number above 0", o.Temperature)
	} else if o.Temperature != 1 && o.Score != "softmax" {
		err = fmt.Errorf("option temperature: it is that of score=softmax, and score=%s has none", o.Score)
	}
	if !(o.Damping > 0 && o.Damping <= 1) {
		err = errors.Join(err, fmt.Errorf("option damping: %v, want above 0 and at most 1", o.Damping))
	}
	if o.Steps < 1 || o.Steps > 16 {
		err = errors.Join(err, fmt.Errorf("option steps: %d, want 1 to 16", o.Steps))
	}
	if o.Steps > 1 && o.Damping == 1 {
		err = errors.Join(err, errors.New("option steps: it is of a damped walk; give damping below 1, too, or power=matrix"))
	}
	if o.Damping < 1 && o.Power == "matrix" {
		err = errors.Join(err, errors.New("option damping: power=matrix has its own steps; leave one of them out"))
	}
	return err
}

// reach: the rows of a block share what they read; without causality the prompt does, and what
// counts from the end of the prompt depends on it.
func (o sketchwalkOptions) reach() (unit int, end bool) {
	return device.PageLen, o.Causal == "none" || o.Last > 0 || o.Budget == "total" && o.Tau == 0
}

// whole reports whether a prompt must be prefilled in one pass.
func (o sketchwalkOptions) whole() bool { return o.Causal == "none" }

var sketchwalkEntry = entry(Doc{
	Name: "sketchwalk", Title: "blocks found by sketches and a walk over the layers",
	Source: "Sketch&Walk: training-free sparse attention by sketches and walks; steps A to I of docs/attention/sketchwalk.md",
	Stage:  Select, Prefill: true, Decode: true, Observes: true, Draws: true,
	Granularity: "blocks of 64 positions, the same for all heads; layers 0 and 1 are dense",
	Reads:       "density of K and V; to select, a step reads 2·b² bytes a layer for b blocks, a prompt adds b³/6 terms",
	Presets: map[string]string{
		"paper": "density=0.2," + sketchwalkPaper, "paper-80": "density=0.2," + sketchwalkPaper, "paper-90": "density=0.1," + sketchwalkPaper,
		"best": "density=0.2,last=4,heads=each,score=softmax,temperature=0.78,exponent=1,r=128,damping=0.25,steps=3",
		"code": "density=0.2,sink=0.025,recent=0.05,last=4,heads=each,score=softmax,temperature=0.78,exponent=1,r=128,damping=0.25,steps=3,query=block",
	},
}, sketchwalkOptions{
	Density: 0.2, Exponent: 8, Width: 64, Causal: "tri", Power: "elementwise", Score: "raw", Walk: "product",
	Start: "first_sparse", Arith: "log", Sketch: "srht", Budget: "row", Forced: "first_current",
	Row: "blockmean", Diag: "token", Heads: "mean_qk",
	Dense: denseLayers, Sink: device.Amount{Count: 1}, Recent: device.Amount{Count: 1}, Query: "token", Temperature: 1, Damping: 1, Steps: 1,
}, newSketchwalk)

// sketchwalkPaper is the reading of the paper's text, see docs/attention/sketchwalk.md.
const sketchwalkPaper = "score=raw,exponent=8,heads=mean_qk,walk=product,r=64"

// forms are the values of the option score.
var forms = map[string]device.ProductForm{"raw": device.Raw, "relu": device.Relu, "softmax": device.Softmax}

// rowUnit is the multiple to which rows of block scores are padded, so that each is
// aligned to 32 bytes.
const rowUnit = 8

// denseLayers is how many first layers are dense, in quest and by default here.
const denseLayers = 2

// sketchwalk is the method's state and scratch.
type sketchwalk struct {
	sketchwalkOptions
	basis device.Tensor // f32 [r, dim]

	// Beside each page, for the mean of all heads, or of each kv head, or queries for each head.
	sums  [2]device.Tensor // f32 [pages, heads, dim]: of keys, of queries
	keys  device.Tensor    // f32 [pages, heads, r]: sketch of the mean key
	rows  device.Tensor    // f32 [pages, heads, r]: sketch of the block's query
	own   device.Tensor    // f32 [pages, heads, r]: sketch of the mean query, for diag=blockmean
	pairs device.Tensor    // f32 [pages, blocks]: scores of blocks; causal=none: scratch [slots, blocks, blocks]

	product device.SketchProduct

	walk [2]device.Tensor // R of even and odd layers: f32 [rows, blocks], or i32 [rows, 2·blocks]
	list device.List      // [blocks of rows, 1, blocks]: for all heads
}

func newSketchwalk(o sketchwalkOptions, env *Env) (Method, error) {
	heads, blocks := [2]int{1, 1}, env.MaxBlocks()
	switch o.Heads {
	case "mean_score":
		heads = [2]int{env.KVHeads, env.KVHeads}
	case "each":
		heads = [2]int{env.KVHeads, env.Heads}
	}
	s := &sketchwalk{sketchwalkOptions: o}
	draw := rng.Address{Seed: env.Seed + uint64(o.Seed), Purpose: rng.ForSigns}
	basis, width := sketchBasis(o.Sketch, env.HeadDim, o.Width, draw)
	s.basis = env.Floats(basis, width, env.HeadDim)
	for i := range s.sums {
		s.sums[i] = env.PageState(device.F32, heads[i], env.HeadDim)
	}
	s.keys, s.rows = env.PageState(device.F32, heads[0], width), env.PageState(device.F32, heads[1], width)
	if o.Diag == "blockmean" {
		s.own = env.PageState(device.F32, heads[1], width)
	}
	s.product = device.SketchProduct{Form: forms[o.Score], Log: o.Arith == "log", Temperature: o.Temperature, Each: o.Heads == "each", Own: s.own}
	blocks = (blocks + rowUnit - 1) / rowUnit * rowUnit
	if o.Causal == "none" {
		s.pairs = env.Scratch(device.F32, env.Slots, blocks, blocks)
	} else {
		s.pairs = env.PageState(device.F32, blocks)
	}
	n := max(env.Slots, env.Rows/device.PageLen+2) // a pass that starts and ends inside a block
	for i := range s.walk {
		if o.Arith == "scaled" {
			s.walk[i] = env.Scratch(device.I32, n, 2*blocks)
		} else {
			s.walk[i] = env.Scratch(device.F32, n, blocks)
		}
	}
	s.list = env.List(n, 1, blocks, false)
	s.list.Group = device.PageLen
	return s, nil
}

// Name is "sketchwalk".
func (*sketchwalk) Name() string { return "sketchwalk" }

// start is the first layer of the walk.
func (s *sketchwalk) start() int {
	if s.Start == "0" {
		return 0
	}
	return s.Dense
}

// Observe sketches and scores the blocks of the pass (steps 1 and 2). In decode a block is
// scored by the query of the current position unless query=block, and stored by its mean query.
func (s *sketchwalk) Observe(p *Pass, layer int, q, k device.Tensor) {
	if layer < s.start() {
		return
	}
	kv, n := p.KV(layer), p.NewRows()
	device.Do(p.Queue, device.Summarize{Rule: device.SumBlocks, Dst: s.sums[0], X: k, KV: kv})
	device.Do(p.Queue, device.Summarize{Rule: device.SumBlocks, Dst: s.sums[1], X: q, KV: kv})
	device.Do(p.Queue, device.Summarize{Rule: device.ProjectMeans, Dst: s.keys, X: s.sums[0], Basis: s.basis, KV: kv, Rows: n})
	if !s.own.Absent() {
		device.Do(p.Queue, device.Summarize{Rule: device.ProjectMeans, Dst: s.own, X: s.sums[1], Basis: s.basis, KV: kv, Rows: n})
	}
	byToken := p.Decode && s.Query == "token"
	if byToken {
		device.Do(p.Queue, device.Summarize{Rule: device.ProjectRows, Dst: s.rows, X: q, Basis: s.basis, KV: kv})
	} else {
		device.Do(p.Queue, device.Summarize{Rule: device.ProjectMeans, Dst: s.rows, X: s.sums[1], Basis: s.basis, KV: kv, Rows: n})
	}
	device.Do(p.Queue, device.Score{Rule: device.SketchScores, Dst: s.pairsOf(p), Q: s.rows, Keys: s.keys, KV: kv, Rows: n, Product: s.product})
	if byToken && s.Row == "blockmean" {
		device.Do(p.Queue, device.Summarize{Rule: device.ProjectMeans, Dst: s.rows, X: s.sums[1], Basis: s.basis, KV: kv, Rows: n})
	}
}

// Prefill lists the blocks that each block of rows reads.
func (s *sketchwalk) Prefill(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	budget := device.BlockBudget{Count: s.Tau, Share: s.Density, Span: plan.Span, First: s.Sink, Last: s.Recent}
	blocks, all := (p.First+p.Rows()+device.PageLen-1)/device.PageLen, (p.Prompt+device.PageLen-1)/device.PageLen
	if s.Budget == "total" && s.Tau == 0 {
		budget.Count = budget.Of(all)
	}
	if s.Last > 0 {
		budget.Dense = max(all-s.Last, 1)
	}
	if plan.Span == (device.Span{}) && budget.Of(blocks) == blocks {
		return plan
	}
	return s.plan(p, layer, plan, budget)
}

// Decode lists the blocks that each slot's row reads.
func (s *sketchwalk) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	if s.Tau == 0 && s.Density == 1 {
		return plan
	}
	return s.plan(p, layer, plan, device.BlockBudget{
		Count: s.Tau, Share: s.Density, Free: s.Forced == "literal", Span: plan.Span, First: s.Sink, Last: s.Recent,
	})
}

// plan walks through one layer and selects blocks (steps 3 and 4).
func (s *sketchwalk) plan(p *Pass, layer int, plan device.Plan, budget device.BlockBudget) device.Plan {
	if layer < s.start() {
		return plan
	}
	kv, n, rows, src := p.KV(layer), p.NewRows(), s.walk[layer%2], s.walk[(layer+1)%2]
	walk := device.Walk{Dst: rows, Src: src, Pairs: s.pairsOf(p), KV: kv, Rows: n, Exponent: s.Exponent, Own: 1 - s.Damping}
	steps := s.Steps
	if s.Power == "matrix" {
		steps, walk.Exponent = s.Exponent, 1
	}
	if layer == s.start() || s.Walk == "onehop" {
		walk.Src = device.Tensor{}
		if s.Damping < 1 {
			steps++ // the scores that a damped walk begins with are no step of it
		}
	}
	if layer < s.Dense {
		steps++ // a dense layer walks and does not select
	}
	for range steps - 1 {
		device.Do(p.Queue, walk)
		walk.Src = rows
	}
	if layer < s.Dense {
		return plan
	}
	plan.Sink, plan.Recent, plan.Align, plan.Selected, plan.List = 0, 0, 0, device.Blocks, s.list
	device.Do(p.Queue, walk)
	device.Do(p.Queue, device.Select{Rule: device.TopBlocks, List: plan.List, Scores: rows, KV: kv, Rows: n, Blocks: budget})
	return plan
}

// pairsOf is the scores of blocks of the slots of a pass.
func (s *sketchwalk) pairsOf(p *Pass) device.Tensor {
	switch {
	case s.Causal == "tri":
		return s.pairs
	case p.Decode:
		return s.pairs.Rows(0, p.Rows())
	}
	return s.pairs.Rows(0, 1)
}
