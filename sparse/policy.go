package sparse

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// Method is one attention algorithm. What it can do is which of the interfaces
// below it satisfies; a policy asks for each ability by type.
type Method interface {
	// Name is the name in table.go.
	Name() string
}

// Prefiller plans what the rows of a prefill pass read in one layer. It refines
// plan, which is the output of the earlier stages, and may only read less.
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
// RoPE; k is in the cache already. A method that keeps an index of the keys, or
// statistics of the queries, of prompts that another method plans needs it.
type Observer interface {
	Method
	Observe(p *Pass, layer int, q, k device.Tensor)
}

// Windower bounds what a layer sees of the past.
type Windower interface {
	Method
	Span(layer int) device.Span
}

// Restarter is told of every prefill pass in every layer, before its attention:
// state that a method carries from decode step to decode step is stale from here on.
type Restarter interface {
	Method
	Restart(p *Pass, layer int)
}

// Truncater is told, between passes, that a slot is truncated to its first n
// positions: a prompt that was longer ends there.
type Truncater interface {
	Method
	Truncate(slot, n int)
}

// Figure is a counter of a method, with its unit.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Counter is a method with device counters of its decode steps.
type Counter interface {
	Method
	// Figures reads the counters, which start when the slot is opened.
	Figures(slot int) ([]Figure, error)
}

// Tiler is a Prefiller that plans rows one by one, at most Tile of them at once: the
// policy cuts the pass into tiles. Its lists have a group for each row.
type Tiler interface {
	Prefiller
	Tile() int
}

// Cutter is a Prefiller whose tiles end at positions of its own, such as the
// boundaries of its groups of rows.
type Cutter interface {
	Prefiller
	// Cut is the maximum number of rows of the pass, from row on, that one tile may
	// have, at least 1.
	Cut(p *Pass, row int) int
}

// Follower is a method that is told in which phases a method of the select stage
// runs before it.
type Follower interface {
	Method
	Follow(prefill, decode bool)
}

// Tracer has hooks in the attention of every layer of eager passes: an audit or a
// stopwatch.
type Tracer interface {
	// Begin is called before the layer's first stage, with its queries, q f32 [rows,
	// heads, dim], and keys, k f32 [rows, kvheads, dim], which are in the cache already.
	Begin(p *Pass, layer int, q, k device.Tensor)
	// Planned is called between planning and attention.
	Planned(p *Pass, layer int, plan device.Plan)
	// Attended is called after the attention. dst, q f32 [rows, heads, dim].
	Attended(p *Pass, layer int, dst, q device.Tensor, plan device.Plan)
}

// Policy is a spec bound to a runner. The zero Policy is dense. A policy of several
// specs plans prompts as all of them do, and decode steps as the one that
// [Policy.SetDecodePolicy] names.
type Policy struct {
	// Window is the model's own sliding window: a row sees this many positions,
	// its own included; 0 sees all. It bounds every method.
	Window int
	// Trace, when set, is called in every layer.
	Trace Tracer

	methods  // of the first spec: they plan prompts
	env      *Env
	all      []*methods // by spec, the first included; none: dense
	decoding int        // index in all of the methods that plan decode steps
}

// methods are the methods of one spec by what they can do, in the order of stages.
type methods struct {
	spec       *Spec
	freezer    Freezer
	spans      [2][]device.Span // of prefill and of decode, by layer; nil is everything
	observers  []Observer
	restarters []Restarter
	truncaters []Truncater
	counters   []Counter
	prefillers []Prefiller
	decoders   []Decoder
	tile       int // maximum rows of a tile in prefill; 0 is no limit
	cutters    []Cutter
	selects    [2]bool // a method of the select stage plans prefill, decode
}

// Attend computes one layer's attention for the rows of a pass.
// dst, q f32 [rows, heads, dim], k f32 [rows, kvheads, dim], stored already.
// Rows that the layer does not update are left out: their q is not read and
// their dst stays.
func (c *Policy) Attend(p *Pass, layer int, dst, q, k device.Tensor) {
	c.observed(p, layer, q, k)
	for _, r := range c.Frozen(p, layer).Rows.Around(p.Rows()) {
		c.attendRun(p, layer, dst, q, r)
	}
}

