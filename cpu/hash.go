package cpu

import (
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// hashed is a device.Hash with its tensors looked up.
type hashed struct {
	device.Hash
	buckets
	kernel func(dst, q []float32, k, ahead vec.Rows, heads, n, dim int)
	normal []float32 // [planes, dim]
	codes  []uint64  // [slots, kvheads, blocks, planes]
	norm   []float32 // [slots, kvheads, width]
	center []float32 // [slots, kvheads, dim]

	planes, blocks, width, kvHeads, dim int
}

func (o *ops) hashed(h device.Hash, kv device.KV) hashed {
	t := hashed{
		Hash: h, kernel: o.vec.Scores, normal: f32s(h.Planes), norm: f32s(h.Norm), center: f32s(h.Center),
		buckets: newBuckets(h), planes: h.Planes.Dim(0), width: h.Norm.Dim(2), kvHeads: kv.K.Dim(1), dim: h.Planes.Dim(1),
	}
	t.blocks = h.Codes.Dim(1) / t.kvHeads
	if c := bytesOf(h.Codes); len(c) > 0 {
		t.codes = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(c))), len(c)/8)
	}
	if t.dim%vec.Multiple != 0 || t.planes < vec.Tile {
		t.kernel = vec.Go.Scores
	}
	return t
}

// code is the code of a block: a word for each plane.
func (h *hashed) code(slot, kvHead, block int) []uint64 {
	return row(h.codes, (slot*h.kvHeads+kvHead)*h.blocks+block, h.planes)
}

// sides calls f with the products of n vectors and vec.Tile planes or fewer, from
// a first one on, until all planes have had their turn. The last planes may have
// two. x f32 [n, dim], tile f32 [n, vec.Tile].
func (h *hashed) sides(tile, x []float32, n int, f func(first, planes int)) {
	for first := 0; first < h.planes; first += vec.Tile {
		if h.planes >= vec.Tile { // the kernel wants whole tiles
			first = min(first, h.planes-vec.Tile)
		}
		m := min(vec.Tile, h.planes-first)
		h.kernel(tile, x, vec.Rows{Full: h.normal[first*h.dim : (first+m)*h.dim]}, vec.Rows{}, n, m, h.dim)
		f(first, m)
	}
}

// above is 1 for a number above zero, otherwise 0. Sums are never -0.
func above(x float32) uint64 { return uint64(uint32(-int32(math.Float32bits(x))) >> 31) }

// keyHashes makes the codes of positions that have none.
func (o *ops) keyHashes(h device.Hash, kv device.KV) {
	const op = "KeyHashes"
	t := &o.hash
	*t = hashTask{hashed: o.hashed(h, kv), o: o, pages: newPages(kv), since: i32s(h.Since), done: i32s(h.Done),
		pos: o.newest(op, kv, t.pos), scratch: t.scratch}
	for slot, p := range t.pos {
		if p >= min(t.width, t.blocks*device.PageLen) {
			o.d.fail("%s: position %d in codes of %d", op, p, min(t.width, t.blocks*device.PageLen))
			t.pos[slot] = -1
			continue
		}
		if p >= 0 && p < int(t.since[slot]) {
			t.since[slot], t.done[slot] = int32(p), 0
		}
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, hashScratch{})
	}
	for i := range t.scratch {
		s := &t.scratch[i]
		s.x, s.tile = grown(&s.x, vec.Tile*t.dim), grown(&s.tile, vec.Tile*vec.Tile)
		if t.bucketed() {
			s.buckets = grown(&s.buckets, min(device.HashRun, t.blocks*device.PageLen))
		}
	}
	o.pool.RunChunks(len(t.pos)*t.kvHeads, 1, t)
	for slot, p := range t.pos {
		if p < 0 {
			continue
		}
		if t.bucketed() {
			t.sorted[slot] = int32(sortedOf(p+1, t.keptOf(slot, min(int(t.done[slot]), p))))
		}
		t.done[slot] = int32(p + 1)
	}
}

// hashTask is KeyHashes: item i is kv head i%kvheads of slot i/kvheads.
type hashTask struct {
	hashed
	o           *ops
	pages       pages
	since, done []int32 // [slots]
	pos         []int   // by slot; -1 is skipped
	scratch     []hashScratch
}

// hashScratch is what one worker needs.
type hashScratch struct {
	x    []float32 // [vec.Tile, dim]: keys from the center
	tile []float32 // [vec.Tile, vec.Tile]

	buckets []uint16 // of the positions of a run in a table
}

