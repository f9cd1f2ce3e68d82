package devtest

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// hashCase is calls of KeyHashes and Collisions over some steps: before each
// every slot that is not idle has one position more.
type hashCase struct {
	attention // lens after the last step; sink and recent of the plan

	steps, tables, bits, least int
	since                      []int32
	none, queries              bool // Mean is off; Queries
	odd                        bool // some keys are not numbers
	bucketed                   bool
}

var hashes = map[string]hashCase{
	"plain":     {attention: attention{lens: []int{200, 0, 140}}, since: []int32{190, 0, 100}},
	"one":       {attention: attention{lens: []int{200}}, since: []int32{190}, least: 1},
	"both":      {attention: attention{lens: []int{200, 66}}, since: []int32{150, 60}, queries: true},
	"no center": {attention: attention{lens: []int{200, 66}}, since: []int32{150, 60}, none: true},
	"no prompt": {attention: attention{lens: []int{130}}, since: []int32{0}},
	"short":     {attention: attention{lens: []int{20, 3, 65}}, since: []int32{10, 0, 64}},
	"lowered":   {attention: attention{lens: []int{140}}, since: []int32{180}},
	"planes":    {attention: attention{lens: []int{140}}, since: []int32{100}, tables: 21, bits: 4},
	"one plane": {attention: attention{lens: []int{140}}, since: []int32{100}, tables: 1, bits: 1, least: 1},
	"long code": {attention: attention{lens: []int{140}}, since: []int32{100}, tables: 60, bits: 10, least: 1},
	"full":      {attention: attention{lens: []int{140}, full: true}, since: []int32{100}},
	"odd width": {attention: attention{lens: []int{140}, dim: 20, heads: 3, kvHeads: 1}, since: []int32{100}},
	"odd keys":  {attention: attention{lens: []int{140}, full: true}, since: []int32{100}, none: true, odd: true, least: 1},
	"span":      {attention: attention{lens: []int{200}, back: 120}, since: []int32{150}},
}

func hashCases() []testCase {
	var cases []testCase
	for name, c := range hashes {
		set := func(v *int, to int) {
			if *v == 0 {
				*v = to
			}
		}
		set(&c.heads, 4)
		set(&c.kvHeads, 2)
		set(&c.dim, 32)
		set(&c.steps, 4)
		set(&c.tables, 24)
		set(&c.bits, 3)
		set(&c.least, 2)
		c.sink, c.recent = 4, 10
		cases = append(cases, testCase{fmt.Sprintf("op=Collisions/%s", name), c.job})
		c.bucketed = true
		cases = append(cases, testCase{fmt.Sprintf("op=Collisions/%s in buckets", name), c.job})
	}
	return cases
}

