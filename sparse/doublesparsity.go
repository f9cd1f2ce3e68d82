package sparse

import (
	"errors"
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/internal/npy"
)

// Double Sparsity: Post-Training Sparse Attention with Double Sparsity (Yang et al.,
// 2024). Positions are ranked by the most important channels of queries and keys.
//
//  1. Offline calibration ranks the channels c of each layer and head by mean |q_c·k_c|
//     over a text; the first dim/factor of them are used.
//  2. The label cache stores these channels of each key, beside its page.
//  3. A decode step scores all positions by Σ_c q_c·k_c over the label channels, and
//     reads the top k, besides sinks and a recent window. The first layers are dense.
//
// The calibration is a file: a .npy array [layers, heads or kv heads, channels], best
// first, in the channel order of Hugging Face models (layout=halves) or of the cache
// (layout=stored). gollm channels makes one.
//
// Differences from the authors' code:
//   - Labels are f16; with bits=4 they are rounded as in the code, and stored in f16.
//   - Every row reads its own position.

// doublesparsityOptions are the options of doublesparsity.
type doublesparsityOptions struct {
	File   string        `opt:"file" unit:"path" doc:"the ranking of channels, a .npy file; needed"`
	Layout string        `opt:"layout" oneof:"halves stored" doc:"channel order of the file: that of Hugging Face models, or of the cache"`
	Factor int           `opt:"factor" unit:"channels" doc:"one in so many channels is used"`
	Bits   int           `opt:"bits" unit:"bits" doc:"labels are rounded to 2^bits levels; 16 is not rounded"`
	K      device.Amount `opt:"k" unit:"positions or share" doc:"positions selected besides sinks and window"`
	Sink   int           `opt:"sink" unit:"positions" doc:"first positions that are always read"`
	Window int           `opt:"window" unit:"positions" doc:"newest positions that are always read, the row's own included"`
	Dense  int           `opt:"dense" unit:"layers" doc:"number of first layers that are dense"`
}

func (o doublesparsityOptions) check() error {
	err := errors.Join(atLeast("factor", o.Factor, 1), atLeast("bits", o.Bits, 1),
		atLeast("sink", o.Sink, 0), atLeast("window", o.Window, 1), atLeast("dense", o.Dense, 0))
	if o.Bits > 16 {
		err = errors.Join(err, fmt.Errorf("option bits: %d, want at most 16", o.Bits))
	}
	return err
}

func (o doublesparsityOptions) missing() error {
	if o.File == "" {
		return errors.New("it needs a ranking of the model's channels: give file=CHANNELS.npy, f32 [layers, heads, channels]; gollm channels makes one")
	}
	return nil
}

var doublesparsityEntry = entry(Doc{
	Name: "doublesparsity", Title: "positions ranked by a few channels (needs a file of channels)",
	Source: "Yang et al., Post-Training Sparse Attention with Double Sparsity, 2024, and its code",
	Stage:  Select, Decode: true, Observes: true,
	Granularity: "positions, per query head",
	Reads:       "sink + k + window positions of K and V; to select, dim/factor channels of each key",
	Presets:     map[string]string{"paper": "factor=16,k=0.0625", "labels-4bit": "factor=8,bits=4"},
}, doublesparsityOptions{Layout: "halves", Factor: 16, Bits: 16, K: device.Amount{Share: 1. / 16}, Window: 1, Dense: 2}, newDoublesparsity)

// doublesparsity is the method's state. Head groups are those of the file.
type doublesparsity struct {
	doublesparsityOptions
	ranked
	channels device.Tensor // i32 [layers, head groups, n]
	levels   int           // that labels are rounded to; 0 is not rounded
	labels   device.Tensor // f16 [pages, head groups, n, PageLen], beside each page
}

// labelChannels is dim/factor, rounded up; at least 1.
func labelChannels(dim, factor int) int { return (dim-1)/factor + 1 }

