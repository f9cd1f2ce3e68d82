package cpu

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// usageRows is how many products of rows and heads AttentionMass has in hand.
const usageRows = 32

// attentionMass adds the softmax weights of the rows of a call to the sums of the
// positions that they read.
func (o *ops) attentionMass(sum, q device.Tensor, kv device.KV, p device.Plan) {
	const op = "AttentionMass"
	slots, kvHeads := kv.Len.Dim(0), kv.K.Dim(1)
	t := &o.usage
	*t = usageTask{
		o: o, pages: newPages(kv), reach: reach{p}, perSlot: device.RowsPerSlot(op, q.Dim(0), kv),
		q: f32s(q), heads: q.Dim(1), dim: q.Dim(2), sum: f32s(sum), width: sum.Dim(2), scratch: t.scratch,
	}
	t.run, t.kernel = t.heads/kvHeads, o.vec.Scores
	if t.dim%vec.Multiple != 0 {
		t.kernel = vec.Go.Scores
	}
	t.most = 1
	if p.Selected == device.All { // rows that read nearly the same
		t.most = max(1, usageRows/t.run)
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, usageScratch{})
	}
	o.pool.RunChunks(slots*kvHeads, 1, t)
}

// usageTask is AttentionMass: item i is kv head i%kvheads of slot i/kvheads, whose
// rows follow each other.
type usageTask struct {
	o       *ops
	pages   pages
	reach   reach
	kernel  func(dst, q []float32, k, ahead vec.Rows, heads, n, dim int)
	q       []float32 // [rows, heads, dim]
	heads   int
	run     int // heads of a kv head
	dim     int
	perSlot int
	most    int // rows at once

	sum   []float32 // [slots, kvheads, width]
	width int

	scratch []usageScratch
}

// usageScratch is what one worker needs.
type usageScratch struct {
	pos    []int32   // read by one row at least, ascending
	bias   []float32 // log2 of the weight of each, where the list has weights
	q      []float32 // [rows, run, dim]
	scores []float32 // [rows, run, len(pos) in whole tiles]
	tile   []float32 // [rows, run, vec.Tile]
	weight []float32 // [len(pos)]: of one row, all its heads
	tiny   []float64 // [len(pos)]: what is less than device.MinMass of a head's largest
	faint  []int32   // number in pos of those of one head
	far    []float64 // and how much of its largest
	keys   vec.Rows  // [vec.Tile, dim]: gathered

	top, sum, scale [1]float32 // of the softmax in hand
}

// Do adds up items lo to hi-1.
func (t *usageTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		slot, kvHead := i/t.pages.heads, i%t.pages.heads
		first, ok := t.o.first("AttentionMass", &t.pages, slot, t.perSlot)
		for b := 0; ok && b < pagesOf(first+t.perSlot); b++ {
			ok = t.o.page(&t.pages, slot, b) >= 0
		}
		if ok && first+t.perSlot > t.width {
			t.o.d.fail("AttentionMass: position %d in sums of %d", first+t.perSlot-1, t.width)
			ok = false
		}
		for r := 0; ok && r < t.perSlot; r += t.most {
			t.rows(&t.scratch[worker], slot, kvHead, first, r, min(t.most, t.perSlot-r))
		}
	}
}

// rows adds up n rows of a slot from its row r on.
func (t *usageTask) rows(s *usageScratch, slot, kvHead, first, r, n int) {
	t.positions(s, slot, kvHead, first, first+r, n)
	width := (len(s.pos) + vec.Tile - 1) / vec.Tile * vec.Tile
	s.q, s.tile = grown(&s.q, n*t.run*t.dim), grown(&s.tile, n*t.run*vec.Tile)
	s.scores, s.weight, s.tiny = grown(&s.scores, n*t.run*width), grown(&s.weight, width), grown(&s.tiny, width)
	for i := range n {
		at := ((slot*t.perSlot+r+i)*t.heads + kvHead*t.run) * t.dim
		copy(row(s.q, i, t.run*t.dim), t.q[at:at+t.run*t.dim])
	}
	t.score(s, slot, kvHead, n*t.run, width)
	sum := row(t.sum, slot*t.pages.heads+kvHead, t.width)
	for i := range n {
		p := first + r + i
		t.weigh(s, i, p, width)
		sum[p] = device.EncodeMass(0)
		for j, pos := range s.pos {
			if int(pos) > p {
				continue
			}
			switch v, w := sum[pos], s.weight[j]; {
			case v >= device.MinMass && w > 0:
				sum[pos] += w
			case v > negInf:
				sum[pos] = device.EncodeMass(device.DecodeMass(v) + float64(w) + s.tiny[j])
			}
		}
	}
}

