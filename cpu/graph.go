package cpu

import (
	"slices"

	"github.com/gollm/gollm/device"
)

// Capture records the calls of step and runs none.
func (d *dev) Capture(step func(device.Queue)) (device.Graph, error) {
	g := &graph{ops: d.ops}
	step(g)
	return g, nil
}

// graph is a list of calls. While a step is captured it is the queue.
type graph struct {
	ops   *ops
	arena device.Arena // of its own: the calls live as long as the graph
	calls []device.Call
}

// Arena is where the graph's calls are allocated.
func (g *graph) Arena() *device.Arena { return &g.arena }

// Do records a call.
func (g *graph) Do(c device.Call) {
	c.Check()
	if s, ok := c.(*device.SampleTokens); ok {
		s.Params = slices.Clone(s.Params) // the caller may change its own
	}
	g.calls = append(g.calls, c)
}

// Launch runs the calls in order.
func (g *graph) Launch() {
	for _, c := range g.calls {
		g.ops.Again(c)
	}
	g.ops.Flush()
}

// Close drops the calls.
func (g *graph) Close() error {
	g.calls = nil
	return nil
}
