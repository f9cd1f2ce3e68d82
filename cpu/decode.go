package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// Decode computes one row for each slot. The past is cut into units, each added
// up on its own for the heads of a run and kept as a partial result (top, sum,
// acc); the partial results are merged in order. Units do not depend on the
// number of threads, so neither does the result.

// unitTiles is how many tiles a unit has: 1024 positions.
const unitTiles = 16

// decode cuts the call into units, runs them and merges what they leave.
func (a *attention) decode() {
	longest := 0
	for _, n := range a.pages.lengths {
		longest = max(longest, int(n))
	}
	a.units = max(1, (min(longest, a.pages.width*device.PageLen)+unitTiles*vec.Tile-1)/(unitTiles*vec.Tile))
	a.listUnits = 0
	if a.reach.plan.Middle == device.Tokens {
		a.listUnits = (a.reach.plan.List.Index.Dim(2) + unitTiles*vec.Tile - 1) / (unitTiles * vec.Tile)
	}
	if n := a.rows * a.heads * (a.units + a.listUnits) * a.partLen(); cap(a.parts) < n {
		a.parts = make([]float32, n)
	}
	a.prepare(a.run)
	a.runTasks(a.rows*(a.heads/a.run)*(a.units+a.listUnits), (*attendUnits)(a))
	(*mergeUnits)(a).Do(0, 0, a.rows*a.heads)
}

// partLen is the length of a partial result: acc, top and sum.
func (a *attention) partLen() int { return a.dim + 2 }

// part is the partial result of a unit for a head of a slot.
func (a *attention) part(slot, head, unit int) []float32 {
	return row(a.parts[:cap(a.parts)], (slot*a.heads+head)*(a.units+a.listUnits)+unit, a.partLen())
}

// attendUnits runs decode, the unit of a run of heads of a slot for an item.
type attendUnits attention

// Do computes units lo to hi-1.
func (t *attendUnits) Do(thread, lo, hi int) {
	a := (*attention)(t)
	runs, units := a.heads/a.run, a.units+a.listUnits
	for i := lo; i < hi; i++ {
		a.unit(&a.workers[thread], i/units/runs, i/units%runs*a.run, i%units)
	}
}

// unit adds up unit number u for the heads of the run that starts at head.
func (a *attention) unit(w *worker, slot, head, u int) {
	p, ok := a.o.first("Attend", &a.pages, slot, 1)
	if !ok {
		return
	}
	w.reset(a.run)
	scale := unit(a.dim)
	for i, x := range a.in[(slot*a.heads+head)*a.dim:][:a.run*a.dim] {
		w.q[i] = x * scale
	}
	plan := &a.reach.plan
	l := a.o.list(plan.List, slot, head, a.heads)
	kvHead := head * a.pages.heads / a.heads
	if w.reach = &a.reach; a.reach.whole(l, p, p) {
		w.reach, l = &a.everything, list{}
	}
	if u < a.units {
		a.unitPages(w, slot, kvHead, p, l, u)
	} else {
		lo := (u - a.units) * unitTiles * vec.Tile
		for i := lo; i < min(lo+unitTiles*vec.Tile, len(l.index)); i += vec.Tile {
			if a.takeEntries(w, slot, kvHead, l, i, p) {
				a.addRow(w, p, vec.Rows{})
			}
		}
	}
	for h := range a.run {
		part := a.part(slot, head+h, u)
		copy(part, row(w.acc, h, a.dim))
		part[a.dim], part[a.dim+1] = w.top[h], w.sum[h]
	}
}

// unitPages adds up the pages of unit u that the row at p sees.
func (a *attention) unitPages(w *worker, slot, kvHead, p int, l list, u int) {
	v := w.reach
	e := v.edgePages(p)
	last := min((u+1)*unitTiles-1, p/device.PageLen)
	for b := u * unitTiles; b <= last; b++ {
		listed := v.plan.Middle == device.Blocks && l.has(b)
		if !listed && !e.has(b) || !a.takePage(w, slot, kvHead, b, p, listed) {
			continue
		}
		w.weigh(l, b)
		var next vec.Rows
		if b < last && e.has(b+1) {
			if page := a.o.page(&a.pages, slot, b+1); page >= 0 {
				next = a.pages.rows(a.pages.k, page, kvHead, 0, device.PageLen)
			}
		}
		a.addRow(w, p, next)
	}
}

// addRow adds the tile in hand to the heads of the row at p, fetching the keys
// of the next tile into the cache meanwhile.
func (a *attention) addRow(w *worker, p int, next vec.Rows) {
	k := a.o.vec
	edge, middle := w.seen(w.reach, p)
	if edge|middle == 0 {
		return
	}
	mixture := a.reach.plan.Mixture
	if !mixture {
		k.Scores(w.scores, w.q, w.keys, w.values, a.run, w.n, a.dim)
	}
	for h := range a.run {
		s := w.scores[h*vec.Tile:]
		if mixture {
			w.mix(s, edge, middle)
		} else if edge != ^uint64(0) {
			w.mask(s, edge, middle)
		}
	}
	if !mixture {
		k.Softmax(w.scores, w.top[:a.run], w.sum[:a.run], w.scale[:a.run])
	}
	k.Gather(w.acc, w.scores, w.scale, w.values, next, a.run, w.n, a.dim)
}

// mergeUnits merges partial results, a head of a slot for an item.
type mergeUnits attention

// Do merges for items lo to hi-1.
func (t *mergeUnits) Do(_, lo, hi int) {
	a := (*attention)(t)
	for i := lo; i < hi; i++ {
		if _, ok := a.o.first("Attend", &a.pages, i/a.heads, 1); ok {
			a.merge(i/a.heads, i%a.heads)
		}
	}
}

// merge adds up the units of a head of a slot in order, in the first of them.
func (a *attention) merge(slot, head int) {
	total := a.part(slot, head, 0)
	units := 1 + (int(a.pages.lengths[slot])-1)/(unitTiles*vec.Tile)
	for u := 1; u < a.units+a.listUnits; u++ {
		if u < units || u >= a.units {
			a.mergeParts(total, a.part(slot, head, u))
		}
	}
	finish(row(a.out, slot*a.heads+head, a.dim), total, total[a.dim+1], a.reach.plan.Mixture)
}

// mergeParts adds a partial result to another one. Those of a mixture add up as
// they are.
func (a *attention) mergeParts(to, from []float32) {
	dim := a.dim
	x, y := float32(1), float32(1)
	if !a.reach.plan.Mixture {
		top := max(to[dim], from[dim])
		x, y = exp2(to[dim]-top), exp2(from[dim]-top)
		to[dim] = top
	}
	for i := range to[:dim] {
		to[i] = to[i]*x + from[i]*y
	}
	to[dim+1] = to[dim+1]*x + from[dim+1]*y
}

func exp2(x float32) float32 { return float32(math.Exp2(float64(x))) }
