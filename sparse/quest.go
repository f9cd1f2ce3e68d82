package sparse

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// Quest (Tang et al., Quest: Query-Aware Sparsity for Efficient Long-Context LLM
// Inference, 2024). Of each page of keys, kv head and dimension c the least and
// the largest element are kept. A query head reads the pages with the largest
//
//	Σ_c max(q_c·kmin_c, q_c·kmax_c)  >=  max of q·k over the page,
//
// max(3, budget/page) of them. Layers 0 and 1 are dense, and so is prefill.
//
// Differences from the paper:
//   - The page of the row itself is always read and is one of them; the authors'
//     evaluation lets it compete, their kernels always read it.
//   - share=group: the heads of a kv head share the pages with the largest sum of
//     their scores, as MagicPIG's version for grouped queries does.
//   - A page of 64 is a page of the cache, and lists are of pages; smaller ones are
//     lists of positions.
//
// Bounds are made from the keys that are stored, so that they are exact, and lie
// beside the page.

// questOptions are the settings of quest.
type questOptions struct {
	Budget device.Amount `opt:"budget" unit:"positions or share" doc:"how much each row reads, in whole pages, at least three"`
	Page   int           `opt:"page" unit:"positions" doc:"length of a page, a divisor of 64"`
	Share  string        `opt:"share" oneof:"head group" doc:"pages for each query head, or for each kv head by the sum of its heads' scores"`
}

func (o questOptions) check() error {
	if o.Page < 1 || device.PageLen%o.Page != 0 {
		return fmt.Errorf("option page: %d, want a divisor of %d: 1, 2, 4, 8, 16, 32 or 64", o.Page, device.PageLen)
	}
	return nil
}

var questEntry = entry(Doc{
	Name: "quest", Title: "pages by the most that a key among them can score",
	Source: "Tang et al., Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference, 2024",
	Stage:  Select, Decode: true, Observes: true, Stored: true,
	Granularity: "pages of 16 positions, per query head or kv head; layers 0 and 1 are dense",
	Reads:       "budget positions of K and V; to choose, 2/page of K for the bounds",
	Presets: map[string]string{
		"paper-512": "budget=512", "paper-1024": "budget=1024", "paper-2048": "budget=2048", "paper-4096": "budget=4096",
	},
}, questOptions{Budget: device.Amount{Count: 1024}, Page: 16, Share: "head"}, newQuest)

// minPages is how many pages a row reads at least.
const minPages = 3

// quest holds the bounds and the scratch.
type quest struct {
	questOptions
	parts  int           // pages of a page of the cache
	bounds device.Tensor // as the cache [pages, kvheads, parts, 2·dim], beside each page
	scores device.Tensor // f32 [slots, sets, blocks·parts]
	list   device.List   // a group for each row, a head for each set
}

func newQuest(o questOptions, env *Env) (Method, error) {
	sets, most := env.Heads, env.MaxLen
	if o.Share == "group" {
		sets = env.KVHeads
	}
	if o.Page == device.PageLen {
		most = env.MaxBlocks()
	}
	q := &quest{questOptions: o, parts: device.PageLen / o.Page}
	q.bounds = env.PageState(env.KV, env.KVHeads, q.parts, 2*env.HeadDim)
	q.scores = env.Scratch(device.F32, env.Slots, sets, env.MaxBlocks()*q.parts)
	q.list = env.List(env.Slots, sets, most, false)
	return q, nil
}

// Name is "quest".
func (*quest) Name() string { return "quest" }

// Observe keeps the bounds of the keys of a pass.
func (q *quest) Observe(p *Pass, layer int, _, _ device.Tensor) {
	if layer >= denseLayers {
		device.Do(p.Queue, device.Summarize{Rule: device.KeyBounds, Dst: q.bounds, KV: p.KV(layer), Rows: p.NewRows()})
	}
}

// Decode lists the pages of each slot's newest position.
func (q *quest) Decode(p *Pass, layer int, x device.Tensor, plan device.Plan) device.Plan {
	if layer < denseLayers || q.Budget.Share == 1 {
		return plan
	}
	kv, scores := p.KV(layer), q.scores.Rows(0, p.Rows())
	plan.Sink, plan.Recent, plan.Align = 0, 0, 0
	plan.Selected, plan.List = device.Tokens, listRows(q.list, p.Rows())
	if q.parts == 1 {
		plan.Selected = device.Blocks
	}
	device.Do(p.Queue, device.Score{Rule: device.BoundScores, Dst: scores, Q: x, Keys: q.bounds, KV: kv})
	device.Do(p.Queue, device.Select{Rule: device.TopParts, List: plan.List, Scores: scores, KV: kv, Plan: plan, PerPage: q.parts, K: q.Budget, Min: minPages})
	return plan
}
