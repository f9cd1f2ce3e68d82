package sparse

import (
	"encoding/binary"
	"errors"

	"github.com/gollm/gollm/device"
)

// CIS, the sharing of critical sets of CPE (Near-Oracle KV Selection via Pre-hoc
// Sparsity): in decode, a head that asks nearly what it asked a few steps before
// reads what it read then. In a block of s positions, each head of each layer:
//
//  1. looks for the newest query of the block that chose for itself and whose
//     cosine with its own is above tau;
//  2. without one, scores the whole past and keeps the k best positions S*
//     between the sinks and the recent window;
//  3. with one, that of step t0, reads its S*, and r neighbours on each side of
//     the m best of S*, without a score.
//
// Either way it reads the sinks and the recent window too. Every decision is
// made on the device: a head that shares is not scored.
//
// Where the paper is silent or contradicts itself, the default first:
//   - blocks: counted from position 0, or from the end of the last prompt.
//   - cand: only queries that chose for themselves can be shared from, or any,
//     with the set that it shared.
//   - rope: queries are compared after rotation, or before.
//   - gap: positions that were in the recent window at t0 and have left it since
//     are read, or not.
//   - share: each query head for itself, or the heads of a kv head together: the
//     least of their cosines decides, the mean of their weights ranks.
//
// Positions that a window (psaw) hides are not chosen, and not shared. What is
// remembered lasts for a block and until the next prompt.

// cisOptions are the settings of cis.
type cisOptions struct {
	Step   int           `opt:"s" unit:"positions" doc:"block in which sets are shared"`
	Tau    float64       `opt:"tau" unit:"cosine" doc:"how similar queries must be to share; 2 never shares"`
	K      device.Amount `opt:"k" unit:"positions or share" doc:"positions chosen besides sinks and recent window"`
	Sink   int           `opt:"sink" unit:"positions" doc:"first positions that are always read"`
	Local  int           `opt:"local" unit:"positions" doc:"newest positions that are always read, the row's own included"`
	Best   device.Amount `opt:"m" unit:"positions or share of k" doc:"how many of the best have their neighbours read when shared"`
	Near   int           `opt:"r" unit:"positions" doc:"neighbours on each side"`
	Blocks string        `opt:"blocks" oneof:"absolute relative" doc:"blocks begin at multiples of s, or count from the end of the prompt"`
	Cand   string        `opt:"cand" oneof:"anchors chain" doc:"share from queries that chose, or from any"`
	Rope   string        `opt:"rope" oneof:"post pre" doc:"compare queries after rotation, or before"`
	Gap    string        `opt:"gap" oneof:"keep drop" doc:"positions that left the recent window since the set was chosen"`
	Share  string        `opt:"share" oneof:"head group" doc:"sets for each query head, or for each kv head"`
}

// maxStep bounds the block: a query and a set are remembered for each of its
// positions, head and layer, which is 2 GB for an 8B model.
const maxStep = 1 << 12

func (o cisOptions) check() error {
	return errors.Join(between("s", o.Step, 1, maxStep), atLeast("sink", o.Sink, 0), atLeast("local", o.Local, 1), atLeast("r", o.Near, 0))
}

// cisDefaults is the setting of the paper's longest budget.
var cisDefaults = cisOptions{
	Step: 16, Tau: 0.8, K: device.Amount{Count: 432}, Sink: 16, Local: 64, Best: device.Amount{Share: 1.0 / 3}, Near: 1,
	Blocks: "absolute", Cand: "anchors", Rope: "post", Gap: "keep", Share: "head",
}

// cisPresets are the paper's settings: budgets of 128 and 512 positions, and of
// an eighth of the sequence; -star are its CIS*, with fewer chosen to make room
// for neighbours; the last number is the block.
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
	Name: "cis", Title: "positions chosen once, and reused while queries stay similar",
	Source: "Near-Oracle KV Selection via Pre-hoc Sparsity (CPE), its sharing of critical sets",
	Stage:  Select, Decode: true,
	Granularity: "positions, per query head or kv head",
	Reads:       "sink + k + local positions of V, up to 2·r·m more when shared; all of K when a head chooses, only those positions when it shares",
	Presets:     cisPresets,
}, cisDefaults, newCIS)

// cis holds what heads chose. Sets are query heads, or kv heads with
// share=group.
type cis struct {
	cisOptions
	env  *Env
	memo device.SelectionCache // its tensors are of all layers and slots

	unrope device.Rotation // undoes the rotation; used with rope=pre
	query  device.Tensor   // f32 [slots, heads, dim]: queries before rotation
	scores device.Tensor   // f32 [slots, heads, maxlen]
	list   device.List     // a group for each slot, a head for each set
}

