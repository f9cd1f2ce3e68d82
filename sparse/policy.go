package sparse

import "github.com/gollm/gollm/device"

// Method is one attention system. What it can do is which of the interfaces
// below it satisfies; a policy asks for each ability by type.
type Method interface {
	// Name is the name in table.go.
	Name() string
}

// Prefiller plans what the rows of a prefill pass read in one layer. It refines
// plan, which is what the stages before it left, and may only read less.
// q f32 [rows, heads, dim].
type Prefiller interface {
	Method
	Prefill(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan
}

// Decoder plans what the newest position of each slot reads in one layer.
type Decoder interface {
	Method
	Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan
}

// Observer sees the queries and keys of every pass and layer, before anything
// is planned: q f32 [rows, heads, dim], k f32 [rows, kvheads, dim], both after
// RoPE; k is stored already. A method that decides in decode by what was
// prefilled, perhaps under another method's plan, needs it.
type Observer interface {
	Method
	Observe(p *Pass, layer int, q, k device.Tensor)
}

// Windower bounds what a layer sees of the past.
type Windower interface {
	Method
	Span(layer int) device.Span
}

// Freezer says which rows of a prompt a layer does not update: positions
// [from, to), with to never decreasing from layer to layer.
type Freezer interface {
	Method
	Frozen(layer, prompt int) (from, to int)
}

// Tiler is a Prefiller that plans rows one by one and wants at most Tile rows at
// once: the policy cuts the pass. Its lists have a group for each row.
type Tiler interface {
	Prefiller
	Tile() int
}

// Tracer watches eager passes: an audit or a stopwatch.
type Tracer interface {
	// Begin comes before the layer's first stage.
	Begin(p *Pass, layer int)
	// Planned comes before the attention of the plan.
	Planned(p *Pass, layer int, plan device.Plan)
	// Attended comes after it. dst, q f32 [rows, heads, dim].
	Attended(p *Pass, layer int, dst, q device.Tensor, plan device.Plan)
}

// Policy is the attention of one runner. The zero Policy is dense.
type Policy struct {
	// Window is the model's own sliding window: a row sees this many positions,
	// its own included; 0 sees all. It bounds every method.
	Window int
	// Trace, when set, watches every layer.
	Trace Tracer

	spec    *Spec
	env     *Env
	freezer Freezer
	spans   []device.Span // by layer; nil is everything
	observe []Observer
	prefill []Prefiller
	decode  []Decoder
	tile    int // most rows planned at once in prefill; 0 is all
}

// Attend computes one layer's attention for the rows of a pass.
// dst, q f32 [rows, heads, dim], k f32 [rows, kvheads, dim], stored already.
func (c *Policy) Attend(p *Pass, layer int, dst, q, k device.Tensor) {
	if c.Trace != nil {
		c.Trace.Begin(p, layer)
	}
	for _, o := range c.observe {
		o.Observe(p, layer, q, k)
	}
	tile := p.Rows()
	if c.tile > 0 && !p.Decode {
		tile = c.tile
	}
	for lo := 0; lo < p.Rows(); lo += tile {
		hi := min(lo+tile, p.Rows())
		if hi-lo == p.Rows() {
			c.attend(p, layer, dst, q)
			return
		}
		t := p.Tile(lo, hi)
		c.attend(&t, layer, dst.Rows(lo, hi), q.Rows(lo, hi))
	}
}

// attend plans and attends for the rows of a pass or of a tile of one.
func (c *Policy) attend(p *Pass, layer int, dst, q device.Tensor) {
	plan := c.plan(p, layer, q)
	if c.Trace != nil {
		c.Trace.Planned(p, layer, plan)
	}
	p.Ops.Attend(dst, q, p.KV(layer), plan)
	if c.Trace != nil {
		c.Trace.Attended(p, layer, dst, q, plan)
	}
}

// plan runs the stages of the pass's phase.
func (c *Policy) plan(p *Pass, layer int, q device.Tensor) device.Plan {
	plan := device.Plan{Span: c.span(layer)}
	if p.Decode {
		for _, m := range c.decode {
			plan = m.Decode(p, layer, q, plan)
		}
		return plan
	}
	for _, m := range c.prefill {
		plan = m.Prefill(p, layer, q, plan)
	}
	return plan
}

// span is what a layer can see: the model's window and that of a Windower.
func (c *Policy) span(layer int) device.Span {
	var s device.Span
	if c.spans != nil {
		s = c.spans[layer]
	}
	if c.Window > 0 && (s.Back == 0 || c.Window < s.Back) {
		s.Back = c.Window
	}
	return s
}

// Frozen is the rows of a prompt that a layer does not update: positions
// [from, to), empty without a Freezer.
func (c *Policy) Frozen(layer, prompt int) (from, to int) {
	if c.freezer == nil {
		return 0, 0
	}
	return c.freezer.Frozen(layer, prompt)
}

// String is the text that [Parse] reads back.
func (c *Policy) String() string {
	if c.spec == nil {
		return "dense"
	}
	return c.spec.String()
}

// Size is the bytes of device memory that the methods hold.
func (c *Policy) Size() int {
	if c.env == nil {
		return 0
	}
	return c.env.size
}

// PageStates are the tensors [pages, ...] that the cache copies with a page.
func (c *Policy) PageStates() []device.Tensor {
	if c.env == nil {
		return nil
	}
	return c.env.pages
}

// Reset clears what the methods remember of a slot.
func (c *Policy) Reset(slot int) {
	if c.env != nil {
		c.env.reset(slot)
	}
}

// Fork copies what the methods remember of slot src to slot dst.
func (c *Policy) Fork(dst, src int) {
	if c.env != nil {
		c.env.fork(dst, src)
	}
}

// add gives a method its places in the phases that the text asked for.
func (c *Policy) add(m Method, it item) {
	if f, ok := m.(Freezer); ok {
		c.freezer = f
	}
	if w, ok := m.(Windower); ok {
		for l := range c.env.Layers {
			if c.spans == nil {
				c.spans = make([]device.Span, c.env.Layers)
			}
			c.spans[l] = w.Span(l)
		}
	}
	if o, ok := m.(Observer); ok {
		c.observe = append(c.observe, o)
	}
	pre, prefills := m.(Prefiller)
	if prefills && it.prefill {
		c.prefill = append(c.prefill, pre)
	}
	if t, ok := m.(Tiler); ok && it.prefill && (c.tile == 0 || t.Tile() < c.tile) {
		c.tile = t.Tile()
	}
	dec, decodes := m.(Decoder)
	if decodes && it.decode {
		c.decode = append(c.decode, dec)
	}
}
