package devtest

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// reuse is a case of ReuseSelection over several steps: each step stores nothing, but every slot that is not idle sees one position more.
type reuse struct {
	attention // lens after the last step; sink, recent and span of the plan

	steps, groups, block int
	since                []int // by slot; nil is all 0
	relative, chain      bool
	minCosine            float64
	topK, best           device.Amount // SelectionCache.K and Neighbors.Best
	neighbors            int
	keepSlid, ties, odd  bool
	flat                 bool // all keys are alike
	keep                 int  // Span.Recent
	bits                 int  // of the keys that rank; 0: those of the cache

	queries [][]float32 // by step, [slots, heads, dim]
}

// reuses are the cases, by name.
func reuses() map[string]reuse {
	base := reuse{
		attention: attention{heads: 4, kvHeads: 2, dim: 32, lens: []int{90, 0, 150}, sink: 4, recent: 12},
		steps:     20, groups: 4, block: 6, minCosine: 0.6, topK: device.Amount{Count: 10}, best: device.Amount{Share: 1.0 / 3}, neighbors: 1, keepSlid: true,
	}
	m := map[string]reuse{"plain": base}
	add := func(name string, change func(r *reuse)) {
		r := base
		change(&r)
		m[name] = r
	}
	add("never", func(r *reuse) { r.minCosine = 1 })
	add("always", func(r *reuse) { r.minCosine = -2 })
	add("drop", func(r *reuse) { r.keepSlid, r.neighbors = false, 0 })
	add("near3", func(r *reuse) { r.neighbors, r.best = 3, device.Amount{Count: 4} })
	add("chain", func(r *reuse) { r.chain, r.minCosine = true, 0.8 })
	add("relative", func(r *reuse) { r.relative, r.since = true, []int{73, 0, 140} })
	add("since", func(r *reuse) { r.since = []int{77, 0, 135} })
	add("head groups", func(r *reuse) { r.groups, r.minCosine = 2, 0.5 })
	add("one kv head", func(r *reuse) { r.heads, r.kvHeads, r.groups = 5, 1, 1 })
	add("share", func(r *reuse) { r.topK = device.Amount{Share: 0.11} })
	add("everything", func(r *reuse) { r.topK = device.Amount{Share: 1} })
	add("short", func(r *reuse) { r.lens = []int{20, 21, 40} })
	add("span", func(r *reuse) { r.drop, r.spanSink, r.keep = 0.8, 5, 12 })
	add("span of head groups", func(r *reuse) { r.drop, r.spanSink, r.keep, r.groups = 0.5, 8, 12, 2 })
	add("span that would hide recent", func(r *reuse) { r.drop, r.spanSink, r.keep = 0.95, 4, 12 })
	add("back", func(r *reuse) { r.back = 60 })
	add("ties", func(r *reuse) { r.ties, r.minCosine = true, 0.7 })
	add("crowd", func(r *reuse) { // more equal scores than are put in order one by one
		r.ties, r.heads, r.kvHeads, r.groups, r.dim = true, 2, 1, 2, 4
		r.lens, r.steps, r.topK = []int{400, 0, 330}, 3, device.Amount{Count: 120}
	})
	add("crowd beyond its room", func(r *reuse) { // equal scores, more than a block has room for in order
		r.flat, r.heads, r.kvHeads, r.groups, r.dim = true, 2, 1, 2, 4
		r.lens, r.steps, r.topK = []int{3900, 0, 330}, 2, device.Amount{Count: 128}
	})
	add("odd keys", func(r *reuse) { r.odd, r.neighbors, r.full = true, 0, true })
	add("odd width", func(r *reuse) { r.dim, r.full = 20, true })
	add("heads of 128", func(r *reuse) { r.steps = 6; r.heads, r.kvHeads, r.groups, r.dim = 6, 1, 6, 128 })
	add("heads of 64", func(r *reuse) { r.steps = 6; r.dim, r.drop, r.spanSink, r.keep = 64, 0.5, 8, 12 })
	many := func(name string, change func(r *reuse)) { // heads that share no keys
		add(name, func(r *reuse) {
			r.steps, r.heads, r.kvHeads, r.groups, r.dim = 6, 4, 4, 4, 128
			change(r)
		})
	}
	many("kv heads of 128", func(r *reuse) { r.back = 100 })
	many("kv heads of 64", func(r *reuse) { r.dim = 64 })
	many("kv heads that never share", func(r *reuse) { r.dim, r.minCosine = 64, 1 })
	many("kv heads that chain", func(r *reuse) {
		r.chain, r.minCosine, r.block, r.relative, r.since = true, 0.7, 4, true, []int{86, 0, 146}
	})
	many("kv heads that read everything", func(r *reuse) { r.topK, r.minCosine = device.Amount{Share: 1}, 0.3 })
	many("kv heads of ties", func(r *reuse) { r.ties, r.neighbors = true, 3 })
	many("kv heads and a span", func(r *reuse) { r.dim, r.drop, r.spanSink, r.keep = 64, 0.5, 8, 12 })
	many("a block for each head", func(r *reuse) { r.heads, r.kvHeads, r.groups, r.steps, r.block = 132, 132, 132, 5, 4 }) // of a large GPU
	add("long", func(r *reuse) {                                                                                           // too long for a block's own memory
		r.heads, r.kvHeads, r.groups, r.dim = 1, 1, 1, 16
		r.lens, r.steps, r.topK, r.neighbors = []int{8300}, 1, device.Amount{Count: 4100}, 0
	})
	add("keys of 8 bits", func(r *reuse) { r.bits, r.steps = 8, 6 })
	add("keys of 4 bits and ties", func(r *reuse) { r.bits, r.steps, r.ties, r.minCosine = 4, 6, true, 0.7 })
	add("keys of 4 bits of head groups", func(r *reuse) {
		r.bits, r.steps, r.groups, r.minCosine, r.dim, r.back = 4, 6, 2, 0.5, 64, 100
	})
	add("long head groups", func(r *reuse) { // in parts, with neighbors of the best
		r.heads, r.kvHeads, r.groups, r.dim, r.ties = 3, 1, 1, 16, true
		r.lens, r.steps, r.topK, r.minCosine = []int{6200}, 3, device.Amount{Share: 0.1}, 0.5
	})
	for _, bits := range []int{0, 8} { // scores that differ, of more positions than are ranked by comparing all pairs
		add(fmt.Sprintf("long heads, %d bits", bits), func(r *reuse) {
			r.heads, r.kvHeads, r.groups, r.dim, r.bits = 3, 1, 3, 64, bits
			r.lens, r.steps, r.topK, r.minCosine = []int{2100}, 2, device.Amount{Share: 0.1}, 0.7
		})
		add(fmt.Sprintf("long head group, %d bits", bits), func(r *reuse) {
			r.heads, r.kvHeads, r.groups, r.dim, r.bits = 5, 1, 1, 128, bits
			r.lens, r.steps, r.topK, r.minCosine = []int{1900}, 2, device.Amount{Share: 0.2}, 0.5
		})
	}
	add("block1", func(r *reuse) { r.block, r.minCosine = 1, -2 })
	maps.Copy(m, dominatedReuses(base))
	return m
}

