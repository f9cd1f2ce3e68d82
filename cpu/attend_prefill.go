package cpu

import (
	"slices"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// A prefill computes the rows of one slot in row blocks, as flash attention does: some
// consecutive positions times the heads of a run. A tile of keys is converted to f32 once for
// the whole block, and the products are matrix products. Row blocks start at multiples of
// tileRows positions and tiles are added in ascending order, so a row does not depend on the
// chunk that it arrived in.

// blockRows is about how many rows (positions times heads) a row block has: enough that
// converting keys and values costs little beside the products, few enough that their scores
// and outputs stay in the L2 cache.
const blockRows = 288

// prefill runs the row blocks of the call, the last ones first, since they are the longest.
func (a *attention) prefill() {
	first, ok := a.o.first("Attend", &a.pages, 0, a.rows)
	if !ok {
		return
	}
	a.tileRows = max(blockRows/a.run, 1)
	if l := a.mask.plan.List; !l.Index.Absent() {
		for max(l.Group, 1)%a.tileRows != 0 { // the rows of a block share a list
			a.tileRows--
		}
		if a.tileRows == 1 {
			a.locatePages()
			a.prepare(max(a.group, (a.run+vec.TileRows-1)/vec.TileRows*vec.TileRows))
			a.runTasks(a.rows*a.pages.heads, (*attendRows)(a))
			return
		}
	}
	a.firstTile = first / a.tileRows
	a.tiles = (first+a.rows-1)/a.tileRows - a.firstTile + 1
	rows := (a.tileRows*a.run + vec.TileRows - 1) / vec.TileRows * vec.TileRows
	a.prepare(rows)
	a.runTasks(a.tiles*(a.heads/a.run), (*attendBlocks)(a))
}

// prepare grows the scratch of the workers to a number of rows.
func (a *attention) prepare(rows int) {
	if n := a.o.pool.Workers(); len(a.workers) < n {
		a.workers = make([]worker, n)
	}
	for i := range a.workers {
		a.workers[i].grow(rows, a.dim, a.pages.half)
	}
}

// attendRows runs a prefill where every row has lists of its own: an item is a kv head of a
// row.
type attendRows attention

// Do computes items lo to hi-1, counted from the end.
func (t *attendRows) Do(thread, lo, hi int) {
	a := (*attention)(t)
	w, first := &a.workers[thread], int(a.pages.lengths[0])-a.rows
	for i := lo; i < hi; i++ {
		r, kvHead := a.rows-1-i/a.pages.heads, i%a.pages.heads
		w.lists, w.covered = a.appendLists(w.lists[:0], w.covered[:0], 0, first, first+r, kvHead*a.group, (kvHead+1)*a.group)
		a.startRow(w, r, 0, first+r, kvHead, w.lists, w.covered)
		if slices.Contains(w.row.covered, false) {
			a.addRow(w)
		}
		for j, covered := range w.row.covered {
			if covered { // the bits of dense attention
				b := rowBlock{a: a, w: w, first: first + r, last: first + r, offset: first, head: kvHead*a.group + j*a.run}
				b.compute()
			}
		}
	}
}

// addRow computes the current row for the heads whose lists are not covered.
func (a *attention) addRow(w *worker) {
	x := &w.row
	a.addPages(w, 0, x.p/device.PageLen+1)
	if a.mask.plan.Selected == device.Tokens {
		longest := 0
		for _, l := range x.lists {
			longest = max(longest, len(l.index))
		}
		a.addLists(w, 0, longest)
	}
	a.load(w) // zero where nothing was read
	for h := range a.group {
		if !x.covered[h/a.run] {
			dst := row(a.out, x.r*a.heads+x.kvHead*a.group+h, a.dim)
			finish(dst, row(w.acc, h, a.dim), w.sum[h], a.mask.plan.Mixture)
		}
	}
}

// attendBlocks runs a prefill by row blocks: an item is a row block.
type attendBlocks attention

// Do computes row blocks lo to hi-1, counted from the end.
func (t *attendBlocks) Do(thread, lo, hi int) {
	a := (*attention)(t)
	first := int(a.pages.lengths[0]) - a.rows
	runs := a.heads / a.run
	for i := lo; i < hi; i++ {
		tile := a.firstTile + a.tiles - 1 - i/runs
		b := rowBlock{
			a: a, w: &a.workers[thread],
			first: max(tile*a.tileRows, first), last: min((tile+1)*a.tileRows, first+a.rows) - 1,
			offset: first, head: i % runs * a.run,
		}
		b.compute()
	}
}

// rowBlock is the rows of positions first to last and the heads of a run.
type rowBlock struct {
	a           *attention
	w           *worker
	first, last int
	offset      int // position of the call's first row
	head        int // first of the run
	rows        int // positions times heads
}

// compute adds every tile that a row of the block reads.
func (b *rowBlock) compute() {
	a, w := b.a, b.w
	b.load()
	kvHead := b.head * a.pages.heads / a.heads
	l := a.o.list(a.mask.plan.List, listGroup(a.mask.plan.List, 0, b.offset, b.first), b.head, a.heads)
	if w.mask = &a.mask; a.mask.covered(l, b.first, b.last) {
		w.mask, l = &a.dense, positionList{}
	}
	v := w.mask
	e := v.alwaysPages(b.first)
	for page := 0; page <= b.last/device.PageLen; page++ {
		listed := v.plan.Selected == device.Blocks && l.has(page)
		if (listed || e.has(page)) && a.takePage(w, 0, kvHead, page, b.last, listed) {
			w.setPageWeight(l, page)
			b.add(max(page*device.PageLen-b.first, 0))
		}
	}
	if v.plan.Selected == device.Tokens {
		for i := 0; i < len(l.index); i += vec.Tile {
			if a.takeEntries(w, 0, kvHead, l, i, b.last) {
				b.add(0)
			}
		}
	}
	b.store()
}

// load scales the queries into the worker's rows; rows that pad the last vec.TileRows are
// zero.
func (b *rowBlock) load() {
	a, w := b.a, b.w
	b.rows = (b.last - b.first + 1) * a.run
	whole := (b.rows + vec.TileRows - 1) / vec.TileRows * vec.TileRows
	clear(w.q[b.rows*a.dim : whole*a.dim])
	w.reset(whole)
	scale := scoreScale(a.dim)
	for i := range b.rows {
		for j, x := range b.row(a.in, i) {
			w.q[i*a.dim+j] = x * scale
		}
	}
}

// row is row i of the block in a tensor [rows, heads, dim].
func (b *rowBlock) row(x []float32, i int) []float32 {
	r, h := b.first-b.offset+i/b.a.run, b.head+i%b.a.run
	return row(x, r*b.a.heads+h, b.a.dim)
}

// store writes the outputs.
func (b *rowBlock) store() {
	for i := range b.rows {
		finish(b.row(b.a.out, i), row(b.w.acc, i, b.a.dim), b.w.sum[i], b.a.mask.plan.Mixture)
	}
}

// add adds the current tile to the rows from position first+from on; those before it see
// nothing of the tile.
func (b *rowBlock) add(from int) {
	a, w, dim := b.a, b.w, b.a.dim
	lo := from * a.run / vec.TileRows * vec.TileRows
	k := a.o.vec
	mixture := a.mask.plan.Mixture
	scores := vec.Matrix{Data: w.scores, Stride: vec.Tile}
	if !mixture {
		k.Columns(w.columns, w.keys, w.n, dim)
		q, columns := vec.Matrix{Data: w.q, Stride: dim}, vec.Matrix{Data: w.columns, Stride: vec.Tile}
		for r := lo; r < b.rows; r += vec.TileRows {
			cols := (b.visible(r) + vec.Multiple - 1) / vec.Multiple * vec.Multiple
			k.Multiply(scores.From(r, 0), q.From(r, 0), columns, nil, dim, cols)
		}
	}
	b.hide(lo)
	hi := (b.rows + vec.TileRows - 1) / vec.TileRows * vec.TileRows
	if !mixture {
		k.Softmax(w.scores[lo*vec.Tile:], w.top[lo:hi], w.sum[lo:hi], w.scale[lo:hi])
	}
	k.Widen(w.wide[:w.n*dim], w.values)
	acc, wide := vec.Matrix{Data: w.acc, Stride: dim}, vec.Matrix{Data: w.wide, Stride: dim}
	for r := lo; r < b.rows; r += vec.TileRows {
		k.Multiply(acc.From(r, 0), scores.From(r, 0), wide, w.scale[r:r+vec.TileRows], b.visible(r), dim)
	}
}

// visible is how many positions of the current tile the vec.TileRows rows from r on can see
// at most. Products are made up to there: positions beyond have probability 0, and leaving
// them out changes no bit.
func (b *rowBlock) visible(r int) int {
	w := b.w
	if w.page < 0 {
		return w.n
	}
	last := b.first + (min(r+vec.TileRows, b.rows)-1)/b.a.run
	return min(w.n, last+1-w.page*device.PageLen)
}

// hide masks the scores of what each row does not see of the tile.
func (b *rowBlock) hide(lo int) {
	w, run := b.w, b.a.run
	for i := lo / run; i*run < b.rows; i++ {
		always, listed := w.seen(w.mask, b.first+i)
		for r := max(i*run, lo); r < (i+1)*run; r++ {
			if b.a.mask.plan.Mixture {
				w.mixture(w.scores[r*vec.Tile:], always, listed)
			} else if always != ^uint64(0) {
				w.hide(w.scores[r*vec.Tile:], always, listed)
			}
		}
	}
}
