package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// valueSample lists what is drawn of the softmax over what the plan reads.
func (o *ops) valueSample(l device.List, q device.Tensor, kv device.KV, p device.Plan, d device.ValueDraws) {
	const op = "ValueSample"
	t := &o.value
	*t = valueTask{
		o: o, pages: newPages(kv), reach: reach{p}, draws: d, requests: requestsOf(d.Requests),
		q: f32s(q), heads: q.Dim(1), dim: q.Dim(2),
		index: i32s(l.Index), count: i32s(l.Count), weight: f32s(l.Weight), limit: l.Index.Dim(2),
		rows: t.rows[:0], scratch: t.scratch,
	}
	perSlot := device.RowsPerSlot(op, q.Dim(0), kv)
	for r := range q.Dim(0) {
		at := o.tailRow(op, &t.pages, r/perSlot, r%perSlot, perSlot, math.MaxInt)
		if most := d.MaxPositions(at.p + 1); most > t.limit {
			o.d.fail("%s: up to %d positions for a list of %d", op, most, t.limit)
			at.p = -1
		}
		t.rows = append(t.rows, at)
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, valueScratch{})
	}
	for i := range t.scratch {
		t.scratch[i].fit(t.pages.width*device.PageLen, t.heads/t.pages.heads, t.dim)
		t.scratch[i].readBy = -1
	}
	o.pool.RunChunks(len(t.rows)*t.pages.heads, 1, t)
}

// valueTask draws for kv heads: item i is kv head i%kvheads of row i/kvheads.
type valueTask struct {
	o          *ops
	pages      pages
	reach      reach
	draws      device.ValueDraws
	requests   []int32   // by slot; nil: that of draws.Draw
	q          []float32 // [rows, heads, dim]
	heads, dim int
	rows       []tailRow

	index, count []int32 // of the list
	weight       []float32
	limit        int

	scratch []valueScratch
}

// valueScratch is what one worker needs.
type valueScratch struct {
	read   []int32  // what a head reads, ascending
	set    []uint64 // the same: bit i of word b is position b·PageLen + i
	readBy int      // row whose heads all read that; -1 is none
	counts []int32  // how often each was drawn; zero between heads
	hits   []int32  // of read: what was drawn of a tile, ascending
	runs   []run
	tiles  []tile
	order  []int     // of tiles
	limits []float64 // thresholds of a tile's draws
	at     [vec.Tile]int
	shares shares

	uniforms uniforms
	queries  []float32 // [heads of a kv head, dim], in units of a score
	scores   []float32 // [heads of a kv head, tiles of vec.Tile]
	products []float32 // [heads of a kv head, vec.Tile]
}

// run is runLen positions of what is read, whose shares of the softmax are
// scale·2^(score - the largest).
type run struct{ scale, share float64 }

const runLen = 32

// tile is a part of what is read.
type tile struct {
	lo, hi  int     // of read
	share   float64 // of the softmax
	samples int
	rest    float64 // part of its share of the samples that it was not given
}

// fit makes the scratch large enough for n positions.
func (s *valueScratch) fit(n, heads, dim int) {
	if cap(s.read) < n {
		s.read, s.counts, s.hits = make([]int32, 0, n), make([]int32, n), make([]int32, 0, n)
		s.runs, s.tiles, s.order = make([]run, 0, n/runLen), make([]tile, 0, n/runLen), make([]int, 0, n/runLen)
		s.set = make([]uint64, n/device.PageLen)
	}
	if len(s.scores) < heads*n {
		s.scores = make([]float32, heads*n)
	}
	if len(s.queries) != heads*dim || len(s.products) != heads*vec.Tile {
		s.queries, s.products = make([]float32, heads*dim), make([]float32, heads*vec.Tile)
	}
}

// Do draws for items lo to hi-1.
func (t *valueTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		if r := i / t.pages.heads; t.rows[r].p >= 0 {
			t.kvHead(&t.scratch[worker], r, i%t.pages.heads)
		}
	}
}

