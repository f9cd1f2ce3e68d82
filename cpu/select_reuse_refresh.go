package cpu

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// refresh adds an entry of the newest position for every head group that found none. The heads
// of a kv head are scored in one pass over its keys.
func (o *ops) refresh(op string, c *device.ReuseSelection, m selectionCache, pos []int) {
	t := &o.tasks.refresh
	*t = refreshTask{
		selectionCache: m, o: o, pages: newPages(c.KV), mirror: newMirrorKeys(c.Keys, c.KV), mask: mask{c.Plan}, q: f32s(c.Q),
		scores: f32s(c.Scores), width: c.Scores.Dim(2), pos: pos, scratch: perWorker(o.pool, t.scratch), best: c.Neighbors.Best,
	}
	for _, p := range pos {
		if n := min(m.K.Of(p+1), p+1); n > m.maxSelected {
			o.d.fail("%s: an entry of %d positions selects up to %d", op, m.maxSelected, n)
		}
	}
	for i := range t.scratch {
		s := &t.scratch[i]
		s.fit(t.heads/t.pages.heads, m.dim)
		if t.mirror.words != nil {
			t.mirror.grownQueries(&s.queries, t.heads/t.pages.heads)
		}
		if m.groups < t.heads {
			s.top, s.sum = grown(&s.top, t.width), grown(&s.sum, t.width)
		}
	}
	o.pool.RunChunks(len(pos)*t.pages.heads, 1, t)
	if t.mirror.words == nil {
		o.scored.made(c.Scores, c.Q, c.KV, c.Plan)
		o.scored.heads = t.appendMade(o.scored.heads)
	}
}

// appendMade appends for each slot and head whether its group was scored.
func (t *refreshTask) appendMade(made []bool) []bool {
	for slot, p := range t.pos {
		for h := range t.heads {
			made = append(made, p >= 0 && t.found[slot*t.groups+h*t.groups/t.heads] < 0)
		}
	}
	return made
}

// refreshTask selects anew: item i is kv head i%kvheads of slot i/kvheads.
type refreshTask struct {
	selectionCache
	o      *ops
	pages  pages
	mirror mirrorKeys // ranks instead of the keys
	mask   mask
	q      []float32 // [slots, heads, dim]
	scores []float32 // [slots, heads, width]
	width  int
	pos    []int         // by slot; -1 is skipped
	best   device.Amount // of the selected: what is listed first

	scratch []refreshScratch // by worker
}

// refreshScratch is what one worker needs.
type refreshScratch struct {
	heads []int     // heads of a kv head whose group found no entry
	q     []float32 // [heads, dim]: their queries, scaled; scratch where a mirror ranks
	tile  []float32 // [heads, vec.Tile]: their scores of a page
	best  selector
	nans  int // scores that were NaN

	queries vec.MirrorQueries // [heads], for a mirror

	// of a head group of several heads
	lanes    lanes
	log      []float64 // [heads]: log-sum-exp of a head's scores
	shift    []float32 // [heads]: see logShifts
	top, sum []float32 // [width]: log-sum-exp over heads: the largest term, the sum relative to it
}

// fit makes the scratch large enough for heads heads.
func (s *refreshScratch) fit(heads, dim int) {
	if cap(s.heads) < heads || len(s.q) < heads*dim {
		s.heads, s.q = make([]int, 0, heads), make([]float32, heads*dim)
		s.tile = make([]float32, heads*vec.Tile)
		s.log, s.shift = make([]float64, heads), make([]float32, heads)
	}
}

// Do selects for items lo to hi-1.
func (t *refreshTask) Do(worker, lo, hi int) {
	n := t.pages.heads
	for i := lo; i < hi; i++ {
		if slot := i / n; t.pos[slot] >= 0 {
			t.kvHead(&t.scratch[worker], slot, i%n)
		}
	}
}

