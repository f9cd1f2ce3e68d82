package sparse

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
)

// AnchorAttention: Difference-Aware Sparse Attention with Stripe Granularity (Zhang et
// al., 2025). Rows of a prompt form blocks of 128, and step blocks a group. In each
// group and head:
//
//	A. Every row reads its anchor: block 0, the block before the group, and the group up
//	   to itself. M is the largest score q·k/√dim of the anchor.
//	B. A block of rows selects each position j between these that scores within a margin
//	   of the anchor: mean(M) - mean(q)·k_j/√dim <= theta, means over the block's rows.
//	   The group reads the union of the selections of its blocks.
//	C. Every row attends to anchor and selection in one softmax.
//
// Groups are counted from position 0, so the first one has no candidates and is dense. A
// group in which a pass begins or ends selects by the rows of that pass.
//
// Where the paper and its code disagree:
//   - The largest scores are averaged (Eq. 1-2), not the sums (Alg. 2), and
//     compared by <= (Eq. 2) in float32; the code rounds them to bfloat16.
//   - The block before the group is in the anchor and is no candidate. With
//     window=noprev it is a candidate and not in the anchor. window=code_v4 reproduces the
//     version of the code that the paper's figures come from: the anchor is the whole
//     first group and the row's own, candidates are as in the paper, so that selected
//     positions of the first group count twice and the block before the group is never
//     read.
//   - The last, partial block is averaged over its rows; with tail=dense the last,
//     partial group is dense, as in the code.
//   - The code continues the softmax of A in C; here C is one softmax over both,
//     which is the same sum.

// anchorOptions are the options of anchor.
type anchorOptions struct {
	Theta  float64 `opt:"theta" unit:"natural logarithm" doc:"margin: how far below the largest score of the anchor a position may score; Inf reads everything"`
	Step   int     `opt:"step" unit:"blocks" doc:"blocks of rows that share a selection"`
	Block  int     `opt:"block" unit:"positions" doc:"rows that are averaged, and the size of the first block"`
	Window string  `opt:"window" oneof:"paper noprev code_v4" doc:"the block before a group is in the anchor, or a candidate, or skipped as in a version of the code that also counts keys twice"`
	Tail   string  `opt:"tail" oneof:"native dense" doc:"the last group of a prompt, if it is not full: as the others, or dense"`
}

// maxGroup is the maximum rows of a group.
const maxGroup = 1 << 20

func (o anchorOptions) check() error {
	err := errors.Join(atLeast("step", o.Step, 1), atLeast("block", o.Block, 1))
	if err == nil && (o.Step > maxGroup || o.Block > maxGroup || o.Step*o.Block > maxGroup) {
		err = fmt.Errorf("options step and block: groups of %d·%d rows, want at most %d", o.Step, o.Block, maxGroup)
	}
	return err
}

// reach: groups are planned as one; with tail=dense the last one by the end of the prompt.
func (o anchorOptions) reach() (unit int, end bool) { return o.group(), o.Tail == "dense" }

// group is the length of a group in rows.
func (o anchorOptions) group() int { return o.Step * o.Block }

var anchorEntry = entry(Doc{
	Name: "anchor", Title: "positions that score within a margin of their row's anchor",
	Source: "Zhang et al., AnchorAttention: Difference-Aware Sparse Attention with Stripe Granularity, 2025; Eq. 1-2",
	Stage:  Select, Prefill: true,
	Granularity: "single positions, per query head and group of step·block rows",
	Reads:       "block 0, the block before the group, the group, and what is selected of K and V; to select, a group reads all of K once",
	Presets: map[string]string{
		// the paper's threshold, and the ends of its ablation
		"paper": "theta=12", "paper-fast": "theta=10", "paper-close": "theta=15",
	},
}, anchorOptions{Theta: 12, Step: 16, Block: 128, Window: "paper", Tail: "native"}, newAnchor)

// anchor is the scratch of one group.
type anchor struct {
	anchorOptions
	largest     device.Tensor // f32 [rows, heads]: largest scores of the anchor, M
	meanLargest device.Tensor // f32 [blocks, heads]
	meanQuery   device.Tensor // f32 [blocks, heads, dim]
	list        device.List   // [1, heads, positions]
}

func newAnchor(o anchorOptions, env *Env) (Method, error) {
	rows := min(o.group(), env.Rows)
	blocks := min(o.Step, rows/o.Block+2) // a pass that starts and ends inside a block
	a := &anchor{
		anchorOptions: o,
		largest:       env.Scratch(device.F32, rows, env.Heads),
		meanLargest:   env.Scratch(device.F32, blocks, env.Heads),
		meanQuery:     env.Scratch(device.F32, blocks, env.Heads, env.HeadDim),
		list:          env.List(1, env.Heads, env.MaxLen, o.Window == "code_v4"),
	}
	a.list.Group = o.group()
	return a, nil
}

// Name is "anchor".
func (*anchor) Name() string { return "anchor" }

// Cut ends a tile with the group of its first row.
func (a *anchor) Cut(p *Pass, row int) int {
	return min(p.Rows()-row, a.group()-(p.First+row)%a.group())
}

// Prefill lists the positions between block 0 and the block before the group that the
// rows of a group read (steps A and B).
func (a *anchor) Prefill(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	start := p.First / a.group() * a.group()
	if a.Tail == "dense" && start+a.group() > p.Prompt {
		return plan
	}
	plan.Sink, plan.Recent, plan.Align = a.Block, a.Block, a.group()
	if a.Window == "noprev" {
		plan.Recent = 0
	}
	if start-plan.Recent <= plan.Sink {
		return a.unselected(plan, start)
	}
	plan.Selected, plan.List = device.Tokens, a.list
	anchor, twice := plan, 0
	if a.Window == "code_v4" {
		anchor.Sink, anchor.Recent, twice = a.group(), 0, a.group()
	}
	kv, rows := p.KV(layer), p.Rows()
	blocks := device.BlocksOf(p.First, rows, a.Block)
	largest, meanLargest, mean := a.largest.Rows(0, rows), a.meanLargest.Rows(0, blocks), a.meanQuery.Rows(0, blocks)
	device.Do(p.Queue, device.Score{Rule: device.AnchorMax, Dst: largest, Q: q, KV: kv, Plan: anchor})
	device.Do(p.Queue, device.Summarize{Rule: device.MeanRows, Dst: meanLargest, X: largest, KV: kv, Block: a.Block})
	device.Do(p.Queue, device.Summarize{Rule: device.MeanRows, Dst: mean, X: q, KV: kv, Block: a.Block})
	device.Do(p.Queue, device.Select{
		Rule: device.WithinMargin, List: plan.List, Q: mean, Scores: meanLargest, KV: kv, Plan: plan,
		Rows: rows, Block: a.Block, Below: float32(a.Theta), Twice: twice,
	})
	if a.Window == "code_v4" && start > a.group() {
		plan.Recent = 0
	}
	return plan
}

// unselected is the plan of a group without candidates.
func (a *anchor) unselected(plan device.Plan, start int) device.Plan {
	if a.Window == "code_v4" && start > a.group() {
		plan.Sink, plan.Recent, plan.Selected = a.group(), 0, device.None
		return plan
	}
	return device.Plan{Span: plan.Span}
}
