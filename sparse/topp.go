package sparse

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
)

// Oracle top-p: each row and query head reads the sinks, the recent window, and the
// smallest set of positions between them that holds the share p of their softmax mass:
//
//	add positions j in descending order of e^(s_j - max s) until Σ added >= p·Σ all
//
// It reads all of K, as topk does; how much of V it reads adapts to each row.
//
// With index=q8 or q4 scores and mass are those of a copy of the keys in 8 or 4 bits. There is no
// rescore: how many positions hold the mass is not known before they are ranked.
//
// Differences from the code of sparse-attention-hub:
//   - Positions that tie with the last one added stay out, so that the set is minimal.
//   - Sums are compared with p·Σ, instead of being normalized first.

// toppOptions are the options of topp.
type toppOptions struct {
	P      float64 `opt:"p" unit:"share of the softmax mass" doc:"softmax mass of the positions besides sinks and window that is read; 1 reads everything"`
	Sink   int     `opt:"sink" unit:"positions" doc:"first positions that every row reads"`
	Window int     `opt:"window" unit:"positions" doc:"newest positions, the row's own included"`
	indexOptions
}

func (o toppOptions) check() error {
	err := errors.Join(atLeast("sink", o.Sink, 0), atLeast("window", o.Window, 1))
	if !(o.P >= 0 && o.P <= 1) {
		err = errors.Join(err, fmt.Errorf("option p: %v, want 0 to 1", o.P))
	}
	return err
}

var toppEntry = entry(Doc{
	Name: "topp", Title: "oracle: the fewest positions that hold a share of the softmax mass",
	Source: "baseline of the papers; equal to a top-p of exact attention weights",
	Stage:  Select, Prefill: true, Decode: true,
	Granularity: "positions, per query head and row",
	Reads:       "all of K to select, or a copy of it in 8 or 4 bits; of V sink + window and as much as holds the mass",
}, toppOptions{P: 0.95, Sink: 16, Window: 64, indexOptions: exactIndex}, newTopp)

// topp is the scratch of one tile of rows.
type topp struct {
	toppOptions
	ranked
	keyIndex
}

func newTopp(o toppOptions, env *Env) (Method, error) {
	x, err := newKeyIndex(o.indexOptions, env)
	return &topp{toppOptions: o, ranked: newRanked(env, true), keyIndex: x}, err
}

// Name is "topp".
func (*topp) Name() string { return "topp" }

// Tile is the maximum rows of a tile.
func (*topp) Tile() int { return rankTile }

// Prefill selects for each row of a tile.
func (t *topp) Prefill(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	return t.Decode(p, layer, q, plan)
}

// Decode scores the region between sinks and window and lists the positions with
// mass p.
func (t *topp) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	if t.P == 1 {
		return plan
	}
	plan, scores := t.plan(p, plan, t.Sink, t.Window)
	t.score(p, layer, scores, q, plan)
	device.Do(p.Queue, device.Select{Rule: device.TopP, List: plan.List, Scores: scores, KV: p.KV(layer), Mass: t.P})
	return plan
}