// kvHead scores the heads of a kv head whose group found no entry, then stores the entries of
// its groups.
func (t *refreshTask) kvHead(s *refreshScratch, slot, kvHead int) {
	p, group := t.pos[slot], t.heads/t.pages.heads
	visible, region := spanIntervals(t.mask.plan.Span, p), t.mask.region(p)
	scored := region
	if t.groups < t.heads {
		scored = visible
	}
	s.heads = s.heads[:0]
	for h := kvHead * group; h < (kvHead+1)*group; h++ {
		if t.found[slot*t.groups+h*t.groups/t.heads] < 0 {
			t.load(s, row(t.q, slot*t.heads+h, t.dim))
			s.heads = append(s.heads, h)
		}
	}
	for i := 0; i < len(scored) && len(s.heads) > 0; i++ {
		t.score(s, slot, kvHead, scored[i])
	}
	for g := kvHead * t.groups / t.pages.heads; g < (kvHead+1)*t.groups/t.pages.heads; g++ {
		t.store(s, slot, g, visible, region)
	}
}

// load makes a query that of the next head of s.
func (t *refreshTask) load(s *refreshScratch, q []float32) {
	i := len(s.heads)
	if t.mirror.words != nil {
		t.mirror.load(s.queries, i, q, s.q[:t.dim])
		return
	}
	scale, _ := splitScale(t.dim)
	scaled(row(s.q, i, t.dim), q, scale)
}

// score sets the scores of the heads of s, q·k/√dim, over an interval.
func (t *refreshTask) score(s *refreshScratch, slot, kvHead int, v interval) {
	for first := v.lo / device.PageLen * device.PageLen; max(first, v.lo) < v.hi; first += device.PageLen {
		lo, hi := max(v.lo-first, 0), min(v.hi-first, device.PageLen)
		next := -1
		if first+device.PageLen < v.hi {
			next = t.pages.knownPage(slot, first/device.PageLen+1)
		}
		after := t.multiply(s, t.pages.knownPage(slot, first/device.PageLen), next, kvHead, hi)
		if n := len(s.heads); hi-lo == device.PageLen && n == t.heads/t.pages.heads { // their rows are adjacent
			t.o.vec.WriteTile(t.scores[(slot*t.heads+s.heads[0])*t.width+first:], t.width, s.tile[:n*vec.Tile], after)
			continue
		}
		for i, h := range s.heads {
			rescale(t.o.vec, t.headScores(slot, h)[first+lo:first+hi], row(s.tile, i, vec.Tile)[lo:], after)
		}
	}
}

// multiply sets the tile of s to the products with the first n keys of a page, and returns what
// their scale is. Keys of page next are prefetched.
func (t *refreshTask) multiply(s *refreshScratch, page, next, kvHead, n int) (scale float32) {
	if m := &t.mirror; m.words != nil {
		t.o.vec.MirrorScores(s.tile, m.queries(s.queries, 0, len(s.heads)), m.page(page, kvHead), m.page(next, kvHead))
		return 1
	}
	g, kernel, prefetch := &t.pages, t.o.vec.Scores, vec.Rows{}
	if t.dim%vec.Multiple != 0 {
		kernel = vec.Go.Scores
	}
	if next >= 0 {
		prefetch = g.rows(g.k, next, kvHead, 0, device.PageLen)
	}
	kernel(s.tile, s.q, g.rows(g.k, page, kvHead, 0, device.PageLen), prefetch, len(s.heads), n, t.dim)
	_, scale = splitScale(t.dim)
	return scale
}

// headScores is the scores of a head.
func (t *refreshTask) headScores(slot, head int) []float32 {
	return row(t.scores, slot*t.heads+head, t.width)
}

