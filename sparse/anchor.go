package sparse

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
)

// AnchorAttention (Zhang et al., AnchorAttention: Difference-Aware Sparse
// Attention with Stripe Granularity, 2025). Rows of a prompt form blocks of 128,
// and step blocks a group. In each group and head:
//
//	A. Every row reads block 0, the block before the group, and the group up to
//	   itself: its anchor. M is its largest score q·k/√dim there.
//	B. A block of rows selects position j between these when
//	   mean(M) - mean(q)·k_j/√dim <= theta, the mean over its rows of how far j
//	   is below the anchor. The group reads what one of its blocks selects.
//	C. Every row attends over anchor and selection in one softmax.
//
// Groups are counted from position 0, so the first one has nothing to select and
// is dense.
//
// Where the paper and its code disagree:
//   - The largest scores are averaged (Eq. 1-2), not the sums (Alg. 2), and
//     compared by <= (Eq. 2) in float32; the code rounds them to bfloat16.
//   - The block before the group is in the anchor and is no candidate. With
//     window=noprev it is a candidate and not in the anchor. window=code_v4 is the
//     version of the code that its figures come from: the anchor is the whole
//     first group and the row's own, candidates are as in the paper, so that what
//     is selected of the first group counts twice and the block before the group
//     is never read. It is here to imitate those figures and for nothing else.
//   - The end of a prompt is averaged over the rows that there are; with
//     tail=dense the group that a prompt does not fill is dense, as in the code.
//   - The code continues the softmax of A in C; here C is one softmax over both,
//     which is the same sum.
//
// A group that a pass begins or ends inside selects by the rows of that pass.

// anchorOptions are the settings of anchor.
type anchorOptions struct {
	Theta  float64 `opt:"theta" unit:"natural logarithm" doc:"how far below the largest score a position may lie; Inf reads everything"`
	Step   int     `opt:"step" unit:"blocks" doc:"blocks of rows that share what they read"`
	Block  int     `opt:"block" unit:"positions" doc:"rows that are averaged, and the size of the first block"`
	Window string  `opt:"window" oneof:"paper noprev code_v4" doc:"the block before a group is read, or selected in, or left out as in a version of the code that also counts keys twice"`
	Tail   string  `opt:"tail" oneof:"native dense" doc:"the last group of a prompt, if it is not full: as the others, or dense"`
}

// maxGroup bounds the rows of a group.
const maxGroup = 1 << 20

func (o anchorOptions) check() error {
	err := errors.Join(atLeast("step", o.Step, 1), atLeast("block", o.Block, 1))
	if err == nil && (o.Step > maxGroup || o.Block > maxGroup || o.Step*o.Block > maxGroup) {
		err = fmt.Errorf("options step and block: groups of %d·%d rows, want at most %d", o.Step, o.Block, maxGroup)
	}
	return err
}

// group is the rows of a group.
func (o anchorOptions) group() int { return o.Step * o.Block }

var anchorEntry = entry(Doc{
	Name: "anchor", Title: "positions that score near the largest of a window",
	Source: "Zhang et al., AnchorAttention: Difference-Aware Sparse Attention with Stripe Granularity, 2025; Eq. 1-2",
	Stage:  Select, Prefill: true,
	Granularity: "single positions, per query head and group of step·block rows",
	Reads:       "block 0, the block before the group, the group, and what is selected of K and V; to choose, a group reads all of K once",
	Presets: map[string]string{
		// the paper's threshold, and the ends of its ablation
		"paper": "theta=12", "paper-fast": "theta=10", "paper-close": "theta=15",
	},
}, anchorOptions{Theta: 12, Step: 16, Block: 128, Window: "paper", Tail: "native"}, newAnchor)

// anchor holds the lists of one group, and what they are made from.
type anchor struct {
	anchorOptions
	top      device.Tensor // f32 [rows, heads]: largest scores
	meanTop  device.Tensor // f32 [blocks, heads]
	meanRows device.Tensor // f32 [blocks, heads, dim]: mean queries
	list     device.List   // one group, all heads
}

func newAnchor(o anchorOptions, env *Env) (Method, error) {
	rows := min(o.group(), env.Rows)
	blocks := min(o.Step, rows/o.Block+2) // a pass that starts and ends inside a block
	a := &anchor{
		anchorOptions: o,
		top:           env.Scratch(device.F32, rows, env.Heads),
		meanTop:       env.Scratch(device.F32, blocks, env.Heads),
		meanRows:      env.Scratch(device.F32, blocks, env.Heads, env.HeadDim),
		list:          env.List(1, env.Heads, env.MaxLen, o.Window == "code_v4"),
	}
	a.list.Group = o.group()
	return a, nil
}

// Name is "anchor".
func (*anchor) Name() string { return "anchor" }

// Cut ends at the group of a row: groups are planned one by one.
func (a *anchor) Cut(p *Pass, row int) int {
	return min(p.Rows()-row, a.group()-(p.First+row)%a.group())
}

// Prefill lists what the rows of a group read between block 0 and the block
// before the group.
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
	edges, twice := plan, 0
	if a.Window == "code_v4" {
		edges.Sink, edges.Recent, twice = a.group(), 0, a.group()
	}
	kv, rows := p.KV(layer), p.Rows()
	blocks := device.BlocksOf(p.First, rows, a.Block)
	top, meanTop, mean := a.top.Rows(0, rows), a.meanTop.Rows(0, blocks), a.meanRows.Rows(0, blocks)
	device.Do(p.Queue, device.Score{Rule: device.AnchorMax, Dst: top, Q: q, KV: kv, Plan: edges})
	device.Do(p.Queue, device.Summarize{Rule: device.MeanRows, Dst: meanTop, X: top, KV: kv, Block: a.Block})
	device.Do(p.Queue, device.Summarize{Rule: device.MeanRows, Dst: mean, X: q, KV: kv, Block: a.Block})
	device.Do(p.Queue, device.Select{Rule: device.WithinMargin, List: plan.List, Q: mean, Scores: meanTop, KV: kv, Plan: plan, Rows: rows, Block: a.Block, Below: float32(a.Theta), Twice: twice})
	if a.Window == "code_v4" && start > a.group() {
		plan.Recent = 0
	}
	return plan
}

// unselected is what the rows of a group read that has no candidates.
func (a *anchor) unselected(plan device.Plan, start int) device.Plan {
	if a.Window == "code_v4" && start > a.group() {
		plan.Sink, plan.Recent, plan.Selected = a.group(), 0, device.None
		return plan
	}
	return device.Plan{Span: plan.Span}
}