// Do makes the codes of items lo to hi-1.
func (t *hashTask) Do(worker, lo, hi int) {
	s := &t.scratch[worker]
	for i := lo; i < hi; i++ {
		slot, kvHead := i/t.kvHeads, i%t.kvHeads
		p := t.pos[slot]
		if p < 0 {
			continue
		}
		have := min(int(t.done[slot]), p)
		if have == 0 {
			t.middle(s, slot, kvHead)
		}
		from := have // to be put into buckets
		if t.bucketed() {
			from = t.cut(slot, kvHead, have, int(t.done[slot]))
		}
		for j := have; j <= p; {
			n := min(device.PageLen-j%device.PageLen, p+1-j)
			t.encode(s, slot, kvHead, j, n)
			j += n
		}
		if t.bucketed() {
			t.enter(s, slot, kvHead, from, p+1)
		}
	}
}

// keptOf is how many positions of a slot stay sorted when those from have on go:
// where one of them was sorted, none of its run's.
func (t *hashTask) keptOf(slot, have int) int {
	if have == 0 || have < int(t.sorted[slot]) {
		return have / device.HashRun * device.HashRun
	}
	return int(t.sorted[slot])
}

// cut takes positions from to done-1 out of their buckets, and returns from which
// on positions have to be put into them.
func (t *hashTask) cut(slot, kvHead, from, done int) int {
	if kept := t.keptOf(slot, from); from == 0 || kept < int(t.sorted[slot]) {
		return kept
	}
	if from%device.HashRun == 0 { // a run is emptied when its first position comes
		return from
	}
	for to := min(done, (from/device.HashRun+1)*device.HashRun); to > from; {
		block := (to - 1) / device.PageLen
		lo := max(from, block*device.PageLen)
		t.unlink(slot*t.kvHeads+kvHead, lo, to, t.code(slot, kvHead, block))
		to = lo
	}
	return from
}

// enter puts positions from to done-1 into their buckets.
func (t *hashTask) enter(s *hashScratch, slot, kvHead, from, done int) {
	head, kept := slot*t.kvHeads+kvHead, t.keptOf(slot, min(int(t.done[slot]), done-1))
	if n := sortedOf(done, kept); n > kept {
		for run := kept / device.HashRun; run*device.HashRun < n; run++ {
			t.sort(head, run, min(n-run*device.HashRun, device.HashRun), s.buckets, func(block int) []uint64 {
				return t.code(slot, kvHead, run*device.HashRun/device.PageLen+block)
			})
		}
		from = n
	}
	for j := from; j < done; {
		to := min(done, (j/device.PageLen+1)*device.PageLen)
		t.link(head, j, to, t.code(slot, kvHead, j/device.PageLen))
		j = to
	}
}

// middle makes the center of a kv head.
func (t *hashTask) middle(s *hashScratch, slot, kvHead int) {
	center := row(t.center, slot*t.kvHeads+kvHead, t.dim)
	clear(center)
	n := int(t.since[slot]) - t.Recent - t.Sink
	if !t.Mean || n <= 0 {
		return
	}
	sum := make([]float64, t.dim) // once after each prompt
	for j := t.Sink; j < t.Sink+n; j++ {
		t.load(s.x[:t.dim], slot, kvHead, j)
		for i, x := range s.x[:t.dim] {
			sum[i] += float64(x)
		}
	}
	for i, x := range sum {
		center[i] = float32(x / float64(n))
	}
}

// load reads the key at position j.
func (t *hashTask) load(x []float32, slot, kvHead, j int) {
	page := int(t.pages.table[slot*t.pages.width+j/device.PageLen])
	t.o.load(x, t.pages.k, t.pages.element(page, kvHead, j%device.PageLen), t.pages.half)
}

// encode makes the codes of n positions of a block from j on.
func (t *hashTask) encode(s *hashScratch, slot, kvHead, j, n int) {
	center, norm := row(t.center, slot*t.kvHeads+kvHead, t.dim), row(t.norm, slot*t.kvHeads+kvHead, t.width)
	for i := range n {
		x := row(s.x, i, t.dim)
		t.load(x, slot, kvHead, j+i)
		for c := range x {
			x[c] -= center[c]
		}
		norm[j+i] = float32(math.Sqrt(t.o.vec.SumSquares(x)))
	}
	code, from := t.code(slot, kvHead, j/device.PageLen), j%device.PageLen
	keep := ^(^uint64(0) >> (device.PageLen - n) << from)
	t.sides(s.tile, s.x, n, func(first, planes int) {
		var side [vec.Tile]uint64 // by plane
		for i := range n {
			for c, x := range row(s.tile, i, vec.Tile)[:planes] {
				side[c] |= above(x) << i
			}
		}
		for c, word := range side[:planes] {
			code[first+c] = code[first+c]&keep | word<<from
		}
	})
}

