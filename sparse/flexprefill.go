package sparse

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
)

// FlexPrefill: A Context-Aware Sparse Attention Mechanism for Efficient Long-Sequence
// Inference (Lai et al., 2025). Per query head, with A the causal softmax of the last
// block (128) rows of a prompt of n positions over all keys:
//
//  1. Vertical-slash budget. vert_j is the mean of column j of A, slash_o that of
//     diagonal o. nv is 1 + n'/block blocks, n' the smallest number of columns that hold
//     the share gamma of the softmax mass; ns likewise for diagonals. Both are at least
//     min/block.
//  2. Pattern. D is the square root of the Jensen-Shannon divergence of vert, in blocks,
//     and softmax(mean q·mean k/√d) with the mean query of the last block. A head
//     with D < tau is query-aware: nv = ns = min/block.
//  3. Selection. A block of rows reads the nv best blocks of columns, the first included,
//     the ns best block diagonals, its own included, and, if the head is query-aware, the
//     best blocks of softmax(mean q_i·mean k_j/√d), ranked over all blocks of rows, up to
//     a cumulative mass of gamma in each row.
//
// A prompt of at most max(2·block, min) positions, in whole blocks, is dense.
//
// The pattern depends on the last rows of the prompt, so a prompt is prefilled in one
// pass. pattern=per_chunk finds it by the last rows of each chunk instead, which is
// another method.
//
// Differences from the authors' code:
//   - 0·ln 0 is 0 in D; in the code it makes a head not query-aware.
//   - n' is divided by the block; the code divides by 128 for every block
//     (flex_prefill/ops/flex_prefill_attention.py, lines 1708 and 1709, at a24b27b).
//   - Diagonals are pooled from the main one on, not from the far end.
//   - Sums are compared in float64. gamma=1 reads everything.

// flexprefillOptions are the options of flexprefill.
type flexprefillOptions struct {
	Gamma   float64 `opt:"gamma" unit:"share of the softmax mass" doc:"softmax mass of the last rows that columns, and diagonals, must hold; 1 reads everything"`
	Tau     float64 `opt:"tau" unit:"divergence" doc:"below it a head's blocks are selected by mean queries and keys; 0 is never"`
	Min     int     `opt:"min" unit:"positions" doc:"minimum of columns, and of diagonals, and the length up to which a prompt is dense"`
	Max     int     `opt:"max" unit:"positions" doc:"maximum of columns, and of diagonals; 0 is all"`
	Block   int     `opt:"block" unit:"positions" doc:"length of a block, a multiple of 64"`
	Pattern string  `opt:"pattern" oneof:"whole per_chunk" doc:"by the last rows of the whole prompt, in one pass, or of each chunk"`
}

// maxBlock is the maximum length of a block.
const maxBlock = 1 << 16

func (o flexprefillOptions) check() error {
	err := errors.Join(atLeast("min", o.Min, 0), atLeast("max", o.Max, 0))
	if !(o.Gamma >= 0 && o.Gamma <= 1) {
		err = errors.Join(err, fmt.Errorf("option gamma: %v, want 0 to 1", o.Gamma))
	}
	if !(o.Tau >= 0 && o.Tau <= 1) {
		err = errors.Join(err, fmt.Errorf("option tau: %v, want 0 to 1", o.Tau))
	}
	if o.Block < 1 || o.Block > maxBlock || o.Block%device.PageLen != 0 {
		err = errors.Join(err, fmt.Errorf("option block: %d, want a multiple of %d up to %d", o.Block, device.PageLen, maxBlock))
	}
	if o.Max > 0 && o.Max < o.Min {
		err = errors.Join(err, fmt.Errorf("option max: %d, want 0 or at least min, %d", o.Max, o.Min))
	}
	return err
}

// reach: the last rows of a pass say what all of them read.
func (o flexprefillOptions) reach() (unit int, end bool) { return wholeChunk, true }

// whole reports whether a prompt must be prefilled in one pass.
func (o flexprefillOptions) whole() bool { return o.Pattern == "whole" }

// blocks is how many blocks n positions take.
func (o flexprefillOptions) blocks(n int) int { return (n + o.Block - 1) / o.Block }

var flexprefillEntry = entry(Doc{
	Name: "flexprefill", Title: "columns and diagonals, or blocks, as many as each head needs",
	Source: "Lai et al., FlexPrefill: A Context-Aware Sparse Attention Mechanism for Efficient Long-Sequence Inference, 2025",
	Stage:  Select, Prefill: true, Observes: true,
	Granularity: "blocks of 128 positions (option block), per query head and block of rows",
	Reads:       "as many blocks as gamma asks for; to select, the last block of rows reads all of K, and all of Q and K is averaged",
	Presets: map[string]string{
		"paper": "gamma=0.9,tau=0.1,min=1024", "anchor-paper": "gamma=0.95,tau=0.1,min=1024",
	},
}, flexprefillOptions{Gamma: 0.9, Tau: 0.1, Min: 1024, Block: 128, Pattern: "whole"}, newFlexprefill)

