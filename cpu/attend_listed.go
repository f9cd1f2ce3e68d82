package cpu

import (
	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// Lists of positions are read by gather: the kernels take the addresses of a tile of rows in
// the cache. The lists of the heads of a kv head are read side by side, tile by tile, because
// heads of a group often read the same keys, which are in the L1 cache then.

// entries is a tile of a list: of up to vec.Tile positions those that a query row sees.
type entries struct {
	n        int
	position [vec.Tile]int32
	at       [vec.Tile]int     // where the row of a position starts, in elements of the cache
	weight   [vec.Tile]float32 // of a list with weights; 0 from n on
}

// queryRow is the current row of a worker, for the heads of a kv head.
type queryRow struct {
	r, slot, p, kvHead int // row r of the call, at position p of a slot
	lists              []positionList
	covered            []bool      // of each list: see mask.covered; it is empty in lists then
	region             [2]interval // selected region: what it sees of its lists
	index              vec.Index   // where the rows of positions are
	loaded             bool        // its queries are in the worker, and the results reset
}

// startRow makes a row the current one of w. There is a list for each run of the heads of
// the kv head.
func (a *attention) startRow(w *worker, r, slot, p, kvHead int, lists []positionList, covered []bool) {
	x := &w.row
	x.r, x.slot, x.p, x.kvHead, x.loaded = r, slot, p, kvHead, false
	x.lists, x.covered, x.region = lists, covered, a.mask.region(p)
	if a.mask.plan.Selected == device.Tokens {
		x.index = vec.Index{
			Starts: row(a.starts, slot, a.pages.width), Head: kvHead * device.PageLen * a.dim, Dim: a.dim,
			Lo: x.region[1].lo, Hi: x.region[1].hi,
		}
	}
}

// appendLists appends the lists of heads lo to hi-1 of the row at p, one for each run, and
// whether they are covered; a list that is becomes empty. first is the position of the
// slot's first row.
func (a *attention) appendLists(lists []positionList, covered []bool, slot, first, p, lo, hi int) ([]positionList, []bool) {
	plan := &a.mask.plan
	for h := lo; h < hi; h += a.run {
		l := a.o.list(plan.List, listGroup(plan.List, slot, first, p), h, a.heads)
		all := a.mask.covered(l, p, p)
		if all {
			l = positionList{}
		}
		lists, covered = append(lists, l), append(covered, all)
	}
	return lists, covered
}

// load scales the queries of the current row and resets its results, once.
func (a *attention) load(w *worker) {
	if w.row.loaded {
		return
	}
	w.row.loaded = true
	w.reset(a.group)
	scale := scoreScale(a.dim)
	for i, x := range a.in[(w.row.r*a.heads+w.row.kvHead*a.group)*a.dim:][:a.group*a.dim] {
		w.q[i] = x * scale
	}
}

// locatePages finds where the pages of every slot start in the cache, in elements; -1 for a
// page number outside the cache.
func (a *attention) locatePages() {
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

// take fills e with entries lo to hi-1 of a list.
func (a *attention) take(e *entries, x *queryRow, l positionList, lo, hi int) {
	if hi-lo == vec.Tile && hi <= len(l.index) && x.oneInterval() &&
		a.o.vec.Places(&e.at, l.index[lo:hi], &x.index) && (l.weights == nil || e.setWeights(l.weights[lo:hi])) {
		e.n = copy(e.position[:], l.index[lo:hi])
		return
	}
	a.takeSome(e, x, l, lo, hi)
}

// oneInterval reports whether the selected region is one interval, which vec.Places expects.
func (x *queryRow) oneInterval() bool { return x.region[0].lo >= x.region[0].hi }

// setWeights sets the weights of a full tile and reports whether all are above zero.
func (e *entries) setWeights(w []float32) bool {
	smallestWeight := float32(1)
	for i, v := range w {
		e.weight[i] = v
		smallestWeight = min(smallestWeight, v) // NaN stays
	}
	return smallestWeight > 0
}

// takeSome is take for a tile that is not full, or has entries that are not read. A page
// outside the cache is a failure, and its positions are skipped.
func (a *attention) takeSome(e *entries, x *queryRow, l positionList, lo, hi int) {
	n, starts, head := 0, x.index.Starts, x.index.Head
	near, far := x.region[1], x.region[0]
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
			if w := l.weights[i]; w > 0 || a.mask.plan.Mixture {
				e.weight[n] = w
			} else {
				continue
			}
		}
		e.position[n] = int32(j)
		e.at[n] = start + head + int(uint(j)%device.PageLen)*a.dim
		n++
	}
	e.n = n
	for i := n; i < (n+vec.Multiple-1)/vec.Multiple*vec.Multiple; i++ {
		e.at[i] = e.at[0] // kernels read whole vectors; its score is masked
	}
	clear(e.weight[n:])
}

// addLists adds entries lo to hi-1 of the lists of the current row.
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

// addEntries adds a tile of list number i of the current row to the heads that share it, and
// prefetches the rows of the next tile.
func (a *attention) addEntries(w *worker, e, next *entries, i int) {
	k, g, n, dim := a.o.vec, &a.pages, a.run, a.dim
	weighted := w.row.lists[i].weights != nil
	lo, hi := i*n, (i+1)*n
	prefetch := &next.at
	if next.n == 0 {
		prefetch = &e.at
	}
	switch {
	case a.mask.plan.Mixture:
		for h := range n {
			setMixture(row(w.scores, h, vec.Tile)[:e.n], e, weighted)
		}
	default:
		first := w.row.kvHead*a.group + lo
		known := a.known.has(w.row.r, first, first+n)
		if !known {
			k.ScoresAt(w.scores, w.q[lo*dim:], g.all(g.k), &e.at, prefetch, n, e.n, dim)
		}
		for h := range n {
			if known {
				a.known.read(row(w.scores, h, vec.Tile), w.row.r, first+h, e.position[:e.n])
			}
			copy(row(w.scores, h, vec.Tile)[e.n:], unseen[:])
		}
		if weighted {
			k.WeightedSoftmax(w.scores, e.weight[:], w.top[lo:hi], w.sum[lo:hi], w.scale[lo:hi])
		} else {
			k.Softmax(w.scores, w.top[lo:hi], w.sum[lo:hi], w.scale[lo:hi])
		}
	}
	k.GatherAt(w.acc[lo*dim:], w.scores, w.scale[lo:], g.all(g.v), &e.at, prefetch, n, e.n, dim)
}

// setMixture sets the probabilities of a tile of a mixture: the weights themselves.
func setMixture(p []float32, e *entries, weighted bool) {
	if weighted {
		copy(p, e.weight[:])
		return
	}
	for i := range p {
		p[i] = 1
	}
}
