package sparse

import "github.com/gollm/gollm/device"

// rankTile is how many prefill rows are planned one by one at once.
const rankTile = 16

// ranked is the memory of a system that scores the positions between sinks and a
// recent window, for each row and query head, and reads the best.
type ranked struct {
	scores device.Tensor // f32 [rows, heads, maxlen]
	list   device.List   // a group for each row
}

// newRanked is for decode steps, and for tiles of prefill rows where there are any.
func newRanked(env *Env, prefill bool) ranked {
	rows := env.Slots
	if prefill {
		rows = max(rows, min(rankTile, env.Rows))
	}
	return ranked{
		scores: env.Scratch(device.F32, rows, env.Heads, env.MaxLen),
		list:   env.List(rows, env.Heads, env.MaxLen, false),
	}
}

// plan is plan with sinks, window and a list to fill for the rows of a pass, and
// scores is where theirs go.
func (r *ranked) plan(p *Pass, before device.Plan, sink, window int) (plan device.Plan, scores device.Tensor) {
	plan = before
	plan.Sink, plan.Recent, plan.Selected = sink, window, device.Tokens
	plan.List = listRows(r.list, p.Rows())
	return plan, r.scores.Rows(0, p.Rows())
}

// listRows is the first n groups of a list.
func listRows(l device.List, n int) device.List {
	l.Index, l.Count = l.Index.Rows(0, n), l.Count.Rows(0, n)
	if !l.Weight.Absent() {
		l.Weight = l.Weight.Rows(0, n)
	}
	return l
}
