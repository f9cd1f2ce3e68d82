package cpu

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// residualSample lists the fixed positions of the selected region and a sample of the residual
// (vAttention).
func (o *ops) residualSample(c *device.Sample) {
	const op = "ResidualSample"
	t := &o.tasks.residual
	*t = residualTask{
		outList: newOutList(c.List), o: o, pages: newPages(c.KV), mask: mask{c.Plan},
		residual: c.Residual, requests: requestsOf(c.Residual.Requests),
		q: f32s(c.Q), heads: c.Q.Dim(1), groups: c.List.Index.Dim(1), dim: c.Q.Dim(2),
		known: o.scored.of(c.Q, c.KV, c.Plan), rows: t.rows[:0], scratch: perWorker(o.pool, t.scratch),
	}
	perSlot := device.RowsPerSlot(op, c.Q.Dim(0), c.KV)
	for r := range c.Q.Dim(0) {
		t.rows = append(t.rows, o.slotRow(op, &t.pages, r/perSlot, r%perSlot, perSlot, t.limit))
	}
	for i := range t.scratch {
		t.scratch[i].fit(t.pages.width, t.heads/t.groups, t.dim)
	}
	o.pool.RunChunks(len(t.rows)*t.groups, 1, t)
}

// residualTask is ResidualSample: item i is head group i%groups of row i/groups.
type residualTask struct {
	outList
	o                  *ops
	pages              pages
	mask               mask
	residual           device.Residual
	requests           []int32   // by slot; nil: that of residual.Draw
	q                  []float32 // [rows, heads, dim]
	heads, groups, dim int
	known              knownScores // of q
	rows               []slotRow

	scratch []residualScratch
}

// residualScratch is what one worker needs. Sets of positions are a word for each page.
type residualScratch struct {
	seen        []uint64  // what the span lets the row see
	always      []uint64  // of that, the sinks and the recent window
	fixed       []uint64  // read in any case: always and listed
	weighted    bool      // fixed positions have weights other than 1
	fixedWeight []float32 // [positions]: weight of fixed positions, where they are weighted
	sample      []uint64  // the sample
	all         []uint64  // what is listed
	residual    []int32   // what is sampled from, ascending
	read        []int32   // what the spread is estimated from: fixed, then the pilot
	pilot       []int32   // of read

	queries []float32        // [heads of a group, dim], scaled by scoreScale
	scores  []float32        // [heads of a group, vec.Tile]
	at      [2][vec.Tile]int // where the keys of a tile of read start, and of the next
	x       []float32        // [heads of a group, tiles of vec.Tile]: see exponentials
	softmax rowSoftmax
	value   []float32    // [dim]
	means   [2][]float64 // [dim]: of values
}

// fit makes the scratch large enough for sequences of width pages.
func (s *residualScratch) fit(width, heads, dim int) {
	if len(s.always) < width {
		s.seen, s.always = make([]uint64, width), make([]uint64, width)
		s.fixed, s.sample, s.all = make([]uint64, width), make([]uint64, width), make([]uint64, width)
		n := width * device.PageLen
		s.fixedWeight, s.residual, s.read = make([]float32, n), make([]int32, 0, n), make([]int32, 0, 2*n)
	}
	if len(s.x) < 2*len(s.fixedWeight)*heads {
		s.x = make([]float32, 2*len(s.fixedWeight)*heads)
	}
	if len(s.queries) != heads*dim || len(s.value) != dim {
		s.queries, s.scores, s.value = make([]float32, heads*dim), make([]float32, heads*vec.Tile), make([]float32, dim)
		s.means = [2][]float64{make([]float64, dim), make([]float64, dim)}
	}
}

// Do lists items lo to hi-1.
func (t *residualTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		if at := t.rows[i/t.groups]; at.p >= 0 {
			t.list(&t.scratch[worker], i/t.groups, i%t.groups)
		}
	}
}

// list lists what a head group of a row reads.
func (t *residualTask) list(s *residualScratch, r, group int) {
	p := t.rows[r].p
	words := pagesOf(p + 1)
	t.partition(s, r, group, words)
	n, b := len(s.residual), 0
	s.pilot = nil
	switch {
	case t.residual.Pilot == device.Amount{}:
	case n < 2:
		b = n
	default:
		b = t.budget(s, r, group)
	}
	clear(s.sample[:words])
	if b == n && (n < 2 || !t.residual.Replace) {
		s.add(s.residual...)
	} else {
		t.draw(s, r, group, b)
	}
	t.write(s, r*t.groups+group, words, float32(float64(n)/float64(max(b, 1))))
}

// draw draws a sample of b positions of the residual. Without Fresh the pilot is the
// beginning of it.
func (t *residualTask) draw(s *residualScratch, r, group, b int) {
	reused := 0
	if !t.residual.Fresh {
		reused = min(b, len(s.pilot))
		s.add(s.pilot[:reused]...)
	}
	d := t.draws(r, group, rng.ForKeys, len(s.residual))
	for i := reused; i < b; i++ {
		s.add(s.residual[d.at(i)])
	}
}

