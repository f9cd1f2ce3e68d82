package sparse

import (
	"encoding/binary"
	"errors"

	"github.com/gollm/gollm/device"
)

// CIS: the sharing of critical sets of CPE (Near-Oracle KV Selection via Pre-hoc Sparsity).
// In decode, a head whose query is similar to that of an earlier step reuses that step's
// selection. In a block of s positions, each head of each layer:
//
//  1. searches its selection cache for the newest query of the block that made a
//     selection and whose cosine similarity with its own is above tau;
//  2. on a miss, scores the whole past and selects the top k positions S* between the
//     sinks and the recent window;
//  3. on a hit, the entry of step t0, reads its S* and r neighbours on each side of the m
//     best of S*, without scoring any key.
//
// With index=q8 or q4 step 2 scores a copy of the keys in 8 or 4 bits. There is no rescore: the
// search, the scores and the list are one call.
//
// It reads the sinks and the recent window in either case. The search, the selection and
// the list are made on the device, in one call.
//
// Where the paper is silent or contradicts itself, the default first:
//   - blocks: counted from position 0, or from the end of the last prompt.
//   - cand: an entry of the cache is a query that made a selection, or any query, with the
//     selection that it reused.
//   - rope: queries are compared after rotation, or before.
//   - gap: positions that were in the recent window at t0 and have left it since
//     are read, or not.
//   - share: a selection for each query head, or for each GQA group: the smallest cosine
//     of its heads is compared with tau, and the mean of their attention weights ranks.
//
// Positions outside of a window (psaw) are neither selected nor reused. Entries are valid
// within their block, and until the next prompt.

// cisOptions are the options of cis.
type cisOptions struct {
	Step   int           `opt:"s" unit:"positions" doc:"block in which selections are reused"`
	Tau    float64       `opt:"tau" unit:"cosine" doc:"how similar queries must be to reuse a selection; 2 never does"`
	K      device.Amount `opt:"k" unit:"positions or share" doc:"positions selected besides sinks and recent window"`
	Sink   int           `opt:"sink" unit:"positions" doc:"first positions that are always read"`
	Local  int           `opt:"local" unit:"positions" doc:"newest positions that are always read, the row's own included"`
	Best   device.Amount `opt:"m" unit:"positions or share of k" doc:"how many of the best have their neighbours read when a selection is reused"`
	Near   int           `opt:"r" unit:"positions" doc:"neighbours on each side"`
	Blocks string        `opt:"blocks" oneof:"absolute relative" doc:"blocks begin at multiples of s, or count from the end of the prompt"`
	Cand   string        `opt:"cand" oneof:"anchors chain" doc:"reuse from queries that made a selection, or from any"`
	Rope   string        `opt:"rope" oneof:"post pre" doc:"compare queries after rotation, or before"`
	Gap    string        `opt:"gap" oneof:"keep drop" doc:"positions that left the recent window since the selection was made"`
	Share  string        `opt:"share" oneof:"head group" doc:"a selection for each query head, or for each kv head"`
	indexOptions
}

// maxStep is the maximum block: the selection cache has an entry for each of its
// positions, head and layer, which is 2 GB for an 8B model.
const maxStep = 1 << 12

func (o cisOptions) check() error {
	return errors.Join(between("s", o.Step, 1, maxStep), atLeast("sink", o.Sink, 0), atLeast("local", o.Local, 1), atLeast("r", o.Near, 0))
}

// cisDefaults are the paper's options for its longest budget.
var cisDefaults = cisOptions{
	Step: 16, Tau: 0.8, K: device.Amount{Count: 432}, Sink: 16, Local: 64, Best: device.Amount{Share: 1.0 / 3}, Near: 1,
	Blocks: "absolute", Cand: "anchors", Rope: "post", Gap: "keep", Share: "head",
	indexOptions: exactIndex,
}

// cisPresets are the paper's configurations: budgets of 128 and 512 positions, and of
// an eighth of the sequence; -star are its CIS*, with a smaller k to make room for
// neighbours; the last number is the block.
var cisPresets = map[string]string{
	"gsm8k-128":          "sink=8,k=88,local=32",
	"gsm8k-128-s8":       "sink=8,k=88,local=32,s=8",
	"gsm8k-128-s20":      "sink=8,k=88,local=32,s=20",
	"gsm8k-128-star":     "sink=8,k=72,local=32",
	"longbench-512":      "sink=16,k=432,local=64",
	"longbench-512-s8":   "sink=16,k=432,local=64,s=8",
	"longbench-512-star": "sink=16,k=388,local=64",
	"eighth":             "k=0.125",
}

var cisEntry = entry(Doc{
	Name: "cis", Title: "positions selected once, and reused while queries stay similar",
	Source: "Near-Oracle KV Selection via Pre-hoc Sparsity (CPE), its sharing of critical sets",
	Stage:  Select, Decode: true,
	Granularity: "positions, per query head or kv head",
	Reads:       "sink + k + local positions of V, up to 2·r·m more when reused; all of K, or a copy of it in 8 or 4 bits, when a head selects, only those positions when it reuses",
	Presets:     cisPresets,
}, cisDefaults, newCIS)

// cis is the method's state. Head groups are query heads, or GQA groups with
// share=group.
type cis struct {
	cisOptions
	env   *Env
	cache device.SelectionCache // its tensors are of all layers and slots

	unrope device.Rotation // the inverse rotation; for rope=pre
	query  device.Tensor   // f32 [slots, heads, dim]: queries before rotation; for rope=pre
	scores device.Tensor   // f32 [slots, heads, maxlen]
	list   device.List     // [slots, head groups, positions]
	keyIndex
}