// store stores the entry of a head group: a new selection, or, where one was found, a
// reference to it with Chain, otherwise nothing. It updates the counters.
func (t *refreshTask) store(s *refreshScratch, slot, group int, visible, region [2]interval) {
	i, p := slot*t.groups+group, t.pos[slot]
	_, number := t.blockOf(slot, p)
	entry, counters := t.entryAt(slot, group, number), row(t.counters, i, 4)
	counters[0]++
	if found := t.found[i]; found >= 0 {
		entry[0], entry[1], entry[2] = 0, 0, 0
		if t.Chain {
			entry[0], entry[1] = int32(p+1), found
		}
		return
	}
	n := t.selectBest(s, slot, group, visible, region)
	entry[0], entry[1], entry[2] = int32(p+1), int32(number), int32(n)
	counters[1]++
	scored := visible
	if t.groups == t.heads {
		scored = region
	}
	countScored(counters[2:4], scored)
}

// countScored adds the positions of two intervals to a 64-bit counter, low word first.
func countScored(counter []int32, scored [2]interval) {
	sum := uint64(uint32(counter[0])) | uint64(uint32(counter[1]))<<32
	for _, v := range scored {
		sum += uint64(max(v.hi-v.lo, 0))
	}
	counter[0], counter[1] = int32(uint32(sum)), int32(uint32(sum>>32))
}

// selectBest writes the selection of a head group to its new entry, what gets neighbors first, and
// returns how many positions it has.
func (t *refreshTask) selectBest(s *refreshScratch, slot, group int, visible, region [2]interval) int {
	p := t.pos[slot]
	x := t.groupScores(s, slot, group, visible, region)
	maskOutside(x, region)
	s.nans += nans(t.o.vec, x)
	t.o.d.sawNaNs(&s.nans)
	_, number := t.blockOf(slot, p)
	dst := row(t.index, (slot*t.groups+group)*t.Block+number, t.maxSelected)
	k := t.K.Of(p + 1)
	return s.best.bestFirst(t.o.vec, dst, x, min(k, t.maxSelected), t.best.Of(k))
}

// groupScores is what the positions of a head group are ranked by: the scores of its head, or the
// sum of its heads' softmax up to a factor. Where the sum underflows, because another position,
// often the row's own, has nearly all softmax mass, it is the logarithm of the sum instead.
func (t *refreshTask) groupScores(s *refreshScratch, slot, group int, visible, region [2]interval) []float32 {
	lo, hi := t.headsOf(group)
	n := t.pos[slot] + 1
	if t.groups == t.heads {
		return t.headScores(slot, lo)[:n]
	}
	if x := t.sums(s, slot, lo, hi, visible, region); t.o.vec.Count(x, minSum) >= min(t.K.Of(n), t.maxSelected) {
		return x
	}
	return t.logSums(s, slot, lo, hi, visible, region)
}

// minSum is the smallest sum of softmax by which positions are ranked; where terms of it are lost
// to underflow, they are below its last digit.
const minSum = 1e-30

// sums is the sums of the softmax of heads lo to hi-1 in the selected region, 0 elsewhere. Scores
// outside of what is visible, and NaN, become -Inf.
func (t *refreshTask) sums(s *refreshScratch, slot, lo, hi int, visible, region [2]interval) []float32 {
	n := t.pos[slot] + 1
	v, sums, e := t.o.vec, s.sum[:n], s.top[:n]
	clear(sums)
	for h := lo; h < hi; h++ {
		x := t.headScores(slot, h)[:n]
		maskOutside(x, visible)
		s.nans += dropNaNs(v, x)
		top := v.Largest(x)
		if math.IsInf(float64(top), 1) { // it has no softmax
			continue
		}
		total := v.Exps(e, x, top)
		for _, m := range region {
			if m.lo < m.hi && total > 0 {
				v.AddScaled(sums[m.lo:m.hi], e[m.lo:m.hi], float32(1/total))
			}
		}
	}
	return sums
}

