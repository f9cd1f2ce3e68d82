package sparse

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference (Tang et al.,
// 2024). A decode step reads the pages of the KV cache whose keys may score highest.
// For each page P, kv head and channel c, the cache keeps the bounds of the keys,
//
//	min_c = min over j in P of k_jc        max_c = max over j in P of k_jc,
//
// which bound the score of every key of the page:
//
//	score(P) = Σ_c max(q_c·min_c, q_c·max_c)  >=  max over j in P of q·k_j.
//
// Per layer and step:
//
//  1. Summarize: update the bounds of the new key's page.
//  2. Score: score(P) of every page, for each query head.
//  3. Select: the max(3, budget/page) pages with the largest scores.
//  4. Attend: softmax attention over the positions of these pages.
//
// Prefill is dense, and so are layers 0 and 1.
//
// Differences from the paper:
//   - The page of the row itself is always read and counts in the budget; the authors'
//     evaluation scores it like the others, their kernels always read it.
//   - share=group selects for a GQA group, by the sum of its heads' scores, as the
//     version of Quest in MagicPIG's code does.
//   - The default page is 16 positions, a quarter of a page of the cache, and lists are of
//     positions. With page=64 the two are the same, and lists are of pages.

// questOptions are the options of quest.
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
	Name: "quest", Title: "pages by an upper bound of the scores of their keys",
	Source: "Tang et al., Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference, 2024",
	Stage:  Select, Decode: true, Observes: true, Stored: true,
	Granularity: "pages of 16 positions, per query head or kv head; layers 0 and 1 are dense",
	Reads:       "budget positions of K and V; to select, 2/page of K for the bounds",
	Presets: map[string]string{
		"paper-512": "budget=512", "paper-1024": "budget=1024", "paper-2048": "budget=2048", "paper-4096": "budget=4096",
	},
}, questOptions{Budget: device.Amount{Count: 1024}, Page: 16, Share: "head"}, newQuest)

// minPages is the minimum number of pages that a row reads.
const minPages = 3

// quest is the method's state and scratch.
type quest struct {
	questOptions
	perPage int           // pages of Quest in a page of the cache
	bounds  device.Tensor // type of the cache, [pages, kvheads, perPage, 2·dim]: min, then max; beside each page
	scores  device.Tensor // f32 [slots, head groups, blocks·perPage]
	list    device.List   // [slots, head groups, positions or pages]
}

func newQuest(o questOptions, env *Env) (Method, error) {
	headGroups, capacity := env.Heads, env.MaxLen
	if o.Share == "group" {
		headGroups = env.KVHeads
	}
	if o.Page == device.PageLen {
		capacity = env.MaxBlocks()
	}
	perPage := device.PageLen / o.Page
	return &quest{
		questOptions: o,
		perPage:      perPage,
		bounds:       env.PageState(env.KV, env.KVHeads, perPage, 2*env.HeadDim),
		scores:       env.Scratch(device.F32, env.Slots, headGroups, env.MaxBlocks()*perPage),
		list:         env.List(env.Slots, headGroups, capacity, false),
	}, nil
}

// Name is "quest".
func (*quest) Name() string { return "quest" }

// Observe updates the bounds of the pages of the new keys (step 1), in prefill too.
func (m *quest) Observe(p *Pass, layer int, _, _ device.Tensor) {
	if layer < denseLayers {
		return
	}
	device.Do(p.Queue, device.Summarize{
		Rule: device.KeyBounds, Dst: m.bounds, KV: p.KV(layer), Rows: p.NewRows(),
	})
}

// Decode scores the pages of each slot and lists the best (steps 2 and 3).
func (m *quest) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	if layer < denseLayers || m.Budget.Share == 1 {
		return plan
	}
	plan = m.listed(plan, p.Rows())
	kv, scores := p.KV(layer), m.scores.Rows(0, p.Rows())
	device.Do(p.Queue, device.Score{
		Rule: device.BoundScores, Dst: scores, Q: q, Keys: m.bounds, KV: kv,
	})
	device.Do(p.Queue, device.Select{
		Rule: device.TopParts, List: plan.List, Scores: scores, KV: kv, Plan: plan,
		PerPage: m.perPage, K: m.Budget, Min: minPages,
	})
	return plan
}

// listed is a plan that reads nothing but the list, which is of positions, or of pages
// of the cache where a page of Quest is one.
func (m *quest) listed(plan device.Plan, rows int) device.Plan {
	plan.Sink, plan.Recent, plan.Align = 0, 0, 0
	plan.Selected, plan.List = device.Tokens, listRows(m.list, rows)
	if m.perPage == 1 {
		plan.Selected = device.Blocks
	}
	return plan
}
