package cpu

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// massRows is how many pairs of a row and a head AttentionMass computes in one pass over the
// keys.
const massRows = 32

// attentionMass adds the softmax probabilities of the rows to the accumulated attention mass
// of the positions that they read.
func (o *ops) attentionMass(c *device.Summarize) {
	t := &o.tasks.mass
	*t = massTask{
		o: o, pages: newPages(c.KV), mask: mask{c.Plan}, kernel: o.vec.Scores,
		perSlot: device.RowsPerSlot("AttentionMass", c.X.Dim(0), c.KV),
		q:       f32s(c.X), heads: c.X.Dim(1), dim: c.X.Dim(2), mass: f32s(c.Dst), width: c.Dst.Dim(2), scratch: t.scratch,
	}
	if t.dim%vec.Multiple != 0 {
		t.kernel = vec.Go.Scores
	}
	t.group, t.maxRows = t.heads/t.pages.heads, 1
	if c.Plan.Selected == device.All { // neighbouring rows read nearly the same keys
		t.maxRows = max(1, massRows/t.group)
	}
	t.scratch = perWorker(o.pool, t.scratch)
	o.pool.RunChunks(c.KV.Len.Dim(0)*t.pages.heads, 1, t)
}

// massTask is AttentionMass: item i is kv head i%kvheads of slot i/kvheads, whose rows are
// added in order.
type massTask struct {
	o       *ops
	pages   pages
	mask    mask
	kernel  func(dst, q []float32, k, ahead vec.Rows, heads, n, dim int)
	q       []float32 // [rows, heads, dim]
	heads   int
	group   int // heads of a kv head
	dim     int
	perSlot int
	maxRows int // rows of one pass over the keys

	mass  []float32 // [slots, kvheads, width]
	width int

	scratch []massScratch
}

// massScratch is what one worker needs.
type massScratch struct {
	pos           []int32   // positions that at least one row reads, ascending
	bias          []float32 // log2 of the weight of each, where the list has weights
	q             []float32 // [rows, group, dim]
	scores        []float32 // [rows, group, len(pos) padded to tiles]
	tile          []float32 // [rows, group, vec.Tile]
	mass          []float32 // [len(pos)]: of one row, summed over its heads
	tinyMass      []float64 // [len(pos)]: the part below device.MinMass of a head's largest
	underflow     []int32   // elements of pos where one head's probability is that small
	underflowMass []float64 // their probabilities over the largest
	keys          vec.Rows  // [vec.Tile, dim]: gathered

	top, sum, scale [1]float32 // state of the current softmax
}

// Do accumulates items lo to hi-1.
func (t *massTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		slot, kvHead := i/t.pages.heads, i%t.pages.heads
		first, ok := t.o.first("AttentionMass", &t.pages, slot, t.perSlot)
		if !ok || !t.o.hasPages(&t.pages, slot, first+t.perSlot) {
			continue
		}
		if first+t.perSlot > t.width {
			t.o.d.fail("AttentionMass: position %d in sums of %d", first+t.perSlot-1, t.width)
			continue
		}
		for r := 0; r < t.perSlot; r += t.maxRows {
			t.rows(&t.scratch[worker], slot, kvHead, first, r, min(t.maxRows, t.perSlot-r))
		}
	}
}

// rows accumulates n rows of a slot from its row r on.
func (t *massTask) rows(s *massScratch, slot, kvHead, first, r, n int) {
	t.positions(s, slot, kvHead, first, first+r, n)
	width := (len(s.pos) + vec.Tile - 1) / vec.Tile * vec.Tile
	s.q, s.tile = grown(&s.q, n*t.group*t.dim), grown(&s.tile, n*t.group*vec.Tile)
	s.scores, s.mass, s.tinyMass = grown(&s.scores, n*t.group*width), grown(&s.mass, width), grown(&s.tinyMass, width)
	for i := range n {
		at := ((slot*t.perSlot+r+i)*t.heads + kvHead*t.group) * t.dim
		copy(row(s.q, i, t.group*t.dim), t.q[at:at+t.group*t.dim])
	}
	t.score(s, slot, kvHead, n*t.group, width)
	mass := row(t.mass, slot*t.pages.heads+kvHead, t.width)
	for i := range n {
		p := first + r + i
		t.rowMass(s, i, p, width)
		mass[p] = device.EncodeMass(0)
		for j, pos := range s.pos {
			if int(pos) > p {
				continue
			}
			switch v, w := mass[pos], s.mass[j]; {
			case v >= device.MinMass && w > 0:
				mass[pos] += w
			case v > negInf:
				mass[pos] = device.EncodeMass(device.DecodeMass(v) + float64(w) + s.tinyMass[j])
			}
		}
	}
}

