package sparse

import (
	"errors"

	"github.com/gollm/gollm/device"
)

// Oracle top-k: each row and query head reads the sinks, the recent window, and the k
// positions between them with the largest exact scores q·k. It reads all of K and saves
// V only: it is the upper baseline for methods that select k positions by other means.
//
// With index=q8 or q4 it ranks by a copy of the keys in 8 or 4 bits instead (half or a quarter
// of K's bytes); rescore=n scores the n·k best exactly before the final selection.

// topkOptions are the options of topk.
type topkOptions struct {
	K      device.Amount `opt:"k" unit:"positions or share" doc:"positions selected besides sinks and window"`
	Sink   int           `opt:"sink" unit:"positions" doc:"first positions that every row reads"`
	Window int           `opt:"window" unit:"positions" doc:"newest positions, the row's own included"`
	rescoreOptions
}

func (o topkOptions) check() error {
	return errors.Join(atLeast("sink", o.Sink, 0), atLeast("window", o.Window, 1), o.rescoreOptions.check())
}

var topkEntry = entry(Doc{
	Name: "topk", Title: "oracle: the positions with the largest exact scores",
	Source: "baseline of the papers; equal to a top-k of exact attention weights",
	Stage:  Select, Prefill: true, Decode: true,
	Granularity: "positions, per query head and row",
	Reads:       "all of K to select, or a copy of it in 8 or 4 bits and rescore·k of K; sink + window + k positions of V",
}, topkOptions{K: device.Amount{Share: 0.1}, Sink: 16, Window: 64, rescoreOptions: plainIndex}, newTopk)

// topk is the scratch of one tile of rows.
type topk struct {
	topkOptions
	ranked
	keyIndex
}

func newTopk(o topkOptions, env *Env) (Method, error) {
	x, err := newKeyIndex(o.indexOptions, env)
	return &topk{topkOptions: o, ranked: newRanked(env, true), keyIndex: x}, err
}

// Name is "topk".
func (*topk) Name() string { return "topk" }

// Tile is the maximum rows of a tile.
func (t *topk) Tile() int { return rankTile }

// Prefill selects for each row of a tile.
func (t *topk) Prefill(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	return t.Decode(p, layer, q, plan)
}

// Decode scores the region between sinks and window and lists its top k.
func (t *topk) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	plan, scores := t.plan(p, plan, t.Sink, t.Window)
	t.score(p, layer, scores, q, plan)
	if t.Rescore > 0 {
		t.rescore(p, layer, scores, scores, q, plan, times(t.K, t.Rescore))
	}
	device.Do(p.Queue, device.Select{Rule: device.TopK, List: plan.List, Scores: scores, KV: p.KV(layer), K: t.K})
	return plan
}