// reuseCases makes each of them a job.
func reuseCases() []testCase {
	all := reuses()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	var cases []testCase
	for _, name := range names {
		cases = append(cases, testCase{"op=ReuseSelection/" + name, func(b *bed) job {
			r := all[name]
			r.fill(b)
			return r.job(b)
		}})
	}
	return cases
}

// fill makes the tensors: queries that rotate slowly, so that some are similar.
func (r *reuse) fill(b *bed) {
	if r.since == nil {
		r.since = make([]int, len(r.lens))
	}
	n := len(r.lens) * r.heads * r.dim
	r.q = b.normal(n)
	for range r.steps {
		next := slices.Clone(r.q)
		for i, x := range b.normal(n) {
			next[i] += 0.7 * x
		}
		if r.ties {
			for i := range next {
				next[i] = float32(math.Round(float64(next[i])))
			}
		}
		r.queries = append(r.queries, next)
	}
	r.store(b)
}

// store fills in keys and values as the cache holds them.
func (r *reuse) store(b *bed) {
	n := len(r.lens) * r.longest() * r.kvHeads * r.dim
	r.k, r.v = b.normal(n), b.normal(n)
	if r.ties {
		for i, x := range r.k {
			r.k[i] = float32(math.Round(float64(x) / 2))
		}
	}
	for i := range r.k {
		if r.flat {
			r.k[i] = r.k[i%r.dim]
		}
	}
	if r.rise > 0 {
		r.dominate()
	}
	if !r.full {
		_, r.k = halves(r.k)
		_, r.v = halves(r.v)
	}
	for s := range r.lens {
		for j := 15; r.odd && j < 40; j += 3 {
			r.at(r.k, s, j, 0)[j%r.dim] = float32(math.NaN())
		}
	}
}