// add adds positions to the sample.
func (s *residualScratch) add(positions ...int32) {
	for _, j := range positions {
		s.sample[uint32(j)/device.PageLen] |= 1 << (uint32(j) % device.PageLen)
	}
}

// headsOf is the heads of a head group.
func (t *residualTask) headsOf(group int) (lo, hi int) {
	return group * t.heads / t.groups, (group + 1) * t.heads / t.groups
}

// partition finds the fixed positions of a head group of a row, and the residual.
func (t *residualTask) partition(s *residualScratch, r, group, words int) {
	at := t.rows[r]
	for b := range words {
		s.seen[b] = t.mask.spannedBits(at.p, b)
		s.always[b] = s.seen[b] & t.mask.alwaysBits(at.p, b)
	}
	copy(s.fixed, s.always[:words])
	plan := &t.mask.plan
	if s.weighted = !plan.List.Weight.Absent() && plan.Selected != device.None; s.weighted {
		for b, w := range s.fixed[:words] {
			for ; w != 0; w &= w - 1 {
				s.fixedWeight[b*device.PageLen+bits.TrailingZeros64(w)] = 1
			}
		}
	}
	lo, hi := t.headsOf(group)
	for h := lo; h < hi; h++ {
		l := t.o.list(plan.List, listGroup(plan.List, at.slot, at.first, at.p), h, t.heads)
		if !s.weighted && plan.Selected == device.Tokens {
			s.fix(l.index, words)
		} else {
			t.addFixed(s, l, at.p)
		}
	}
	out := s.fixed
	if t.residual.Listed {
		out = s.always
	}
	left := s.sample[:words] // scratch: the sample is drawn later
	for b := range left {
		left[b] = s.seen[b] &^ out[b]
	}
	s.residual = s.residual[:t.o.vec.Positions(s.residual[:cap(s.residual)], left)]
}

// fix adds listed positions without weights to the fixed ones.
func (s *residualScratch) fix(index []int32, words int) {
	fixed, seen := s.fixed[:words], s.seen[:words]
	for _, j := range index {
		if b := uint32(j) / device.PageLen; b < uint32(len(fixed)) && b < uint32(len(seen)) {
			fixed[b] |= 1 << (uint32(j) % device.PageLen) & seen[b]
		}
	}
}

