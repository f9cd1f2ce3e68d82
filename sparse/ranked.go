package sparse

import "github.com/gollm/gollm/device"

// rankTile is the rows of a tile of methods that rank positions for each prefill row.
const rankTile = 16

// ranked is the memory of a method that selects, for each row and query head, the top
// scoring positions of the region between the sinks and the recent window.
type ranked struct {
	scores device.Tensor // f32 [rows, heads, maxlen]
	list   device.List   // a group for each row
}

// newRanked allocates for decode steps and, with prefill, for tiles of prefill rows.
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

// plan adds sinks, the recent window and an empty list to the plan of the stages
// before, for the rows of a pass. scores f32 [rows, heads, maxlen] is scratch for the list.
func (r *ranked) plan(p *Pass, before device.Plan, sink, window int) (plan device.Plan, scores device.Tensor) {
	plan = before
	plan.Sink, plan.Recent, plan.Selected = sink, window, device.Tokens
	plan.List = listRows(r.list, p.Rows())
	return plan, r.scores.Rows(0, p.Rows())
}

// listRows is the lists of the first n groups.
func listRows(l device.List, n int) device.List {
	l.Index, l.Count = l.Index.Rows(0, n), l.Count.Rows(0, n)
	if !l.Weight.Absent() {
		l.Weight = l.Weight.Rows(0, n)
	}
	return l
}