// flexprefill is the scratch: the pattern and the lists of a layer.
type flexprefill struct {
	flexprefillOptions
	columns, diagonals         device.Tensor // f32 [heads, maxlen]: scores
	columnsList, diagonalsList device.List   // [1, heads, blocks]
	last                       device.Tensor // f32 [1, heads, dim]: the mean query of the last block
	agreement                  device.Tensor // i32 [heads]: 1 for a query-aware head
	meanQueries                device.Tensor // f32 [blocks of rows, heads, dim]
	meanKeys                   device.Tensor // f32 [blocks, kvheads, dim]
	list                       device.List   // [blocks of rows, heads, blocks]

	// Of the pass observed last.
	first  int  // position of its first row
	sparse bool // list is valid for it
}

func newFlexprefill(o flexprefillOptions, env *Env) (Method, error) {
	blocks := o.blocks(env.MaxLen)
	rows := min(o.blocks(env.Rows)+1, blocks) // a pass that starts and ends inside a block
	f := &flexprefill{
		flexprefillOptions: o,
		columns:            env.Scratch(device.F32, env.Heads, env.MaxLen),
		diagonals:          env.Scratch(device.F32, env.Heads, env.MaxLen),
		columnsList:        env.List(1, env.Heads, blocks, false),
		diagonalsList:      env.List(1, env.Heads, blocks, false),
		last:               env.Scratch(device.F32, 1, env.Heads, env.HeadDim),
		agreement:          env.Scratch(device.I32, env.Heads),
		meanQueries:        env.Scratch(device.F32, rows, env.Heads, env.HeadDim),
		meanKeys:           env.Scratch(device.F32, blocks, env.KVHeads, env.HeadDim),
		list:               env.List(rows, env.Heads, env.MaxBlocks(), false),
	}
	f.list.Group = o.Block
	return f, nil
}

// Name is "flexprefill".
func (*flexprefill) Name() string { return "flexprefill" }

// dense reports whether a pass over n positions reads everything.
func (f *flexprefill) dense(n int) bool {
	return f.Gamma == 1 || n <= max(2*f.Block, f.blocks(f.Min)*f.Block)
}

// Observe lists the blocks that a prompt's layer reads (steps 1 to 3).
func (f *flexprefill) Observe(p *Pass, layer int, q, _ device.Tensor) {
	n := p.Rows()
	f.first, f.sparse = p.First, !p.Decode && !f.dense(p.First+n)
	if !f.sparse {
		return
	}
	kv, last := p.KV(layer), q.Rows(max(n-f.Block, 0), n)
	device.Do(p.Queue, device.Score{Rule: device.VerticalSlash, Dst: f.columns, Diagonals: f.diagonals, Q: last, KV: kv})
	device.Do(p.Queue, device.Summarize{Rule: device.MeanRows, Dst: f.last, X: last, KV: kv, Block: onlyBlock})
	device.Do(p.Queue, device.Summarize{Rule: device.MeanRows, Dst: f.meanQueries, X: q, KV: kv, Block: f.Block})
	device.Do(p.Queue, device.Summarize{Rule: device.MeanKeys, Dst: f.meanKeys, KV: kv, Block: f.Block})
	device.Do(p.Queue, device.Score{
		Rule: device.PooledAgreement, Dst: f.agreement, Columns: f.columns, Q: f.last, Keys: f.meanKeys, Block: f.Block, KV: kv,
		MaxDivergence: f.Tau,
	})
	top := device.Select{
		Rule: device.TopLines, KV: kv, Block: f.Block, Mass: f.Gamma, Min: f.blocks(f.Min), Max: f.blocks(f.Max), Agreement: f.agreement,
	}
	top.List, top.Scores = f.columnsList, f.columns
	device.Do(p.Queue, top)
	top.List, top.Scores = f.diagonalsList, f.diagonals
	device.Do(p.Queue, top)
	device.Do(p.Queue, device.Select{
		Rule: device.ExpandBlocks, List: f.list, Columns: f.columnsList, Diagonals: f.diagonalsList, KV: kv, Rows: n,
		Block: f.Block, Mass: f.Gamma, Q: f.meanQueries, Keys: f.meanKeys, Agreement: f.agreement,
	})
}

// onlyBlock is a block length that makes all rows one block.
const onlyBlock = 1 << 30

// Prefill is the lists of the pass, from the first row of this tile on.
func (f *flexprefill) Prefill(p *Pass, _ int, _ device.Tensor, plan device.Plan) device.Plan {
	if !f.sparse {
		return plan
	}
	plan.Sink, plan.Recent, plan.Align = 0, 0, 0
	plan.Selected, plan.List = device.Blocks, f.list
	from := p.First/f.Block - f.first/f.Block
	plan.List.Index, plan.List.Count = rowsFrom(f.list.Index, from), rowsFrom(f.list.Count, from)
	return plan
}

// rowsFrom is a tensor without its first rows.
func rowsFrom(t device.Tensor, n int) device.Tensor { return t.Rows(n, t.Dim(0)) }
