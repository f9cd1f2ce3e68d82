package sparse

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// Random selection: the control that every choice has to beat. Each row and head
// reads the first positions, the recent window, and k of the rest, drawn
// uniformly without replacement.
//
// With weight=inverse each of b positions drawn of n counts n/b times, as in
// sparse-attention-hub's random sampling: the sums of weights and of weighted
// values are right in the mean. With weight=one it counts once, as what a
// selecting method reads does.
//
// Numbers are addressed by seed, layer, head and position. share=group draws one
// set for the heads of a kv head.

// randomOptions are the settings of random.
type randomOptions struct {
	K      device.Amount `opt:"k" unit:"positions or share of the rest" doc:"positions drawn besides sinks and window; a count is 0 or at least 2"`
	Sink   int           `opt:"sink" unit:"positions" doc:"first positions that every row reads"`
	Window int           `opt:"window" unit:"positions" doc:"newest positions, the row's own included"`
	Weight string        `opt:"weight" oneof:"inverse one" doc:"what is drawn stands for all of the rest, or for itself"`
	Share  string        `opt:"share" oneof:"head group" doc:"sets for each query head, or for each kv head"`
}

func (o randomOptions) check() error {
	err := errors.Join(atLeast("sink", o.Sink, 0), atLeast("window", o.Window, 1))
	if o.K.Share == 0 && o.K.Count == 1 {
		err = errors.Join(err, fmt.Errorf("option k: 1, want 0 or at least 2: a sample of one says nothing about the rest"))
	}
	return err
}

var randomEntry = entry(Doc{
	Name: "random", Title: "control: positions drawn at random",
	Source: "baseline; with weight=inverse the random sampling of sparse-attention-hub",
	Stage:  Select, Prefill: true, Decode: true, Draws: true,
	Granularity: "positions, per query head or kv head, and row",
	Reads:       "sink + window + k positions of K and V; to choose, a few numbers for each position drawn",
}, randomOptions{K: device.Amount{Share: 0.1}, Sink: 16, Window: 64, Weight: "inverse", Share: "head"}, newRandom)

// random holds the lists of one tile of rows.
type random struct {
	randomOptions
	tail device.Residual // a sample whose size is that of its pilot
	list device.List     // a group for each row, a head for each set
}

func newRandom(o randomOptions, env *Env) (Method, error) {
	rows, sets := max(env.Slots, min(rankTile, env.Rows)), env.Heads
	if o.Share == "group" {
		sets = env.KVHeads
	}
	return &random{
		randomOptions: o,
		tail:          device.Residual{Draw: rng.Address{Seed: env.Seed}, Pilot: o.K, Eps: 1},
		list:          env.List(rows, sets, env.MaxLen, true),
	}, nil
}

// Name is "random".
func (*random) Name() string { return "random" }

// Tile bounds the rows planned at once.
func (*random) Tile() int { return rankTile }

// Prefill draws for every row of a tile by itself.
func (r *random) Prefill(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	return r.Decode(p, layer, q, plan)
}

// Decode draws for each slot's row.
func (r *random) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	plan.Sink, plan.Recent, plan.Selected = r.Sink, r.Window, device.None
	tail, list := r.tail, listRows(r.list, p.Rows())
	tail.Draw.Layer = uint32(layer)
	device.Do(p.Queue, device.Sample{Rule: device.ResidualSample, List: list, Q: q, KV: p.KV(layer), Plan: plan, Residual: tail})
	if r.Weight == "one" {
		list.Weight = device.Tensor{}
	}
	plan.Selected, plan.List = device.Tokens, list
	return plan
}