func newCIS(o cisOptions, env *Env) (Method, error) {
	headGroups := env.Heads
	if o.Share == "group" {
		headGroups = env.KVHeads
	}
	o.Step = min(o.Step, env.MaxLen) // a longer block is one block too
	maxK := max(1, min(o.K.Of(env.MaxLen), env.MaxLen))
	c := &cis{cisOptions: o, env: env, cache: device.SelectionCache{
		Query:    env.State(device.F32, env.Heads*o.Step, env.HeadDim),
		Entry:    env.State(device.I32, headGroups*o.Step, 3),
		Index:    env.State(device.I32, headGroups*o.Step, maxK),
		Since:    env.State(device.I32, 1),
		Counters: env.State(device.I32, headGroups, 4),
		Found:    env.Scratch(device.I32, env.Slots, headGroups),
		Block:    o.Step, Relative: o.Blocks == "relative", MinCosine: o.Tau, Chain: o.Cand == "chain", K: o.K,
	}}
	c.scores = env.Scratch(device.F32, env.Slots, env.Heads, env.MaxLen)
	capacity := maxK + 2*o.Near*min(o.Best.Of(maxK), maxK) + o.Step
	c.list = env.List(env.Slots, headGroups, min(capacity, env.MaxLen), false)
	var err error
	if c.keyIndex, err = newKeyIndex(o.indexOptions, env); err != nil || o.Rope == "post" {
		return c, err
	}
	c.query = env.Scratch(device.F32, env.Slots, env.Heads, env.HeadDim)
	c.unrope, err = env.unrope()
	return c, err
}

// Name is "cis".
func (*cis) Name() string { return "cis" }

// Restart stores the end of the prompt, before which entries of the cache are invalid.
func (c *cis) Restart(p *Pass, layer int) {
	device.Do(p.Queue, device.Copy{Dst: p.State(c.cache.Since, layer).Reshape(1), Src: p.End.Rows(p.Rows()-1, p.Rows())})
}

// Truncate moves the end of a prompt that was truncated: selections are reused from
// there on, as after a prompt of that length. Entries of dropped positions are
// overwritten before they can match.
func (c *cis) Truncate(slot, n int) {
	for l := range c.env.Layers {
		since := c.cache.Since.At(l).Rows(slot, slot+1)
		ends, err := c.env.ints(since)
		if err == nil && int(ends[0]) > n { // a failure sticks to the device
			c.env.dev.Write(since, binary.LittleEndian.AppendUint32(nil, uint32(n)))
		}
	}
}

// Decode lists the positions that each head of each slot reads (steps 1 to 3).
func (c *cis) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	plan = c.listed(p, plan)
	device.Do(p.Queue, device.ReuseSelection{
		List: plan.List, Cache: c.layerCache(p, layer), Scores: c.scores.Rows(0, p.Rows()), Compared: c.compared(p, q), Q: q, Keys: c.mirror, KV: p.KV(layer), Plan: plan,
		Neighbors: device.Neighbors{Best: c.Best, Each: c.Near, KeepSlid: c.Gap == "keep"},
	})
	return plan
}

// listed is the plan with the method's sinks, recent window and list.
func (c *cis) listed(p *Pass, plan device.Plan) device.Plan {
	plan.Sink, plan.Recent, plan.Selected = c.Sink, c.Local, device.Tokens
	plan.List = listRows(c.list, p.Rows())
	if plan.Span.Drop > 0 { // a window hides neither sinks nor the recent window
		plan.Span.Sink, plan.Span.Recent = max(plan.Span.Sink, c.Sink), c.Local
	}
	return plan
}

// layerCache is the selection cache of a layer.
func (c *cis) layerCache(p *Pass, layer int) device.SelectionCache {
	m := c.cache
	for _, t := range []*device.Tensor{&m.Query, &m.Entry, &m.Index, &m.Since, &m.Counters} {
		*t = p.State(*t, layer)
	}
	m.Found = m.Found.Rows(0, p.Rows())
	return m
}

// compared is the queries whose cosine similarity is tested.
func (c *cis) compared(p *Pass, q device.Tensor) device.Tensor {
	if c.Rope == "post" {
		return q
	}
	x := c.query.Rows(0, p.Rows())
	device.Do(p.Queue, device.Copy{Dst: x, Src: q})
	device.Do(p.Queue, device.Rope{X: x, Pos: p.Pos, Rotation: c.unrope})
	return x
}

// Figures are how often heads made a selection of their own, and the keys scored for it.
func (c *cis) Figures(slot int) ([]Figure, error) {
	var steps, selected, scored float64
	for l := range c.env.Layers {
		t, err := c.env.ints(c.cache.Counters.At(l).At(slot))
		if err != nil {
			return nil, err
		}
		for ; len(t) > 0; t = t[4:] {
			steps += float64(t[0])
			selected += float64(t[1])
			scored += float64(uint64(uint32(t[2])) | uint64(uint32(t[3]))<<32)
		}
	}
	steps = max(steps, 1)
	return []Figure{
		{Name: "selections", Unit: "lists", Value: selected},
		{Name: "retrieval ratio", Unit: "share of heads and steps", Value: selected / steps},
		{Name: "keys scored", Unit: "positions per head and step", Value: scored / steps},
	}, nil
}
