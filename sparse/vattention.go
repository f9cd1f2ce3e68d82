package sparse

import (
	"errors"
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// vAttention (Desai et al., vAttention: Verified Sparse Attention, 2025): what a
// selection leaves out is estimated by a random sample of it, large enough for a
// relative error eps with probability 1 - delta. For each row and head:
//
//  1. I_f: the first positions, the recent window, and the best of the rest, by
//     exact scores or as another scorer finds them; or what the system before it
//     in a stack reads.
//  2. A pilot sample of the rest, n_s positions: D, the estimated sum of all
//     exp(score), and σ, the deviation of those of the rest.
//  3. The budget b = (z·n_s·σ / (eps·D))², at least the pilot, at most n_s, where
//     the row is dense.
//  4. Softmax over I_f and b random positions of the rest with weight n_s/b.
//
// The budget is computed on the device. Numbers are addressed by seed, request,
// layer, head and position. A budget of the whole rest gives the bits of dense
// attention.
//
// Differences from the authors' code, which can be had with the preset
// authors-code: two-sided quantile; the sample is of the rest only, without
// replacement; a budget of the whole rest is exact; the pilot is the beginning
// of the sample. The code's way misses eps more often than delta.
//
//   - guarantee=sdpa: the output's error, numerator and denominator, instead of
//     the denominator's alone.
//   - fpc: the correction for a finite rest, b / (1 + b/n_s).
//   - share=group: one I_f, by the largest score of the heads of a kv head, one
//     sample, and the largest budget; each head's estimate stays unbiased.
//   - question: so many last positions of a prompt are treated so, too, each as
//     its own row (the authors' setup B); prompts are dense otherwise, or as the
//     system before says.
//   - scorer: who finds the best of the rest. topk is exact; cis shares what it
//     found between steps; quest and sketchwalk choose whole pages, sketchwalk in
//     all layers but the first two, which stay dense.
//   - fb=0 takes no sample: a plain top-k.
//
// With a window (psaw) everything is of what the window leaves.

// vattentionOptions are the settings of vattention.
type vattentionOptions struct {
	Eps       float64       `opt:"eps" unit:"relative error" doc:"error of the estimate; 0 reads everything"`
	Delta     float64       `opt:"delta" unit:"probability" doc:"how often the error may be larger"`
	Sink      int           `opt:"sink" unit:"positions" doc:"first positions that are always read; of the system before, if one selects"`
	Local     int           `opt:"local" unit:"positions" doc:"newest positions that are always read, the row's own included; likewise"`
	Top       device.Amount `opt:"top" unit:"positions or share" doc:"best positions of the rest that are always read; likewise"`
	Scorer    string        `opt:"scorer" oneof:"topk quest sketchwalk cis" doc:"who finds the best of the rest: exact scores, or another system with its defaults"`
	Base      device.Amount `opt:"fb" unit:"positions or share of the rest" doc:"pilot sample that the budget is computed from; 0 takes no sample"`
	Guarantee string        `opt:"guarantee" oneof:"den sdpa" doc:"eps is of the sum of weights, or of the output"`
	Z         string        `opt:"z" oneof:"two one" doc:"quantile of delta/2, or of delta"`
	Pool      string        `opt:"pool" oneof:"residual code" doc:"sample what is not selected, or all but sinks and recent window"`
	Sampling  string        `opt:"sampling" oneof:"without_replacement code" doc:"code: with replacement, and what is drawn twice counts once"`
	Pilot     string        `opt:"pilot" oneof:"reuse fresh" doc:"the pilot is the beginning of the sample, or a sample of its own"`
	Finite    string        `opt:"fpc" oneof:"off on" doc:"smaller budgets, because the rest is finite"`
	Share     string        `opt:"share" oneof:"head group" doc:"sets for each query head, or for each kv head"`
	Question  int           `opt:"question" unit:"positions" doc:"last positions of a prompt that are sampled too"`
}

func (o vattentionOptions) check() error {
	err := errors.Join(atLeast("sink", o.Sink, 0), atLeast("local", o.Local, 1), atLeast("question", o.Question, 0))
	if !(o.Eps >= 0 && o.Eps < 1) {
		err = errors.Join(err, fmt.Errorf("option eps: %v, want at least 0 and below 1", o.Eps))
	}
	if o.Scorer != "topk" && o.Top == (device.Amount{}) {
		err = errors.Join(err, fmt.Errorf("option top: 0, want more for scorer=%s", o.Scorer))
	}
	if !(o.Delta > 0 && o.Delta < 1) {
		err = errors.Join(err, fmt.Errorf("option delta: %v, want above 0 and below 1", o.Delta))
	}
	return err
}

// chooser is the system that finds the best of the rest. Pages are chosen for at
// least top positions; the first and the newest one come with them.
func (o vattentionOptions) chooser() (text string, prefill bool) {
	pages := (o.Top.Count + device.PageLen - 1) / device.PageLen
	switch {
	case o.Scorer == "cis":
		text = fmt.Sprintf("cis(k=%s,sink=%d,local=%d)", amountText(o.Top), o.Sink, o.Local)
	case o.Scorer == "quest":
		text = fmt.Sprintf("quest(budget=%s)", amountText(o.Top))
	case o.Scorer == "sketchwalk" && o.Top.Share > 0:
		text = fmt.Sprintf("sketchwalk(density=%v)", o.Top.Share)
	case o.Scorer == "sketchwalk":
		text = fmt.Sprintf("sketchwalk(tau=%d)", 2+pages)
	}
	return text, o.Question > 0
}

// quantile is how many standard deviations eps is.
func (o vattentionOptions) quantile() float64 {
	tail := o.Delta
	if o.Guarantee == "sdpa" {
		tail /= 2 // one half for the numerator, one for the denominator
	}
	if o.Z == "two" {
		tail /= 2
	}
	return max(0, math.Sqrt2*math.Erfinv(1-2*tail))
}

var vattentionEntry = entry(Doc{
	Name: "vattention", Title: "a sample of what is not selected, sized for an error",
	Source: "Desai et al., vAttention: Verified Sparse Attention, 2025, and its code in sparse-attention-hub",
	Stage:  Sample, Prefill: true, Decode: true, Draws: true,
	Granularity: "positions with weights, per query head or kv head",
	Reads:       "what is selected (alone: sink + local + top, found by reading all of K) and b of the rest of K and V",
	Presets: map[string]string{
		// the corners and the middle of the authors' grid for a tenth of the cache
		"tenth":       "top=0.05,fb=0.05,eps=0.05,delta=0.05",
		"tenth-close": "top=0.05,fb=0.05,eps=0.025,delta=0.025",
		"tenth-far":   "top=0.025,fb=0.025,eps=0.075,delta=0.075",
		"aime":        "eps=0.05,delta=0.05",
		// how the authors' code samples; its error is larger than eps and delta say
		"authors-code": "z=one,pool=code,sampling=code,pilot=fresh",
	},
}, vattentionOptions{
	Eps: 0.05, Delta: 0.05, Sink: 128, Local: 128, Top: device.Amount{Share: 0.05}, Scorer: "topk", Base: device.Amount{Share: 0.05},
	Guarantee: "den", Z: "two", Pool: "residual", Sampling: "without_replacement", Pilot: "reuse", Finite: "off", Share: "head",
}, newVAttention)

// vattention holds the lists of the rows that are planned at once. Sets are
// query heads, or kv heads with share=group.
type vattention struct {
	vattentionOptions
	tail    device.Residual
	follows [2]bool // another system selects in prefill, in decode

	scores device.Tensor // f32 [rows, heads, maxlen]
	shared device.Tensor // f32 [rows, kvheads, maxlen]: the largest; with share=group
	top    device.List   // a group for each row, a head for each set
	list   device.List   // the same, weighted
}

func newVAttention(o vattentionOptions, env *Env) (Method, error) {
	rows, sets := env.Slots, env.Heads
	if o.Question > 0 {
		rows = max(rows, min(rankTile, env.Rows))
	}
	v := &vattention{vattentionOptions: o, tail: device.Residual{
		Draw: rng.Address{Seed: env.Seed}, Pilot: o.Base, Eps: o.Eps, Z: o.quantile(), Values: o.Guarantee == "sdpa",
		Finite: o.Finite == "on", Fresh: o.Pilot == "fresh", Replace: o.Sampling == "code", Listed: o.Pool == "code",
	}}
	if o.Share == "group" {
		sets = env.KVHeads
		v.shared = env.Scratch(device.F32, rows, sets, env.MaxLen)
	}
	v.scores = env.Scratch(device.F32, rows, env.Heads, env.MaxLen)
	v.top = env.List(rows, sets, env.MaxLen, false)
	v.list = env.List(rows, sets, env.MaxLen, true)
	return v, nil
}

// Name is "vattention".
func (*vattention) Name() string { return "vattention" }

// Follow notes where another system selects.
func (v *vattention) Follow(prefill, decode bool) { v.follows = [2]bool{prefill, decode} }

// Cut separates the question of a prompt, which is planned row by row, from what
// comes before it.
func (v *vattention) Cut(p *Pass, row int) int {
	if before := v.question(p) - row; before > 0 {
		return before
	}
	return rankTile
}

// question is the first row of a prefill pass that is sampled.
func (v *vattention) question(p *Pass) int { return p.Prompt - v.Question - p.First }

// Prefill samples for the rows of the question.
func (v *vattention) Prefill(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	if v.question(p) > 0 {
		if v.Scorer != "topk" { // the scorer's choice is for the question
			return device.Plan{Span: plan.Span}
		}
		return plan
	}
	return v.estimate(p, layer, q, plan, v.follows[0])
}

// Decode samples for each slot's row.
func (v *vattention) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	return v.estimate(p, layer, q, plan, v.follows[1])
}

