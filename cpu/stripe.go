package cpu

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// keyTiles multiplies rows of queries with pages of keys, as attention does but
// without the softmax. Rows are some queries times the heads of one kv head.
type keyTiles struct {
	o      *ops
	kernel *vec.Kernels
	pages  pages
	reach  reach
	q      []float32 // [n, heads, dim]
	heads  int
	run    int // query heads of a kv head
	dim    int
	unit   float32 // of a product: 1/√dim
	most   int     // rows at once

	scratch []keyScratch
}

// keyScratch is what one worker needs.
type keyScratch struct {
	q       []float32 // [most, dim]
	columns []float32 // [dim, vec.Tile]
	scores  []float32 // [most, vec.Tile]
	top     []float32 // [most]
	nans    int       // scores that were not numbers
}

// reset makes the memory for at most n queries at once.
func (t *keyTiles) reset(o *ops, q device.Tensor, kv device.KV, p device.Plan, n int) {
	t.o, t.pages, t.reach = o, newPages(kv), reach{p}
	t.q, t.heads, t.dim = f32s(q), q.Dim(1), q.Dim(2)
	t.run, t.unit = t.heads/t.pages.heads, float32(1/math.Sqrt(float64(t.dim)))
	t.most = (n*t.run + vec.TileRows - 1) / vec.TileRows * vec.TileRows
	t.kernel = o.vec
	if t.dim%vec.Multiple != 0 {
		t.kernel = vec.Go
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, keyScratch{})
	}
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.columns = grown(&s.q, t.most*t.dim), grown(&s.columns, t.dim*vec.Tile)
		s.scores, s.top = grown(&s.scores, t.most*vec.Tile), grown(&s.top, t.most)
	}
}

// load copies queries at to at+n-1 and the heads of a kv head: row i·run + u is
// head u of query i. Rows that fill up the last group of rows are zero.
func (t *keyTiles) load(s *keyScratch, at, n, kvHead int) {
	clear(s.q)
	for i := range n {
		copy(s.q[i*t.run*t.dim:][:t.run*t.dim], t.q[((at+i)*t.heads+kvHead*t.run)*t.dim:])
	}
}

// multiply sets the scores of n queries with the first keys of a page, unscaled.
func (t *keyTiles) multiply(s *keyScratch, page, kvHead, keys, n int) {
	t.kernel.Columns(s.columns, t.pages.rows(t.pages.k, page, kvHead, 0, device.PageLen), keys, t.dim)
	c, q, k := vec.Matrix{Data: s.scores, Stride: vec.Tile}, vec.Matrix{Data: s.q, Stride: t.dim}, vec.Matrix{Data: s.columns, Stride: vec.Tile}
	for r := 0; r < n*t.run; r += vec.TileRows {
		t.kernel.Multiply(c.From(r, 0), q.From(r, 0), k, nil, t.dim, vec.Tile)
	}
}

// edgeRows is how many rows AnchorMax takes at once.
const edgeRows = 48

// edgeTask is AnchorMax: item i is kv head i%kvheads of a tile of rows.
type edgeTask struct {
	keyTiles
	dst            []float32 // [rows, heads]
	perSlot, tiles int       // rows, and tiles of rows, of a slot
}

// anchorMax is the largest score of each row over what a plan reads whatever its
// list says.
func (o *ops) anchorMax(dst, q device.Tensor, kv device.KV, p device.Plan) {
	const op = "AnchorMax"
	t := &o.edges
	t.perSlot = device.RowsPerSlot(op, q.Dim(0), kv)
	rows := min(edgeRows, t.perSlot)
	t.reset(o, q, kv, p, rows)
	t.dst, t.tiles = f32s(dst), (t.perSlot+edgeRows-1)/edgeRows
	o.pool.RunChunks(kv.Len.Dim(0)*t.tiles*t.pages.heads, 1, t)
}

// Do computes items lo to hi-1.
func (t *edgeTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		tile, kvHead := i/t.pages.heads, i%t.pages.heads
		slot := tile / t.tiles
		first, ok := t.o.first("AnchorMax", &t.pages, slot, t.perSlot)
		if ok {
			at := tile % t.tiles * edgeRows
			t.tile(&t.scratch[worker], slot, first, at, min(edgeRows, t.perSlot-at), kvHead)
		}
	}
}