// positions finds what the n rows from position p on read; of several rows it is the union.
func (t *massTask) positions(s *massScratch, slot, kvHead, first, p, n int) {
	l := t.o.list(t.mask.plan.List, listGroup(t.mask.plan.List, slot, first, p), kvHead*t.group, t.heads)
	s.pos, s.bias = s.pos[:0], s.bias[:0]
	for b := range pagesOf(p + n) {
		var seen uint64
		for i := range n {
			seen |= t.mask.spannedBits(p+i, b) & t.mask.alwaysBits(p+i, b)
		}
		if t.mask.plan.Selected != device.All {
			seen |= t.mask.spannedBits(p, b) & l.bits(t.mask.plan.Selected, b)
		}
		for ; seen != 0; seen &= seen - 1 {
			s.pos = append(s.pos, int32(b*device.PageLen+bits.TrailingZeros64(seen)))
		}
	}
	if l.weights == nil {
		return
	}
	for _, j := range s.pos {
		s.bias = append(s.bias, float32(math.Log2(float64(t.mask.weight(p, int(j), l)))))
	}
}

// score computes q·k of the current rows and the keys of s.pos.
func (t *massTask) score(s *massScratch, slot, kvHead, heads, width int) {
	for at := 0; at < len(s.pos); at += vec.Tile {
		some := s.pos[at:min(at+vec.Tile, len(s.pos))]
		keys := t.pages.gather(&s.keys, slot, kvHead, some)
		t.kernel(s.tile, s.q, keys, vec.Rows{}, heads, len(some), t.dim)
		for h := range heads {
			copy(row(s.scores, h, width)[at:at+vec.Tile], row(s.tile, h, vec.Tile))
		}
	}
}

// gather is the keys of up to vec.Tile positions of a slot, ascending: in their page where
// they are consecutive from its start, otherwise copied to dst. What follows them in the tile
// is undefined.
func (g *pages) gather(dst *vec.Rows, slot, kvHead int, some []int32) vec.Rows {
	page := func(j int32) int { return g.knownPage(slot, int(j)/device.PageLen) }
	if j := some[0]; j%device.PageLen == 0 && int(some[len(some)-1]-j) == len(some)-1 {
		return g.rows(g.k, page(j), kvHead, 0, device.PageLen)
	}
	*dst = fitRows(*dst, vec.Tile*g.dim, g.half)
	for i, j := range some {
		dst.Slice(i*g.dim, (i+1)*g.dim).Copy(g.rows(g.k, page(j), kvHead, int(j)%device.PageLen, 1))
	}
	return *dst
}

// rowMass sets s.mass, and s.tinyMass, to the softmax of row i, which is at position p, summed
// over its heads.
func (t *massTask) rowMass(s *massScratch, i, p, width int) {
	clear(s.mass)
	clear(s.tinyMass)
	scale := float32(math.Log2E / math.Sqrt(float64(t.dim)))
	plan := &t.mask.plan
	unbounded := plan.Span == device.Span{}
	for u := range t.group {
		x := row(s.scores, i*t.group+u, width)
		s.top[0], s.sum[0] = negInf, 0
		low := float32(0)
		for j := range x {
			x[j] *= scale
			if j < len(s.bias) {
				x[j] += s.bias[j]
			}
			if j >= len(s.pos) || int(s.pos[j]) > p || !(x[j] > negInf) || !unbounded && !t.mask.spanned(p, int(s.pos[j])) {
				x[j] = negInf
				continue
			}
			s.top[0] = max(s.top[0], x[j])
			low = min(low, x[j])
		}
		if s.top[0] == negInf {
			continue
		}
		s.takeUnderflow(x, low)
		for at := 0; at < width; at += vec.Tile {
			t.o.vec.Softmax(x[at:at+vec.Tile], s.top[:], s.sum[:], s.scale[:])
		}
		norm := 1 / s.sum[0]
		for j := range s.pos {
			s.mass[j] += x[j] * norm
		}
		for i, j := range s.underflow {
			s.tinyMass[j] += s.underflowMass[i] * float64(norm)
		}
	}
}

// takeUnderflow masks the scores of a head whose probability is below device.MinMass of the
// largest, and keeps their exponentials in float64. Scores are in units of ln 2; low is the
// lowest of them.
func (s *massScratch) takeUnderflow(x []float32, low float32) {
	s.underflow, s.underflowMass = s.underflow[:0], s.underflowMass[:0]
	limit := s.top[0] + float32(math.Log2(device.MinMass))
	if low >= limit {
		return
	}
	for j, v := range x {
		if v < limit && v > negInf {
			s.underflow, s.underflowMass = append(s.underflow, int32(j)), append(s.underflowMass, math.Exp2(float64(v-s.top[0])))
			x[j] = negInf
		}
	}
}
