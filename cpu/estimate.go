package cpu

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// residualSample lists what is fixed in the plan's middle and a sample of the rest.
func (o *ops) residualSample(l device.List, q device.Tensor, kv device.KV, p device.Plan, tail device.Residual) {
	const op = "ResidualSample"
	t := &o.tail
	*t = tailTask{
		o: o, pages: newPages(kv), reach: reach{p}, tail: tail, requests: requestsOf(tail.Requests),
		q: f32s(q), heads: q.Dim(1), sets: l.Index.Dim(1), dim: q.Dim(2),
		index: i32s(l.Index), count: i32s(l.Count), weight: f32s(l.Weight), limit: l.Index.Dim(2),
		rows: t.rows[:0], scratch: t.scratch,
	}
	perSlot := device.RowsPerSlot(op, q.Dim(0), kv)
	for r := range q.Dim(0) {
		t.rows = append(t.rows, o.tailRow(op, &t.pages, r/perSlot, r%perSlot, perSlot, t.limit))
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, tailScratch{})
	}
	for i := range t.scratch {
		t.scratch[i].fit(t.pages.width, t.heads/t.sets, t.dim)
	}
	o.pool.RunChunks(len(t.rows)*t.sets, 1, t)
}

// tailRow is where a row of ResidualSample is, at -1 for one that is skipped.
func (o *ops) tailRow(op string, g *pages, slot, i, perSlot, limit int) tailRow {
	skip := tailRow{slot: slot, first: -1, p: -1}
	first, ok := o.first(op, g, slot, perSlot)
	if !ok {
		return skip
	}
	p := first + i
	if p >= limit {
		o.d.fail("%s: the row at %d with a list of %d, want at least %d", op, p, limit, p+1)
		return skip
	}
	for b := range pagesOf(p + 1) {
		if o.page(g, slot, b) < 0 {
			return skip
		}
	}
	return tailRow{slot: slot, first: first, p: p}
}

// tailRow is a query row: its slot, the position of the slot's first row, and
// its own, -1 when it is skipped.
type tailRow struct{ slot, first, p int }

// tailTask lists for sets: item i is set i%sets of row i/sets.
type tailTask struct {
	o                *ops
	pages            pages
	reach            reach
	tail             device.Residual
	requests         []int32   // by slot; nil: that of tail.Draw
	q                []float32 // [rows, heads, dim]
	heads, sets, dim int
	rows             []tailRow

	index, count []int32 // of the list
	weight       []float32
	limit        int

	scratch []tailScratch
}

// tailScratch is what one worker needs. Sets of positions are words: bit i of
// word b is position b·PageLen + i.
type tailScratch struct {
	seen  []uint64  // what the span lets the row see
	edge  []uint64  // read at the plan's edges
	fixed []uint64  // read whatever the sample says, edge included
	known []float32 // weight of fixed positions
	drawn []uint64  // the sample
	tail  []int32   // what can be drawn, ascending
	read  []int32   // what the spread is computed from: fixed, then the pilot
	pilot []int32   // of those

	queries []float32        // [heads of a set, dim], in units of a score
	scores  []float32        // [heads of a set, vec.Tile]
	at      [2][vec.Tile]int // where the keys of a tile of read start, and of the next
	x       []float32        // [heads of a set, tiles of vec.Tile]
	state   [3][]float32     // [tiles]: top, sum and scale of a softmax
	value   []float32        // [dim]
	nans    int              // scores that were not numbers
	sum, sq []float64        // [dim]
}

// fit makes the scratch large enough for sequences of width pages.
func (s *tailScratch) fit(width, heads, dim int) {
	if len(s.edge) < width {
		s.seen, s.edge = make([]uint64, width), make([]uint64, width)
		s.fixed, s.drawn = make([]uint64, width), make([]uint64, width)
		n := width * device.PageLen
		s.known, s.tail, s.read = make([]float32, n), make([]int32, 0, n), make([]int32, 0, 2*n)
		for i := range s.state {
			s.state[i] = make([]float32, 2*width)
		}
	}
	if len(s.x) < 2*len(s.known)*heads {
		s.x = make([]float32, 2*len(s.known)*heads)
	}
	if len(s.queries) != heads*dim || len(s.value) != dim {
		s.queries, s.scores, s.value = make([]float32, heads*dim), make([]float32, heads*vec.Tile), make([]float32, dim)
		s.sum, s.sq = make([]float64, dim), make([]float64, dim)
	}
}

// Do lists items lo to hi-1.
func (t *tailTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		if at := t.rows[i/t.sets]; at.p >= 0 {
			t.list(&t.scratch[worker], i/t.sets, i%t.sets)
		}
	}
}