func newCIS(o cisOptions, env *Env) (Method, error) {
	sets := env.Heads
	if o.Share == "group" {
		sets = env.KVHeads
	}
	o.Step = min(o.Step, env.MaxLen) // a longer block is one block too
	most := max(1, min(o.K.Of(env.MaxLen), env.MaxLen))
	c := &cis{cisOptions: o, env: env, memo: device.SelectionCache{
		Query:    env.State(device.F32, env.Heads*o.Step, env.HeadDim),
		Entry:    env.State(device.I32, sets*o.Step, 3),
		Index:    env.State(device.I32, sets*o.Step, most),
		Since:    env.State(device.I32, 1),
		Counters: env.State(device.I32, sets, 4),
		Found:    env.Scratch(device.I32, env.Slots, sets),
		Block:    o.Step, Relative: o.Blocks == "relative", MinCosine: o.Tau, Chain: o.Cand == "chain", K: o.K,
	}}
	c.scores = env.Scratch(device.F32, env.Slots, env.Heads, env.MaxLen)
	widest := most + 2*o.Near*min(o.Best.Of(most), most) + o.Step
	c.list = env.List(env.Slots, sets, min(widest, env.MaxLen), false)
	if o.Rope == "post" {
		return c, nil
	}
	c.query = env.Scratch(device.F32, env.Slots, env.Heads, env.HeadDim)
	var err error
	c.unrope, err = env.unrope()
	return c, err
}

// Name is "cis".
func (*cis) Name() string { return "cis" }

// Restart notes where the prompt ends: what was chosen before is forgotten.
func (c *cis) Restart(p *Pass, layer int) {
	device.Do(p.Queue, device.Copy{Dst: p.State(c.memo.Since, layer).Reshape(1), Src: p.End.Rows(p.Rows()-1, p.Rows())})
}

// Truncate moves the end of the prompt back where the prompt was cut: sets are
// shared from there on, as after a prompt of that length. What was chosen at
// positions that are gone is overwritten before it could be looked at.
func (c *cis) Truncate(slot, n int) {
	for l := range c.env.Layers {
		since := c.memo.Since.At(l).Rows(slot, slot+1)
		ends, err := c.env.ints(since)
		if err == nil && int(ends[0]) > n { // a failure sticks to the device
			c.env.dev.Write(since, binary.LittleEndian.AppendUint32(nil, uint32(n)))
		}
	}
}

// Decode lists what each head of each slot reads.
func (c *cis) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	plan = c.reads(p, plan)
	device.Do(p.Queue, device.ReuseSelection{List: plan.List, Cache: c.remembered(p, layer), Scores: c.scores.Rows(0, p.Rows()), Compared: c.compared(p, q), Q: q, KV: p.KV(layer), Plan: plan, Neighbors: c.widen()})
	return plan
}

// reads is the plan with the method's own positions and its list.
func (c *cis) reads(p *Pass, plan device.Plan) device.Plan {
	plan.Sink, plan.Recent, plan.Selected = c.Sink, c.Local, device.Tokens
	plan.List = listRows(c.list, p.Rows())
	if plan.Span.Drop > 0 { // a window hides neither sinks nor the recent window
		plan.Span.Sink, plan.Span.Recent = max(plan.Span.Sink, c.Sink), c.Local
	}
	return plan
}

// remembered is the memo of a layer.
func (c *cis) remembered(p *Pass, layer int) device.SelectionCache {
	m := c.memo
	for _, t := range []*device.Tensor{&m.Query, &m.Entry, &m.Index, &m.Since, &m.Counters} {
		*t = p.State(*t, layer)
	}
	m.Found = m.Found.Rows(0, p.Rows())
	return m
}

// widen is what is read besides what was chosen.
func (c *cis) widen() device.Neighbors {
	return device.Neighbors{Best: c.Best, Each: c.Near, KeepSlid: c.Gap == "keep"}
}

// compared is the queries whose likeness counts.
func (c *cis) compared(p *Pass, q device.Tensor) device.Tensor {
	if c.Rope == "post" {
		return q
	}
	x := c.query.Rows(0, p.Rows())
	device.Do(p.Queue, device.Copy{Dst: x, Src: q})
	device.Do(p.Queue, device.Rope{X: x, Pos: p.Pos, Rotation: c.unrope})
	return x
}

// Figures are how often heads chose for themselves and what that read of K.
func (c *cis) Figures(slot int) ([]Figure, error) {
	var steps, chosen, scored float64
	for l := range c.env.Layers {
		t, err := c.env.ints(c.memo.Counters.At(l).At(slot))
		if err != nil {
			return nil, err
		}
		for ; len(t) > 0; t = t[4:] {
			steps += float64(t[0])
			chosen += float64(t[1])
			scored += float64(uint64(uint32(t[2])) | uint64(uint32(t[3]))<<32)
		}
	}
	steps = max(steps, 1)
	return []Figure{
		{Name: "choices", Unit: "sets", Value: chosen},
		{Name: "retrieval ratio", Unit: "share of heads and steps", Value: chosen / steps},
		{Name: "keys scored", Unit: "positions per head and step", Value: scored / steps},
	}, nil
}