// logSums is the logarithms of sums, up to a constant.
func (t *refreshTask) logSums(s *refreshScratch, slot, lo, hi int, visible, region [2]interval) []float32 {
	shift, n := t.logShifts(s, slot, lo, hi, visible, region), t.pos[slot]+1
	v, top, sum := t.o.vec, s.top[:n], s.sum[:n]
	for j := range top {
		top[j], sum[j] = -math.MaxFloat32, 0
	}
	for _, m := range region {
		m.hi = max(m.hi, m.lo)
		for i, by := range shift {
			if by > negInf {
				v.LogTop(top[m.lo:m.hi], t.headScores(slot, lo+i)[m.lo:m.hi], 1, by)
			}
		}
		for i, by := range shift {
			if by > negInf {
				v.LogSum(sum[m.lo:m.hi], top[m.lo:m.hi], t.headScores(slot, lo+i)[m.lo:m.hi], 1, by)
			}
		}
	}
	t.addLogs(s, top, len(shift), region)
	return top
}

// addLogs makes of the largest terms top the logarithms of the sums of the selected region, of heads
// heads. A sum is 1 to heads times its largest term: what is below the K-th largest term by more than
// ln heads is not selected, and keeps its term.
func (t *refreshTask) addLogs(s *refreshScratch, top []float32, heads int, region [2]interval) {
	sum, least := s.sum[:len(top)], negInf
	set, k := s.best.topK(t.o.vec, top, min(t.K.Of(len(top)), t.maxSelected))
	if k == t.K.Of(len(top)) && k > 0 {
		least = smallestOf(top, set)
	}
	enough := least - float32(math.Log(float64(heads))*(1+1e-6)) - float32(math.Abs(float64(least)))*1e-6
	for _, m := range region {
		for j := m.lo; j < m.hi; j++ {
			if !(top[j] < enough) {
				top[j] = logOf(top[j], sum[j])
			}
		}
	}
}

// smallestOf is the smallest score of a set.
func smallestOf(x []float32, set []uint64) float32 {
	least := float32(math.Inf(1))
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			least = min(least, x[64*w+bits.TrailingZeros64(word)])
		}
	}
	return least
}

// logOf is top + ln sum; for a sum of 0 the lowest finite number, which may be selected still.
func logOf(top, sum float32) float32 {
	if !(sum > 0) {
		return -math.MaxFloat32
	}
	return top + float32(math.Log(float64(sum)))
}

// logShifts is what to add to the scores of heads lo to hi-1 to get the logarithms of their
// softmax over what is visible, up to a constant of the group by which the largest in the
// selected region is 0, where float32 resolves most; -Inf for a head without a softmax.
// Scores outside of what is visible, and NaN, become -Inf.
func (t *refreshTask) logShifts(s *refreshScratch, slot, lo, hi int, visible, region [2]interval) []float32 {
	v, log, best := t.o.vec, s.log[:hi-lo], math.Inf(-1)
	for i := range log {
		x := t.headScores(slot, lo+i)[:t.pos[slot]+1]
		maskOutside(x, visible)
		s.nans += dropNaNs(v, x)
		log[i] = s.lanes.logSum(v, x)
		for _, m := range region {
			if m.lo < m.hi && !math.IsInf(log[i], 0) {
				best = max(best, float64(v.Largest(x[m.lo:m.hi]))-log[i])
			}
		}
	}
	shift := s.shift[:len(log)]
	for i, x := range log {
		if shift[i] = negInf; !math.IsInf(x, 0) {
			shift[i] = float32(-x - max(best, -math.MaxFloat32))
		}
	}
	return shift
}

// maskOutside sets what is outside of two ascending intervals to -Inf.
func maskOutside(x []float32, keep [2]interval) {
	at := 0
	for _, v := range keep {
		if v.lo >= v.hi {
			continue
		}
		for ; at < v.lo; at++ {
			x[at] = negInf
		}
		at = v.hi
	}
	for ; at < len(x); at++ {
		x[at] = negInf
	}
}
