package devtest

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// boundCase is a call of the operations on bounds in plain Go.
type boundCase struct {
	attention // lens are the positions stored
	len       []int
	parts     int
	newest    int // rows of KeyBounds
	groups    int
}

// boundCalls are lengths around the ends of pages and parts; each slot has some
// positions stored that are beyond its length.
var boundCalls = []boundCase{
	{len: []int{1}, newest: 1}, {len: []int{page}, newest: page}, {len: []int{3*page + 5}, newest: 3*page + 5},
	{len: []int{2*page + 17}, newest: page}, {len: []int{2*page + 17}, newest: 3}, {len: []int{page + 1}, newest: 1},
	{len: []int{5, 0, page, 2*page + 16, 2*page + 15, 1}, newest: 1}, {len: []int{40*page + 33, 3}, newest: 1},
}

// partsHeadless are the rules here whose tensors have no head dimension, see complete.
var partsHeadless = []string{"Select(TopParts)"}

func boundCases() []testCase {
	var cases []testCase
	for _, c := range boundCalls {
		for _, s := range []struct {
			heads, kvHeads, dim, parts int
			full                       bool
		}{{4, 2, 16, 4, false}, {4, 4, 20, 1, true}, {8, 1, 64, 8, false}, {6, 2, 24, 64, true}, {5, 5, 32, 2, false}} {
			c := c
			c.heads, c.kvHeads, c.dim, c.parts, c.full = s.heads, s.kvHeads, s.dim, s.parts, s.full
			for _, n := range c.len {
				c.lens = append(c.lens, min(n+7, 7*n))
			}
			name := fmt.Sprintf("/lens=%v/newest=%d/%+v", c.len, c.newest, s)
			cases = append(cases, testCase{"op=KeyBounds" + name, c.keyBounds})
			if c.newest > 1 {
				continue
			}
			for _, groups := range slices.Compact([]int{c.heads, c.kvHeads}) {
				c.groups = groups
				at := fmt.Sprintf("%s/groups=%d", name, groups)
				cases = append(cases, testCase{"op=BoundScores" + at, c.boundScores})
				for i, t := range []device.Select{
					{K: device.Amount{Count: 40}}, {K: device.Amount{Share: .3}, Min: 3}, {K: device.Amount{Count: 1}, Min: 2}, {K: device.Amount{Count: 1 << 20}}, {K: device.Amount{Share: 1}},
					{K: device.Amount{Share: .4}, Plan: device.Plan{Span: device.Span{Back: 70}}}, {K: device.Amount{Share: .2}, Plan: device.Plan{Span: device.Span{Drop: .5, Sink: 9, Recent: 4}}},
				} {
					cases = append(cases, testCase{fmt.Sprintf("op=TopParts/%d%s", i, at), func(b *bed) job { return c.topParts(b, t) }})
				}
			}
		}
	}
	return cases
}

// cache is the case's cache with its own lengths.
func (c *boundCase) cache(b *bed) (kv device.KV, pages [][]int32) {
	c.random(b)
	pages = b.shuffled(&c.attention)
	kv = b.cache(&c.attention, pages)
	lens := make([]int32, len(c.len))
	for i, n := range c.len {
		lens[i] = int32(n)
	}
	kv.Len = b.i32(lens, len(lens))
	return kv, pages
}

func (c boundCase) keyBounds(b *bed) job {
	kv, pages := c.cache(b)
	size, width := page/c.parts, 2*c.dim
	want := filled(kv.K.Dim(0)*c.kvHeads*c.parts*width, 7)
	got := b.stored(want, c.full, kv.K.Dim(0), c.kvHeads, c.parts, width)
	for s, n := range c.len {
		for part := (n - c.newest) / size; n > 0 && part*size < n; part++ {
			for h := range c.kvHeads {
				out := want[((int(pages[s][part*size/page])*c.kvHeads+h)*c.parts+part%c.parts)*width:]
				for i := range c.dim {
					var column []float32
					for j := part * size; j < min((part+1)*size, n); j++ {
						column = append(column, c.at(c.k, s, j, h)[i])
					}
					out[i], out[c.dim+i] = slices.Min(column), slices.Max(column)
				}
			}
		}
	}
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Summarize{Rule: device.KeyBounds, Dst: got, KV: kv, Rows: c.newest})
		},
		expect: []expectation{{name: "bounds", got: got, want: widen(want)}},
	}
}