// collisions lists the positions that collide with each row's queries.
func (o *ops) collisions(l device.List, h device.Hash, q device.Tensor, kv device.KV, p device.Plan) {
	const op = "Collisions"
	t := &o.collide
	*t = collideTask{
		hashed: o.hashed(h, kv), o: o, pages: newPages(kv), reach: reach{p}, q: f32s(q), heads: q.Dim(1),
		index: i32s(l.Index), count: i32s(l.Count), weight: f32s(l.Weight), limit: l.Index.Dim(2),
		pos: o.newest(op, kv, t.pos), scratch: t.scratch,
	}
	for slot, p := range t.pos {
		if p >= min(t.width, t.blocks*device.PageLen) {
			o.d.fail("%s: position %d in codes of %d", op, p, min(t.width, t.blocks*device.PageLen))
			t.pos[slot] = -1
		}
	}
	for slot, p := range t.pos { // keys are read by address
		for b := 0; p >= 0 && b < pagesOf(p+1); b++ {
			if o.page(&t.pages, slot, b) < 0 {
				t.pos[slot], p = -1, -1
			}
		}
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, collideScratch{})
	}
	group := t.heads / t.kvHeads
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.tile, s.flip = grown(&s.q, vec.Tile*t.dim), grown(&s.tile, vec.Tile*vec.Tile), grown(&s.flip, group*t.planes)
		s.wanted = grown(&s.wanted, t.Tables)
	}
	o.pool.RunChunks(len(t.pos)*t.kvHeads, 1, t)
	if t.cut.Load() {
		o.d.fail("%s: more entries than a list of %d takes", op, t.limit)
	}
}

// collideTask is Collisions: item i is kv head i%kvheads of slot i/kvheads.
type collideTask struct {
	hashed
	o     *ops
	pages pages
	reach reach
	q     []float32 // [slots, heads, dim]
	heads int
	pos   []int // by slot; -1 is skipped

	index, count []int32 // of the list
	weight       []float32
	limit        int
	cut          atomic.Bool
	full         atomic.Int32 // queries whose buckets were too full

	scratch []collideScratch
}

// collideScratch is what one worker needs.
type collideScratch struct {
	q    []float32        // [vec.Tile, dim]: queries, from the center where that is wanted
	tile []float32        // [vec.Tile, vec.Tile]
	flip []uint64         // [group, planes]: zero where the query is above, otherwise all ones
	at   [2][vec.Tile]int // where keys start, of a tile and of the next one

	wanted      []uint16 // [tables]: buckets of a query
	once, twice []uint64 // sets of positions, by blocks
}

// Do lists items lo to hi-1.
func (t *collideTask) Do(worker, lo, hi int) {
	s, group := &t.scratch[worker], t.heads/t.kvHeads
	for i := lo; i < hi; i++ {
		slot, kvHead := i/t.kvHeads, i%t.kvHeads
		if t.pos[slot] < 0 {
			continue
		}
		for first := 0; first < group; first += vec.Tile {
			n := min(vec.Tile, group-first)
			t.sign(s, slot, kvHead, kvHead*group+first, n)
			for h := range n {
				t.list(s, slot, kvHead, kvHead*group+first+h, h)
			}
		}
	}
}

// sign finds on which sides of the planes the queries of n heads of a kv head lie.
func (t *collideTask) sign(s *collideScratch, slot, kvHead, head, n int) {
	copy(s.q, t.q[(slot*t.heads+head)*t.dim:][:n*t.dim])
	if t.Queries {
		center := row(t.center, slot*t.kvHeads+kvHead, t.dim)
		for h := range n {
			for c, x := range center {
				s.q[h*t.dim+c] -= x
			}
		}
	}
	t.sides(s.tile, s.q, n, func(first, planes int) {
		for h := range n {
			flip := row(s.flip, h, t.planes)[first:]
			for c, x := range row(s.tile, h, vec.Tile)[:planes] {
				flip[c] = above(x) - 1
			}
		}
	})
}

