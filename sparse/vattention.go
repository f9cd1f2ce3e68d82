package sparse

import (
	"errors"
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// vAttention: Verified Sparse Attention (Desai et al., 2025). The residual of a
// selection, which is the positions that it does not read, is estimated by a uniform
// random sample, sized for a relative error eps with probability 1 - delta. For each row
// and head:
//
//  1. Selection I_f: sinks, recent window, and the top scoring positions of the rest, by
//     exact scores or by another scorer; or the plan of the method of the select stage.
//  2. Pilot: a sample of the residual, which has n_s positions, estimates D, the sum of
//     exp(score) over all positions, and σ, the standard deviation of exp(score) over the
//     residual.
//  3. Budget: b = (z·n_s·σ / (eps·D))², at least the pilot, at most n_s, where the row is
//     dense.
//  4. Attention over I_f with weight 1 and b positions sampled of the residual with weight
//     n_s/b, in one softmax.
//
// The budget is computed on the device. Random numbers are addressed by seed, request,
// layer, head and position. With b = n_s the result has the bits of dense attention.
//
// Options beside those of the paper's algorithm:
//   - guarantee=sdpa: eps is of the output, numerator and denominator, instead of the
//     denominator.
//   - fpc: the finite population correction, b / (1 + b/n_s).
//   - share=group: one I_f for a GQA group, by the largest score of its heads, one
//     sample, and the largest budget; each head's estimate stays unbiased.
//   - question: so many last positions of a prompt are sampled too, each as its own row
//     (the authors' setup B); other rows of a prompt are dense, or planned by the method of
//     the select stage.
//   - scorer: the method that finds the top positions. topk is exact; cis reuses
//     selections; quest and sketchwalk select whole pages, sketchwalk in all layers but
//     the first two, which stay dense.
//   - fb=0 samples nothing: plain top-k.
//   - index=q8 and q4: the top positions by a copy of the keys in 8 or 4 bits, with rescore=n by
//     the exact scores of the n·top best of it. Any I_f will do for the guarantee: pilot, sample
//     and attention have exact weights.
//
// With a window (psaw) all of this is of the positions inside the window.
//
// Differences from the authors' code, which the preset authors-code reproduces:
//   - The quantile is two-sided.
//   - The sample is of the residual only, without replacement.
//   - A budget of the whole residual is exact.
//   - The pilot is the beginning of the sample.
//
// The code's way misses eps more often than delta.

// vattentionOptions are the options of vattention.
type vattentionOptions struct {
	Eps       float64       `opt:"eps" unit:"relative error" doc:"error of the estimate; 0 reads everything"`
	Delta     float64       `opt:"delta" unit:"probability" doc:"how often the error may be larger"`
	Sink      int           `opt:"sink" unit:"positions" doc:"first positions that are always read; those of the method of the select stage, if there is one"`
	Local     int           `opt:"local" unit:"positions" doc:"newest positions that are always read, the row's own included; likewise"`
	Top       device.Amount `opt:"top" unit:"positions or share" doc:"top positions of the rest that are always read; likewise"`
	Scorer    string        `opt:"scorer" oneof:"topk quest sketchwalk cis" doc:"what finds the top positions: exact scores, or another method with its defaults"`
	Base      device.Amount `opt:"fb" unit:"positions or share of the residual" doc:"pilot sample that the budget is computed from; 0 samples nothing"`
	Guarantee string        `opt:"guarantee" oneof:"den sdpa" doc:"eps is of the softmax denominator, or of the output"`
	Z         string        `opt:"z" oneof:"two one" doc:"quantile of delta/2, or of delta"`
	Pool      string        `opt:"pool" oneof:"residual code" doc:"sample what is not selected, or all but sinks and recent window"`
	Sampling  string        `opt:"sampling" oneof:"without_replacement code" doc:"code: with replacement, and a position that is drawn twice counts once"`
	Pilot     string        `opt:"pilot" oneof:"reuse fresh" doc:"the pilot is the beginning of the sample, or a sample of its own"`
	Finite    string        `opt:"fpc" oneof:"off on" doc:"finite population correction: smaller budgets"`
	Share     string        `opt:"share" oneof:"head group" doc:"a selection and a sample for each query head, or for each kv head"`
	Question  int           `opt:"question" unit:"positions" doc:"last positions of a prompt that are sampled too"`
	rescoreOptions
}

func (o vattentionOptions) check() error {
	err := errors.Join(atLeast("sink", o.Sink, 0), atLeast("local", o.Local, 1), atLeast("question", o.Question, 0), o.rescoreOptions.check())
	if o.Scorer != "topk" && o.Index != "exact" {
		err = errors.Join(err, fmt.Errorf("option index: %s with scorer=%s, which ranks by an index of its own: want index=exact or scorer=topk", o.Index, o.Scorer))
	}
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

// scorer is the method that finds the top positions. Pages are selected for at least top
// positions; the first and the newest page come with them.
func (o vattentionOptions) scorer() (text string, prefill bool) {
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

// reach: rows are planned by themselves, and the question is at the end of the prompt.
func (o vattentionOptions) reach() (unit int, end bool) { return 1, o.Question > 0 }

// quantile is z, the normal quantile of delta: eps in standard deviations.
func (o vattentionOptions) quantile() float64 {
	p := o.Delta
	if o.Guarantee == "sdpa" {
		p /= 2 // one half for the numerator, one for the denominator
	}
	if o.Z == "two" {
		p /= 2
	}
	return max(0, math.Sqrt2*math.Erfinv(1-2*p))
}

var vattentionEntry = entry(Doc{
	Name: "vattention", Title: "a sample of the residual of a selection, sized for an error",
	Source: "Desai et al., vAttention: Verified Sparse Attention, 2025, and its code in sparse-attention-hub",
	Stage:  Sample, Prefill: true, Decode: true, Draws: true,
	Granularity: "positions with weights, per query head or kv head",
	Reads:       "the selection (alone: sink + local + top, found by reading all of K, or a copy of it in 8 or 4 bits) and b positions of the residual",
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
	rescoreOptions: plainIndex,
}, newVAttention)

// vattention is the rule and the scratch of a tile of rows. Head groups are query heads,
// or GQA groups with share=group.
type vattention struct {
	vattentionOptions
	residual device.Residual
	follows  [2]bool // another method selects in prefill, in decode

	scores   device.Tensor // f32 [rows, heads, maxlen]
	groupMax device.Tensor // f32 [rows, kvheads, maxlen]; with share=group
	top      device.List   // [rows, head groups, positions]
	list     device.List   // the same shape, weighted
	keyIndex
}

func newVAttention(o vattentionOptions, env *Env) (Method, error) {
	rows, headGroups := env.Slots, env.Heads
	if o.Question > 0 {
		rows = max(rows, min(rankTile, env.Rows))
	}
	v := &vattention{vattentionOptions: o, residual: device.Residual{
		Draw: rng.Address{Seed: env.Seed}, Pilot: o.Base, Eps: o.Eps, Z: o.quantile(), Values: o.Guarantee == "sdpa",
		Finite: o.Finite == "on", Fresh: o.Pilot == "fresh", Replace: o.Sampling == "code", Listed: o.Pool == "code",
	}}
	if o.Share == "group" {
		headGroups = env.KVHeads
		v.groupMax = env.Scratch(device.F32, rows, headGroups, env.MaxLen)
	}
	v.scores = env.Scratch(device.F32, rows, env.Heads, env.MaxLen)
	v.top = env.List(rows, headGroups, env.MaxLen, false)
	v.list = env.List(rows, headGroups, env.MaxLen, true)
	var err error
	v.keyIndex, err = newKeyIndex(o.indexOptions, env)
	return v, err
}

// Name is "vattention".
func (*vattention) Name() string { return "vattention" }

// Follow stores where another method selects.
func (v *vattention) Follow(prefill, decode bool) { v.follows = [2]bool{prefill, decode} }

// Cut ends a tile where the question of a prompt begins, and cuts the question into
// tiles of rankTile rows.
func (v *vattention) Cut(p *Pass, row int) int {
	if before := v.question(p) - row; before > 0 {
		return before
	}
	return rankTile
}

// question is the first row of a prefill pass that is sampled.
func (v *vattention) question(p *Pass) int { return p.Prompt - v.Question - p.First }

// Prefill samples for the rows of the question; earlier rows are dense, or planned by
// the method of the select stage.
func (v *vattention) Prefill(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	if v.question(p) > 0 {
		if v.Scorer != "topk" { // the scorer selects for the question
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

// estimate adds a sample of the residual to the plan, or to a selection of its own where
// no other method selects (steps 1 to 4).
func (v *vattention) estimate(p *Pass, layer int, q device.Tensor, plan device.Plan, selected bool) device.Plan {
	switch {
	case !selected:
		plan = v.selectTop(p, layer, q, plan)
	case plan.Selected != device.All && v.Scorer != "topk":
		plan = v.sinksAndWindow(plan)
	}
	if plan.Selected == device.All {
		return plan
	}
	residual, list := v.residual, listRows(v.list, p.Rows())
	residual.Draw.Layer, residual.Requests = uint32(layer), p.Requests
	device.Do(p.Queue, device.Sample{
		Rule: device.ResidualSample, List: list, Q: q, KV: p.KV(layer), Plan: plan, Residual: residual,
	})
	if !selected {
		device.Do(p.Queue, device.Discard{List: plan.List})
	}
	plan.Selected, plan.List = device.Tokens, list
	return plan
}

// sinksAndWindow gives a plan its sinks and recent window, also where they lie outside of
// the window of the stage before.
func (v *vattention) sinksAndWindow(plan device.Plan) device.Plan {
	plan.Sink, plan.Recent, plan.Align = v.Sink, v.Local, 0
	if plan.Span.Drop > 0 {
		plan.Span.Sink, plan.Span.Recent = max(plan.Span.Sink, v.Sink), v.Local
	}
	return plan
}

// selectTop is sinks, the recent window, and the top positions between them (step 1).
func (v *vattention) selectTop(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	kv, scores := p.KV(layer), v.scores.Rows(0, p.Rows())
	plan = v.sinksAndWindow(plan)
	plan.Selected, plan.List = device.Tokens, listRows(v.top, p.Rows())
	v.score(p, layer, scores, q, plan)
	pooled := v.pool(p, kv, scores)
	if v.Rescore > 0 {
		v.rescore(p, layer, scores, pooled, q, plan, times(v.Top, v.Rescore))
		pooled = v.pool(p, kv, scores)
	}
	device.Do(p.Queue, device.Select{Rule: device.TopK, List: plan.List, Scores: pooled, KV: kv, K: v.Top})
	return plan
}

// pool is the scores of head groups: those of query heads, or the largest of each kv head.
func (v *vattention) pool(p *Pass, kv device.KV, scores device.Tensor) device.Tensor {
	if v.Share != "group" {
		return scores
	}
	groupMax := v.groupMax.Rows(0, p.Rows())
	device.Do(p.Queue, device.Score{Rule: device.GroupMax, Dst: groupMax, Q: scores, KV: kv})
	device.Do(p.Queue, device.Discard{T: scores})
	return groupMax
}
