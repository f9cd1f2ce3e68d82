package cpu

import (
	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// A list of positions is read where the rows lie: entries are tiles of a list
// with the places of their rows in the cache. The lists of the heads of a kv head
// are read side by side, tile by tile, because what one head reads another often
// reads too and finds in the nearest cache.

// entries is a tile of a list: of up to vec.Tile positions those that a query
// row sees.
type entries struct {
	n      int
	at     [vec.Tile]int     // element of the cache where the row of a position starts
	weight [vec.Tile]float32 // 0 from n on; of a list with weights
}

// queryRow is the row that a worker computes, for the heads of a kv head.
type queryRow struct {
	r, slot, p, kvHead int // r of the call, at position p of a slot
	lists              []list
	whole              []bool      // of each: it leaves nothing out, and is not in lists
	middle             [2]interval // what it sees of its lists
	index              vec.Index   // where the rows of positions are
	loaded             bool        // queries and results are ready in the worker
}

// begin makes a row the one that w computes, with the lists given: of each run of
// the heads of a kv head.
func (a *attention) begin(w *worker, r, slot, p, kvHead int, lists []list, whole []bool) {
	x := &w.row
	x.r, x.slot, x.p, x.kvHead, x.loaded = r, slot, p, kvHead, false
	x.lists, x.whole, x.middle = lists, whole, a.reach.middle(p)
	if a.reach.plan.Selected == device.Tokens {
		x.index = vec.Index{
			Starts: row(a.starts, slot, a.pages.width), Head: kvHead * device.PageLen * a.dim, Dim: a.dim,
			Lo: x.middle[1].lo, Hi: x.middle[1].hi,
		}
	}
}

// appendLists appends the lists of heads lo to hi-1 of a row, one for each run, and
// whether they leave nothing out. Such a list is empty. first is the position of
// the slot's first row.
func (a *attention) appendLists(lists []list, whole []bool, slot, first, p, lo, hi int) ([]list, []bool) {
	plan := &a.reach.plan
	for h := lo; h < hi; h += a.run {
		l := a.o.list(plan.List, group(plan.List, slot, first, p), h, a.heads)
		all := a.reach.whole(l, p, p)
		if all {
			l = list{}
		}
		lists, whole = append(lists, l), append(whole, all)
	}
	return lists, whole
}

// load prepares the queries and results of the row in hand, once.
func (a *attention) load(w *worker) {
	if w.row.loaded {
		return
	}
	w.row.loaded = true
	w.reset(a.group)
	scale := unit(a.dim)
	for i, x := range a.in[(w.row.r*a.heads+w.row.kvHead*a.group)*a.dim:][:a.group*a.dim] {
		w.q[i] = x * scale
	}
}

// middle is what the row at p can see of a list, as two intervals.
func (v *reach) middle(p int) [2]interval {
	m := seen(v.plan.Span, p)
	for i, x := range m {
		m[i] = interval{max(x.lo, v.plan.Sink), min(x.hi, recent(v.plan, p))}
	}
	return m
}

// has reports whether position j is in the interval.
func (v interval) has(j int) bool { return v.lo <= j && j < v.hi }

// findPages looks up where the pages of every slot start in the cache, in
// elements; -1 for a page that the cache does not have.
func (a *attention) findPages() {
	g := &a.pages
	a.starts = grown(&a.starts, len(g.table))
	for slot, n := range g.lengths {
		for b := range min(pagesOf(int(n)), g.width) {
			at := slot*g.width + b
			a.starts[at] = -1
			if page := int(g.table[at]); page >= 0 && page < g.count {
				a.starts[at] = g.element(page, 0, 0)
			}
		}
	}
}

// take fills e from entries lo to hi-1 of a list.
func (a *attention) take(e *entries, x *queryRow, l list, lo, hi int) {
	if hi-lo == vec.Tile && hi <= len(l.index) && x.seesOnce() &&
		a.o.vec.Places(&e.at, l.index[lo:hi], &x.index) && (l.weights == nil || e.weigh(l.weights[lo:hi])) {
		e.n = vec.Tile
		return
	}
	a.pick(e, x, l, lo, hi)
}

// seesOnce reports whether what the row sees of its lists is one interval.
func (x *queryRow) seesOnce() bool { return x.middle[0].lo >= x.middle[0].hi }

// weigh sets the weights of a whole tile and reports whether all are above zero.
func (e *entries) weigh(w []float32) bool {
	least := float32(1)
	for i, v := range w {
		e.weight[i] = v
		least = min(least, v) // NaN stays
	}
	return least > 0
}

// pick is take where some entries are not seen, or there are few. A page that the cache does not
// have is a failure, and its positions are left out.
func (a *attention) pick(e *entries, x *queryRow, l list, lo, hi int) {
	n, starts, head := 0, x.index.Starts, x.index.Head
	near, far := x.middle[1], x.middle[0]
	hi = min(hi, len(l.index))
	for i := lo; i < hi; i++ {
		j := int(l.index[i])
		if !near.has(j) && !far.has(j) {
			continue
		}
		start := starts[uint(j)/device.PageLen]
		if start < 0 {
			a.o.page(&a.pages, x.slot, j/device.PageLen)
			continue
		}
		if l.weights != nil {
			if w := l.weights[i]; w > 0 || a.reach.plan.Mixture {
				e.weight[n] = w
			} else {
				continue
			}
		}
		e.at[n] = start + head + int(uint(j)%device.PageLen)*a.dim
		n++
	}
	e.n = n
	for i := n; i < (n+vec.Multiple-1)/vec.Multiple*vec.Multiple; i++ {
		e.at[i] = e.at[0] // may be read and does not count
	}
	clear(e.weight[n:])
}

// addLists adds entries lo to hi-1 of the lists of the row in hand.
func (a *attention) addLists(w *worker, lo, hi int) {
	x := &w.row
	tiles, runs := (hi-lo+vec.Tile-1)/vec.Tile, len(x.lists)
	take := func(e *entries, step int) {
		from := lo + step/runs*vec.Tile
		a.take(e, x, x.lists[step%runs], from, min(from+vec.Tile, hi))
	}
	this, next := &w.entries[0], &w.entries[1]
	for step := range tiles * runs {
		if step == 0 {
			take(this, 0)
		}
		if next.n = 0; step+1 < tiles*runs {
			take(next, step+1)
		}
		if this.n > 0 {
			a.load(w)
			a.addEntries(w, this, next, step%runs)
		}
		this, next = next, this
	}
}

// addEntries adds a tile of list number i of the row in hand to the heads that
// share it, fetching the rows of the next tile meanwhile.
func (a *attention) addEntries(w *worker, e, next *entries, i int) {
	k, g, n, dim := a.o.vec, &a.pages, a.run, a.dim
	weighted := w.row.lists[i].weights != nil
	lo, hi := i*n, (i+1)*n
	ahead := &next.at
	if next.n == 0 {
		ahead = &e.at
	}
	switch {
	case a.reach.plan.Mixture:
		for h := range n {
			mixture(row(w.scores, h, vec.Tile)[:e.n], e, weighted)
		}
	default:
		k.ScoresAt(w.scores, w.q[lo*dim:], g.all(g.k), &e.at, ahead, n, e.n, dim)
		for h := range n {
			copy(row(w.scores, h, vec.Tile)[e.n:], unseen[:])
		}
		if weighted {
			k.WeightedSoftmax(w.scores, e.weight[:], w.top[lo:hi], w.sum[lo:hi], w.scale[lo:hi])
		} else {
			k.Softmax(w.scores, w.top[lo:hi], w.sum[lo:hi], w.scale[lo:hi])
		}
	}
	k.GatherAt(w.acc[lo*dim:], w.scores, w.scale[lo:], g.all(g.v), &e.at, ahead, n, e.n, dim)
}

// mixture sets the weights of a tile's entries themselves.
func mixture(p []float32, e *entries, weighted bool) {
	if weighted {
		copy(p, e.weight[:])
		return
	}
	for i := range p {
		p[i] = 1
	}
}

// all is the whole of k or v.
func (g *pages) all(cache []byte) vec.Rows {
	if g.half {
		return vec.Rows{Half: as[uint16](cache)}
	}
	return vec.Rows{Full: as[float32](cache)}
}
