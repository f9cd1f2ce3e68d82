package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// boundsTask is KeyBounds: item i is block i of the call.
type boundsTask struct {
	o      *ops
	pages  pages
	bounds []byte // [pages, heads, parts, 2·dim]
	parts  int
	rows   int // newest positions of each slot
	blocks []chunkBlock

	scratch [][]float32 // by worker: [3, dim]: a key, the least, the largest
}

// keyBounds makes the bounds of the parts that hold the newest positions.
func (o *ops) keyBounds(bounds device.Tensor, at newest) {
	const op = "KeyBounds"
	t := &o.bounds
	t.parts = bounds.Dim(2)
	t.o, t.pages, t.bounds, t.rows = o, newPages(at.KV), bytesOf(bounds), at.N
	t.blocks = t.blocks[:0]
	for slot := range at.KV.Len.Dim(0) {
		t.blocks = o.touchedBlocks(t.blocks, op, &t.pages, slot, at.N)
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, nil)
	}
	for i := range t.scratch {
		grown(&t.scratch[i], 3*t.pages.dim)
	}
	o.pool.RunChunks(len(t.blocks), 4, t)
}

// touchedBlocks appends the blocks that the newest n positions of a slot lie in.
func (o *ops) touchedBlocks(list []chunkBlock, op string, g *pages, slot, n int) []chunkBlock {
	first, ok := o.first(op, g, slot, n)
	if !ok {
		return list
	}
	b := chunkBlock{slot: slot, index: first / device.PageLen, first: first, len: first + n}
	for ; b.index < b.blocks(); b.index++ {
		if b.page = o.page(g, slot, b.index); b.page >= 0 {
			list = append(list, b)
		}
	}
	return list
}

// Do bounds blocks lo to hi-1.
func (t *boundsTask) Do(worker, lo, hi int) {
	size, dim := device.PageLen/t.parts, t.pages.dim
	for _, b := range t.blocks[lo:hi] {
		from := max(b.first-b.index*device.PageLen, 0) / size * size
		for h := range t.pages.heads {
			for at := from; at < b.positions(); at += size {
				s := t.scratch[worker]
				t.bound(s[dim:3*dim], s[:dim], b.page, h, at, min(at+size, b.positions()))
				to := ((b.page*t.pages.heads+h)*t.parts + at/size) * 2 * dim
				t.o.store(t.bounds, to, s[dim:3*dim], t.pages.half)
			}
		}
	}
}

// bound sets dst to the least and the largest element of keys lo to hi-1 of a
// page, in each dimension. k is scratch for a key.
func (t *boundsTask) bound(dst, k []float32, page, head, lo, hi int) {
	least, most := dst[:len(k)], dst[len(k):2*len(k)]
	for i := range least {
		least[i], most[i] = float32(math.Inf(1)), negInf
	}
	for j := lo; j < hi; j++ {
		t.o.load(k, t.pages.k, t.pages.element(page, head, j), t.pages.half)
		for i, x := range k {
			if x < least[i] {
				least[i] = x
			}
			if x > most[i] {
				most[i] = x
			}
		}
	}
}

// boundTask is BoundScores: item i is kv head i%kvheads of some of the tiles of
// parts of a slot. What is below 0 of a query meets the least elements, what is
// above the largest, so that a part's score is one product of twice the length.
type boundTask struct {
	o      *ops
	kernel *vec.Kernels
	pages  pages
	bounds device.Tensor
	parts  int
	q, dst []float32 // [rows, heads, dim], [rows, sets, width]
	heads  int
	sets   int
	width  int

	scratch []boundScratch
}

// boundScratch is what one worker needs.
type boundScratch struct {
	q      []float32 // [heads of a kv head, 2·dim]
	bounds vec.Rows  // [vec.Tile, 2·dim]
	scores []float32 // [heads of a kv head, vec.Tile]
}

// boundRuns is how many items the parts of a slot and kv head are cut into.
const boundRuns = 4