// job runs both ops at each step, and attention over what is listed. Planes are
// made until no vector is so near one that rounding decides its side.
func (c hashCase) job(b *bed) job {
	slots, n := len(c.lens), c.tables*c.bits
	a := c.attention
	a.random(b)
	for j := 15; c.odd && j < c.lens[0]-20; j += 7 {
		a.at(a.k, 0, j, j%2)[j%c.dim] = float32(math.NaN())
	}
	queries := make([][]float32, c.steps)
	for i := range queries {
		queries[i] = b.normal(slots * c.heads * c.dim)
	}
	c.attention = a
	var planes []float32
	var steps []hashStep
	for sound := false; !sound; {
		planes, steps, sound = b.normal(n*c.dim), nil, true
		since := append([]int32{}, c.since...)
		for i, q := range queries {
			s, ok := c.step(planes, q, since, i)
			steps, sound = append(steps, s), sound && ok
		}
	}
	blocks, width := (c.longest()+page-1)/page, c.longest()+3
	h := device.Hash{
		Planes: b.f32(planes, n, c.dim), Codes: b.i32(filledI32(slots*c.kvHeads*blocks*2*n, 77), slots, c.kvHeads*blocks, 2*n),
		Norm: b.out(slots, c.kvHeads, width), Center: b.out(slots, c.kvHeads, c.dim),
		Since: b.i32(c.since, slots, 1), Done: b.i32(filledI32(slots, 0), slots, 1),
		Tables: c.tables, MinCollisions: c.least, Mean: !c.none, Queries: c.queries, Sink: c.sink, Recent: c.recent,
	}
	if c.bucketed {
		buckets, members := c.tables<<c.bits, (width+1)/2
		h.Sorted = b.i32(filledI32(slots, 77), slots, 1)
		h.Buckets = b.i32(filledI32(slots*c.kvHeads*buckets, 77), slots, c.kvHeads, buckets)
		h.Members = b.i32(filledI32(slots*c.kvHeads*c.tables*members, 77), slots, c.kvHeads*c.tables, members)
	}
	kv := b.cache(&c.attention, b.shuffled(&c.attention))
	var j job
	var calls []func(ops device.Queue)
	for i, s := range steps {
		kv, q, dst := kv, b.f32(queries[i], slots, c.heads, c.dim), b.out(slots, c.heads, c.dim)
		kv.Len = b.i32(c.lensAt(i), slots)
		l := device.List{Index: b.i32(filledI32(slots*c.heads*width, -9), slots, c.heads, width),
			Count: b.i32(filledI32(slots*c.heads, -9), slots, c.heads), Weight: b.out(slots, c.heads, width)}
		plan := device.Plan{Sink: c.sink, Recent: c.recent, Selected: device.None, Span: device.Span{Back: c.back}}
		read := plan
		read.Selected, read.List = device.Tokens, l
		calls = append(calls, func(ops device.Queue) {
			device.Do(ops, device.Summarize{Rule: device.KeyHashes, Hash: h, KV: kv})
			device.Do(ops, device.Select{Rule: device.Collisions, List: l, Hash: h, Q: q, KV: kv, Plan: plan})
			device.Do(ops, device.Attend{Dst: dst, Q: q, KV: kv, Plan: read})
		})
		index, weight, count := filledI32(slots*c.heads*width, -9), widen(filled(slots*c.heads*width, before)), filledI32(slots*c.heads, -9)
		for at, list := range s.lists {
			if c.lensAt(i)[at/c.heads] > 0 {
				count[at] = int32(len(list))
			}
			for k, e := range list {
				index[at*width+k], weight[at*width+k] = int32(e.index), float64(e.weight)
			}
		}
		j.expect = append(j.expect,
			expectation{name: fmt.Sprintf("count at step %d", i), got: l.Count, ids: count},
			expectation{name: fmt.Sprintf("index at step %d", i), got: l.Index, ids: index},
			expectation{name: fmt.Sprintf("weight at step %d", i), got: l.Weight, want: weight, bound: 2e-5, scale: 1},
			expectation{name: fmt.Sprintf("attention at step %d", i), got: dst, want: s.out, bound: 5 * attendBound})
	}
	j.expect = append(j.expect, expectation{name: "done", got: h.Done, ids: c.lensAt(c.steps - 1)})
	j.step = func(ops device.Queue) {
		for _, call := range calls {
			call(ops)
		}
	}
	return j
}

// lensAt is the positions of each slot at a step.
func (c *hashCase) lensAt(step int) []int32 {
	var lens []int32
	for _, n := range c.lens {
		lens = append(lens, int32(max(0, min(n, n-c.steps+1+step))))
	}
	return lens
}

// hashStep is what a step lists, by slot and head, and what attention over it is.
type hashStep struct {
	lists [][]entry
	out   []float64
}

// step is the definition; sound is false where rounding could decide it. since is
// lowered as the op does.
func (c *hashCase) step(planes, q []float32, since []int32, i int) (s hashStep, sound bool) {
	sound = true
	for slot, n := range c.lensAt(i) {
		p := int(n) - 1
		if p >= 0 {
			since[slot] = min(since[slot], int32(p))
		}
		for h := range c.heads {
			if p < 0 {
				s.lists, s.out = append(s.lists, nil), append(s.out, widen(filled(c.dim, before))...)
				continue
			}
			list, ok := c.list(planes, q, slot, h, p, int(since[slot]))
			s.lists, sound = append(s.lists, list), sound && ok
			s.out = append(s.out, c.read(q, slot, h, p, list)...)
		}
	}
	return s, sound
}

