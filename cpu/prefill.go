package cpu

import (
	"slices"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// Prefill computes the rows of one slot in blocks. A block is the rows of some
// consecutive positions times the heads of a run; a tile of keys is widened
// once for all of them, and the products are vec.Multiply. Blocks start at
// multiples of tileRows positions and tiles are added in ascending order, so the
// chunk that a row came in changes nothing.

// blockRows is about how many rows (positions times heads) a block has: enough
// that widening keys and values costs little beside the products, few enough
// that their scores and results stay in the second cache.
const blockRows = 288

// prefill cuts the call into blocks and runs them, the late and long ones first.
func (a *attention) prefill() {
	first, ok := a.o.first("Attend", &a.pages, 0, a.rows)
	if !ok {
		return
	}
	a.tileRows = max(blockRows/a.run, 1)
	if l := a.reach.plan.List; !l.Index.Absent() {
		for max(l.Group, 1)%a.tileRows != 0 { // rows of a block share a list
			a.tileRows--
		}
		if a.tileRows == 1 {
			a.findPages()
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

// prepare makes the memory of the workers.
func (a *attention) prepare(rows int) {
	if n := a.o.pool.Workers(); len(a.workers) < n {
		a.workers = make([]worker, n)
	}
	for i := range a.workers {
		a.workers[i].grow(rows, a.dim, a.pages.half)
	}
}

// attendRows runs prefill where every row has lists of its own: a kv head of a
// row for an item, the late and long ones first.
type attendRows attention

// Do computes items lo to hi-1, counted from the end.
func (t *attendRows) Do(thread, lo, hi int) {
	a := (*attention)(t)
	w, first := &a.workers[thread], int(a.pages.lengths[0])-a.rows
	for i := lo; i < hi; i++ {
		r, kvHead := a.rows-1-i/a.pages.heads, i%a.pages.heads
		w.lists, w.whole = a.appendLists(w.lists[:0], w.whole[:0], 0, first, first+r, kvHead*a.group, (kvHead+1)*a.group)
		a.begin(w, r, 0, first+r, kvHead, w.lists, w.whole)
		if slices.Contains(w.row.whole, false) {
			a.addRow(w)
		}
		for j, whole := range w.row.whole {
			if whole { // as dense attention has it
				b := rowBlock{a: a, w: w, first: first + r, last: first + r, offset: first, head: kvHead*a.group + j*a.run}
				b.compute()
			}
		}
	}
}

// addRow computes the row in hand for the heads whose lists leave something out.
func (a *attention) addRow(w *worker) {
	x := &w.row
	a.addPages(w, 0, x.p/device.PageLen+1)
	if a.reach.plan.Selected == device.Tokens {
		longest := 0
		for _, l := range x.lists {
			longest = max(longest, len(l.index))
		}
		a.addLists(w, 0, longest)
	}
	a.load(w) // zero where nothing was read
	for h := range a.group {
		if !x.whole[h/a.run] {
			dst := row(a.out, x.r*a.heads+x.kvHead*a.group+h, a.dim)
			finish(dst, row(w.acc, h, a.dim), w.sum[h], a.reach.plan.Mixture)
		}
	}
}

// attendBlocks runs prefill, a block for an item.
type attendBlocks attention

// Do computes blocks lo to hi-1, counted from the end.
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

// compute adds up every tile that a row of the block sees.
func (b *rowBlock) compute() {
	a, w := b.a, b.w
	b.load()
	kvHead := b.head * a.pages.heads / a.heads
	l := a.o.list(a.reach.plan.List, group(a.reach.plan.List, 0, b.offset, b.first), b.head, a.heads)
	if w.reach = &a.reach; a.reach.whole(l, b.first, b.last) {
		w.reach, l = &a.everything, list{}
	}
	v := w.reach
	e := v.edgePages(b.first)
	for page := 0; page <= b.last/device.PageLen; page++ {
		listed := v.plan.Selected == device.Blocks && l.has(page)
		if (listed || e.has(page)) && a.takePage(w, 0, kvHead, page, b.last, listed) {
			w.weigh(l, page)
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

// has reports whether entry j is on the list.
func (l list) has(j int) bool { return len(l.index) > 0 && l.weight(j) != 0 }

// load scales the queries into the worker's rows; rows that fill up the last
// group are zero.
func (b *rowBlock) load() {
	a, w := b.a, b.w
	b.rows = (b.last - b.first + 1) * a.run
	whole := (b.rows + vec.TileRows - 1) / vec.TileRows * vec.TileRows
	clear(w.q[b.rows*a.dim : whole*a.dim])
	w.reset(whole)
	scale := unit(a.dim)
	for i := range b.rows {
		for j, x := range b.row(a.in, i) {
			w.q[i*a.dim+j] = x * scale
		}
	}
}

// row is the part of a tensor [rows, heads, dim] that row i of the block is.
func (b *rowBlock) row(x []float32, i int) []float32 {
	r, h := b.first-b.offset+i/b.a.run, b.head+i%b.a.run
	return row(x, r*b.a.heads+h, b.a.dim)
}

// store writes the results.
func (b *rowBlock) store() {
	for i := range b.rows {
		finish(b.row(b.a.out, i), row(b.w.acc, i, b.a.dim), b.w.sum[i], b.a.reach.plan.Mixture)
	}
}

// add adds the tile in hand to the rows from position index from on; those
// before it see nothing of the tile.
func (b *rowBlock) add(from int) {
	a, w, dim := b.a, b.w, b.a.dim
	lo := from * a.run / vec.TileRows * vec.TileRows
	k := a.o.vec
	mixture := a.reach.plan.Mixture
	scores := vec.Matrix{Data: w.scores, Stride: vec.Tile}
	if !mixture {
		k.Columns(w.columns, w.keys, w.n, dim)
		q, columns := vec.Matrix{Data: w.q, Stride: dim}, vec.Matrix{Data: w.columns, Stride: vec.Tile}
		for r := lo; r < b.rows; r += vec.TileRows {
			cols := (b.reach(r) + vec.Multiple - 1) / vec.Multiple * vec.Multiple
			k.Multiply(scores.From(r, 0), q.From(r, 0), columns, nil, dim, cols)
		}
	}
	b.mask(lo)
	hi := (b.rows + vec.TileRows - 1) / vec.TileRows * vec.TileRows
	if !mixture {
		k.Softmax(w.scores[lo*vec.Tile:], w.top[lo:hi], w.sum[lo:hi], w.scale[lo:hi])
	}
	k.Widen(w.wide[:w.n*dim], w.values)
	acc, wide := vec.Matrix{Data: w.acc, Stride: dim}, vec.Matrix{Data: w.wide, Stride: dim}
	for r := lo; r < b.rows; r += vec.TileRows {
		k.Multiply(acc.From(r, 0), scores.From(r, 0), wide, w.scale[r:r+vec.TileRows], b.reach(r), dim)
	}
}

// reach is how many positions of the tile in hand the rows from r to the end of
// their group can see at most; what the others see is masked. Leaving out
// positions of no weight changes no bit.
func (b *rowBlock) reach(r int) int {
	w := b.w
	if w.page < 0 {
		return w.n
	}
	last := b.first + (min(r+vec.TileRows, b.rows)-1)/b.a.run
	return min(w.n, last+1-w.page*device.PageLen)
}

// mask hides from each row what it does not see of the tile.
func (b *rowBlock) mask(lo int) {
	w, run := b.w, b.a.run
	for i := lo / run; i*run < b.rows; i++ {
		edge, middle := w.seen(w.reach, b.first+i)
		for r := max(i*run, lo); r < (i+1)*run; r++ {
			if b.a.reach.plan.Mixture {
				w.mix(w.scores[r*vec.Tile:], edge, middle)
			} else if edge != ^uint64(0) {
				w.mask(w.scores[r*vec.Tile:], edge, middle)
			}
		}
	}
}