// job runs Reuse and Attend at each step. What was found, how long the
// lists are and what attention reads through them must be the oracle's.
func (r *reuse) job(b *bed) job {
	slots, most := len(r.lens), r.topK.Of(r.longest())
	kv := b.cache(&r.attention, b.shuffled(&r.attention))
	mirror, summarize := r.mirror(b, kv)
	since := make([]int32, slots)
	for i, n := range r.since {
		since[i] = int32(n)
	}
	zeros := func(dims ...int) device.Tensor { return b.i32(filledI32(size(dims), 0), dims...) }
	m := device.SelectionCache{
		Query: b.f32(filled(slots*r.heads*r.block*r.dim, 0), slots, r.heads*r.block, r.dim),
		Entry: zeros(slots, r.groups*r.block, 3), Index: zeros(slots, r.groups*r.block, most),
		Since: b.i32(since, slots, 1), Counters: zeros(slots, r.groups, 4),
		Block: r.block, Relative: r.relative, MinCosine: r.minCosine, Chain: r.chain, K: r.topK,
	}
	exactScores := b.out(slots, r.heads, r.longest())
	widen := device.Neighbors{Best: r.best, Each: r.neighbors, KeepSlid: r.keepSlid}
	span := device.Span{Back: r.back, Sink: r.spanSink, Drop: r.drop, Recent: r.keep}
	var j job
	var steps []func(ops device.Queue)
	o := newReuseOracle(r)
	for i, queries := range r.queries {
		plan := device.Plan{Span: span, Sink: r.sink, Recent: r.recent, Selected: device.Tokens, List: device.List{
			Index: zeros(slots, r.groups, most*(2*r.neighbors+2)+r.block), Count: zeros(slots, r.groups),
		}}
		kv, m := kv, m
		kv.Len, m.Found = b.i32(r.lensAt(i), slots), zeros(slots, r.groups)
		q, dst := b.f32(queries, slots, r.heads, r.dim), b.out(slots, r.heads, r.dim)
		steps = append(steps, func(ops device.Queue) {
			ReuseAttend(ops, dst, device.ReuseSelection{List: plan.List, Cache: m, Scores: exactScores, Compared: q, Q: q, Keys: mirror, KV: kv, Plan: plan, Neighbors: widen})
		})
		found, lists, y := o.step(i)
		count := lengths(lists)
		j.expect = append(j.expect,
			expectation{name: fmt.Sprintf("found at step %d", i), got: m.Found, ids: found},
			expectation{name: fmt.Sprintf("count at step %d", i), got: plan.List.Count, ids: count})
		if r.rise > 0 { // a wrong selection does not show beside a key that dominates
			j.expect = append(j.expect, expectation{name: fmt.Sprintf("list at step %d", i), got: plan.List.Index, ids: padded(lists, plan.List.Index.Dim(2))})
			continue
		}
		j.expect = append(j.expect, expectation{name: fmt.Sprintf("attention at step %d", i), got: dst, want: y, bound: attendBound})
	}
	j.expect = append(j.expect, expectation{name: "counters", got: m.Counters, ids: o.counters})
	j.step = func(ops device.Queue) {
		summarize(ops)
		for _, step := range steps {
			step(ops)
		}
	}
	return j
}

// mirror is low-bit copies of all keys, and the calls that make them; absent without bits.
func (r *reuse) mirror(b *bed, kv device.KV) (t device.Tensor, summarize func(ops device.Queue)) {
	if r.bits == 0 {
		return t, func(device.Queue) {}
	}
	dims := []int{kv.K.Dim(0), r.kvHeads, device.MirrorWords(r.dim, r.bits), page}
	t = b.i32(filledI32(size(dims), 7), dims...)
	return t, func(ops device.Queue) {
		for s, n := range r.lens {
			if n > 0 {
				one := kv
				one.Pages, one.Len = kv.Pages.Rows(s, s+1), kv.Len.Rows(s, s+1)
				device.Do(ops, device.Summarize{Rule: device.KeyMirror, Dst: t, KV: one, Rows: n})
			}
		}
	}
}