// list lists what collides with the query of a head, which is the h-th of those
// that are signed.
func (t *collideTask) list(s *collideScratch, slot, kvHead, head, h int) {
	p, i := t.pos[slot], slot*t.heads+head
	found := t.find(s, slot, kvHead, row(s.flip, h, t.planes))
	out, n := row(t.index, i, t.limit), 0
	norm := row(t.norm, slot*t.kvHeads+kvHead, t.width)
	for b, set := range found {
		for set &= t.among(p, b); set != 0; set &= set - 1 {
			j := b*device.PageLen + bits.TrailingZeros64(set)
			if !(norm[j] <= math.MaxFloat32) {
				continue
			}
			if n == len(out) {
				t.cut.Store(true)
				break
			}
			out[n] = int32(j)
			n++
		}
	}
	t.count[i] = int32(n)
	t.weigh(s, row(s.q, h, t.dim), slot, kvHead, out[:n], row(t.weight, i, t.limit))
}

// among is the positions of a block that the row at p may list.
func (t *collideTask) among(p, block int) uint64 {
	return t.reach.spannedBits(p, block) &^ t.reach.edgeBits(p, block)
}

// Finding a member of a bucket takes as long as comparing so many words of codes,
// and fewer than fewCollected are always found so.
const (
	memberWords  = 16
	fewCollected = 1 << 12
)

// find is the positions that collide with a query, by blocks; those that may not
// be listed may be among them. Both ways find the same.
func (t *collideTask) find(s *collideScratch, slot, kvHead int, flip []uint64) []uint64 {
	p := t.pos[slot]
	blocks := pagesOf(p + 1)
	once, twice := grown(&s.once, blocks), grown(&s.twice, blocks)
	if t.bucketed() {
		clear(once)
		clear(twice)
		for table := range s.wanted {
			var bucket uint16
			for k, f := range row(flip, table, t.Bits()) {
				bucket |= uint16(^f&1) << k
			}
			s.wanted[table] = bucket
		}
		if t.collect(once, twice, slot, slot*t.kvHeads+kvHead, s.wanted, max(fewCollected, blocks*t.planes/memberWords)) {
			if t.MinCollisions == 1 {
				return once
			}
			return twice
		}
		t.full.Add(1)
	}
	for b := range once {
		once[b] = t.collide(t.code(slot, kvHead, b), flip, t.among(p, b))
	}
	return once
}

// collide is the positions of a block, among those given, that collide with the
// query in enough tables.
func (t *collideTask) collide(code, flip []uint64, among uint64) uint64 {
	var once, twice uint64
	if among == 0 {
		return 0
	}
	width := t.Bits()
	for ; len(code) > 0; code, flip = code[width:], flip[width:] {
		same, c, f := among, code[:width], flip[:width]
		for len(c) >= 4 && len(f) >= 4 { // to stop when nothing is left costs more than it saves
			same &= (c[0] ^ f[0]) & (c[1] ^ f[1]) & (c[2] ^ f[2]) & (c[3] ^ f[3])
			c, f = c[4:], f[4:]
		}
		for k, word := range c {
			same &= word ^ f[k]
		}
		twice |= once & same
		once |= same
	}
	if t.MinCollisions == 1 {
		return once
	}
	return twice
}

// places is where the keys of the first positions start, a tile of them; the last
// is repeated.
func (t *collideTask) places(at *[vec.Tile]int, slot, kvHead int, index []int32) {
	if len(index) == 0 {
		return
	}
	for i := range at {
		j := int(index[min(i, len(index)-1)])
		at[i] = t.pages.element(int(t.pages.table[slot*t.pages.width+j/device.PageLen]), kvHead, j%device.PageLen)
	}
}

// weigh sets the weights of positions that collided.
func (t *collideTask) weigh(s *collideScratch, q []float32, slot, kvHead int, index []int32, weight []float32) {
	var toCenter, length float64
	for c, x := range row(t.center, slot*t.kvHeads+kvHead, t.dim) {
		toCenter += float64(q[c]) * float64(x)
	}
	length = math.Sqrt(t.o.vec.SumSquares(q))
	norm := row(t.norm, slot*t.kvHeads+kvHead, t.width)
	kernel := t.o.vec.ScoresAt
	if t.dim%vec.Multiple != 0 {
		kernel = vec.Go.ScoresAt
	}
	now, next := &s.at[0], &s.at[1]
	t.places(now, slot, kvHead, index)
	for at := 0; at < len(index); at += vec.Tile {
		some := index[at:min(at+vec.Tile, len(index))]
		t.places(next, slot, kvHead, index[at+len(some):])
		kernel(s.tile, q, t.pages.all(t.pages.k), now, next, 1, len(some), t.dim)
		now, next = next, now
		for i, j := range some {
			cosine := 0.0
			if product := length * float64(norm[j]); product > 0 {
				cosine = (float64(s.tile[i]) - toCenter) / product
			}
			weight[at+i] = t.Weight(cosine)
		}
	}
}
