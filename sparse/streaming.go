package sparse

import (
	"errors"

	"github.com/gollm/gollm/device"
)

// StreamingLLM: Efficient Streaming Language Models with Attention Sinks (Xiao et al.,
// 2023). Every row reads the attention sinks, which are the first positions, and a
// recent window.
//
// Difference from the paper: it evicts the other positions and renumbers what is left in
// the cache; here, as in comparisons of sparse methods, positions stay and the rest is
// masked.

// streamingOptions are the options of streaming.
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
	Reads:       "sink + window positions of K and V; selection is free",
	Presets:     map[string]string{"paper": "sink=4,window=2044", "anchor-paper": "sink=1024,window=8192"},
}, streamingOptions{Sink: 128, Window: 1024},
	func(o streamingOptions, _ *Env) (Method, error) { return streaming{o}, nil })

type streaming struct{ streamingOptions }

// Name is "streaming".
func (streaming) Name() string { return "streaming" }

// Prefill plans sinks and window.
func (s streaming) Prefill(_ *Pass, _ int, _ device.Tensor, plan device.Plan) device.Plan {
	plan.Sink, plan.Recent, plan.Selected = s.Sink, s.Window, device.None
	return plan
}

// Decode plans sinks and window.
func (s streaming) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	return s.Prefill(p, layer, q, plan)
}
