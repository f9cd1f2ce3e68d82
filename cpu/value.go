package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// SampleValues lists what is drawn of the softmax over what the plan reads.
func (o *ops) SampleValues(l device.List, q device.Tensor, kv device.KV, p device.Plan, d device.Draws) {
	const op = "SampleValues"
	device.CheckDraws(l, q, kv, p, d)
	t := &o.value
	*t = valueTask{
		o: o, pages: newPages(kv), reach: reach{p}, draws: d, requests: requestsOf(d.Of),
		q: f32s(q), heads: q.Dim(1), dim: q.Dim(2),
		index: i32s(l.Index), count: i32s(l.Count), weight: f32s(l.Weight), limit: l.Index.Dim(2),
		rows: t.rows[:0], scratch: t.scratch,
	}
	perSlot := device.RowsPerSlot(op, q.Dim(0), kv)
	for r := range q.Dim(0) {
		at := o.tailRow(op, &t.pages, r/perSlot, r%perSlot, perSlot, math.MaxInt)
		if most := d.Most(at.p + 1); most > t.limit {
			o.d.fail("%s: up to %d positions for a list of %d", op, most, t.limit)
			at.p = -1
		}
		t.rows = append(t.rows, at)
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, valueScratch{})
	}
	for i := range t.scratch {
		t.scratch[i].fit(t.pages.width*device.PageLen, t.heads/t.pages.heads, t.dim, t.pages.half)
	}
	o.pool.RunChunks(len(t.rows)*t.pages.heads, 1, t)
}

// valueTask draws for kv heads: item i is kv head i%kvheads of row i/kvheads.
type valueTask struct {
	o          *ops
	pages      pages
	reach      reach
	draws      device.Draws
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
	read   []int32 // what a head reads, ascending
	counts []int32 // how often it was drawn
	runs   []run
	tiles  []tile
	order  []int     // of tiles
	limits []float64 // thresholds of a tile's draws
	chunk  []float32 // [vec.Tile]
	state  []float32 // top, sum and scale of a softmax
	nans   int       // scores that were not numbers

	page     vec.Rows  // [vec.Tile, dim]: keys of a list
	queries  []float32 // [heads of a kv head, dim]
	scores   []float32 // [heads of a kv head, n]
	products []float32 // [heads of a kv head, vec.Tile]
}

// run is runLen positions of what is read, whose shares of the softmax are
// scale·2^(score - top).
type run struct {
	top          float32
	scale, share float64
}

const runLen = 32

// tile is a part of what is read.
type tile struct {
	lo, hi  int     // of read
	share   float64 // of the softmax
	samples int
	rest    float64 // part of its share of the samples that it was not given
}

// fit makes the scratch large enough for n positions.
func (s *valueScratch) fit(n, heads, dim int, half bool) {
	if cap(s.read) < n {
		s.read, s.counts = make([]int32, 0, n), make([]int32, n)
		s.runs, s.tiles, s.order = make([]run, 0, n/runLen), make([]tile, 0, n/runLen), make([]int, 0, n/runLen)
		s.chunk, s.state = make([]float32, vec.Tile), make([]float32, 3)
	}
	if len(s.scores) < heads*n {
		s.scores = make([]float32, heads*n)
	}
	if len(s.queries) != heads*dim || len(s.products) != heads*vec.Tile {
		s.queries, s.products = make([]float32, heads*dim), make([]float32, heads*vec.Tile)
	}
	switch n := vec.Tile * dim; {
	case half && len(s.page.Half) != n:
		s.page = vec.Rows{Half: make([]uint16, n)}
	case !half && len(s.page.Full) != n:
		s.page = vec.Rows{Full: make([]float32, n)}
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
		for i := range together {
			x := row(s.scores, i, len(s.read))
			t.softmax(s, l, t.rows[r].p, x)
			t.head(s, r, h+i, x)
		}
	}
}

// reads finds what a head reads, and its list.
func (t *valueTask) reads(s *valueScratch, r, h int) list {
	at, plan := t.rows[r], &t.reach.plan
	l := list{}
	if plan.Middle == device.Blocks || plan.Middle == device.Tokens {
		l = t.o.list(plan.List, group(plan.List, at.slot, at.first, at.p), h, t.heads)
	}
	s.read = s.read[:0]
	next := 0 // entry of the list
	for b := range pagesOf(at.p + 1) {
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
		s.read = appendBits(s.read, b, bits)
	}
	return l
}

// perPage is how many entries of a list a page can have.
func (t *valueTask) perPage() int {
	if t.reach.plan.Middle == device.Blocks {
		return 1
	}
	return device.PageLen
}

// appendBits appends the positions of a page.
func appendBits(x []int32, page int, set uint64) []int32 {
	for i := 0; set != 0; i, set = i+1, set>>1 {
		if set&1 == 1 {
			x = append(x, int32(page*device.PageLen+i))
		}
	}
	return x
}