// positions finds what the n rows from the one at p on read; those of several
// rows are a superset for each.
func (t *usageTask) positions(s *usageScratch, slot, kvHead, first, p, n int) {
	l := t.o.list(t.reach.plan.List, group(t.reach.plan.List, slot, first, p), kvHead*t.run, t.heads)
	s.pos, s.bias = s.pos[:0], s.bias[:0]
	for b := range pagesOf(p + n) {
		var seen uint64
		for i := range n {
			seen |= t.reach.spannedBits(p+i, b) & t.reach.edgeBits(p+i, b)
		}
		if t.reach.plan.Selected != device.All {
			seen |= t.reach.spannedBits(p, b) & l.bits(t.reach.plan.Selected, b)
		}
		for ; seen != 0; seen &= seen - 1 {
			s.pos = append(s.pos, int32(b*device.PageLen+bits.TrailingZeros64(seen)))
		}
	}
	if l.weights == nil {
		return
	}
	for _, j := range s.pos {
		s.bias = append(s.bias, float32(math.Log2(float64(t.reach.weight(p, int(j), l)))))
	}
}

// bits are the positions of a page that a list names.
func (l list) bits(m device.Selection, page int) (set uint64) {
	switch m {
	case device.Blocks:
		if _, found := slices.BinarySearch(l.index, int32(page)); found {
			return ^uint64(0)
		}
	case device.Tokens:
		at, _ := slices.BinarySearch(l.index, int32(page*device.PageLen))
		for _, j := range l.index[at:] {
			if int(j) >= (page+1)*device.PageLen {
				break
			}
			set |= 1 << (j % device.PageLen)
		}
	}
	return set
}

// score multiplies the rows in hand with the keys of s.pos, which are taken from
// their page where they fill it.
func (t *usageTask) score(s *usageScratch, slot, kvHead, heads, width int) {
	for at := 0; at < len(s.pos); at += vec.Tile {
		some := s.pos[at:min(at+vec.Tile, len(s.pos))]
		keys := t.pages.gather(&s.keys, slot, kvHead, some)
		t.kernel(s.tile, s.q, keys, vec.Rows{}, heads, len(some), t.dim)
		for h := range heads {
			copy(row(s.scores, h, width)[at:at+vec.Tile], row(s.tile, h, vec.Tile))
		}
	}
}

// gather is the keys of up to vec.Tile positions of a slot, ascending, followed
// by anything: in their page where they fill it from its start, otherwise in dst.
func (g *pages) gather(dst *vec.Rows, slot, kvHead int, some []int32) vec.Rows {
	page := func(j int32) int { return int(g.table[slot*g.width+int(j)/device.PageLen]) }
	if j := some[0]; j%device.PageLen == 0 && int(some[len(some)-1]-j) == len(some)-1 {
		return g.rows(g.k, page(j), kvHead, 0, device.PageLen)
	}
	if n := vec.Tile * g.dim; g.half && len(dst.Half) != n {
		*dst = vec.Rows{Half: make([]uint16, n)}
	} else if !g.half && len(dst.Full) != n {
		*dst = vec.Rows{Full: make([]float32, n)}
	}
	for i, j := range some {
		dst.Slice(i*g.dim, (i+1)*g.dim).Copy(g.rows(g.k, page(j), kvHead, int(j)%device.PageLen, 1))
	}
	return *dst
}