// list lists what a set of a row reads.
func (t *tailTask) list(s *tailScratch, r, set int) {
	p := t.rows[r].p
	words := pagesOf(p + 1)
	t.split(s, r, set, words)
	n, b := len(s.tail), 0
	s.pilot = nil
	switch {
	case t.tail.Pilot == device.Amount{}:
	case n < 2:
		b = n
	default:
		b = t.budget(s, r, set)
	}
	clear(s.drawn[:words])
	if b == n && (n < 2 || !t.tail.Replace) {
		for _, j := range s.tail {
			s.drawn[j/device.PageLen] |= 1 << (j % device.PageLen)
		}
	} else {
		known := 0
		if !t.tail.Fresh { // the pilot is the beginning of the sample
			known = min(b, len(s.pilot))
			for _, j := range s.pilot[:known] {
				s.drawn[j/device.PageLen] |= 1 << (j % device.PageLen)
			}
		}
		d := t.draws(r, set, rng.ForKeys, n)
		for i := known; i < b; i++ {
			j := uint32(s.tail[d.at(i)])
			s.drawn[j/device.PageLen] |= 1 << (j % device.PageLen)
		}
	}
	t.write(s, r*t.sets+set, words, float32(float64(n)/float64(max(b, 1))))
}

// members is the heads of a set.
func (t *tailTask) members(set int) (lo, hi int) {
	return set * t.heads / t.sets, (set + 1) * t.heads / t.sets
}

// split finds what is fixed for a set of a row, and the tail.
func (t *tailTask) split(s *tailScratch, r, set, words int) {
	at := t.rows[r]
	for b := range words {
		s.seen[b] = t.reach.spannedBits(at.p, b)
		s.edge[b] = s.seen[b] & t.reach.edgeBits(at.p, b)
	}
	copy(s.fixed, s.edge[:words])
	for b, w := range s.fixed[:words] {
		for ; w != 0; w &= w - 1 {
			s.known[b*device.PageLen+bits.TrailingZeros64(w)] = 1
		}
	}
	lo, hi := t.members(set)
	for h := lo; h < hi; h++ {
		plan := &t.reach.plan
		t.fix(s, t.o.list(plan.List, group(plan.List, at.slot, at.first, at.p), h, t.heads), at.p)
	}
	out := s.fixed
	if t.tail.Listed {
		out = s.edge
	}
	left := s.drawn[:words] // not needed yet
	for b := range left {
		left[b] = s.seen[b] &^ out[b]
	}
	s.tail = s.tail[:t.o.vec.Positions(s.tail[:cap(s.tail)], left)]
}

// fix adds what a list holds in the plan's middle to what is fixed.
func (t *tailTask) fix(s *tailScratch, l list, p int) {
	add := func(b int, seen uint64, x float32) {
		for w := seen &^ s.edge[b]; x > 0 && w != 0; w &= w - 1 {
			i := bits.TrailingZeros64(w)
			known := &s.known[b*device.PageLen+i]
			if s.fixed[b]>>i&1 == 0 || x > *known {
				*known = x
			}
			s.fixed[b] |= 1 << i
		}
	}
	for i, e := range l.index {
		x := float32(1)
		if l.weights != nil {
			x = l.weights[i]
		}
		b, seen := int(e), ^uint64(0)
		if t.reach.plan.Selected == device.Tokens {
			b, seen = int(e)/device.PageLen, 1<<(uint(e)%device.PageLen)
		}
		if e >= 0 && b < pagesOf(p+1) && t.reach.plan.Selected != device.None {
			add(b, seen&s.seen[b], x)
		}
	}
}

// draws are the indices that a set of a row draws in a tail of n.
func (t *tailTask) draws(r, set int, use rng.Purpose, n int) draws {
	d := addressed(t.tail.Draw, t.requests, t.rows[r].slot)
	d.Head, d.Pos, d.Purpose = uint32(set), uint32(t.rows[r].p), use
	if t.tail.Replace {
		return draws{address: d, n: n}
	}
	return draws{shuffle: d.Shuffle(n)}
}

// draws is a sequence of indices: elements of a permutation, or draws with
// replacement of n.
type draws struct {
	shuffle rng.Shuffle
	address rng.Address
	n       int // 0 is a permutation
}

func (d *draws) at(i int) int {
	if d.n > 0 {
		return d.address.Below(uint32(i), d.n)
	}
	return d.shuffle.At(i)
}

