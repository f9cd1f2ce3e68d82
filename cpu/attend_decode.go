package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// A decode step computes one row for each slot, as split-K (flash decoding): the past is cut
// into splits, each split is reduced for all heads of a kv head to partial results (max, sum
// and unnormalized output), and these are merged in order. Splits do not depend on the number
// of threads, so neither does the result.

const (
	// splitPages is how many pages a split has: 1024 positions.
	splitPages = 16
	// splitEntries is how many entries of each list a split has.
	splitEntries = 16 * vec.Tile
)

// decode computes all splits of the call and merges their partial results.
func (a *attention) decode() {
	longest := 0
	for _, n := range a.pages.lengths {
		longest = max(longest, int(n))
	}
	a.splits = max(1, (min(longest, a.pages.width*device.PageLen)+splitPages*vec.Tile-1)/(splitPages*vec.Tile))
	a.listSplits = 0
	maxListSplits := 0 // that lists of full length have
	if l := a.mask.plan.List; a.mask.plan.Selected == device.Tokens {
		maxListSplits = (l.Index.Dim(2) + splitEntries - 1) / splitEntries
		for _, n := range i32s(l.Count) {
			a.listSplits = max(a.listSplits, min((int(n)+splitEntries-1)/splitEntries, maxListSplits))
		}
		a.locatePages()
	}
	a.partials = grown(&a.partials, a.rows*a.heads*(a.splits+maxListSplits)*a.partialLen())
	a.lists, a.covered = a.lists[:0], a.covered[:0]
	for slot := range a.rows {
		if p, ok := a.o.first("Attend", &a.pages, slot, 1); ok {
			a.lists, a.covered = a.appendLists(a.lists, a.covered, slot, p, p, 0, a.heads)
			continue
		}
		for range a.heads / a.run { // an idle slot has lists too, and reads none
			a.lists, a.covered = append(a.lists, positionList{}), append(a.covered, false)
		}
	}
	a.prepare(a.group)
	a.runTasks(a.rows*a.pages.heads*(a.splits+a.listSplits), (*attendSplits)(a))
	a.runTasks(a.rows*a.heads, (*mergeSplits)(a))
}

// partialLen is the length of a partial result: the output before it is normalized [dim], the
// largest score and the sum of exponentials. Where nothing was read, the largest score is
// -Inf and the rest undefined.
func (a *attention) partialLen() int { return a.dim + 2 }

// partial is the partial result of a split for a head of a slot.
func (a *attention) partial(slot, head, split int) []float32 {
	return row(a.partials, (slot*a.heads+head)*(a.splits+a.listSplits)+split, a.partialLen())
}

// attendSplits computes splits: an item is a split of a kv head of a slot.
type attendSplits attention

// Do computes splits lo to hi-1.
func (t *attendSplits) Do(thread, lo, hi int) {
	a := (*attention)(t)
	splits := a.splits + a.listSplits
	for i := lo; i < hi; i++ {
		a.split(&a.workers[thread], i/splits/a.pages.heads, i/splits%a.pages.heads, i%splits)
	}
}

// split reduces split number u for the heads of a kv head of a slot.
func (a *attention) split(w *worker, slot, kvHead, u int) {
	p, ok := a.o.first("Attend", &a.pages, slot, 1)
	if !ok {
		return
	}
	runs := a.group / a.run
	at := (slot*a.pages.heads + kvHead) * runs
	a.startRow(w, slot, slot, p, kvHead, a.lists[at:at+runs], a.covered[at:at+runs])
	if u < a.splits {
		a.addPages(w, u*splitPages, (u+1)*splitPages)
	} else {
		lo := (u - a.splits) * splitEntries
		a.addLists(w, lo, lo+splitEntries)
	}
	for h := range a.group {
		partial := a.partial(slot, kvHead*a.group+h, u)
		if !w.row.loaded {
			partial[a.dim] = negInf
			continue
		}
		copy(partial, row(w.acc, h, a.dim))
		partial[a.dim], partial[a.dim+1] = w.top[h], w.sum[h]
	}
}