func newDoublesparsity(o doublesparsityOptions, env *Env) (Method, error) {
	if err := o.missing(); err != nil {
		return nil, err
	}
	if o.Dense > env.Layers {
		return nil, fmt.Errorf("option dense: %d, the model has %d layers", o.Dense, env.Layers)
	}
	a, err := npy.ReadFile(o.File)
	if err != nil {
		return nil, fmt.Errorf("option file: %w", err)
	}
	n := labelChannels(env.HeadDim, o.Factor)
	if err := fitsChannels(a, env, n); err != nil {
		return nil, fmt.Errorf("option file: %s: %w", o.File, err)
	}
	index, err := channelsOf(a, env, n, o.Layout)
	if err != nil {
		return nil, fmt.Errorf("option file: %s: %w", o.File, err)
	}
	headGroups := a.Shape[1]
	d := &doublesparsity{
		doublesparsityOptions: o,
		channels:              env.Ints(index, env.Layers, headGroups, n),
		labels:                env.PageState(device.F16, headGroups, n, device.PageLen),
		ranked:                newRanked(env, false),
	}
	if o.Bits < 16 {
		d.levels = 1 << o.Bits
	}
	return d, nil
}

// fitsChannels checks the shape of a ranking.
func fitsChannels(a *npy.Array, env *Env, n int) error {
	if s := a.Shape; len(s) != 3 || s[0] != env.Layers || s[1] != env.Heads && s[1] != env.KVHeads || s[2] < n {
		return fmt.Errorf("an array of shape %v, want [%d layers, %d heads or %d kv heads, %d channels or more]", s, env.Layers, env.Heads, env.KVHeads, n)
	}
	return nil
}

// channelsOf is the first n channels of each head, in the order of the cache.
func channelsOf(a *npy.Array, env *Env, n int, layout string) ([]int32, error) {
	var index []int32
	width := a.Shape[2]
	stored := env.stored(layout)
	for h := 0; h < len(a.Data); h += width {
		seen := map[float32]bool{}
		for _, c := range a.Data[h : h+n] {
			if !(c >= 0 && c < float32(env.HeadDim)) || c != float32(math.Trunc(float64(c))) || seen[c] {
				return nil, fmt.Errorf("channel %v of layer %d, head %d, want different whole numbers from 0 to %d",
					c, h/width/a.Shape[1], h/width%a.Shape[1], env.HeadDim-1)
			}
			seen[c] = true
			index = append(index, int32(stored[int(c)]))
		}
	}
	return index, nil
}

// stored maps a head's channels from a layout to the order of the cache: with halves, the
// two channels of a RoPE pair are half a head apart, and a model may interleave them.
func (e *Env) stored(layout string) []int {
	at := make([]int, e.HeadDim)
	half := e.HeadDim / 2
	for i := range at {
		at[i] = i
		if layout == "halves" && e.Rope.Interleaved && 2*half == e.HeadDim {
			at[i] = i%half*2 + i/half
		}
	}
	return at
}

// Name is "doublesparsity".
func (*doublesparsity) Name() string { return "doublesparsity" }

// layerChannels is the label channels of a layer.
func (d *doublesparsity) layerChannels(layer int) device.Channels {
	return device.Channels{Index: d.channels.At(layer), Levels: d.levels}
}

// Observe stores the labels of the new keys (step 2).
func (d *doublesparsity) Observe(p *Pass, layer int, _, k device.Tensor) {
	if layer >= d.Dense {
		device.Do(p.Queue, device.Summarize{
			Rule: device.KeyChannels, Dst: d.labels, X: k, Channels: d.layerChannels(layer), KV: p.KV(layer),
		})
	}
}

// Decode scores labels and lists the top k (step 3).
func (d *doublesparsity) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	if layer < d.Dense {
		return plan
	}
	kv := p.KV(layer)
	plan, scores := d.plan(p, plan, d.Sink, d.Window)
	device.Do(p.Queue, device.Score{Rule: device.ChannelScores, Dst: scores, Q: q, Keys: d.labels, Channels: d.layerChannels(layer), KV: kv, Plan: plan})
	device.Do(p.Queue, device.Select{Rule: device.TopK, List: plan.List, Scores: scores, KV: kv, K: d.K})
	return plan
}