// estimate adds a sample of what is left out to the plan, or to a choice of its
// own where no other system selects.
func (v *vattention) estimate(p *Pass, layer int, q device.Tensor, plan device.Plan, selected bool) device.Plan {
	switch {
	case !selected:
		plan = v.choose(p, layer, q, plan)
	case plan.Selected != device.All && v.Scorer != "topk":
		plan = v.edges(plan)
	}
	if plan.Selected == device.All {
		return plan
	}
	tail, list := v.tail, listRows(v.list, p.Rows())
	tail.Draw.Layer, tail.Requests = uint32(layer), p.Requests
	device.Do(p.Queue, device.Sample{Rule: device.ResidualSample, List: list, Q: q, KV: p.KV(layer), Plan: plan, Residual: tail})
	plan.Selected, plan.List = device.Tokens, list
	return plan
}

// edges gives a plan the sinks and the recent window, which a window of the stage
// before does not hide.
func (v *vattention) edges(plan device.Plan) device.Plan {
	plan.Sink, plan.Recent, plan.Align = v.Sink, v.Local, 0
	if plan.Span.Drop > 0 {
		plan.Span.Sink, plan.Span.Recent = max(plan.Span.Sink, v.Sink), v.Local
	}
	return plan
}

// choose is sinks, the recent window, and the best of the rest.
func (v *vattention) choose(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	kv, scores := p.KV(layer), v.scores.Rows(0, p.Rows())
	plan = v.edges(plan)
	plan.Selected, plan.List = device.Tokens, listRows(v.top, p.Rows())
	device.Do(p.Queue, device.Score{Rule: device.ExactScores, Dst: scores, Q: q, KV: kv, Plan: plan, Region: device.SelectedRegion})
	if v.Share == "group" {
		shared := v.shared.Rows(0, p.Rows())
		device.Do(p.Queue, device.Score{Rule: device.GroupMax, Dst: shared, Q: scores, KV: kv})
		scores = shared
	}
	device.Do(p.Queue, device.Select{Rule: device.TopK, List: plan.List, Scores: scores, KV: kv, K: v.Top})
	return plan
}