// score computes q·k/√dim, in units of ln 2, of n heads, from h on, over what
// they read.
func (t *valueTask) score(s *valueScratch, r, kvHead, h, n int) {
	at, g := t.rows[r], &t.pages
	copy(s.queries, t.q[(r*t.heads+h)*t.dim:(r*t.heads+h+n)*t.dim])
	kernel, scale := t.o.vec.Scores, unit(t.dim)
	if t.dim%vec.Multiple != 0 {
		kernel = vec.Go.Scores
	}
	for lo := 0; lo < len(s.read); {
		first := int(s.read[lo])
		page := int(g.table[at.slot*g.width+first/device.PageLen])
		m := min(vec.Tile, len(s.read)-lo)
		keys := s.page
		if first%device.PageLen == 0 && int(s.read[lo+m-1]) == first+m-1 { // the page itself
			keys = g.rows(g.k, page, kvHead, 0, device.PageLen)
		} else {
			for i, j := range s.read[lo : lo+m] {
				page := int(g.table[at.slot*g.width+int(j)/device.PageLen])
				s.page.Slice(i*t.dim, (i+1)*t.dim).Copy(g.rows(g.k, page, kvHead, int(j)%device.PageLen, 1))
			}
		}
		kernel(s.products, s.queries, keys, vec.Rows{}, n, m, t.dim)
		for i := range n {
			out := row(s.scores, i, len(s.read))[lo : lo+m]
			for j, x := range row(s.products, i, vec.Tile)[:m] {
				if out[j] = x * scale; x != x {
					out[j] = negInf
					s.nans++
				}
			}
		}
		lo += m
	}
	t.o.d.sawNaNs(&s.nans)
}

// softmax replaces scores by 2^score over each run's largest, and sets what the
// runs weigh in the softmax.
func (t *valueTask) softmax(s *valueScratch, l list, p int, scores []float32) {
	if l.weights != nil {
		for i := range scores {
			scores[i] += log2(t.reach.weight(p, int(s.read[i]), l))
		}
	}
	s.runs = s.runs[:0]
	highest, total := float32(-math.MaxFloat32), 0.0
	for lo := 0; lo < len(scores); lo += vec.Tile {
		x := scores[lo:min(lo+vec.Tile, len(scores))]
		n := copy(s.chunk, x)
		for i := n; i < vec.Tile; i++ {
			s.chunk[i] = negInf
		}
		top, sum, scale := s.state[0:1], s.state[1:2], s.state[2:3]
		top[0], sum[0] = -math.MaxFloat32, 0
		t.o.vec.Softmax(s.chunk, top, sum, scale)
		copy(x, s.chunk)
		highest = max(highest, top[0])
		for lo := 0; lo < n; lo += runLen {
			s.runs = append(s.runs, run{top: top[0], share: total64(x[lo:min(lo+runLen, n)])})
		}
	}
	for i := range s.runs {
		r := &s.runs[i]
		r.scale = math.Exp2(float64(r.top) - float64(highest))
		r.share *= r.scale
		total += r.share
	}
	for i := range s.runs {
		s.runs[i].scale, s.runs[i].share = s.runs[i].scale/total, s.runs[i].share/total
	}
}

func total64(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v)
	}
	return sum
}

// head draws for head h of a row, whose scores have become a softmax, and lists
// what it drew.
func (t *valueTask) head(s *valueScratch, r, h int, x []float32) {
	s.cut(&t.draws, len(x))
	counts := s.counts[:len(x)]
	clear(counts)
	d := addressed(t.draws.Draw, t.requests, t.rows[r].slot)
	d.Head, d.Pos, d.Purpose = uint32(h), uint32(t.rows[r].p), device.ForValue
	if t.draws.Shared {
		d.Head = uint32(h * t.pages.heads / t.heads)
	}
	before := 0
	for i, part := range s.tiles {
		s.thresholds(t.draws.Sampler, part.samples, func(k int) float64 {
			if t.draws.Sampler == device.Systematic {
				return float64(d.Uniform(uint32(i)))
			}
			return float64(d.Uniform(uint32(before + k)))
		})
		s.draw(counts, x, part)
		before += part.samples
	}
	at := r*t.heads + h
	index, weight, n := row(t.index, at, t.limit), row(t.weight, at, t.limit), 0
	for _, part := range s.tiles {
		each := 1 / float64(max(t.draws.Samples, 1))
		if t.draws.Tiles == device.Equal {
			each = part.share / float64(max(part.samples, 1))
		}
		for i := part.lo; i < part.hi; i++ {
			if counts[i] > 0 && n < len(index) {
				index[n], weight[n] = s.read[i], float32(float64(counts[i])*each)
				n++
			}
		}
	}
	t.count[at] = int32(n)
}

// cut makes the tiles of n positions and gives each its samples.
func (s *valueScratch) cut(d *device.Draws, n int) {
	size := n
	if d.Tiles != device.OneTile {
		size = d.TileOf(n)
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
				counts[i]++
			}
		}
		for ; last >= lo && next < len(s.limits) && (s.limits[next] <= end || hi == part.hi); next++ {
			counts[last]++ // what rounding left over
		}
	}
	for ; next < len(s.limits); next++ {
		counts[s.lastOf(x, part)]++
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