// kvHead draws for the heads of a kv head. Where they read the same, its keys
// are read once.
func (t *valueTask) kvHead(s *valueScratch, r, kvHead int) {
	group := t.heads / t.pages.heads
	together := group
	if l := t.reach.plan.List.Index; !l.Absent() && l.Dim(1) > t.pages.heads {
		together = 1
	}
	for h := kvHead * group; h < (kvHead+1)*group; h += together {
		l := t.reads(s, r, h)
		t.score(s, r, kvHead, h, together)
		tiles := (len(s.read) + vec.Tile - 1) / vec.Tile
		for i := range together {
			x := row(s.scores, i, tiles*vec.Tile)
			t.softmax(s, l, t.rows[r].p, x)
			t.head(s, r, h+i, x[:len(s.read)])
		}
	}
}

// reads finds what a head reads, and its list.
func (t *valueTask) reads(s *valueScratch, r, h int) list {
	at, plan := t.rows[r], &t.reach.plan
	l := list{}
	if plan.Selected == device.Blocks || plan.Selected == device.Tokens {
		l = t.o.list(plan.List, group(plan.List, at.slot, at.first, at.p), h, t.heads)
	}
	if s.readBy == r {
		return l
	}
	s.readBy = r
	if (plan.Selected == device.Blocks || plan.Selected == device.Tokens) && plan.List.Index.Dim(1) > 1 {
		s.readBy = -1 // the next head may read something else
	}
	next := 0 // entry of the list
	set := s.set[:pagesOf(at.p+1)]
	for b := range set {
		seen := t.reach.spannedBits(at.p, b)
		bits := seen & t.reach.edgeBits(at.p, b)
		for per := t.perPage(); next < len(l.index) && int(l.index[next])/per <= b; next++ {
			e := int(l.index[next])
			switch {
			case e < 0 || e/per < b:
			case per == 1:
				bits |= seen
			default:
				bits |= seen & (1 << (e % device.PageLen))
			}
		}
		set[b] = bits
	}
	s.read = s.read[:t.o.vec.Positions(s.read[:cap(s.read)], set)]
	return l
}

// perPage is how many entries of a list a page can have.
func (t *valueTask) perPage() int {
	if t.reach.plan.Selected == device.Blocks {
		return 1
	}
	return device.PageLen
}

// score computes q·k/√dim, in units of ln 2, of n heads, from h on, over what
// they read, and -Inf up to the end of the last tile.
func (t *valueTask) score(s *valueScratch, r, kvHead, h, n int) {
	at, g := t.rows[r], &t.pages
	scaled(s.queries[:n*t.dim], t.q[(r*t.heads+h)*t.dim:], unit(t.dim))
	kernel := t.o.vec
	if t.dim%vec.Multiple != 0 {
		kernel = vec.Go
	}
	length := (len(s.read) + vec.Tile - 1) / vec.Tile * vec.Tile
	for lo := 0; lo < len(s.read); lo += vec.Tile {
		some := s.read[lo:min(lo+vec.Tile, len(s.read))]
		m, first := len(some), int(some[0])
		if first%device.PageLen == 0 && int(some[m-1]) == first+m-1 { // the page itself
			page, ahead := int(g.table[at.slot*g.width+first/device.PageLen]), vec.Rows{}
			if lo+m < len(s.read) {
				ahead = g.rows(g.k, int(g.table[at.slot*g.width+int(s.read[lo+m])/device.PageLen]), kvHead, 0, device.PageLen)
			}
			kernel.Scores(s.products, s.queries, g.rows(g.k, page, kvHead, 0, device.PageLen), ahead, n, m, t.dim)
		} else {
			for i := range s.at {
				j := int(some[min(i, m-1)])
				s.at[i] = g.element(int(g.table[at.slot*g.width+j/device.PageLen]), kvHead, j%device.PageLen)
			}
			kernel.ScoresAt(s.products, s.queries, g.all(g.k), &s.at, &s.at, n, m, t.dim)
		}
		for i := range n {
			out := row(s.scores, i, length)[lo : lo+vec.Tile]
			copy(out, row(s.products, i, vec.Tile)[:m])
			copy(out[m:], unseen[:])
		}
	}
}

