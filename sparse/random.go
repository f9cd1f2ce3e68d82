package sparse

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// Random selection: the control that every selection has to beat. Each row and head
// reads the sinks, the recent window, and k positions of the residual, sampled uniformly
// without replacement.
//
//   - weight=inverse: each of b positions sampled out of n has weight n/b, as in
//     sparse-attention-hub's random sampling: numerator and denominator of the softmax
//     are unbiased.
//   - weight=one: it has weight 1, as a selected position has.
//   - share=group: one sample for the heads of a GQA group.
//
// Random numbers are addressed by seed, layer, head and position.

// randomOptions are the options of random.
type randomOptions struct {
	K      device.Amount `opt:"k" unit:"positions or share of the rest" doc:"positions sampled besides sinks and window; a count is 0 or at least 2"`
	Sink   int           `opt:"sink" unit:"positions" doc:"first positions that every row reads"`
	Window int           `opt:"window" unit:"positions" doc:"newest positions, the row's own included"`
	Weight string        `opt:"weight" oneof:"inverse one" doc:"a sampled position has the weight of the residual that it stands for, or 1"`
	Share  string        `opt:"share" oneof:"head group" doc:"a sample for each query head, or for each kv head"`
}

func (o randomOptions) check() error {
	err := errors.Join(atLeast("sink", o.Sink, 0), atLeast("window", o.Window, 1))
	if o.K.Share == 0 && o.K.Count == 1 {
		err = errors.Join(err, fmt.Errorf("option k: 1, want 0 or at least 2: a sample of one says nothing about the rest"))
	}
	return err
}

var randomEntry = entry(Doc{
	Name: "random", Title: "control: positions sampled at random",
	Source: "baseline; with weight=inverse the random sampling of sparse-attention-hub",
	Stage:  Select, Prefill: true, Decode: true, Draws: true,
	Granularity: "positions, per query head or kv head, and row",
	Reads:       "sink + window + k positions of K and V; to select, a few numbers for each sampled position",
}, randomOptions{K: device.Amount{Share: 0.1}, Sink: 16, Window: 64, Weight: "inverse", Share: "head"}, newRandom)

// random is the scratch of one tile of rows.
type random struct {
	randomOptions
	residual device.Residual // a sample whose size is that of its pilot
	list     device.List     // [rows, head groups, positions]
}

func newRandom(o randomOptions, env *Env) (Method, error) {
	rows, headGroups := max(env.Slots, min(rankTile, env.Rows)), env.Heads
	if o.Share == "group" {
		headGroups = env.KVHeads
	}
	return &random{
		randomOptions: o,
		residual:      device.Residual{Draw: rng.Address{Seed: env.Seed}, Pilot: o.K, Eps: 1},
		list:          env.List(rows, headGroups, env.MaxLen, true),
	}, nil
}

// Name is "random".
func (*random) Name() string { return "random" }

// Tile is the maximum rows of a tile.
func (*random) Tile() int { return rankTile }

// Prefill samples for each row of a tile.
func (r *random) Prefill(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	return r.Decode(p, layer, q, plan)
}

// Decode samples for each slot's row.
func (r *random) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	plan.Sink, plan.Recent, plan.Selected = r.Sink, r.Window, device.None
	residual, list := r.residual, listRows(r.list, p.Rows())
	residual.Draw.Layer = uint32(layer)
	device.Do(p.Queue, device.Sample{
		Rule: device.ResidualSample, List: list, Q: q, KV: p.KV(layer), Plan: plan, Residual: residual,
	})
	if r.Weight == "one" {
		list.Weight = device.Tensor{}
	}
	plan.Selected, plan.List = device.Tokens, list
	return plan
}
