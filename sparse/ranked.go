package sparse

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// rankTile is the rows of a tile of methods that rank positions for each prefill row.
const rankTile = 16

// indexOptions are the options of methods that rank positions by scores of all keys.
type indexOptions struct {
	Index string `opt:"index" oneof:"exact q8 q4" doc:"rank by the keys, or by a rotated copy of them in 8 or 4 bits"`
}

// rescoreOptions are those of methods that select a number of positions.
type rescoreOptions struct {
	indexOptions
	Rescore int `opt:"rescore" unit:"times what is selected" doc:"with index=q8 and q4: so many of the best are scored exactly before the final selection; 0 is none"`
}

func (o rescoreOptions) check() error {
	if o.Rescore != 0 && o.Index == "exact" {
		return fmt.Errorf("option rescore: %d with index=exact, which has nothing to score again: want index=q8 or q4, or rescore=0", o.Rescore)
	}
	return between("rescore", o.Rescore, 0, maxRescore)
}

// maxRescore is the maximum of rescore.
const maxRescore = 1 << 10

// exactIndex and plainIndex are the defaults.
var (
	exactIndex = indexOptions{Index: "exact"}
	plainIndex = rescoreOptions{indexOptions: exactIndex}
)

// keyIndex scores positions by the keys of the cache, or by low-bit copies that it keeps beside
// the pages.
type keyIndex struct {
	mirror device.Tensor // i32 [pages, kvheads, words, PageLen]; absent: exact scores
}

// newKeyIndex allocates what the options ask for.
func newKeyIndex(o indexOptions, env *Env) (keyIndex, error) {
	bits := map[string]int{"q8": 8, "q4": 4}[o.Index]
	if bits == 0 {
		return keyIndex{}, nil
	}
	if env.HeadDim%8 != 0 {
		return keyIndex{}, fmt.Errorf("index=%s needs a head dimension that is a multiple of 8, and the model has %d: use index=exact", o.Index, env.HeadDim)
	}
	return keyIndex{env.PageState(device.I32, env.KVHeads, device.MirrorWords(env.HeadDim, bits), device.PageLen)}, nil
}

// observes reports whether there are copies to keep.
func (x *keyIndex) observes() bool { return !x.mirror.Absent() }

// Observe updates the copies of the new keys, in prefill too.
func (x *keyIndex) Observe(p *Pass, layer int, _, _ device.Tensor) {
	device.Do(p.Queue, device.Summarize{Rule: device.KeyMirror, Dst: x.mirror, KV: p.KV(layer), Rows: p.NewRows()})
}

// score scores the selected region of a plan.
func (x *keyIndex) score(p *Pass, layer int, scores, q device.Tensor, plan device.Plan) {
	call := device.Score{Rule: device.ExactScores, Dst: scores, Q: q, KV: p.KV(layer), Plan: plan, Region: device.SelectedRegion}
	if !x.mirror.Absent() {
		call.Rule, call.Keys = device.MirrorScores, x.mirror
	}
	device.Do(p.Queue, call)
}

// rescore replaces scores by those of the keys themselves for the k best positions, and by -Inf
// elsewhere. ranked is what the list of the plan, which it overwrites, is selected from: scores,
// or what was made of them for each head group.
func (x *keyIndex) rescore(p *Pass, layer int, scores, ranked, q device.Tensor, plan device.Plan, k device.Amount) {
	kv := p.KV(layer)
	device.Do(p.Queue, device.Select{Rule: device.TopK, List: plan.List, Scores: ranked, KV: kv, K: k})
	device.Do(p.Queue, device.Score{
		Rule: device.ExactScores, Dst: scores, Q: q, KV: kv, Region: device.Planned,
		Plan: device.Plan{Span: plan.Span, Selected: device.Tokens, List: plan.List},
	})
}

// times is n times an amount.
func times(k device.Amount, n int) device.Amount {
	return device.Amount{Count: k.Count * n, Share: min(k.Share*float64(n), 1)}
}

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