// budget is the size of the sample of a set: the largest that one of its heads
// needs.
func (t *tailTask) budget(s *tailScratch, r, set int) int {
	n := len(s.tail)
	pilot := t.tail.PilotSize(n)
	use := rng.ForKeys
	if t.tail.Fresh {
		use = rng.ForPilot
	}
	s.read = s.read[:t.o.vec.Positions(s.read[:cap(s.read)], s.fixed[:pagesOf(t.rows[r].p+1)])]
	fixed := len(s.read)
	d := t.draws(r, set, use, n)
	for i := range pilot {
		s.read = append(s.read, s.tail[d.at(i)])
	}
	s.pilot = s.read[fixed:]
	t.weigh(s, r, set, fixed)
	lo, hi := t.members(set)
	var need float64
	for h := range hi - lo {
		x := row(s.x, h, pagesOf(len(s.read))*vec.Tile)[:len(s.read)]
		sp := spread(x[:fixed], x[fixed:], n)
		if t.tail.Values {
			t.values(s, &sp, x, fixed, t.rows[r].slot, (lo+h)*t.pages.heads/t.heads)
		}
		need = math.Max(need, t.tail.Need(sp)) // NaN stays
	}
	return t.tail.Budget(need, n, pilot)
}

// weigh sets x to weight·exp(q·k/√dim), relative to the largest, for what each
// head of a set reads. A score that is no number counts nothing.
func (t *tailTask) weigh(s *tailScratch, r, set, fixed int) {
	lo, hi := t.members(set)
	n, length := len(s.read), pagesOf(len(s.read))*vec.Tile
	scaled(s.queries[:(hi-lo)*t.dim], t.q[(r*t.heads+lo)*t.dim:], unit(t.dim))
	kernel := t.o.vec
	if t.dim%vec.Multiple != 0 {
		kernel = vec.Go
	}
	slot, kvHead := t.rows[r].slot, lo*t.pages.heads/t.heads
	t.locate(&s.at[0], s.read, slot, kvHead)
	for i := 0; i < n; i += vec.Tile {
		m, this, next := min(n-i, vec.Tile), &s.at[i/vec.Tile%2], &s.at[(i/vec.Tile+1)%2]
		t.locate(next, s.read[i+m:], slot, kvHead)
		kernel.ScoresAt(s.scores, s.queries, t.pages.all(t.pages.k), this, next, hi-lo, m, t.dim)
		for h := range hi - lo {
			x := row(s.x, h, length)[i:]
			copy(x[copy(x[:m], row(s.scores, h, vec.Tile)):vec.Tile], unseen[:])
		}
	}
	for h := range hi - lo {
		x := row(s.x, h, length)
		s.nans += t.exponentials(s, x)
		for i, j := range s.read[:fixed] {
			x[i] *= s.known[j]
		}
	}
	t.o.d.sawNaNs(&s.nans)
}

// locate finds where the keys of the first positions of read start in the cache.
// Beyond the last one it is repeated.
func (t *tailTask) locate(at *[vec.Tile]int, read []int32, slot, kvHead int) {
	table, last := row(t.pages.table, slot, t.pages.width), 0
	for i := range at {
		if i < len(read) {
			j := int(read[i])
			last = t.pages.element(int(table[j/device.PageLen]), kvHead, j%device.PageLen)
		}
		at[i] = last
	}
}

// exponentials replaces x, whole tiles of scores in units of ln 2, by
// 2^(x - max x), NaN by 0, and counts the NaNs.
func (t *tailTask) exponentials(s *tailScratch, x []float32) (nans int) {
	highest := float32(-math.MaxFloat32)
	for i, v := range x {
		if !(v > negInf) {
			x[i] = negInf
			if v != v {
				nans++
			}
		} else if v > highest {
			highest = v
		}
	}
	tiles := len(x) / vec.Tile
	top, sum, scale := s.state[0][:tiles], s.state[1][:tiles], s.state[2][:tiles]
	for i := range top {
		top[i], sum[i] = highest, 0
	}
	t.o.vec.Softmax(x, top, sum, scale)
	return nans
}

// spread is the sum and the variance of weights, in two passes.
func spread(fixed, pilot []float32, n int) device.ResidualSpread {
	s := device.ResidualSpread{Positions: n, Sum: total64(fixed)}
	mean := total64(pilot) / float64(len(pilot))
	s.Sum += float64(n) * mean
	for _, x := range pilot {
		d := float64(x) - mean
		s.Var += d * d
	}
	s.Var /= float64(len(pilot) - 1)
	return s
}

