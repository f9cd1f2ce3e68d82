package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// Decode computes one row for each slot. The past is cut into units, each added
// up on its own for the heads of a kv head and kept as a partial result (top,
// sum, acc); the partial results are merged in order. Units do not depend on the
// number of threads, so neither does the result.

const (
	// unitTiles is how many pages a unit has: 1024 positions.
	unitTiles = 16
	// listUnit is how many entries of each list a unit has.
	listUnit = 16 * vec.Tile
)

// decode cuts the call into units, runs them and merges what they leave.
func (a *attention) decode() {
	longest := 0
	for _, n := range a.pages.lengths {
		longest = max(longest, int(n))
	}
	a.units = max(1, (min(longest, a.pages.width*device.PageLen)+unitTiles*vec.Tile-1)/(unitTiles*vec.Tile))
	a.listUnits = 0
	most := 0 // units that lists can have
	if l := a.reach.plan.List; a.reach.plan.Selected == device.Tokens {
		most = (l.Index.Dim(2) + listUnit - 1) / listUnit
		for _, n := range i32s(l.Count) {
			a.listUnits = max(a.listUnits, min((int(n)+listUnit-1)/listUnit, most))
		}
		a.findPages()
	}
	a.parts = grown(&a.parts, a.rows*a.heads*(a.units+most)*a.partLen())
	a.lists, a.whole = a.lists[:0], a.whole[:0]
	for slot := range a.rows {
		if p, ok := a.o.first("Attend", &a.pages, slot, 1); ok {
			a.lists, a.whole = a.appendLists(a.lists, a.whole, slot, p, p, 0, a.heads)
			continue
		}
		for range a.heads / a.run { // the lists of an idle slot are not looked at
			a.lists, a.whole = append(a.lists, list{}), append(a.whole, false)
		}
	}
	a.prepare(a.group)
	a.runTasks(a.rows*a.pages.heads*(a.units+a.listUnits), (*attendUnits)(a))
	a.runTasks(a.rows*a.heads, (*mergeUnits)(a))
}

// partLen is the length of a partial result: acc, top and sum. Where nothing was
// read, top is -Inf and the rest undefined.
func (a *attention) partLen() int { return a.dim + 2 }

// part is the partial result of a unit for a head of a slot.
func (a *attention) part(slot, head, unit int) []float32 {
	return row(a.parts, (slot*a.heads+head)*(a.units+a.listUnits)+unit, a.partLen())
}

// attendUnits runs decode, the unit of a kv head of a slot for an item.
type attendUnits attention

// Do computes units lo to hi-1.
func (t *attendUnits) Do(thread, lo, hi int) {
	a := (*attention)(t)
	units := a.units + a.listUnits
	for i := lo; i < hi; i++ {
		a.unit(&a.workers[thread], i/units/a.pages.heads, i/units%a.pages.heads, i%units)
	}
}

// unit adds up unit number u for the heads of a kv head of a slot.
func (a *attention) unit(w *worker, slot, kvHead, u int) {
	p, ok := a.o.first("Attend", &a.pages, slot, 1)
	if !ok {
		return
	}
	runs := a.group / a.run
	at := (slot*a.pages.heads + kvHead) * runs
	a.begin(w, slot, slot, p, kvHead, a.lists[at:at+runs], a.whole[at:at+runs])
	if u < a.units {
		a.addPages(w, u*unitTiles, (u+1)*unitTiles)
	} else {
		lo := (u - a.units) * listUnit
		a.addLists(w, lo, lo+listUnit)
	}
	for h := range a.group {
		part := a.part(slot, kvHead*a.group+h, u)
		if !w.row.loaded {
			part[a.dim] = negInf
			continue
		}
		copy(part, row(w.acc, h, a.dim))
		part[a.dim], part[a.dim+1] = w.top[h], w.sum[h]
	}
}

// addPages adds what the row in hand sees of blocks lo to hi-1. Heads that read
// the same of them are computed together.
func (a *attention) addPages(w *worker, lo, hi int) {
	blocks, x := a.reach.plan.Selected == device.Blocks, &w.row
	hi = min(hi, x.p/device.PageLen+1)
	for head, end := 0, 0; head < a.group; head = end {
		i := head / a.run
		end = head + a.run
		for ; end < a.group && !blocks && x.whole[end/a.run] == x.whole[i]; end += a.run {
		}
		if w.reach = &a.reach; x.whole[i] {
			w.reach = &a.everything
		}
		l, e := x.lists[i], w.reach.edgePages(x.p)
		for b := lo; b < hi; b++ {
			listed := blocks && l.has(b)
			if !listed && !e.has(b) || !a.takePage(w, x.slot, x.kvHead, b, x.p, listed) {
				continue
			}
			a.load(w)
			w.weigh(l, b)
			a.addPage(w, head, end, a.ahead(w, e, b+1, hi))
		}
	}
}

// ahead is the keys of block b if the row in hand reads them next.
func (a *attention) ahead(w *worker, e edges, b, hi int) vec.Rows {
	if b >= hi || !e.has(b) {
		return vec.Rows{}
	}
	page := a.o.page(&a.pages, w.row.slot, b)
	if page < 0 {
		return vec.Rows{}
	}
	return a.pages.rows(a.pages.k, page, w.row.kvHead, 0, device.PageLen)
}

// addPage adds the tile in hand to heads lo to hi-1 of the row in hand, fetching
// the keys of the next tile into the cache meanwhile.
func (a *attention) addPage(w *worker, lo, hi int, next vec.Rows) {
	k, n, dim := a.o.vec, hi-lo, a.dim
	edge, middle := w.seen(w.reach, w.row.p)
	if edge|middle == 0 {
		return
	}
	mixture := a.reach.plan.Mixture
	if !mixture {
		k.Scores(w.scores, w.q[lo*dim:], w.keys, w.values, n, w.n, dim)
	}
	for h := range n {
		s := row(w.scores, h, vec.Tile)
		if mixture {
			w.mix(s, edge, middle)
		} else if edge != ^uint64(0) {
			w.mask(s, edge, middle)
		}
	}
	if !mixture {
		k.Softmax(w.scores, w.top[lo:hi], w.sum[lo:hi], w.scale[lo:hi])
	}
	k.Gather(w.acc[lo*dim:], w.scores, w.scale[lo:], w.values, next, n, w.n, dim)
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

// merge adds up the units of a head of a slot in order. Those of a mixture add
// up as they are.
func (a *attention) merge(slot, head int) {
	dst, mixture := row(a.out, slot*a.heads+head, a.dim), a.reach.plan.Mixture
	top := negInf
	for u := range a.units + a.listUnits {
		top = max(top, a.part(slot, head, u)[a.dim])
	}
	clear(dst)
	sum := float32(0)
	for u := range a.units + a.listUnits {
		part := a.part(slot, head, u)
		if part[a.dim] == negInf {
			continue
		}
		x := float32(1)
		if !mixture {
			x = exp2(part[a.dim] - top)
		}
		sum += part[a.dim+1] * x
		for i, v := range part[:a.dim] {
			dst[i] += v * x
		}
	}
	finish(dst, dst, sum, mixture)
}

func exp2(x float32) float32 { return float32(math.Exp2(float64(x))) }