// AttendLast is Attend for the last rows of a pass only: observers see all rows, and
// earlier rows are skipped where each row is planned by itself. With rows = 0 nothing
// is planned.
func (c *Policy) AttendLast(p *Pass, layer int, dst, q, k device.Tensor, rows int) {
	c.observed(p, layer, q, k)
	first, n := 0, p.Rows()
	if rows == 0 {
		return
	}
	if !p.Decode && c.tile > 0 && len(c.cutters) == 0 {
		first = max(n-rows, 0)
	}
	for _, r := range c.Frozen(p, layer).Rows.Around(n) {
		c.attendRun(p, layer, dst, q, Run{max(r.Lo, first), r.Hi})
	}
}

// observed calls the tracer and the observers of the pass's phase.
func (c *Policy) observed(p *Pass, layer int, q, k device.Tensor) {
	if c.Trace != nil {
		c.Trace.Begin(p, layer, q, k)
	}
	if p.Decode {
		c.current().observe(p, layer, q, k)
	} else {
		for _, s := range c.all {
			s.observe(p, layer, q, k)
		}
	}
}

// SetDecodePolicy makes spec i of those that the policy was built of, from 0, plan the
// decode steps from here on.
func (c *Policy) SetDecodePolicy(i int) {
	if i < 0 || i >= max(1, len(c.all)) {
		panic(fmt.Sprintf("sparse: SetDecodePolicy(%d) of a policy of %d specs", i, max(1, len(c.all))))
	}
	c.decoding = i
}

// current are the methods that plan decode steps.
func (c *Policy) current() *methods {
	if len(c.all) == 0 {
		return &c.methods
	}
	return c.all[c.decoding]
}

// observe calls the observers, and the restarters of a prefill pass.
func (s *methods) observe(p *Pass, layer int, q, k device.Tensor) {
	for _, o := range s.observers {
		o.Observe(p, layer, q, k)
	}
	if p.Decode {
		return
	}
	for _, m := range s.restarters {
		m.Restart(p, layer)
	}
}

// attendRun attends for a run of rows, tile by tile.
func (c *Policy) attendRun(p *Pass, layer int, dst, q device.Tensor, r Run) {
	for lo := r.Lo; lo < r.Hi; {
		hi := min(r.Hi, lo+c.tileRows(p, lo))
		c.attend(p.part(Run{lo, hi}), layer, dst.Rows(lo, hi), q.Rows(lo, hi))
		lo = hi
	}
}

// tileRows is the length of the tile of a pass that begins at row.
func (c *Policy) tileRows(p *Pass, row int) int {
	n := p.Rows() - row
	if p.Decode {
		return n
	}
	if c.tile > 0 {
		n = min(n, c.tile)
	}
	for _, m := range c.cutters {
		n = min(n, m.Cut(p, row))
	}
	return n
}

// attend plans and attends for the rows of a pass or of a tile of one.
func (c *Policy) attend(p *Pass, layer int, dst, q device.Tensor) {
	plan := c.plan(p, layer, q)
	attend := device.Attend{Dst: dst, Q: q, KV: p.KV(layer), Plan: plan}
	if c.Trace != nil {
		c.Trace.Planned(p, layer, plan)
		device.Do(p.Queue, attend)
		c.Trace.Attended(p, layer, dst, q, plan)
		return
	}
	device.Do(p.Queue, attend)
	if p.Decode && plan.Selected == device.Tokens {
		// A backend that fuses selection and attention need not write the list.
		device.Do(p.Queue, device.Discard{List: plan.List})
	}
}

// plan runs the stages of the pass's phase.
func (c *Policy) plan(p *Pass, layer int, q device.Tensor) device.Plan {
	plan := device.Plan{Span: c.span(p, layer)}
	if p.Decode {
		for _, m := range c.current().decoders {
			plan = m.Decode(p, layer, q, plan)
		}
		return plan
	}
	for _, m := range c.prefillers {
		plan = m.Prefill(p, layer, q, plan)
	}
	return plan
}

// span is the part of the past that a layer sees: the model's sliding window and that
// of a Windower.
func (c *Policy) span(p *Pass, layer int) device.Span {
	spans := c.spans[0]
	if p.Decode {
		spans = c.current().spans[1]
	}
	var s device.Span
	if spans != nil {
		s = spans[layer]
	}
	if c.Window > 0 && (s.Back == 0 || c.Window < s.Back) {
		s.Back = c.Window
	}
	return s
}