// addFixed adds the listed positions of the selected region to the fixed ones, each with the
// largest of its weights.
func (t *residualTask) addFixed(s *residualScratch, l positionList, p int) {
	add := func(b int, seen uint64, x float32) {
		for w := seen &^ s.always[b]; x > 0 && w != 0; w &= w - 1 {
			i := bits.TrailingZeros64(w)
			weight := &s.fixedWeight[b*device.PageLen+i] // read where the list has weights
			if s.fixed[b]>>i&1 == 0 || x > *weight {
				*weight = x
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
		if t.mask.plan.Selected == device.Tokens {
			b, seen = int(e)/device.PageLen, 1<<(uint(e)%device.PageLen)
		}
		if e >= 0 && b < pagesOf(p+1) && t.mask.plan.Selected != device.None {
			add(b, seen&s.seen[b], x)
		}
	}
}

// draws are the random indices of a head group of a row in a residual of n positions.
func (t *residualTask) draws(r, group int, use rng.Purpose, n int) residualDraws {
	d := addressed(t.residual.Draw, t.requests, t.rows[r].slot)
	d.Head, d.Pos, d.Purpose = uint32(group), uint32(t.rows[r].p), use
	if t.residual.Replace {
		return residualDraws{address: d, n: n}
	}
	return residualDraws{shuffle: d.Shuffle(n)}
}

// residualDraws is a sequence of random indices: the elements of a permutation, or draws of n
// with replacement.
type residualDraws struct {
	shuffle rng.Shuffle
	address rng.Address
	n       int // 0: the permutation
}

// at is index i of the sequence.
func (d *residualDraws) at(i int) int {
	if d.n > 0 {
		return d.address.Below(uint32(i), d.n)
	}
	return d.shuffle.At(i)
}

// budget is the size of the sample of a head group: the largest that one of its heads needs.
func (t *residualTask) budget(s *residualScratch, r, group int) int {
	n := len(s.residual)
	pilot := t.residual.PilotSize(n)
	if !t.residual.Scored() {
		return t.residual.Budget(0, n, pilot)
	}
	use := rng.ForKeys
	if t.residual.Fresh {
		use = rng.ForPilot
	}
	s.read = s.read[:t.o.vec.Positions(s.read[:cap(s.read)], s.fixed[:pagesOf(t.rows[r].p+1)])]
	fixed := len(s.read)
	d := t.draws(r, group, use, n)
	for i := range pilot {
		s.read = append(s.read, s.residual[d.at(i)])
	}
	s.pilot = s.read[fixed:]
	t.exponentials(s, r, group, fixed)
	lo, hi := t.headsOf(group)
	var need float64
	for h := range hi - lo {
		x := row(s.x, h, pagesOf(len(s.read))*vec.Tile)[:len(s.read)]
		sp := spread(x[:fixed], x[fixed:], n)
		if t.residual.Values {
			t.values(s, &sp, x, fixed, t.rows[r].slot, (lo+h)*t.pages.heads/t.heads)
		}
		need = math.Max(need, t.residual.Need(sp)) // NaN stays
	}
	return t.residual.Budget(need, n, pilot)
}

// exponentials sets s.x to weight·exp(q·k/√dim - max) for the fixed positions and the pilot,
// for each head of a group. NaN counts as -Inf.
func (t *residualTask) exponentials(s *residualScratch, r, group, fixed int) {
	lo, hi := t.headsOf(group)
	length := pagesOf(len(s.read)) * vec.Tile
	t.score(s, r, lo, hi, length)
	for h := range hi - lo {
		x := row(s.x, h, length)
		s.softmax.exponentials(t.o.vec, x)
		t.o.d.sawNaNs(&s.softmax.nans)
		if !s.weighted {
			continue
		}
		for i, j := range s.read[:fixed] {
			x[i] *= s.fixedWeight[j]
		}
	}
}

// score sets s.x [heads, length] to the scores of heads lo to hi-1 at the positions of s.read, in
// units of ln 2: where they are known, and those of the keys elsewhere.
func (t *residualTask) score(s *residualScratch, r, lo, hi, length int) {
	scaled(s.queries[:(hi-lo)*t.dim], t.q[(r*t.heads+lo)*t.dim:], scoreScale(t.dim))
	kernels := t.o.vec
	if t.dim%vec.Multiple != 0 {
		kernels = vec.Go
	}
	region, known := t.mask.region(t.rows[r].p), t.known.has(r, lo, hi)
	slot, kvHead, keys, located := t.rows[r].slot, lo*t.pages.heads/t.heads, t.pages.all(t.pages.k), 0
	for i := 0; i < len(s.read); i += vec.Tile {
		some := s.read[i:min(i+vec.Tile, len(s.read))]
		if known && within(region, some) {
			for h := range hi - lo {
				t.known.read(row(s.scores, h, vec.Tile), r, lo+h, some)
			}
		} else {
			this, next := &s.at[i/vec.Tile%2], &s.at[(i/vec.Tile+1)%2]
			if located < i || i == 0 {
				t.pages.locateTile(this, slot, kvHead, some)
			}
			located = i + len(some)
			t.pages.locateTile(next, slot, kvHead, s.read[located:])
			kernels.ScoresAt(s.scores, s.queries, keys, this, next, hi-lo, len(some), t.dim)
		}
		for h := range hi - lo {
			x := row(s.x, h, length)[i:]
			copy(x[copy(x[:len(some)], row(s.scores, h, vec.Tile)):vec.Tile], unseen[:])
		}
	}
}

// within reports whether all positions are in a region.
func within(region [2]interval, positions []int32) bool {
	for _, j := range positions {
		if !region[1].has(int(j)) && !region[0].has(int(j)) {
			return false
		}
	}
	return true
}

// spread estimates the sum and the variance of the exponentials, in two passes.
func spread(fixed, pilot []float32, n int) device.ResidualSpread {
	s := device.ResidualSpread{Positions: n, Sum: sum64(fixed)}
	mean := sum64(pilot) / float64(len(pilot))
	s.Sum += float64(n) * mean
	for _, x := range pilot {
		d := float64(x) - mean
		s.Var += d * d
	}
	s.Var /= float64(len(pilot) - 1)
	return s
}

// values adds the norm of the weighted sum of values, and their variance, to a spread, in two
// passes.
func (t *residualTask) values(s *residualScratch, sp *device.ResidualSpread, x []float32, fixed, slot, kvHead int) {
	pilot := float64(len(x) - fixed)
	mean, total := s.means[0], s.means[1]
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
func (t *residualTask) value(s *residualScratch, slot, kvHead, j int) {
	t.o.load(s.value[:t.dim], t.pages.v, t.pages.locate(slot, kvHead, j), t.pages.half)
}

// write lists the fixed positions of the selected region, and the sample with weight each.
func (t *residualTask) write(s *residualScratch, i, words int, each float32) {
	all := s.all[:words]
	for b := range all {
		all[b] = s.fixed[b]&^s.always[b] | s.sample[b]
	}
	index := row(t.index, i, t.limit)
	index = index[:t.o.vec.Positions(index, all)]
	weight := row(t.weight, i, t.limit)[:len(index)]
	of := [2]float32{each, 1} // of the sample, and of fixed positions without weights
	for n, j := range index {
		b := uint32(j) / device.PageLen
		fixed := s.fixed[b] &^ s.always[b] >> (uint32(j) % device.PageLen) & 1
		if weight[n] = of[fixed]; s.weighted && fixed == 1 {
			weight[n] = s.fixedWeight[j]
		}
	}
	t.count[i] = int32(len(index))
}