// lensAt is the positions of each slot at a step.
func (r *reuse) lensAt(step int) []int32 {
	lens := make([]int32, len(r.lens))
	for s, n := range r.lens {
		if n > 0 {
			lens[s] = int32(n - r.steps + 1 + step)
		}
	}
	return lens
}

// reuseOracle is the reference: the selections of every slot and head group.
type reuseOracle struct {
	*reuse
	made     [][]reused // by slot·groups + group
	counters []int32    // [slots, groups, 4]
}

// reused is an entry of a selection cache.
type reused struct {
	pos   int
	query []float32 // of the group's heads
	from  *reused   // whose positions it uses; itself
	index []int     // best first
}

func newReuseOracle(r *reuse) *reuseOracle {
	n := len(r.lens) * r.groups
	return &reuseOracle{reuse: r, made: make([][]reused, n), counters: make([]int32, 4*n)}
}

// step is what Found, the lists and the attention of a step must be.
func (o *reuseOracle) step(i int) (found []int32, lists [][]int, y []float64) {
	lens := o.lensAt(i)
	for s, n := range lens {
		group := o.heads / o.groups
		for set := range o.groups {
			if n == 0 {
				found, lists = append(found, 0), append(lists, nil)
				y = append(y, widen(filled(group*o.dim, before))...)
				continue
			}
			f, list := o.set(s, set, i, int(n)-1)
			found, lists = append(found, int32(f)), append(lists, list)
			for h := set * group; h < (set+1)*group; h++ {
				y = append(y, o.read(s, h, i, int(n)-1, list)...)
			}
		}
	}
	return found, lists, y
}

// set is the entry that a head group finds at position p, -1 for none, and its list.
func (o *reuseOracle) set(s, set, i, p int) (found int, list []int) {
	at := s*o.groups + set
	group := o.heads / o.groups
	q := o.queries[i][(s*o.heads+set*group)*o.dim:][:group*o.dim]
	o.counters[4*at]++
	var used *reused
	for n := len(o.made[at]) - 1; n >= 0 && used == nil; n-- {
		if c := &o.made[at][n]; o.valid(s, c.pos, p) && o.alike(q, c.query) > o.minCosine {
			used = c.from
		}
	}
	if used == nil {
		c := &reused{pos: p, query: q, index: o.rank(s, set, i, p)}
		c.from = c
		o.made[at] = append(o.made[at], *c)
		return -1, o.inside(c.index, p)
	}
	if o.chain {
		o.made[at] = append(o.made[at], reused{pos: p, query: q, from: used})
	}
	start, _ := o.blockOf(s, used.pos)
	return used.pos - start, o.inside(o.widened(used, p), p)
}

// blockOf is the first position of a position's block, and its number.
func (o *reuseOracle) blockOf(s, p int) (start, number int) {
	from := 0
	if o.relative {
		from = o.since[s]
	}
	return from + (p-from)/o.block*o.block, (p - from) / o.block
}

// valid reports whether an entry of position c counts for the row at p.
func (o *reuseOracle) valid(s, c, p int) bool {
	_, a := o.blockOf(s, c)
	_, b := o.blockOf(s, p)
	return a == b && c >= o.since[s] && c < p
}

// alike is the minimum cosine over the heads.
func (o *reuseOracle) alike(a, b []float32) float64 {
	least := math.Inf(1)
	for h := 0; h < len(a); h += o.dim {
		var ab, aa, bb float64
		for i := h; i < h+o.dim; i++ {
			x, y := float64(a[i]), float64(b[i])
			ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
		}
		least = min(least, min(1, ab/math.Sqrt(aa*bb)))
	}
	return least
}

// middle reports whether position j is in the selected region of the row at p.
func (o *reuseOracle) middle(p, j int) bool {
	return o.visible(p, j) && j >= o.sink && j < p+1-o.recent
}

// visible reports whether the span lets the row at p see position j.
func (o *reuseOracle) visible(p, j int) bool {
	if j < 0 || j > p || o.back > 0 && p-j >= o.back {
		return false
	}
	bound := int(math.Floor(o.drop*float64(p+1)+1e-9)) - 1
	return o.drop == 0 || j < o.spanSink || j >= bound || p-j < o.keep
}