// softmax replaces scores, a whole number of tiles, by 2^(score - the largest),
// and sets what the runs weigh in the softmax.
func (t *valueTask) softmax(s *valueScratch, l list, p int, scores []float32) {
	if l.weights != nil {
		t.weigh(s, l, p, scores)
	}
	s.shares.of(t.o.vec, scores)
	t.o.d.sawNaNs(&s.shares.nans)
	total := 0.0
	s.runs = s.runs[:0]
	for lo := 0; lo < len(s.read); lo += runLen {
		r := run{share: total64(scores[lo:min(lo+runLen, len(s.read))])}
		s.runs = append(s.runs, r)
		total += r.share
	}
	for i := range s.runs {
		s.runs[i].scale, s.runs[i].share = 1/total, s.runs[i].share/total
	}
}

// weigh adds the logarithms of the weights of a list to the scores.
func (t *valueTask) weigh(s *valueScratch, l list, p int, scores []float32) {
	per := device.PageLen / t.perPage() // positions of an entry
	next, last, bias := 0, float32(1), float32(0)
	for i, j := range s.read {
		if t.reach.edge(p, int(j)) {
			continue
		}
		for next < len(l.index) && int(l.index[next]) < int(j)/per {
			next++
		}
		x := float32(0)
		if next < len(l.index) && int(l.index[next]) == int(j)/per {
			x = l.weights[next]
		}
		if x != last { // few lists have more than a few different weights
			last, bias = x, log2(x)
		}
		scores[i] += bias
	}
}

// total64 is the sum of x.
func total64(x []float32) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		a += float64(x[0])
		b += float64(x[1])
		c += float64(x[2])
		d += float64(x[3])
	}
	for _, v := range x {
		a += float64(v)
	}
	return a + b + (c + d)
}

// head draws for head h of a row, whose scores have become a softmax, and lists
// what it drew.
func (t *valueTask) head(s *valueScratch, r, h int, x []float32) {
	s.cut(&t.draws, len(x))
	d := addressed(t.draws.Draw, t.requests, t.rows[r].slot)
	d.Head, d.Pos, d.Purpose = uint32(h), uint32(t.rows[r].p), rng.ForValue
	if t.draws.Shared {
		d.Head = uint32(h * t.pages.heads / t.heads)
	}
	at := r*t.heads + h
	index, weight, n := row(t.index, at, t.limit), row(t.weight, at, t.limit), 0
	before, u := 0, &s.uniforms
	*u = uniforms{draw: d, systematic: t.draws.Sampler == device.Systematic, of: u.of}
	if u.of == nil {
		u.of = u.number // once, because a method value is allocated
	}
	for i, part := range s.tiles {
		u.tile, u.before = i, before
		s.thresholds(t.draws.Sampler, part.samples, u.of)
		s.hits = s.hits[:0]
		s.draw(s.counts[:len(x)], x, part)
		before += part.samples
		each := 1 / float64(max(t.draws.Samples, 1))
		if t.draws.Tiles == device.Equal {
			each = part.share / float64(max(part.samples, 1))
		}
		for _, i := range s.hits {
			if n < len(index) {
				index[n], weight[n] = s.read[i], float32(float64(s.counts[i])*each)
				n++
			}
			s.counts[i] = 0
		}
	}
	t.count[at] = int32(n)
}

// uniforms are the random numbers of a head's draws.
type uniforms struct {
	draw         rng.Address
	systematic   bool
	tile, before int       // number of the tile, and of its first draw
	words        [4]uint32 // block number block-1
	block        uint32    // 0: none
	of           func(k int) float64
}

// number is the random number of draw k of the tile: what Draw.Uniform gives.
// Four of them are computed at once.
func (u *uniforms) number(k int) float64 {
	i := uint32(u.before + k)
	if u.systematic {
		i = uint32(u.tile)
	}
	if u.block != i/4+1 {
		u.block, u.words = i/4+1, u.draw.Words(i/4)
	}
	return float64(u.words[i%4]>>8) / (1 << 24)
}