// String is the text that [Parse] reads back, of the spec that plans decode steps.
func (c *Policy) String() string {
	if s := c.current().spec; s != nil {
		return s.String()
	}
	return "dense"
}

// Spec is the first of the specs that the policy was built of, which plans prompts.
func (c *Policy) Spec() *Spec { return c.spec }

// Figures are the counters of the methods for the decode steps of a slot.
func (c *Policy) Figures(slot int) ([]Figure, error) {
	var all []Figure
	for _, m := range c.current().counters {
		f, err := m.Figures(slot)
		if err != nil {
			return nil, fmt.Errorf("sparse: figures of %s: %w", m.Name(), err)
		}
		all = append(all, f...)
	}
	return all, nil
}

// Size is the device memory of the methods, in bytes.
func (c *Policy) Size() int {
	if c.env == nil {
		return 0
	}
	return c.env.size
}

// PageStates are the tensors [pages, ...] of state per page, which the cache copies
// with a page.
func (c *Policy) PageStates() []device.Tensor {
	if c.env == nil {
		return nil
	}
	return c.env.pages
}

// Stateless reports whether a decode step changes nothing but the keys and values of
// the cache, and no tracer is set: then truncating the sequence undoes the step.
func (c *Policy) Stateless() bool {
	m := c.current()
	return c.Trace == nil && (c.env == nil || len(c.env.states)+len(c.env.pages) == 0) && len(m.observers)+len(m.truncaters)+len(m.counters) == 0
}

// Reset clears the state of a slot.
func (c *Policy) Reset(slot int) {
	if c.env != nil {
		c.env.reset(slot)
	}
}

// Fork copies the state of slot src to slot dst.
func (c *Policy) Fork(dst, src int) {
	if c.env != nil {
		c.env.fork(dst, src)
	}
}

// Truncate tells the methods that a slot is truncated to its first n positions.
func (c *Policy) Truncate(slot, n int) {
	for _, s := range c.all {
		for _, m := range s.truncaters {
			m.Truncate(slot, n)
		}
	}
}

// add registers a method by what it can do, in the phases that the text asks for.
func (s *methods) add(m Method, it item, layers int) {
	if f, ok := m.(Freezer); ok {
		s.freezer = f
	}
	if w, ok := m.(Windower); ok {
		s.window(w, it, layers)
	}
	if n, ok := m.(Counter); ok {
		s.counters = append(s.counters, n)
	}
	if r, ok := m.(Restarter); ok {
		s.restarters = append(s.restarters, r)
	}
	if t, ok := m.(Truncater); ok {
		s.truncaters = append(s.truncaters, t)
	}
	if o, ok := m.(Observer); ok && observes(m) {
		s.observers = append(s.observers, o)
	}
	s.follow(m, it)
	pre, prefills := m.(Prefiller)
	if prefills && it.prefill {
		s.prefillers = append(s.prefillers, pre)
	}
	if t, ok := m.(Tiler); ok && it.prefill && (s.tile == 0 || t.Tile() < s.tile) {
		s.tile = t.Tile()
	}
	dec, decodes := m.(Decoder)
	if decodes && it.decode {
		s.decoders = append(s.decoders, dec)
	}
}

// observes reports whether an Observer has anything to do: an index that is optional may be
// absent.
func observes(m Method) bool {
	optional, ok := m.(interface{ observes() bool })
	return !ok || optional.observes()
}

// follow tells a Follower whether selection runs before it, and notes methods that
// select.
func (s *methods) follow(m Method, it item) {
	if it.entry.Stage == Select {
		s.selects[0] = s.selects[0] || it.prefill
		s.selects[1] = s.selects[1] || it.decode
	}
	if f, ok := m.(Follower); ok {
		f.Follow(s.selects[0], s.selects[1])
	}
	if cut, ok := m.(Cutter); ok && it.prefill {
		s.cutters = append(s.cutters, cut)
	}
}

// window stores the spans of a Windower for its phases.
func (s *methods) window(w Windower, it item, layers int) {
	for phase, use := range []bool{it.prefill, it.decode} {
		for l := 0; use && l < layers; l++ {
			s.spans[phase] = append(s.spans[phase], w.Span(l))
		}
	}
}