// tile computes n rows of a slot from its row at on.
func (t *edgeTask) tile(s *keyScratch, slot, first, at, n, kvHead int) {
	row0, p := slot*t.perSlot+at, first+at
	t.load(s, row0, n, kvHead)
	for i := range s.top {
		s.top[i] = negInf
	}
	last, e := p+n-1, t.reach.edgePages(p)
	for b := 0; b <= last/device.PageLen; b++ {
		if !e.has(b) {
			continue
		}
		page := t.o.page(&t.pages, slot, b)
		if page < 0 {
			return
		}
		t.multiply(s, page, kvHead, min(last+1-b*device.PageLen, device.PageLen), n)
		for i := range n {
			seen := t.reach.spannedBits(p+i, b) & t.reach.edgeBits(p+i, b)
			for r := i * t.run; r < (i+1)*t.run; r++ {
				var nans int
				s.top[r], nans = topOf(s.top[r], row(s.scores, r, vec.Tile), seen)
				s.nans += nans
			}
		}
	}
	t.o.d.sawNaNs(&s.nans)
	for i := range n {
		out := row(t.dst, row0+i, t.heads)[kvHead*t.run:]
		for u := range t.run {
			out[u] = s.top[i*t.run+u] * t.unit
		}
	}
}

// topOf is the larger of top and the largest of the scores whose bits are set,
// and how many of those are NaN.
func topOf(top float32, scores []float32, seen uint64) (most float32, nans int) {
	if seen == ^uint64(0) {
		for _, x := range scores {
			if x > top {
				top = x
			} else if x != x {
				nans++
			}
		}
		return top, nans
	}
	for ; seen != 0; seen &= seen - 1 {
		if x := scores[bits.TrailingZeros64(seen)]; x > top {
			top = x
		} else if x != x {
			nans++
		}
	}
	return top, nans
}

// meanRows averages the rows of blocks of positions, in their order.
func (o *ops) meanRows(dst, x device.Tensor, kv device.KV, block int) {
	const op = "MeanRows"
	n := x.Len() / max(x.Dim(0), 1)
	if block < 1 || dst.DType != device.F32 || x.DType != device.F32 || dst.Len() != n*dst.Dim(0) {
		device.Check(false, op, "x %v and dst %v in blocks of %d, want f32, rows of one length and blocks of at least 1", x, dst, block)
	}
	out, in, last := f32s(dst), f32s(x), x.Dim(0)-1
	perSlot := device.RowsPerSlot(op, x.Dim(0), kv)
	count := 0
	o.eachRow(op, kv, x.Dim(0), func(r, slot, first, p int) {
		g := group(device.List{Group: block}, slot, first, p)
		if g >= dst.Dim(0) {
			o.d.fail("%s: block %d, want 0 to %d", op, g, dst.Dim(0)-1)
			return
		}
		mean := row(out, g, n)
		if count == 0 {
			clear(mean)
		}
		o.vec.Add(mean, row(in, r, n))
		count++
		if perSlot > 1 && r < last && (p+1)%block != 0 {
			return
		}
		for i := range mean {
			mean[i] /= float32(count)
		}
		count = 0
	})
}

// nearTask is WithinMargin: item i is kv head i%kvheads of a group of rows.
type nearTask struct {
	keyTiles
	call         *device.Select
	group        int
	top          []float32 // [blocks, heads]
	index, count []int32   // of the list
	weight       []float32 // nil: the list has none
	limit        int
	groups       int         // of a slot
	short        atomic.Bool // a list was too short
}