// weigh sets s.weight to the softmax of row i, which is at position p, summed
// over its heads.
func (t *usageTask) weigh(s *usageScratch, i, p, width int) {
	clear(s.weight)
	clear(s.tiny)
	scale := float32(math.Log2E / math.Sqrt(float64(t.dim)))
	plan := &t.reach.plan
	open := plan.Span == device.Span{}
	for u := range t.run {
		x := row(s.scores, i*t.run+u, width)
		s.top[0], s.sum[0] = negInf, 0
		low := float32(0)
		for j := range x {
			x[j] *= scale
			if j < len(s.bias) {
				x[j] += s.bias[j]
			}
			if j >= len(s.pos) || int(s.pos[j]) > p || !(x[j] > negInf) || !open && !t.reach.spanned(p, int(s.pos[j])) {
				x[j] = negInf
				continue
			}
			s.top[0] = max(s.top[0], x[j])
			low = min(low, x[j])
		}
		if s.top[0] == negInf {
			continue
		}
		s.setFaint(x, low)
		for at := 0; at < width; at += vec.Tile {
			t.o.vec.Softmax(x[at:at+vec.Tile], s.top[:], s.sum[:], s.scale[:])
		}
		share := 1 / s.sum[0]
		for j := range s.pos {
			s.weight[j] += x[j] * share
		}
		for i, j := range s.faint {
			s.tiny[j] += s.far[i] * float64(share)
		}
	}
}

// setFaint takes what is too far below the largest score for a f32 out of a head's
// scores, in units of ln 2, the lowest of which is given.
func (s *usageScratch) setFaint(x []float32, low float32) {
	s.faint, s.far = s.faint[:0], s.far[:0]
	least := s.top[0] + float32(math.Log2(device.MinMass))
	if low >= least {
		return
	}
	for j, v := range x {
		if v < least && v > negInf {
			s.faint, s.far = append(s.faint, int32(j)), append(s.far, math.Exp2(float64(v-s.top[0])))
			x[j] = negInf
		}
	}
}

// heavyHitters lists what stays of the positions before the newest of each slot, and
// drops the others.
func (o *ops) heavyHitters(c *device.Select) {
	const op = "HeavyHitters"
	t, l, sum, kv := &o.keep, &c.List, c.Scores, c.KV
	*t = keepTask{
		call: c, span: c.Plan.Span, since: i32s(c.Since), sum: f32s(sum), width: sum.Dim(2), kvHeads: kv.K.Dim(1),
		index: i32s(l.Index), count: i32s(l.Count), limit: l.Index.Dim(2), pos: o.newest(op, kv, t.pos), rank: t.rank,
	}
	for slot, at := range t.pos {
		if at >= t.width {
			o.d.fail("%s: position %d in sums of %d", op, at, t.width)
			t.pos[slot] = -1
		}
	}
	for len(t.rank) < o.pool.Workers() {
		t.rank = append(t.rank, nil)
	}
	for i, r := range t.rank {
		if cap(r) < t.width {
			t.rank[i] = make([]uint64, 0, t.width)
		}
	}
	o.pool.RunChunks(len(t.pos)*t.kvHeads, 1, t)
	if t.cut.Load() {
		o.d.fail("%s: more entries than a list of %d takes", op, t.limit)
	}
}

// keepTask is HeavyHitters: item i is kv head i%kvheads of slot i/kvheads.
type keepTask struct {
	call  *device.Select
	span  device.Span
	since []int32
	sum   []float32 // [slots, kvheads, width]
	width int

	kvHeads, limit int
	index, count   []int32 // of the list
	pos            []int   // by slot; -1 is skipped
	cut            atomic.Bool

	rank [][]uint64 // by worker: candidates; see sortable
}

// Do lists items lo to hi-1.
func (t *keepTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		slot := i / t.kvHeads
		if p := t.pos[slot]; p >= 0 {
			t.list(worker, i, p, int(t.since[slot]))
		}
	}
}

// list lists what stays before position p, ascending.
func (t *keepTask) list(worker, i, p, since int) {
	sum, out := row(t.sum, i, t.width)[:p], row(t.index, i, t.limit)
	best, newest := t.call.KeptOf(p, since)
	rank := t.rank[worker][:0]
	for _, v := range seen(t.span, p) {
		for j := v.lo; j < min(v.hi, p-newest); j++ {
			if sum[j] > negInf {
				rank = append(rank, sortable(sum[j], j))
			}
		}
	}
	t.rank[worker] = rank
	best = min(best, len(rank))
	largest(rank, best)
	least := uint64(math.MaxUint64)
	for _, r := range rank[:best] {
		least = min(least, r)
	}
	n := 0
	for j, x := range sum {
		stays := x > negInf && t.span.Sees(p, j) && (j >= p-newest || sortable(x, j) >= least)
		switch {
		case !stays:
			sum[j] = negInf
		case n == len(out):
			t.cut.Store(true)
		default:
			out[n] = int32(j)
			n++
		}
	}
	t.count[i] = int32(n)
}