// values adds what the weighted values say to a spread, in two passes.
func (t *tailTask) values(s *tailScratch, sp *device.ResidualSpread, x []float32, fixed, slot, kvHead int) {
	pilot := float64(len(x) - fixed)
	mean, total := s.sum, s.sq
	clear(mean)
	clear(total)
	for i, j := range s.read {
		t.value(s, slot, kvHead, int(j))
		to, scale := total, float64(x[i])
		if i >= fixed {
			to, scale = mean, scale/pilot
		}
		for e, v := range s.value[:t.dim] {
			to[e] += scale * float64(v)
		}
	}
	for e, m := range mean {
		sum := total[e] + float64(sp.Positions)*m
		sp.Norm += sum * sum
	}
	sp.Norm = math.Sqrt(sp.Norm)
	for i, j := range s.read[fixed:] {
		t.value(s, slot, kvHead, int(j))
		for e, v := range s.value[:t.dim] {
			d := float64(x[fixed+i])*float64(v) - mean[e]
			sp.Trace += d * d / (pilot - 1)
		}
	}
}

// value loads the value of a position.
func (t *tailTask) value(s *tailScratch, slot, kvHead, j int) {
	page := int(t.pages.table[slot*t.pages.width+j/device.PageLen])
	t.o.load(s.value[:t.dim], t.pages.v, t.pages.element(page, kvHead, j%device.PageLen), t.pages.half)
}

// write lists what is fixed between the plan's edges, and the sample with weight
// each.
func (t *tailTask) write(s *tailScratch, i, words int, each float32) {
	index, weight, n := row(t.index, i, t.limit), row(t.weight, i, t.limit), 0
	for b := range words {
		fixed := s.fixed[b] &^ s.edge[b]
		for w := fixed | s.drawn[b]; w != 0; w &= w - 1 {
			bit := bits.TrailingZeros64(w)
			index[n], weight[n] = int32(b*device.PageLen+bit), each
			if fixed>>bit&1 == 1 {
				weight[n] = s.known[index[n]]
			}
			n++
		}
	}
	t.count[i] = int32(n)
}

// groupMax is the largest of the heads of each kv head.
func (o *ops) groupMax(dst, x device.Tensor, kv device.KV) {
	const op = "GroupMax"
	rows, heads, width := x.Dim(0), x.Dim(1), x.Dim(2)
	t := &o.most
	*t = maxTask{o: o, out: f32s(dst), in: f32s(x), heads: heads, groups: dst.Dim(1), width: width, pos: t.pos[:0], sets: t.sets}
	for len(t.sets) < o.pool.Workers() {
		t.sets = append(t.sets, nil)
	}
	t.pos = o.positions(op, kv, rows, t.pos)
	o.pool.RunChunks(rows*t.groups, 1, t)
}

// positions appends the position of each row to pos, a number below 0 for a row
// that is skipped.
func (o *ops) positions(op string, kv device.KV, rows int, pos []int) []int {
	g, perSlot := newPages(kv), device.RowsPerSlot(op, rows, kv)
	for r := range rows {
		first, ok := o.first(op, &g, r/perSlot, perSlot)
		if !ok {
			first = -1 - perSlot // every row of the slot is below 0
		}
		pos = append(pos, first+r%perSlot)
	}
	return pos
}

// maxTask is GroupMax: item i is kv head i%groups of row i/groups.
type maxTask struct {
	o                    *ops
	out                  []float32 // [rows, groups, width]
	in                   []float32 // [rows, heads, width]
	heads, groups, width int
	pos                  []int      // of each row; below 0 is skipped
	sets                 [][]uint64 // by worker: a bit for each position of a head
}

// Do computes items lo to hi-1.
func (t *maxTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		r, g := i/t.groups, i%t.groups
		if t.pos[r] < 0 {
			continue
		}
		out := row(t.out, i, t.width)[:t.pos[r]+1]
		for j := range out {
			out[j] = negInf
		}
		for h := g * t.heads / t.groups; h < (g+1)*t.heads/t.groups; h++ {
			t.add(grown(&t.sets[worker], (len(out)+63)/64), out, row(t.in, r*t.heads+h, t.width)[:len(out)])
		}
	}
}

// add keeps the largest of out and x; NaN is not larger than anything.
func (t *maxTask) add(set []uint64, out, x []float32) {
	t.o.vec.AtLeast(set, x, negInf)
	numbers := 0
	for _, w := range set {
		numbers += bits.OnesCount64(w)
	}
	if numbers == len(x) {
		t.o.vec.LogTop(out, x, 1, 0)
		return
	}
	for j, v := range x {
		if v > out[j] {
			out[j] = v
		}
	}
}
