package sparse

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

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

// Restarter is told of every prefill pass in every layer, before its attention:
// what a method remembers of decode steps is of another time from here on.
type Restarter interface {
	Method
	Restart(p *Pass, layer int)
}

// Truncater is told, between passes, that a slot keeps its first n positions
// only: a prompt that was longer ends there.
type Truncater interface {
	Method
	Truncate(slot, n int)
}

// Figure is something that a method counted.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Counter is a method that counts on the device what its decode steps do.
type Counter interface {
	Method
	// Figures reads what was counted since the slot was opened.
	Figures(slot int) ([]Figure, error)
}

// Tiler is a Prefiller that plans rows one by one and wants at most Tile rows at
// once: the policy cuts the pass. Its lists have a group for each row.
type Tiler interface {
	Prefiller
	Tile() int
}

// Cutter is a Prefiller that plans the parts of a prompt in different ways: the
// rows that it plans at once are of one part.
type Cutter interface {
	Prefiller
	// Cut is how many rows of the pass, from row on, can be planned at once, at
	// least 1.
	Cut(p *Pass, row int) int
}

// Follower is a method that wants to know in which phases a system of the select
// stage comes before it.
type Follower interface {
	Method
	Follow(prefill, decode bool)
}

// Tracer watches eager passes: an audit or a stopwatch.
type Tracer interface {
	// Begin comes before the layer's first stage. q f32 [rows, heads, dim] and
	// k f32 [rows, kvheads, dim] are what the layer is given; k is stored already.
	Begin(p *Pass, layer int, q, k device.Tensor)
	// Planned comes before the attention of the plan.
	Planned(p *Pass, layer int, plan device.Plan)
	// Attended comes after it. dst, q f32 [rows, heads, dim].
	Attended(p *Pass, layer int, dst, q device.Tensor, plan device.Plan)
}

// Policy is the attention of one runner. The zero Policy is dense. One that was
// built of several specs plans prompts as all of them do, and decode steps as the
// one whose turn it is.
type Policy struct {
	// Window is the model's own sliding window: a row sees this many positions,
	// its own included; 0 sees all. It bounds every method.
	Window int
	// Trace, when set, watches every layer.
	Trace Tracer

	methods  // of the first spec: what prompts go through
	env      *Env
	all      []*methods // of all specs, the first included; none: dense
	decoding int        // of all: what decode steps go through
}

// stack is the methods of one spec, in the order of stages.
type methods struct {
	spec    *Spec
	freezer Freezer
	spans   [2][]device.Span // of prefill and of decode, by layer; nil is everything
	observe []Observer
	restart []Restarter
	cuts    []Truncater
	counter []Counter
	prefill []Prefiller
	decode  []Decoder
	tile    int // most rows planned at once in prefill; 0 is all
	cut     []Cutter
	selects [2]bool // a system of the select stage works in prefill, in decode
}

// Attend computes one layer's attention for the rows of a pass.
// dst, q f32 [rows, heads, dim], k f32 [rows, kvheads, dim], stored already.
// Rows that the layer does not update are left out: their q is not read and
// their dst stays.
func (c *Policy) Attend(p *Pass, layer int, dst, q, k device.Tensor) {
	c.show(p, layer, q, k)
	for _, r := range c.Frozen(p, layer).Rows.Around(p.Rows()) {
		c.attendRun(p, layer, dst, q, r)
	}
}

// AttendLast is Attend where only the last rows of a pass are of interest: all of them
// are shown to the methods that observe, and rows before the last ones are left out
// where each row is planned by itself. With no rows nothing is planned.
func (c *Policy) AttendLast(p *Pass, layer int, dst, q, k device.Tensor, rows int) {
	c.show(p, layer, q, k)
	first, n := 0, p.Rows()
	if rows == 0 {
		return
	}
	if !p.Decode && c.tile > 0 && len(c.cut) == 0 {
		first = max(n-rows, 0)
	}
	for _, r := range c.Frozen(p, layer).Rows.Around(n) {
		c.attendRun(p, layer, dst, q, Run{max(r.Lo, first), r.Hi})
	}
}

// show shows a layer of a pass to the tracer and to the methods of its phase.
func (c *Policy) show(p *Pass, layer int, q, k device.Tensor) {
	if c.Trace != nil {
		c.Trace.Begin(p, layer, q, k)
	}
	if p.Decode {
		c.current().watch(p, layer, q, k)
	} else {
		for _, s := range c.all {
			s.watch(p, layer, q, k)
		}
	}
}

// Turn makes spec i of those that the policy was built of, from 0, the one of the
// decode steps from here on.
func (c *Policy) SetDecodePolicy(i int) {
	if i < 0 || i >= max(1, len(c.all)) {
		panic(fmt.Sprintf("sparse: Turn(%d) of a policy of %d specs", i, max(1, len(c.all))))
	}
	c.decoding = i
}

