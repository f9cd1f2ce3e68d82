package sparse

import (
	"errors"

	"github.com/gollm/gollm/device"
)

// StreamingLLM (Xiao et al., Efficient Streaming Language Models with Attention
// Sinks, 2023): every row reads the first positions and a recent window. The
// original renumbers positions after eviction; here, as in every comparison of
// sparse methods, positions stay and the rest is masked.

// streamingOptions are the settings of streaming.
type streamingOptions struct {
	Sink   int `opt:"sink" unit:"positions" doc:"first positions that every row reads"`
	Window int `opt:"window" unit:"positions" doc:"newest positions, the row's own included"`
}

func (o streamingOptions) check() error {
	return errors.Join(atLeast("sink", o.Sink, 0), atLeast("window", o.Window, 1))
}

var streamingEntry = entry(Doc{
	Name: "streaming", Title: "attention sinks and a recent window",
	Source: "Xiao et al., Efficient Streaming Language Models with Attention Sinks, 2023",
	Stage:  Select, Prefill: true, Decode: true,
	Granularity: "two ranges, the same for all heads and layers",
	Reads:       "sink + window positions of K and V; selection costs nothing",
	Presets:     map[string]string{"paper": "sink=4,window=2044", "anchor-paper": "sink=1024,window=8192"},
}, streamingOptions{Sink: 128, Window: 1024},
	func(o streamingOptions, _ *Env) (Method, error) { return streaming{o}, nil })

type streaming struct{ streamingOptions }

// Name is "streaming".
func (streaming) Name() string { return "streaming" }

// Prefill plans the two ranges.
func (s streaming) Prefill(_ *Pass, _ int, _ device.Tensor, plan device.Plan) device.Plan {
	plan.Sink, plan.Recent, plan.Selected = s.Sink, s.Window, device.None
	return plan
}

// Decode plans the two ranges.
func (s streaming) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	return s.Prefill(p, layer, q, plan)
}
