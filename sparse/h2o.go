package sparse

import "github.com/gollm/gollm/device"

// H2O (Zhang et al., H2O: Heavy-Hitter Oracle for Efficient Generative Inference
// of Large Language Models, 2023): a cache of fixed size that keeps what has been
// read most. For each kv head of each layer:
//
//  1. score_i is the sum of the softmax weights on position i, over all queries
//     so far and the query heads of the kv head.
//  2. The prompt is attended in full. When more than hh + recent positions are
//     stored, the recent newest stay, and of the others the hh with the largest
//     scores. What goes is gone for good.
//  3. A decode step reads what stayed and its own position, and adds its weights
//     to the scores.
//
// Differences from the publication:
//   - The code drops one position more, which lies between its two sets: the
//     row's own counts in recent where it masks, and not where it ranks.
//   - Positions keep their numbers; a version of the code renumbers what stayed.
//   - With grouped heads the scores of a kv head are of all its query heads.
//   - A position that goes is not read any more, but its memory is not freed:
//     pages belong to all heads of a layer.
//   - More of a prompt after decode steps is attended in full again, what went
//     included, and its rows count; what went does not come back in decode.
//   - A sequence that is cut back keeps the scores of what was cut off, and what
//     went stays away, unless it is cut back before it and stored anew.
//
// The scores of a prompt are those of full attention, whatever reads it.

// h2oOptions are the settings of h2o.
type h2oOptions struct {
	Heavy  device.Amount `opt:"hh" unit:"positions or share of the prompt" doc:"positions kept for what has been read of them"`
	Recent device.Amount `opt:"recent" unit:"positions or share of the prompt" doc:"newest positions kept, before the row's own"`
}

var h2oEntry = entry(Doc{
	Name: "h2o", Title: "eviction: keeps what has been read most, and what is new",
	Source: "Zhang et al., H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models, 2023",
	Stage:  Select, Decode: true, Observes: true, Forgets: true,
	Granularity: "positions, per kv head",
	Reads:       "hh + recent + 1 positions of K and V, K twice; a prompt is scored once more in full",
	Presets:     map[string]string{"paper": "hh=0.1,recent=0.1"},
}, h2oOptions{Heavy: device.Amount{Share: 0.1}, Recent: device.Amount{Share: 0.1}}, newH2O)

// h2o holds the scores.
type h2o struct {
	h2oOptions
	sum   device.Tensor // f32 [layers, slots, kvheads, maxlen]; -Inf is gone
	since device.Tensor // i32 [layers, slots, 1]: end of the last prompt
	list  device.List   // a group for each slot, kv heads
}

func newH2O(o h2oOptions, env *Env) (Method, error) {
	return &h2o{
		h2oOptions: o,
		sum:        env.State(device.F32, env.KVHeads, env.MaxLen),
		since:      env.State(device.I32, 1),
		list:       env.List(env.Slots, env.KVHeads, env.MaxLen, false),
	}, nil
}

// Name is "h2o".
func (*h2o) Name() string { return "h2o" }

// Restart notes where the prompt ends.
func (m *h2o) Restart(p *Pass, layer int) {
	device.Do(p.Queue, device.Copy{Dst: p.State(m.since, layer).Reshape(1), Src: p.End.Rows(p.Rows()-1, p.Rows())})
}

// Observe scores what the rows of a prompt read.
func (m *h2o) Observe(p *Pass, layer int, q, _ device.Tensor) {
	if !p.Decode {
		device.Do(p.Queue, device.Summarize{Rule: device.AttentionMass, Dst: p.State(m.sum, layer), X: q, KV: p.KV(layer), Plan: device.Plan{}})
	}
}

// Decode drops what is read least and scores what the rest gets.
func (m *h2o) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	kv, sum := p.KV(layer), p.State(m.sum, layer)
	plan.Sink, plan.Recent, plan.Selected = 0, 1, device.Tokens
	plan.List = listRows(m.list, p.Rows())
	device.Do(p.Queue, device.Select{Rule: device.HeavyHitters, List: plan.List, Scores: sum, KV: kv, Plan: plan, K: m.Heavy, Recent: m.Recent, Since: p.State(m.since, layer)})
	device.Do(p.Queue, device.Summarize{Rule: device.AttentionMass, Dst: sum, X: q, KV: kv, Plan: plan})
	return plan
}