// withinMargin lists what is near the largest scores of the blocks of each group.
func (o *ops) withinMargin(c *device.Select) {
	const op = "WithinMargin"
	t, l, q, kv := &o.near, &c.List, c.Q, c.KV
	t.call, t.group, t.top = c, max(l.Group, 1), f32s(c.Scores)
	t.index, t.count, t.limit = i32s(l.Index), i32s(l.Count), l.Index.Dim(2)
	if t.weight = nil; !l.Weight.Absent() {
		t.weight = f32s(l.Weight)
	}
	t.short.Store(false)
	t.groups = 1
	slots := kv.Len.Dim(0)
	if slots == 1 {
		first := int(i32s(kv.Len)[0]) - c.Rows
		if t.groups = device.BlocksOf(first, c.Rows, t.group); first < 0 {
			t.groups = 1 // reported by the task
		}
	}
	if have := min(q.Dim(0), l.Index.Dim(0)*t.group/c.Block); slots*t.groups > l.Index.Dim(0) || slots > q.Dim(0) {
		o.d.fail("%s: %d groups of rows, want at most %d", op, slots*t.groups, have)
		return
	}
	t.reset(o, q, kv, c.Plan, min(t.group/c.Block, q.Dim(0)))
	o.pool.RunChunks(slots*t.groups*t.pages.heads, 1, t)
	if t.short.Load() {
		o.d.fail("%s: more entries than a list of %d takes", op, t.limit)
	}
}

// Do lists for items lo to hi-1.
func (t *nearTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		g, kvHead := i/t.pages.heads, i%t.pages.heads
		slot := g / t.groups
		if first, ok := t.o.first("WithinMargin", &t.pages, slot, t.call.Rows); ok {
			t.list(&t.scratch[worker], slot, first, g%t.groups, kvHead)
		}
	}
}

// list lists for the g-th group of a slot.
func (t *nearTask) list(s *keyScratch, slot, first, g, kvHead int) {
	// the positions of the group that the call has, and their blocks
	from := max(first, (first/t.group+g)*t.group)
	to := min(first+t.call.Rows, (first/t.group+g+1)*t.group)
	block := slot + from/t.call.Block - first/t.call.Block
	blocks := device.BlocksOf(from, to-from, t.call.Block)
	if (block+blocks)*t.heads > len(t.top) {
		t.o.d.fail("WithinMargin: block %d of queries, want 0 to %d", block+blocks-1, len(t.top)/t.heads-1)
		return
	}
	t.load(s, block, blocks, kvHead)
	for i := range blocks {
		copy(row(s.top, i, t.run), row(t.top, block+i, t.heads)[kvHead*t.run:])
	}
	for h := kvHead * t.run; h < (kvHead+1)*t.run; h++ {
		t.count[(slot+g)*t.heads+h] = 0
	}
	lo, hi := t.reach.plan.Sink, min(recent(t.reach.plan, from), from+1)
	for b := lo / device.PageLen; b*device.PageLen < hi; b++ {
		seen := between(b, lo, hi) & t.reach.spannedBits(from, b)
		if seen == 0 {
			continue
		}
		page := t.o.page(&t.pages, slot, b)
		if page < 0 {
			return
		}
		t.multiply(s, page, kvHead, min(from+1-b*device.PageLen, device.PageLen), blocks)
		for u := range t.run {
			h := kvHead*t.run + u
			near, before := t.nearOf(s, seen, u, block, blocks), seen&between(b, 0, t.call.Twice)
			t.add((slot+g)*t.heads+h, b, near|before, near&before)
		}
	}
	t.o.d.sawNaNs(&s.nans)
}

// nearOf are the positions seen of a page that are near the top of a block, for
// head u of the kv head.
func (t *nearTask) nearOf(s *keyScratch, seen uint64, u, block, blocks int) (found uint64) {
	for i := range blocks {
		r := i*t.run + u
		top, scores := s.top[r], row(s.scores, r, vec.Tile)
		for w := seen &^ found; w != 0; w &= w - 1 {
			j := bits.TrailingZeros64(w)
			x := scores[j] * t.unit
			if top-x <= t.call.Below {
				found |= 1 << j
			} else if x != x {
				s.nans++
			}
		}
	}
	return found
}

// add appends positions of a page to a list, some of them with weight 2.
func (t *nearTask) add(list, page int, found, twice uint64) {
	index, n := row(t.index, list, t.limit), int(t.count[list])
	for ; found != 0; found &= found - 1 {
		if n == t.limit {
			t.short.Store(true)
			break
		}
		i := bits.TrailingZeros64(found)
		index[n] = int32(page*device.PageLen + i)
		if t.weight != nil {
			t.weight[list*t.limit+n] = float32(1 + twice>>i&1)
		}
		n++
	}
	t.count[list] = int32(n)
}
