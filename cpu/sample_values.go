package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// valueSample lists positions that are sampled in proportion to their softmax over what the
// plan reads, with their weights in the output (SANTA).
func (o *ops) valueSample(c *device.Sample) {
	const op = "ValueSample"
	t := &o.tasks.values
	*t = valueTask{
		outList: newOutList(c.List), o: o, pages: newPages(c.KV), mask: mask{c.Plan},
		draws: c.Draws, requests: requestsOf(c.Draws.Requests),
		q: f32s(c.Q), heads: c.Q.Dim(1), dim: c.Q.Dim(2),
		rows: t.rows[:0], scratch: perWorker(o.pool, t.scratch),
	}
	perSlot := device.RowsPerSlot(op, c.Q.Dim(0), c.KV)
	for r := range c.Q.Dim(0) {
		at := o.slotRow(op, &t.pages, r/perSlot, r%perSlot, perSlot, math.MaxInt)
		if n := c.Draws.MaxPositions(at.p + 1); n > t.limit {
			o.d.fail("%s: up to %d positions for a list of %d", op, n, t.limit)
			at.p = -1
		}
		t.rows = append(t.rows, at)
	}
	for i := range t.scratch {
		t.scratch[i].fit(t.pages.width*device.PageLen, t.heads/t.pages.heads, t.dim)
		t.scratch[i].readBy = -1
	}
	o.pool.RunChunks(len(t.rows)*t.pages.heads, 1, t)
}

// valueTask is ValueSample: item i is kv head i%kvheads of row i/kvheads.
type valueTask struct {
	outList
	o          *ops
	pages      pages
	mask       mask
	draws      device.ValueDraws
	requests   []int32   // by slot; nil: that of draws.Draw
	q          []float32 // [rows, heads, dim]
	heads, dim int
	rows       []slotRow

	scratch []valueScratch
}

// valueScratch is what one worker needs.
type valueScratch struct {
	read    []int32  // positions that a head reads, ascending
	set     []uint64 // the same: a word for each page
	readBy  int      // row whose heads all read these; -1 is none
	counts  []int32  // of read: how often each was drawn; zero between heads
	hits    []int32  // elements of read that were drawn of a tile, ascending
	runs    []massRun
	tiles   []valueTile
	order   []int     // of tiles, by remainder
	limits  []float64 // thresholds of a tile's draws
	softmax rowSoftmax

	uniforms uniforms
	at       [vec.Tile]int // where the keys of a tile start
	queries  []float32     // [heads of a kv head, dim], scaled by scoreScale
	scores   []float32     // [heads of a kv head, tiles of vec.Tile]
	products []float32     // [heads of a kv head, vec.Tile]
}

// massRun is runLen elements of read: their softmax mass, and the scale that makes
// probabilities of 2^(score - max).
type massRun struct{ scale, mass float64 }

const runLen = 32

// valueTile is a tile of [device.ValueDraws].
type valueTile struct {
	lo, hi    int     // elements of read
	mass      float64 // softmax mass
	samples   int     // that it gets of all
	remainder float64 // of mass·samples, which is rounded down
}

