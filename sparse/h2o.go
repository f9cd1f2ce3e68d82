package sparse

import "github.com/gollm/gollm/device"

// H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models
// (Zhang et al., 2023). A cache budget of heavy hitters, which are the positions with the
// most accumulated attention, and recent positions. For each kv head of each layer:
//
//  1. score_i accumulates the attention weights on position i, of all queries so far and
//     of the query heads of the GQA group.
//  2. Prefill is dense. When more than hh + recent positions are stored, the recent
//     newest stay, and of the others the hh heavy hitters, which have the largest scores.
//     The rest is evicted for good.
//  3. A decode step reads the positions that are left and its own, and adds its attention
//     weights to the scores.
//
// The scores of a prompt are those of dense attention, whichever method plans it.
//
// Differences from the publication:
//   - The code evicts one position more, between its two sets: the row's own position
//     counts in recent where it masks, and not where it ranks.
//   - Positions keep their numbers; a version of the code renumbers what is left.
//   - With GQA the scores of a kv head are of all its query heads.
//   - An evicted position is not read any more, but its memory is not freed: pages belong
//     to all heads of a layer.
//   - Prefill after decode steps is dense again, evicted positions included, and its rows
//     count; evicted positions do not come back in decode.
//   - A truncated sequence keeps the contributions of its dropped queries to the scores. A
//     position that was evicted stays so, unless it is dropped and stored again.

// h2oOptions are the options of h2o.
type h2oOptions struct {
	Heavy  device.Amount `opt:"hh" unit:"positions or share of the prompt" doc:"heavy hitters: positions kept for their accumulated attention"`
	Recent device.Amount `opt:"recent" unit:"positions or share of the prompt" doc:"newest positions kept, before the row's own"`
}

var h2oEntry = entry(Doc{
	Name: "h2o", Title: "eviction: keeps heavy hitters, by accumulated attention, and recent positions",
	Source: "Zhang et al., H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models, 2023",
	Stage:  Select, Carries: true, Decode: true, Observes: true, Forgets: true,
	Granularity: "positions, per kv head",
	Reads:       "hh + recent + 1 positions of K and V, K twice; a prompt is scored once more in full",
	Presets:     map[string]string{"paper": "hh=0.1,recent=0.1"},
}, h2oOptions{Heavy: device.Amount{Share: 0.1}, Recent: device.Amount{Share: 0.1}}, newH2O)

// h2o is the method's state.
type h2o struct {
	h2oOptions
	mass  device.Tensor // f32 [layers, slots, kvheads, maxlen]: accumulated attention; -Inf is evicted
	since device.Tensor // i32 [layers, slots, 1]: end of the last prompt
	list  device.List   // [slots, kvheads, positions]
}

func newH2O(o h2oOptions, env *Env) (Method, error) {
	return &h2o{
		h2oOptions: o,
		mass:       env.State(device.F32, env.KVHeads, env.MaxLen),
		since:      env.State(device.I32, 1),
		list:       env.List(env.Slots, env.KVHeads, env.MaxLen, false),
	}, nil
}

// Name is "h2o".
func (*h2o) Name() string { return "h2o" }

// Restart stores the end of the prompt.
func (m *h2o) Restart(p *Pass, layer int) {
	device.Do(p.Queue, device.Copy{Dst: p.State(m.since, layer).Reshape(1), Src: p.End.Rows(p.Rows()-1, p.Rows())})
}

// Observe accumulates the dense attention of the rows of a prompt (step 1).
func (m *h2o) Observe(p *Pass, layer int, q, _ device.Tensor) {
	if !p.Decode {
		device.Do(p.Queue, device.Summarize{
			Rule: device.AttentionMass, Dst: p.State(m.mass, layer), X: q, KV: p.KV(layer), Plan: device.Plan{},
		})
	}
}

// Decode evicts, lists what is left, and accumulates its attention (steps 2 and 3).
func (m *h2o) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	kv, mass := p.KV(layer), p.State(m.mass, layer)
	plan.Sink, plan.Recent, plan.Selected = 0, 1, device.Tokens
	plan.List = listRows(m.list, p.Rows())
	device.Do(p.Queue, device.Select{
		Rule: device.HeavyHitters, List: plan.List, Scores: mass, KV: kv, Plan: plan,
		K: m.Heavy, Recent: m.Recent, Since: p.State(m.since, layer),
	})
	device.Do(p.Queue, device.Summarize{Rule: device.AttentionMass, Dst: mass, X: q, KV: kv, Plan: plan})
	return plan
}