func (c boundCase) boundScores(b *bed) job {
	kv, pages := c.cache(b)
	x := b.normal(kv.K.Dim(0) * c.kvHeads * c.parts * 2 * c.dim)
	for i := range x { // the minimum is the smaller one
		if j := i - c.dim; i/c.dim%2 == 1 && x[j] > x[i] {
			x[i], x[j] = x[j], x[i]
		}
	}
	if !c.full {
		_, x = halves(x)
	}
	width := kv.Pages.Dim(1)*c.parts + 3
	want := widen(filled(len(c.len)*c.groups*width, before))
	for s, n := range c.len {
		for part := 0; part*page/c.parts < n; part++ {
			for set := range c.groups {
				want[(s*c.groups+set)*width+part] = c.upperBound(x, pages, s, set, part)
			}
		}
	}
	q, dst := b.f32(c.q, len(c.len), c.heads, c.dim), b.out(len(c.len), c.groups, width)
	bounds := b.stored(x, c.full, kv.K.Dim(0), c.kvHeads, c.parts, 2*c.dim)
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Score{Rule: device.BoundScores, Dst: dst, Q: q, Keys: bounds, KV: kv})
		},
		expect: []expectation{{name: "dst", got: dst, want: want, bound: 1e-6, scale: math.Sqrt(float64(c.dim)) * float64(c.heads)}},
	}
}

// upperBound is the score of a part for a head group: the sum over its heads.
func (c *boundCase) upperBound(bounds []float32, pages [][]int32, slot, set, part int) (sum float64) {
	for h := set * c.heads / c.groups; h < (set+1)*c.heads/c.groups; h++ {
		x := bounds[((int(pages[slot][part/c.parts])*c.kvHeads+h*c.kvHeads/c.heads)*c.parts+part%c.parts)*2*c.dim:]
		for i, q := range c.q[(slot*c.heads+h)*c.dim:][:c.dim] {
			sum += max(float64(q)*float64(x[i]), float64(q)*float64(x[c.dim+i]))
		}
	}
	return sum
}

func (c boundCase) topParts(b *bed, t device.Select) job {
	c.dim, t.PerPage = 4, c.parts // of keys that are not read
	kv, _ := c.cache(b)
	width, size := kv.Pages.Dim(1)*c.parts+2, page/c.parts
	x := b.normal(len(c.len) * c.groups * width)
	for i := range x {
		switch i % 7 {
		case 1, 2: // ties
			x[i] = float32(math.Round(float64(x[i])))
		case 3:
			x[i] = [...]float32{float32(math.NaN()), float32(math.Inf(-1)), float32(math.Copysign(0, -1)), 0, float32(math.Inf(1))}[b.rng.IntN(5)]
		}
	}
	limit := c.longest() + 3
	index, count := filledI32(len(c.len)*c.groups*limit, -9), filledI32(len(c.len)*c.groups, -9)
	for i := range count {
		n := c.len[i/c.groups]
		if n == 0 {
			continue
		}
		list := bestParts(x[i*width:(i+1)*width], n-1, size, t)
		copy(index[i*limit:], list)
		count[i] = int32(len(list))
	}
	exactScores := b.f32(x, len(c.len), c.groups, width)
	l := device.List{Index: b.i32(filledI32(len(index), -9), len(c.len), c.groups, limit), Count: b.i32(filledI32(len(count), -9), len(c.len), c.groups)}
	t.Rule, t.List, t.Scores, t.KV = device.TopParts, l, exactScores, kv
	return job{
		step:   func(ops device.Queue) { device.Do(ops, t) },
		expect: []expectation{{name: "count", got: l.Count, ids: count}, {name: "index", got: l.Index, ids: index}},
	}
}

// bestParts is what the row at p reads by the scores of parts.
func bestParts(exactScores []float32, p, size int, t device.Select) []int32 {
	var others []int
	for part := range p / size {
		for j := part * size; j < (part+1)*size; j++ {
			if t.Plan.Span.Sees(p, j) {
				others = append(others, part)
				break
			}
		}
	}
	score := func(part int) float64 {
		if s := float64(exactScores[part]); s == s {
			return s
		}
		return math.Inf(-1)
	}
	slices.SortStableFunc(others, func(a, b int) int { return cmp.Compare(score(b), score(a)) })
	keep := max(1, t.Min, t.K.Of(p+1)/size)
	if t.K.Of(p+1) >= p+1 {
		keep = p + 1
	}
	selected := append(others[:min(keep-1, len(others))], p/size)
	slices.Sort(selected)
	var list []int32
	for _, part := range selected {
		if size == page {
			list = append(list, int32(part))
			continue
		}
		for j := part * size; j < (part+1)*size; j++ {
			if t.Plan.Span.Sees(p, j) {
				list = append(list, int32(j))
			}
		}
	}
	return list
}