// boundScores is the most that a key of each part can score.
func (o *ops) boundScores(dst, q, bounds device.Tensor, kv device.KV) {
	t := &o.bound
	t.parts = bounds.Dim(2)
	t.o, t.kernel, t.pages, t.bounds = o, o.vec, newPages(kv), bounds
	t.q, t.dst, t.heads, t.sets, t.width = f32s(q), f32s(dst), q.Dim(1), dst.Dim(1), dst.Dim(2)
	if 2*t.pages.dim%vec.Multiple != 0 {
		t.kernel = vec.Go
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, boundScratch{})
	}
	run, dim := t.heads/t.pages.heads, 2*t.pages.dim
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.scores = grown(&s.q, run*dim), grown(&s.scores, run*vec.Tile)
		s.bounds = fitRows(s.bounds, vec.Tile*dim, t.pages.half)
	}
	o.pool.RunChunks(kv.Len.Dim(0)*t.pages.heads*boundRuns, 1, t)
}

// fitRows is rows with room for n elements of a cache.
func fitRows(r vec.Rows, n int, half bool) vec.Rows {
	switch {
	case half && len(r.Half) < n:
		return vec.Rows{Half: make([]uint16, n)}
	case !half && len(r.Full) < n:
		return vec.Rows{Full: make([]float32, n)}
	}
	return r
}

// Do scores items lo to hi-1.
func (t *boundTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		kvHead, slot := i/boundRuns%t.pages.heads, i/boundRuns/t.pages.heads
		first, ok := t.o.first("BoundScores", &t.pages, slot, 1)
		if !ok {
			continue
		}
		size := device.PageLen / t.parts
		n := first/size + 1
		tiles := (n + vec.Tile - 1) / vec.Tile
		run := i % boundRuns
		s := &t.scratch[worker]
		t.split(s, slot, kvHead)
		for tile := run * tiles / boundRuns; tile < (run+1)*tiles/boundRuns; tile++ {
			t.score(s, slot, kvHead, tile*vec.Tile, min(n, (tile+1)*vec.Tile))
		}
	}
}

// split loads the queries of a slot and kv head, what is below 0 before what is
// above.
func (t *boundTask) split(s *boundScratch, slot, kvHead int) {
	run, dim := t.heads/t.pages.heads, t.pages.dim
	for u := range run {
		q, both := row(t.q, slot*t.heads+kvHead*run+u, dim), row(s.q, u, 2*dim)
		for i, x := range q {
			both[i], both[dim+i] = min(x, 0), max(x, 0)
		}
	}
}

// score scores parts lo to hi-1 of a slot, at most a tile.
func (t *boundTask) score(s *boundScratch, slot, kvHead, lo, hi int) {
	run, dim := t.heads/t.pages.heads, 2*t.pages.dim
	raw := bytesOf(t.bounds)
	for at := lo; at < hi; {
		page := t.o.page(&t.pages, slot, at/t.parts)
		if page < 0 {
			return
		}
		n := min(t.parts-at%t.parts, hi-at)
		from := ((page*t.pages.heads+kvHead)*t.parts + at%t.parts) * dim
		to := (at - lo) * dim
		if t.pages.half {
			copy(s.bounds.Half[to:to+n*dim], as[uint16](raw)[from:])
		} else {
			copy(s.bounds.Full[to:to+n*dim], as[float32](raw)[from:])
		}
		at += n
	}
	t.kernel.Scores(s.scores, s.q, s.bounds, vec.Rows{}, run, hi-lo, dim)
	if t.sets == t.heads {
		for u := range run {
			copy(row(t.dst, slot*t.sets+kvHead*run+u, t.width)[lo:hi], row(s.scores, u, vec.Tile))
		}
		return
	}
	out := row(t.dst, slot*t.sets+kvHead, t.width)[lo:hi]
	clear(out)
	for u := range run {
		for j := range out {
			out[j] += s.scores[u*vec.Tile+j]
		}
	}
}

// partsTask is TopParts: item i is set i%sets of slot i/sets.
type partsTask struct {
	o            *ops
	pages        pages
	scores       []float32 // [rows, sets, width]
	sets, width  int
	size         int // positions of a part
	call         *device.Select
	whole        bool    // the row sees everything before it
	index, count []int32 // of the list
	limit        int

	scratch []partsScratch
}