// addPages adds what the current row reads of blocks lo to hi-1. Heads that read the same
// positions are computed in one pass over the keys.
func (a *attention) addPages(w *worker, lo, hi int) {
	byBlocks, x := a.mask.plan.Selected == device.Blocks, &w.row
	hi = min(hi, x.p/device.PageLen+1)
	for head, end := 0, 0; head < a.group; head = end {
		i := head / a.run
		end = head + a.run
		for ; end < a.group && !byBlocks && x.covered[end/a.run] == x.covered[i]; end += a.run {
		}
		if w.mask = &a.mask; x.covered[i] {
			w.mask = &a.dense
		}
		l, e := x.lists[i], w.mask.alwaysPages(x.p)
		for b := lo; b < hi; b++ {
			listed := byBlocks && l.has(b)
			if !listed && !e.has(b) || !a.takePage(w, x.slot, x.kvHead, b, x.p, listed) {
				continue
			}
			a.load(w)
			w.setPageWeight(l, b)
			a.addPage(w, head, end, a.prefetch(w, e, b+1, hi))
		}
	}
}

// prefetch is the keys of block b if the current row reads them next, no rows otherwise.
func (a *attention) prefetch(w *worker, e alwaysPages, b, hi int) vec.Rows {
	if b >= hi || !e.has(b) {
		return vec.Rows{}
	}
	page := a.o.page(&a.pages, w.row.slot, b)
	if page < 0 {
		return vec.Rows{}
	}
	return a.pages.rows(a.pages.k, page, w.row.kvHead, 0, device.PageLen)
}

// addPage adds the current tile to heads lo to hi-1 of the current row, and prefetches the
// keys of the next tile.
func (a *attention) addPage(w *worker, lo, hi int, next vec.Rows) {
	k, n, dim := a.o.vec, hi-lo, a.dim
	always, listed := w.seen(w.mask, w.row.p)
	if always|listed == 0 {
		return
	}
	mixture := a.mask.plan.Mixture
	if !mixture {
		k.Scores(w.scores, w.q[lo*dim:], w.keys, w.values, n, w.n, dim)
	}
	for h := range n {
		s := row(w.scores, h, vec.Tile)
		if mixture {
			w.mixture(s, always, listed)
		} else if always != ^uint64(0) {
			w.hide(s, always, listed)
		}
	}
	if !mixture {
		k.Softmax(w.scores, w.top[lo:hi], w.sum[lo:hi], w.scale[lo:hi])
	}
	k.Gather(w.acc[lo*dim:], w.scores, w.scale[lo:], w.values, next, n, w.n, dim)
}

// mergeSplits merges partial results: an item is a head of a slot.
type mergeSplits attention

// Do merges for items lo to hi-1.
func (t *mergeSplits) Do(_, lo, hi int) {
	a := (*attention)(t)
	for i := lo; i < hi; i++ {
		if _, ok := a.o.first("Attend", &a.pages, i/a.heads, 1); ok {
			a.merge(i/a.heads, i%a.heads)
		}
	}
}

// merge merges the partial results of a head of a slot, in order. Those of a mixture are not
// rescaled.
func (a *attention) merge(slot, head int) {
	dst, mixture := row(a.out, slot*a.heads+head, a.dim), a.mask.plan.Mixture
	top := negInf
	for u := range a.splits + a.listSplits {
		top = max(top, a.partial(slot, head, u)[a.dim])
	}
	clear(dst)
	sum := float32(0)
	for u := range a.splits + a.listSplits {
		partial := a.partial(slot, head, u)
		if partial[a.dim] == negInf {
			continue
		}
		x := float32(1)
		if !mixture {
			x = exp2(partial[a.dim] - top)
		}
		sum += partial[a.dim+1] * x
		for i, v := range partial[:a.dim] {
			dst[i] += v * x
		}
	}
	finish(dst, dst, sum, mixture)
}

func exp2(x float32) float32 { return float32(math.Exp2(float64(x))) }
