package sparse

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
)

// Oracle top-p: per query head, the smallest set of positions whose exact
// attention weights sum to a share p of all, besides sinks and a recent window
// that do not count:
//
//	take the largest of e^(s_j - max s), j in the middle, until Σ taken >= p·Σ all
//
// It reads all of K, as topk does; how much of V it reads is decided by each row.
// Two differences from the code of sparse-attention-hub: positions that tie with
// the last one taken stay out, so that a set has no more than it needs, and sums
// are compared with p·Σ, not divided first.

// toppOptions are the settings of topp.
type toppOptions struct {
	P      float64 `opt:"p" unit:"share of the weight" doc:"weight kept of the positions besides sinks and window; 1 reads everything"`
	Sink   int     `opt:"sink" unit:"positions" doc:"first positions that every row reads"`
	Window int     `opt:"window" unit:"positions" doc:"newest positions, the row's own included"`
}

func (o toppOptions) check() error {
	err := errors.Join(atLeast("sink", o.Sink, 0), atLeast("window", o.Window, 1))
	if !(o.P >= 0 && o.P <= 1) {
		err = errors.Join(err, fmt.Errorf("option p: %v, want 0 to 1", o.P))
	}
	return err
}

var toppEntry = entry(Doc{
	Name: "topp", Title: "oracle: the fewest positions that hold a share of the exact weight",
	Source: "baseline of the papers; equal to a top-p of exact attention weights",
	Stage:  Select, Prefill: true, Decode: true,
	Granularity: "positions, per query head and row",
	Reads:       "all of K to choose; of V sink + window and as much as the weights ask for",
}, toppOptions{P: 0.95, Sink: 16, Window: 64}, newTopp)

// topp holds the scores and the lists of one tile of rows.
type topp struct {
	toppOptions
	ranked
}

func newTopp(o toppOptions, env *Env) (Method, error) {
	return &topp{toppOptions: o, ranked: newRanked(env, true)}, nil
}

// Name is "topp".
func (*topp) Name() string { return "topp" }

// Tile bounds the rows planned at once.
func (*topp) Tile() int { return rankTile }

// Prefill ranks every row of a tile by itself.
func (t *topp) Prefill(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	return t.Decode(p, layer, q, plan)
}

// Decode ranks each slot's row.
func (t *topp) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	if t.P == 1 {
		return plan
	}
	kv := p.KV(layer)
	plan, scores := t.plan(p, plan, t.Sink, t.Window)
	device.Do(p.Queue, device.Score{Rule: device.ExactScores, Dst: scores, Q: q, KV: kv, Plan: plan, Region: device.SelectedRegion})
	device.Do(p.Queue, device.Select{Rule: device.TopP, List: plan.List, Scores: scores, KV: kv, Mass: t.P})
	return plan
}
