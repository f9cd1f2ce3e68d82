package sparse

import "github.com/gollm/gollm/device"

// Freeze says which positions of a prompt a layer does not update: the residual stream
// of a frozen position passes through unchanged. To never decreases from layer to layer.
type Freeze struct {
	From, To int  // positions [From, To)
	Feed     bool // the feed-forward half still runs for them
	Alias    bool // whole frozen pages of K and V are those of the layer below
}

// Freezer is a method that freezes positions of a prompt, whose length is given, in
// some layers.
type Freezer interface {
	Method
	Frozen(layer, prompt int) Freeze
}

// Run is rows [Lo, Hi) of a pass.
type Run struct{ Lo, Hi int }

// Empty reports whether the run has no rows.
func (r Run) Empty() bool { return r.Hi <= r.Lo }

// Around is the rows before and after r in a pass of n; all rows and none for an
// empty r.
func (r Run) Around(n int) [2]Run {
	if r.Empty() {
		return [2]Run{{0, n}}
	}
	return [2]Run{{0, r.Lo}, {r.Hi, n}}
}

// Frozen is the rows of a pass that a layer skips.
type Frozen struct {
	Rows  Run  // not updated: no queries, no attention
	Alias Run  // the part of Rows whose keys and values are not stored either
	Feed  bool // the feed-forward half runs for them
}

// Frozen is the rows of a pass that a layer does not update. Only rows of a
// prompt can be frozen, and only while they are prefilled.
func (c *Policy) Frozen(p *Pass, layer int) Frozen {
	if c.freezer == nil || p.Decode {
		return Frozen{}
	}
	f := c.freezer.Frozen(layer, p.Prompt)
	rows := func(from, to int) Run {
		return Run{max(from-p.First, 0), min(to-p.First, p.Rows())}
	}
	frozen := Frozen{Rows: rows(f.From, f.To), Feed: f.Feed}
	if from, to := c.aliased(layer, f); from < to {
		// A page that was partly filled before the pass is never aliased.
		frozen.Alias = rows(max(from, pageUp(p.First)), to)
	}
	return frozen
}

// Aliased is, by layer, the positions [from, to) of a prompt, whole pages, that share
// the pages of the layer below instead of being stored. It is nil where every layer
// stores its own.
func (c *Policy) Aliased(prompt int) func(layer int) (from, to int) {
	if c.freezer == nil {
		return nil
	}
	return func(layer int) (from, to int) { return c.aliased(layer, c.freezer.Frozen(layer, prompt)) }
}

func (c *Policy) aliased(layer int, f Freeze) (from, to int) {
	if !f.Alias || layer == 0 {
		return 0, 0
	}
	return pageUp(f.From), f.To - f.To%device.PageLen
}

// pageUp is the first page boundary at or after a position.
func pageUp(pos int) int { return (pos + device.PageLen - 1) / device.PageLen * device.PageLen }

// Append stores the keys and values of the rows of a pass that are not aliased, f32
// [rows, kvheads, dim].
func (c *Policy) Append(p *Pass, layer int, k, v device.Tensor) {
	for _, r := range c.Frozen(p, layer).Alias.Around(p.Rows()) {
		if !r.Empty() {
			device.Do(p.Queue, device.Append{KV: p.part(r).KV(layer), K: k.Rows(r.Lo, r.Hi), V: v.Rows(r.Lo, r.Hi)})
		}
	}
}

// part is a tile of the pass, or the pass itself where r is all of its rows.
func (p *Pass) part(r Run) *Pass {
	if r == (Run{0, p.Rows()}) {
		return p
	}
	t := p.Tile(r.Lo, r.Hi)
	return &t
}