// read is attention over sinks, recent window and a list.
func (c *hashCase) read(q []float32, slot, h, p int, list []entry) []float64 {
	edges := c.attention
	edges.selected = device.None
	y, sum := make([]float64, c.dim), 0.0
	for j := range p + 1 {
		w := edges.weight(p, j, nil)
		for _, e := range list {
			if e.index == j {
				w = float64(e.weight)
			}
		}
		if w == 0 {
			continue
		}
		var s float64
		for i, k := range c.at(c.k, slot, j, h*c.kvHeads/c.heads) {
			s += float64(q[(slot*c.heads+h)*c.dim+i]) * float64(k)
		}
		w *= math.Exp(s / math.Sqrt(float64(c.dim)))
		sum += w
		for i, v := range c.at(c.v, slot, j, h*c.kvHeads/c.heads) {
			y[i] += w * float64(v)
		}
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

// list is what a head of a slot collides with.
func (c *hashCase) list(planes, q []float32, slot, h, p, since int) (list []entry, sound bool) {
	kvHead := h * c.kvHeads / c.heads
	center := c.center(slot, kvHead, since)
	x := make([]float64, c.dim)
	for i := range x {
		if x[i] = float64(q[(slot*c.heads+h)*c.dim+i]); c.queries {
			x[i] -= center[i]
		}
	}
	all, edges := c.attention, c.attention
	all.selected, edges.selected = device.All, device.None
	mine, sound := c.sides(planes, x)
	for j := range p + 1 {
		if all.weight(p, j, nil) == 0 || edges.weight(p, j, nil) > 0 {
			continue
		}
		k := make([]float64, c.dim)
		for i, v := range c.at(c.k, slot, j, kvHead) {
			k[i] = float64(v) - center[i]
		}
		if inner(k, k) != inner(k, k) {
			continue
		}
		sides, ok := c.sides(planes, k)
		sound = sound && ok
		hits := 0
		for t := 0; t < len(mine); t += c.bits {
			same := true
			for b := t; b < t+c.bits; b++ {
				same = same && mine[b] == sides[b]
			}
			if same {
				hits++
			}
		}
		if hits >= c.least {
			list = append(list, entry{j, float32(1 / (c.chance(x, k) + 1e-4))})
		}
	}
	return list, sound
}

// center is the mean of the keys that count for it.
func (c *hashCase) center(slot, kvHead, since int) []float64 {
	center := make([]float64, c.dim)
	n := since - c.recent - c.sink
	if c.none || n <= 0 {
		return center
	}
	for j := c.sink; j < since-c.recent; j++ {
		for i, v := range c.at(c.k, slot, j, kvHead) {
			center[i] += float64(v) / float64(n)
		}
	}
	return center
}

// sides is on which side of each plane a vector lies.
func (c *hashCase) sides(planes []float32, x []float64) (above []bool, sound bool) {
	sound = true
	for r := 0; r < len(planes); r += c.dim {
		var s float64
		for i, v := range x {
			s += v * float64(planes[r+i])
		}
		above, sound = append(above, s > 0), sound && math.Abs(s) > 1e-5
	}
	return above, sound
}

// chance is the probability that x and k collide in at least that many tables, summed over how
// many they may collide in.
func (c *hashCase) chance(x, k []float64) float64 {
	one := math.Pow(1-math.Acos(inner(x, k)/math.Sqrt(inner(x, x)*inner(k, k)))/math.Pi, float64(c.bits))
	none := math.Pow(1-one, float64(c.tables))
	if c.least == 1 {
		return 1 - none
	}
	return 1 - none - float64(c.tables)*one*math.Pow(1-one, float64(c.tables-1))
}

// inner is a·b.
func inner(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}