// now is what decode steps go through.
func (c *Policy) current() *methods {
	if len(c.all) == 0 {
		return &c.methods
	}
	return c.all[c.decoding]
}

// watch shows a layer of a pass to the methods that want to see it.
func (s *methods) watch(p *Pass, layer int, q, k device.Tensor) {
	for _, o := range s.observe {
		o.Observe(p, layer, q, k)
	}
	if p.Decode {
		return
	}
	for _, m := range s.restart {
		m.Restart(p, layer)
	}
}

// attendRun attends for a run of rows, in tiles if a method asks for them.
func (c *Policy) attendRun(p *Pass, layer int, dst, q device.Tensor, r Run) {
	for lo := r.Lo; lo < r.Hi; {
		hi := min(r.Hi, lo+c.atOnce(p, lo))
		c.attend(p.part(Run{lo, hi}), layer, dst.Rows(lo, hi), q.Rows(lo, hi))
		lo = hi
	}
}

// atOnce is how many rows of a pass, from row on, are planned at once.
func (c *Policy) atOnce(p *Pass, row int) int {
	n := p.Rows() - row
	if p.Decode {
		return n
	}
	if c.tile > 0 {
		n = min(n, c.tile)
	}
	for _, m := range c.cut {
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
		// A device that chooses and attends at once need not write what was chosen.
		device.Do(p.Queue, device.Discard{List: plan.List})
	}
}

// plan runs the stages of the pass's phase.
func (c *Policy) plan(p *Pass, layer int, q device.Tensor) device.Plan {
	plan := device.Plan{Span: c.span(p, layer)}
	if p.Decode {
		for _, m := range c.current().decode {
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

// String is the text that [Parse] reads back: of the spec whose turn it is.
func (c *Policy) String() string {
	if s := c.current().spec; s != nil {
		return s.String()
	}
	return "dense"
}

// Figures are what the methods counted in the decode steps of a slot.
func (c *Policy) Figures(slot int) ([]Figure, error) {
	var all []Figure
	for _, m := range c.current().counter {
		f, err := m.Figures(slot)
		if err != nil {
			return nil, fmt.Errorf("sparse: figures of %s: %w", m.Name(), err)
		}
		all = append(all, f...)
	}
	return all, nil
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

// Stateless reports whether a decode step leaves nothing behind but keys and values in
// the cache, and nobody watches it: then a step that is taken back is as if it had not
// been.
func (c *Policy) Stateless() bool {
	now := c.current()
	return c.Trace == nil && (c.env == nil || len(c.env.states)+len(c.env.pages) == 0) && len(now.observe)+len(now.cuts)+len(now.counter) == 0
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

// Truncate tells the methods that a slot keeps its first n positions only.
func (c *Policy) Truncate(slot, n int) {
	for _, s := range c.all {
		for _, m := range s.cuts {
			m.Truncate(slot, n)
		}
	}
}

// add gives a method its places in the phases that the text asked for.
func (s *methods) add(m Method, it item, layers int) {
	if f, ok := m.(Freezer); ok {
		s.freezer = f
	}
	if w, ok := m.(Windower); ok {
		s.window(w, it, layers)
	}
	if n, ok := m.(Counter); ok {
		s.counter = append(s.counter, n)
	}
	if r, ok := m.(Restarter); ok {
		s.restart = append(s.restart, r)
	}
	if t, ok := m.(Truncater); ok {
		s.cuts = append(s.cuts, t)
	}
	if o, ok := m.(Observer); ok {
		s.observe = append(s.observe, o)
	}
	s.follow(m, it)
	pre, prefills := m.(Prefiller)
	if prefills && it.prefill {
		s.prefill = append(s.prefill, pre)
	}
	if t, ok := m.(Tiler); ok && it.prefill && (s.tile == 0 || t.Tile() < s.tile) {
		s.tile = t.Tile()
	}
	dec, decodes := m.(Decoder)
	if decodes && it.decode {
		s.decode = append(s.decode, dec)
	}
}

// follow tells a Follower what comes before it, and notes selecting systems.
func (s *methods) follow(m Method, it item) {
	if it.entry.Stage == Select {
		s.selects[0] = s.selects[0] || it.prefill
		s.selects[1] = s.selects[1] || it.decode
	}
	if f, ok := m.(Follower); ok {
		f.Follow(s.selects[0], s.selects[1])
	}
	if cut, ok := m.(Cutter); ok && it.prefill {
		s.cut = append(s.cut, cut)
	}
}

// window keeps the spans of a Windower for its phases.
func (s *methods) window(w Windower, it item, layers int) {
	for phase, use := range []bool{it.prefill, it.decode} {
		for l := 0; use && l < layers; l++ {
			s.spans[phase] = append(s.spans[phase], w.Span(l))
		}
	}
}
