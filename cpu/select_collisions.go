package cpu

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// collisions lists the positions whose LSH codes collide with those of the queries, with
// importance weights (MagicPIG).
func (o *ops) collisions(c *device.Select) {
	const op = "Collisions"
	t, index := &o.tasks.collisions, o.hashIndex(c.Hash, c.KV)
	*t = collisionTask{
		hashIndex: index, outList: newOutList(c.List), o: o, pages: newPages(c.KV), mask: mask{c.Plan},
		q: f32s(c.Q), heads: c.Q.Dim(1),
		pos: o.newestPositions(op, c.KV, index.capacity(), t.pos), scratch: perWorker(o.pool, t.scratch),
	}
	group := t.heads / t.kvHeads
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.tile, s.flip = grown(&s.q, vec.Tile*t.dim), grown(&s.tile, vec.Tile*vec.Tile), grown(&s.flip, group*t.planes)
		s.wanted = grown(&s.wanted, t.Tables)
	}
	o.pool.RunChunks(len(t.pos)*t.kvHeads, 1, t)
	t.checkOverflow(o, op)
}

// collisionTask is Collisions: item i is kv head i%kvheads of slot i/kvheads.
type collisionTask struct {
	hashIndex
	outList
	o       *ops
	pages   pages
	mask    mask
	q       []float32 // [slots, heads, dim]
	heads   int
	pos     []int        // by slot; -1 is skipped
	tooFull atomic.Int32 // queries whose buckets were too full to be followed

	scratch []collisionScratch
}

// collisionScratch is what one worker needs.
type collisionScratch struct {
	q    []float32        // [vec.Tile, dim]: queries, less the center where Hash.Queries says so
	tile []float32        // [vec.Tile, vec.Tile]: their products with planes
	flip []uint64         // [group, planes]: zero where the query is above the plane, otherwise all ones
	at   [2][vec.Tile]int // where the keys of a tile start in the cache, and of the next tile

	wanted      []uint16 // [tables]: buckets of a query
	once, twice []uint64 // [blocks]: positions that collide in one table, and in two
}

// Do lists items lo to hi-1.
func (t *collisionTask) Do(worker, lo, hi int) {
	s, group := &t.scratch[worker], t.heads/t.kvHeads
	for i := lo; i < hi; i++ {
		slot, kvHead := i/t.kvHeads, i%t.kvHeads
		if t.pos[slot] < 0 {
			continue
		}
		for first := 0; first < group; first += vec.Tile {
			n := min(vec.Tile, group-first)
			t.querySigns(s, slot, kvHead, kvHead*group+first, n)
			for h := range n {
				t.list(s, slot, kvHead, kvHead*group+first+h, h)
			}
		}
	}
}

// querySigns sets s.flip for the queries of n heads of a kv head.
func (t *collisionTask) querySigns(s *collisionScratch, slot, kvHead, head, n int) {
	copy(s.q, t.q[(slot*t.heads+head)*t.dim:][:n*t.dim])
	if t.Queries {
		center := row(t.center, slot*t.kvHeads+kvHead, t.dim)
		for h := range n {
			for c, x := range center {
				s.q[h*t.dim+c] -= x
			}
		}
	}
	t.project(s.tile, s.q, n, func(first, planes int) {
		for h := range n {
			flip := row(s.flip, h, t.planes)[first:]
			for c, x := range row(s.tile, h, vec.Tile)[:planes] {
				flip[c] = aboveZero(x) - 1
			}
		}
	})
}

// list lists what collides with the query of a head, which is number h of s.q.
func (t *collisionTask) list(s *collisionScratch, slot, kvHead, head, h int) {
	p, i := t.pos[slot], slot*t.heads+head
	found := t.find(s, slot, kvHead, row(s.flip, h, t.planes))
	out, n := row(t.index, i, t.limit), 0
	norm := row(t.norm, slot*t.kvHeads+kvHead, t.width)
	for b, word := range found {
		for word &= t.mask.regionBits(p, b); word != 0; word &= word - 1 {
			j := b*device.PageLen + bits.TrailingZeros64(word)
			if !(norm[j] <= math.MaxFloat32) {
				continue
			}
			if n == len(out) {
				t.overflow.Store(true)
				break
			}
			out[n] = int32(j)
			n++
		}
	}
	t.count[i] = int32(n)
	t.weights(s, row(s.q, h, t.dim), slot, kvHead, out[:n], row(t.weight, i, t.limit))
}

// Following a bucket to one member takes as long as comparing memberWords words of codes, so
// buckets are followed to a number of members that is in proportion to the codes; up to
// minCollected members in any case.
const (
	memberWords  = 16
	minCollected = 1 << 12
)

// find is the positions that collide with a query, a word for each block; positions outside
// the selected region may be among them. It follows the query's buckets, or, where there are
// none or they are too full, compares all codes: both find the same.
func (t *collisionTask) find(s *collisionScratch, slot, kvHead int, flip []uint64) []uint64 {
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
		if t.collect(once, twice, slot, slot*t.kvHeads+kvHead, s.wanted, max(minCollected, blocks*t.planes/memberWords)) {
			if t.MinCollisions == 1 {
				return once
			}
			return twice
		}
		t.tooFull.Add(1)
	}
	for b := range once {
		once[b] = t.collide(t.code(slot, kvHead, b), flip, t.mask.regionBits(p, b))
	}
	return once
}

// collide is the positions of a block, among those given, that collide with the query in
// MinCollisions tables.
func (t *collisionTask) collide(code, flip []uint64, among uint64) uint64 {
	var once, twice uint64
	if among == 0 {
		return 0
	}
	width := t.Bits()
	for ; len(code) > 0; code, flip = code[width:], flip[width:] {
		same, c, f := among, code[:width], flip[:width]
		for len(c) >= 4 && len(f) >= 4 { // no early exit: the branch costs more than it saves
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

// weights sets the importance weights of the positions of index, from the cosines of their
// keys with the query.
func (t *collisionTask) weights(s *collisionScratch, q []float32, slot, kvHead int, index []int32, weight []float32) {
	var toCenter, length float64
	for c, x := range row(t.center, slot*t.kvHeads+kvHead, t.dim) {
		toCenter += float64(q[c]) * float64(x)
	}
	length = math.Sqrt(t.o.vec.SumSquares(q))
	norm := row(t.norm, slot*t.kvHeads+kvHead, t.width)
	scores := t.o.vec.ScoresAt
	if t.dim%vec.Multiple != 0 {
		scores = vec.Go.ScoresAt
	}
	now, next := &s.at[0], &s.at[1]
	t.pages.locateTile(now, slot, kvHead, index)
	for at := 0; at < len(index); at += vec.Tile {
		some := index[at:min(at+vec.Tile, len(index))]
		t.pages.locateTile(next, slot, kvHead, index[at+len(some):])
		scores(s.tile, q, t.pages.all(t.pages.k), now, next, 1, len(some), t.dim)
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