// fit makes the scratch large enough for n positions.
func (s *valueScratch) fit(n, heads, dim int) {
	if cap(s.read) < n {
		s.read, s.counts, s.hits = make([]int32, 0, n), make([]int32, n), make([]int32, 0, n)
		s.runs, s.tiles, s.order = make([]massRun, 0, n/runLen), make([]valueTile, 0, n/runLen), make([]int, 0, n/runLen)
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

// kvHead draws for the heads of a kv head. Where they read the same positions, they are scored
// in one pass over the keys.
func (t *valueTask) kvHead(s *valueScratch, r, kvHead int) {
	group := t.heads / t.pages.heads
	shared := group
	if l := t.mask.plan.List.Index; !l.Absent() && l.Dim(1) > t.pages.heads {
		shared = 1
	}
	for h := kvHead * group; h < (kvHead+1)*group; h += shared {
		l := t.reads(s, r, h)
		t.score(s, r, kvHead, h, shared)
		tiles := (len(s.read) + vec.Tile - 1) / vec.Tile
		for i := range shared {
			x := row(s.scores, i, tiles*vec.Tile)
			t.softmax(s, l, t.rows[r].p, x)
			t.head(s, r, h+i, x[:len(s.read)])
		}
	}
}

// reads sets s.read to the positions that a head reads, and returns its list.
func (t *valueTask) reads(s *valueScratch, r, h int) positionList {
	at, plan := t.rows[r], &t.mask.plan
	l := positionList{}
	if plan.Selected == device.Blocks || plan.Selected == device.Tokens {
		l = t.o.list(plan.List, listGroup(plan.List, at.slot, at.first, at.p), h, t.heads)
	}
	if s.readBy == r {
		return l
	}
	s.readBy = r
	if (plan.Selected == device.Blocks || plan.Selected == device.Tokens) && plan.List.Index.Dim(1) > 1 {
		s.readBy = -1 // the next head may have another list
	}
	set := s.set[:pagesOf(at.p+1)]
	t.mark(set, l, at.p)
	s.read = s.read[:t.o.vec.Positions(s.read[:cap(s.read)], set)]
	return l
}

// mark sets the bits of what the row at p reads.
func (t *valueTask) mark(set []uint64, l positionList, p int) {
	next, per := 0, t.perPage() // entry of the list
	for b := range set {
		seen := t.mask.spannedBits(p, b)
		bits := seen & t.mask.alwaysBits(p, b)
		for ; next < len(l.index) && int(l.index[next])/per <= b; next++ {
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
}

// perPage is how many entries a list can have for a page.
func (t *valueTask) perPage() int {
	if t.mask.plan.Selected == device.Blocks {
		return 1
	}
	return device.PageLen
}

// score computes q·k/√dim, in units of ln 2, for n heads from h on and the positions of
// s.read; the last tile is padded with -Inf.
func (t *valueTask) score(s *valueScratch, r, kvHead, h, n int) {
	at, g := t.rows[r], &t.pages
	scaled(s.queries[:n*t.dim], t.q[(r*t.heads+h)*t.dim:], scoreScale(t.dim))
	kernels := t.o.vec
	if t.dim%vec.Multiple != 0 {
		kernels = vec.Go
	}
	length := (len(s.read) + vec.Tile - 1) / vec.Tile * vec.Tile
	for lo := 0; lo < len(s.read); lo += vec.Tile {
		some := s.read[lo:min(lo+vec.Tile, len(s.read))]
		m, first := len(some), int(some[0])
		if first%device.PageLen == 0 && int(some[m-1]) == first+m-1 { // consecutive from the start of a page
			page, prefetch := g.knownPage(at.slot, first/device.PageLen), vec.Rows{}
			if lo+m < len(s.read) {
				prefetch = g.rows(g.k, g.knownPage(at.slot, int(s.read[lo+m])/device.PageLen), kvHead, 0, device.PageLen)
			}
			kernels.Scores(s.products, s.queries, g.rows(g.k, page, kvHead, 0, device.PageLen), prefetch, n, m, t.dim)
		} else {
			g.locateTile(&s.at, at.slot, kvHead, some)
			kernels.ScoresAt(s.products, s.queries, g.all(g.k), &s.at, &s.at, n, m, t.dim)
		}
		for i := range n {
			out := row(s.scores, i, length)[lo : lo+vec.Tile]
			copy(out, row(s.products, i, vec.Tile)[:m])
			copy(out[m:], unseen[:])
		}
	}
}

// softmax replaces scores, a whole number of tiles, by 2^(score - max), and sets the softmax
// mass of the runs.
func (t *valueTask) softmax(s *valueScratch, l positionList, p int, scores []float32) {
	if l.weights != nil {
		t.weigh(s, l, p, scores)
	}
	s.softmax.exponentials(t.o.vec, scores)
	t.o.d.sawNaNs(&s.softmax.nans)
	total := 0.0
	s.runs = s.runs[:0]
	for lo := 0; lo < len(s.read); lo += runLen {
		r := massRun{mass: sum64(scores[lo:min(lo+runLen, len(s.read))])}
		s.runs = append(s.runs, r)
		total += r.mass
	}
	for i := range s.runs {
		s.runs[i].scale, s.runs[i].mass = 1/total, s.runs[i].mass/total
	}
}

// weigh adds log2 of the weights of a list to the scores.
func (t *valueTask) weigh(s *valueScratch, l positionList, p int, scores []float32) {
	per := device.PageLen / t.perPage() // positions of an entry
	next, last, bias := 0, float32(1), float32(0)
	for i, j := range s.read {
		if t.mask.always(p, int(j)) {
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

// head draws for head h of a row, whose scores are exponentials by now, and lists what it
// drew.
func (t *valueTask) head(s *valueScratch, r, h int, x []float32) {
	s.cutTiles(&t.draws, len(x))
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
		u.of = u.number // once: a method value allocates
	}
	for i, part := range s.tiles {
		u.tile, u.before = i, before
		s.thresholds(t.draws.Sampler, part.samples, u.of)
		s.hits = s.hits[:0]
		s.count(s.counts[:len(x)], x, part)
		before += part.samples
		each := 1 / float64(max(t.draws.Samples, 1))
		if t.draws.Tiles == device.Equal {
			each = part.mass / float64(max(part.samples, 1))
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

// uniforms is the random numbers of a head.
type uniforms struct {
	draw         rng.Address
	systematic   bool
	tile, before int       // number of the tile, and of its first draw
	words        [4]uint32 // Philox output number block-1
	block        uint32    // 0: none yet
	of           func(k int) float64
}

// number is the random number of draw k of the tile, as rng.Address.Uniform computes it. It keeps the
// four words of a Philox output.
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

// cutTiles cuts n positions into tiles, and shares the samples out.
func (s *valueScratch) cutTiles(d *device.ValueDraws, n int) {
	size := n
	if d.Tiles != device.OneTile {
		size = d.TileSize(n)
	}
	s.tiles = s.tiles[:0]
	for lo := 0; lo < n; lo += size {
		part := valueTile{lo: lo, hi: min(lo+size, n)}
		for i := lo / runLen; i < (part.hi+runLen-1)/runLen; i++ {
			part.mass += s.runs[i].mass
		}
		s.tiles = append(s.tiles, part)
	}
	switch {
	case d.Samples == 0:
	case d.Tiles == device.OneTile:
		for i := range s.tiles {
			s.tiles[i].mass, s.tiles[i].samples = 1, d.Samples
		}
	case d.Tiles == device.Equal:
		for i := range s.tiles {
			s.tiles[i].samples = max(1, d.Samples/len(s.tiles))
		}
	default:
		s.remainder(d.Samples)
	}
}

// remainder shares n samples out by softmax mass: each tile gets its part rounded down, and
// one more goes to those with the largest remainders, ties to the first.
func (s *valueScratch) remainder(n int) {
	left := n
	s.order = s.order[:0]
	for i := range s.tiles {
		part := &s.tiles[i]
		want := part.mass * float64(n)
		if want > 0 {
			part.samples = int(want + 1e-9)
		}
		part.remainder = want - float64(part.samples)
		left -= part.samples
		s.order = append(s.order, i)
	}
	slices.SortStableFunc(s.order, func(a, b int) int { return cmp.Compare(s.tiles[b].remainder, s.tiles[a].remainder) })
	for _, i := range s.order[:min(max(left, 0), len(s.order))] {
		s.tiles[i].samples++
	}
}

// thresholds sets s.limits to where n draws of a tile lie in [0, n), ascending; u is the random
// number of draw k.
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

// count counts, for each position of a tile, the thresholds that the cumulative sum of
// samples·softmax passes there. The sum of a run is known, so runs without a threshold are
// skipped.
func (s *valueScratch) count(counts []int32, x []float32, part valueTile) {
	if !(part.mass > 0) {
		return
	}
	next, sum, last := 0, 0.0, -1
	scale := float64(part.samples) / part.mass
	for lo := part.lo; lo < part.hi && next < len(s.limits); lo += runLen {
		run, hi := s.runs[lo/runLen], min(lo+runLen, part.hi)
		inner, end := sum, sum+run.mass*scale
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
			s.hit(counts, last) // beyond the sum by rounding
		}
	}
	for ; next < len(s.limits); next++ {
		s.hit(counts, s.lastOf(x, part))
	}
}

// hit counts a draw of element i of read.
func (s *valueScratch) hit(counts []int32, i int) {
	if counts[i]++; counts[i] == 1 {
		s.hits = append(s.hits, int32(i))
	}
}

// lastOf is the last element of a tile that has any probability.
func (s *valueScratch) lastOf(x []float32, part valueTile) int {
	for i := part.hi - 1; i > part.lo; i-- {
		if float64(x[i])*s.runs[i/runLen].scale > 0 {
			return i
		}
	}
	return part.lo
}