// partsScratch is what one worker needs, by part.
type partsScratch struct {
	seen []int32  // parts that the row sees
	keys []uint32 // of those: their order
}

// topParts lists the positions of the parts with the best scores.
func (o *ops) topParts(c *device.Select) {
	t, l, scores, kv := &o.parts, &c.List, c.Scores, c.KV
	t.o, t.pages, t.call, t.size = o, newPages(kv), c, device.PageLen/c.PerPage
	t.whole = c.Plan.Span == device.Span{}
	t.scores, t.sets, t.width = f32s(scores), scores.Dim(1), scores.Dim(2)
	t.index, t.count, t.limit = i32s(l.Index), i32s(l.Count), l.Index.Dim(2)
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, partsScratch{})
	}
	for i := range t.scratch {
		s := &t.scratch[i]
		grown(&s.seen, t.width)
		grown(&s.keys, t.width)
	}
	o.pool.RunChunks(kv.Len.Dim(0)*t.sets, 1, t)
}

// Do lists for items lo to hi-1.
func (t *partsTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		if p, ok := t.o.first("TopParts", &t.pages, i/t.sets, 1); ok {
			t.list(&t.scratch[worker], i, p)
		}
	}
}

// list lists for set i, whose row is at p.
func (t *partsTask) list(s *partsScratch, i, p int) {
	own, scores := p/t.size, row(t.scores, i, t.width)
	s.seen, s.keys = s.seen[:0], s.keys[:0]
	for part := range own {
		if t.sees(p, part) {
			s.seen, s.keys = append(s.seen, int32(part)), append(s.keys, ascending(scores[part]))
		}
	}
	k := t.call.PartsOf(p) - 1
	out, n := row(t.index, i, t.limit), 0
	least, ties := uint32(0), len(s.keys)
	if k < len(s.keys) {
		least, ties = atRank(s.keys, k)
	}
	for j, part := range s.seen {
		if key := s.keys[j]; key > least || key == least && ties > 0 {
			if key == least {
				ties--
			}
			n = t.add(out, n, int(part), p)
		}
	}
	t.count[i] = int32(t.add(out, n, own, p))
}

// sees reports whether the row at p sees anything of a part.
func (t *partsTask) sees(p, part int) bool {
	if t.whole {
		return true
	}
	for j := part * t.size; j < (part+1)*t.size; j++ {
		if t.call.Plan.Span.Sees(p, j) {
			return true
		}
	}
	return false
}

// add appends what the row at p sees of a part to a list of n entries.
func (t *partsTask) add(out []int32, n, part, p int) int {
	from, to := part*t.size, min((part+1)*t.size, p+1)
	if t.size == device.PageLen {
		from, to = part, part+1
	}
	if n+to-from > len(out) {
		t.o.d.fail("TopParts: more entries than a list of %d takes", len(out))
		return n
	}
	for j := from; j < to; j++ {
		if t.whole || t.size == device.PageLen || t.call.Plan.Span.Sees(p, j) {
			out[n] = int32(j)
			n++
		}
	}
	return n
}

// ascending maps numbers to integers of the same order; -Inf and NaN are the
// least, and 0 has one sign.
func ascending(x float32) uint32 {
	if x != x {
		x = negInf
	}
	b := math.Float32bits(x + 0)
	if b>>31 == 1 {
		return ^b
	}
	return b | 1<<31
}

// atRank is the k-th largest of keys, counted from 1, and how many of the k
// largest are equal to it. For k = 0 it is more than any key.
func atRank(keys []uint32, k int) (key uint32, ties int) {
	if k <= 0 {
		return math.MaxUint32, 0
	}
	var prefix, mask uint32
	for shift := 24; shift >= 0; shift -= 8 {
		var count [256]int
		for _, x := range keys {
			if x&mask == prefix {
				count[x>>shift&255]++
			}
		}
		digit := 255
		for ; count[digit] < k; digit-- {
			k -= count[digit]
		}
		prefix |= uint32(digit) << shift
		mask |= 255 << shift
	}
	return prefix, k
}