// cut makes the tiles of n positions and gives each its samples.
func (s *valueScratch) cut(d *device.ValueDraws, n int) {
	size := n
	if d.Tiles != device.OneTile {
		size = d.TileSize(n)
	}
	s.tiles = s.tiles[:0]
	for lo := 0; lo < n; lo += size {
		part := tile{lo: lo, hi: min(lo+size, n)}
		for i := lo / runLen; i < (part.hi+runLen-1)/runLen; i++ {
			part.share += s.runs[i].share
		}
		s.tiles = append(s.tiles, part)
	}
	switch {
	case d.Samples == 0:
	case d.Tiles == device.OneTile:
		for i := range s.tiles {
			s.tiles[i].share, s.tiles[i].samples = 1, d.Samples
		}
	case d.Tiles == device.Equal:
		for i := range s.tiles {
			s.tiles[i].samples = max(1, d.Samples/len(s.tiles))
		}
	default:
		s.remainder(d.Samples)
	}
}

// remainder gives each tile the whole part of its share of n samples, and what
// is left to those with the largest remainders, ties to the first.
func (s *valueScratch) remainder(n int) {
	left := n
	s.order = s.order[:0]
	for i := range s.tiles {
		part := &s.tiles[i]
		want := part.share * float64(n)
		if want > 0 {
			part.samples = int(want + 1e-9)
		}
		part.rest = want - float64(part.samples)
		left -= part.samples
		s.order = append(s.order, i)
	}
	slices.SortStableFunc(s.order, func(a, b int) int { return cmp.Compare(s.tiles[b].rest, s.tiles[a].rest) })
	for _, i := range s.order[:min(max(left, 0), len(s.order))] {
		s.tiles[i].samples++
	}
}

// thresholds are where n draws of a tile lie in [0, n), ascending; u is the
// random number of draw k.
func (s *valueScratch) thresholds(by device.Sampler, n int, u func(k int) float64) {
	s.limits = s.limits[:0]
	for k := range n {
		switch by {
		case device.Independent:
			s.limits = append(s.limits, float64(n)*u(k))
		default:
			s.limits = append(s.limits, float64(k)+u(k))
		}
	}
	if by == device.Independent {
		slices.Sort(s.limits)
	}
}

// draw counts, for each position of a tile, the thresholds that the running sum
// of samples·softmax passes there. A run's sum is its share, so that runs without
// a threshold need not be looked at.
func (s *valueScratch) draw(counts []int32, x []float32, part tile) {
	if !(part.share > 0) {
		return
	}
	next, sum, last := 0, 0.0, -1
	scale := float64(part.samples) / part.share
	for lo := part.lo; lo < part.hi && next < len(s.limits); lo += runLen {
		run, hi := s.runs[lo/runLen], min(lo+runLen, part.hi)
		inner, end := sum, sum+run.share*scale
		if sum = end; s.limits[next] > end && hi < part.hi {
			continue
		}
		for i := lo; i < hi; i++ {
			if x[i] == 0 || run.scale == 0 {
				continue
			}
			last = i
			for inner += float64(x[i]) * run.scale * scale; next < len(s.limits) && s.limits[next] <= inner; next++ {
				s.hit(counts, i)
			}
		}
		for ; last >= lo && next < len(s.limits) && (s.limits[next] <= end || hi == part.hi); next++ {
			s.hit(counts, last) // what rounding left over
		}
	}
	for ; next < len(s.limits); next++ {
		s.hit(counts, s.lastOf(x, part))
	}
}

// hit counts a draw of position i of what is read.
func (s *valueScratch) hit(counts []int32, i int) {
	if counts[i]++; counts[i] == 1 {
		s.hits = append(s.hits, int32(i))
	}
}

// lastOf is the last position of a tile with any weight.
func (s *valueScratch) lastOf(x []float32, part tile) int {
	for i := part.hi - 1; i > part.lo; i-- {
		if float64(x[i])*s.runs[i/runLen].scale > 0 {
			return i
		}
	}
	return part.lo
}