// rank is the best positions for a head group at step i, and counts what it scores. The softmax
// mass of several heads is summed as a logarithm, which does not underflow.
func (o *reuseOracle) rank(s, set, i, p int) []int {
	group := o.heads / o.groups
	weight := make([]float64, p+1) // by position; of several heads the logarithm
	for j := range weight {
		weight[j] = math.Inf(-1)
	}
	for h := set * group; h < (set+1)*group; h++ {
		exactScores := make([]float64, p+1)
		for j := range exactScores {
			exactScores[j] = math.Inf(-1)
			if x := o.ranked(s, h, i, j); o.visible(p, j) && x == x {
				exactScores[j] = x
			}
		}
		if group == 1 {
			weight = exactScores
			break
		}
		all := math.Inf(-1)
		for _, x := range exactScores {
			all = logAdd(all, x)
		}
		for j, x := range exactScores {
			weight[j] = logAdd(weight[j], x-all)
		}
	}
	for j := range weight { // a position without mass ranks last in a group of several heads, and is not selected by one
		if group > 1 {
			weight[j] = max(weight[j], -math.MaxFloat64)
		}
	}
	var best []int
	scored := 0
	for j, w := range weight {
		if group > 1 && o.visible(p, j) || group == 1 && o.middle(p, j) {
			scored++
		}
		if o.middle(p, j) && w > math.Inf(-1) {
			best = append(best, j)
		}
	}
	o.counters[4*(s*o.groups+set)+1]++
	o.counters[4*(s*o.groups+set)+2] += int32(scored)
	slices.SortStableFunc(best, func(a, b int) int {
		switch {
		case weight[a] > weight[b]:
			return -1
		case weight[a] < weight[b]:
			return 1
		}
		return 0
	})
	return best[:min(len(best), o.topK.Of(p+1))]
}

// ranked is what positions are ranked by at step i: their score, or that of low-bit keys.
func (o *reuseOracle) ranked(s, h, i, j int) float64 {
	if o.bits == 0 {
		return o.score(s, h, i, j)
	}
	q, k := o.queries[i][(s*o.heads+h)*o.dim:][:o.dim], o.at(o.k, s, j, h*o.kvHeads/o.heads)
	return float64(mirrorOf(q, 127).score(mirrorOf(k, mirrorLevels(o.bits))))
}

// score is q·k/√dim at step i.
func (o *reuseOracle) score(s, h, i, j int) float64 {
	var dot float64
	for c, k := range o.at(o.k, s, j, h*o.kvHeads/o.heads) {
		dot += float64(o.queries[i][(s*o.heads+h)*o.dim+c]) * float64(k)
	}
	return dot / math.Sqrt(float64(o.dim))
}

// widened is a reused selection with its neighbors at position p.
func (o *reuseOracle) widened(c *reused, p int) []int {
	list := slices.Clone(c.index)
	for i := range min(len(c.index), o.best.Of(o.topK.Of(c.pos+1))) {
		for d := 1; d <= o.neighbors; d++ {
			list = append(list, c.index[i]-d, c.index[i]+d)
		}
	}
	for j := c.pos + 1 - o.recent; o.keepSlid && j < p+1-o.recent; j++ {
		list = append(list, j)
	}
	return list
}

// inside is the positions of a list in the selected region of the row at p, ascending, once.
func (o *reuseOracle) inside(list []int, p int) []int {
	var in []int
	for _, j := range list {
		if o.middle(p, j) {
			in = append(in, j)
		}
	}
	slices.Sort(in)
	return slices.Compact(in)
}

// read is attention over sinks, list and recent window.
func (o *reuseOracle) read(s, h, i, p int, list []int) []float64 {
	y, sum := make([]float64, o.dim), 0.0
	for j := range p + 1 {
		edge := o.visible(p, j) && (j < o.sink || j >= p+1-o.recent)
		if !edge && !slices.Contains(list, j) {
			continue
		}
		w := math.Exp(o.score(s, h, i, j))
		sum += w
		for c, v := range o.at(o.v, s, j, h*o.kvHeads/o.heads) {
			y[c] += w * float64(v)
		}
	}
	for c := range y {
		y[c] /= sum
	}
	return y
}
