package devtest

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// marginCase is a case of AnchorMax, MeanRows and WithinMargin in plain Go, and their
// definition. The attention's group is l.Group.
type marginCase struct {
	attention
	block  int
	margin float64
	twice  int
	odd    bool // some keys are not numbers
}

// marginPlans are the plans, and the calls they are for.
var marginPlans = map[string]attention{
	"slots":       {sink: 3, recent: 9, lens: []int{150, 0, 1, 11, 14, 90}, group: 8},
	"decode":      {sink: 64, recent: 64, lens: []int{260}, group: 4},
	"prefill":     {sink: 16, recent: 16, align: 32, lens: []int{200}, rows: 70, group: 32},
	"whole":       {sink: 8, recent: 8, align: 32, lens: []int{160}, rows: 160, group: 32},
	"inside":      {sink: 8, align: 64, lens: []int{190}, rows: 51, group: 64},
	"one row":     {sink: 8, recent: 8, align: 16, lens: []int{97}, rows: 1, group: 16},
	"unaligned":   {sink: 5, recent: 30, lens: []int{140}, rows: 40, group: 16},
	"no edges":    {lens: []int{100}, align: 128, rows: 20, group: 16},
	"back":        {sink: 16, recent: 16, align: 32, back: 90, lens: []int{230}, rows: 60, group: 32},
	"drop":        {sink: 4, recent: 16, align: 32, drop: .4, spanSink: 10, lens: []int{230}, rows: 60, group: 32},
	"full":        {sink: 16, recent: 64, align: 64, full: true, lens: []int{300}, rows: 100, group: 64},
	"long window": {sink: 70, recent: 130, align: 64, lens: []int{330}, rows: 64, group: 64},
}

func marginCases() []testCase {
	var cases []testCase
	add := func(op, name string, c marginCase, make func(c *marginCase, b *bed) job) {
		at := fmt.Sprintf("op=%s/%s/heads=%d of %d/dim=%d/block=%d/gap=%v/twice=%d/odd=%v", op, name, c.kvHeads, c.heads, c.dim, c.block, c.margin, c.twice, c.odd)
		cases = append(cases, testCase{at, func(b *bed) job { return make(&c, b) }})
	}
	for name, a := range marginPlans {
		for _, s := range [][3]int{{4, 2, 16}, {4, 4, 20}, {3, 1, 64}} {
			c := marginCase{attention: a, block: a.group / 4, margin: .5}
			c.heads, c.kvHeads, c.dim, c.selected = s[0], s[1], s[2], device.Tokens
			add("AnchorMax", name, c, (*marginCase).anchorMax)
			add("WithinMargin", name, c, (*marginCase).withinMargin)
			add("MeanRows", name, c, (*marginCase).meanRows)
			c.block, c.twice = a.group, a.sink+40
			add("MeanRows", name, c, (*marginCase).meanRows)
			add("WithinMargin", name, c, (*marginCase).withinMargin)
			c.odd, c.full, c.twice = true, true, 0
			add("AnchorMax", name, c, (*marginCase).anchorMax)
			for _, gap := range []float64{math.Inf(-1), 1.3, math.Inf(1)} {
				c.margin = gap
				add("WithinMargin", name, c, (*marginCase).withinMargin)
			}
		}
	}
	return cases
}

// fill makes the numbers.
func (c *marginCase) fill(b *bed) {
	c.q = nil
	c.random(b)
	for s := range c.lens {
		for j := 7; c.odd && j < c.lens[s]; j += 11 {
			c.at(c.k, s, j, 0)[j%c.dim] = float32(math.NaN())
		}
	}
}

// score is q·k/√dim of a query and a head, NaN for a key that is not a number.
func (c *marginCase) score(q []float32, h, slot, j int) float64 {
	var s float64
	for i, k := range c.at(c.k, slot, j, h*c.kvHeads/c.heads) {
		s += float64(q[i]) * float64(k)
	}
	return s / math.Sqrt(float64(c.dim))
}

// anchorMax is the case of AnchorMax.
func (c *marginCase) anchorMax(b *bed) job {
	c.fill(b)
	at := b.attend(&c.attention, b.shuffled(&c.attention))
	rows, dst := c.queryRows(), b.out(c.queryRows(), c.heads)
	want := widen(filled(rows*c.heads, before))
	edges := c.attention
	edges.selected = device.None
	for i := range want {
		r, h := i/c.heads, i%c.heads
		slot, p := c.place(r)
		if c.lens[slot] == 0 {
			continue
		}
		want[i] = math.Inf(-1)
		for j := range p + 1 {
			if s := c.score(c.q[i*c.dim:], h, slot, j); edges.weight(p, j, nil) > 0 && s > want[i] {
				want[i] = s
			}
		}
	}
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Score{Rule: device.AnchorMax, Dst: dst, Q: at.q, KV: at.kv, Plan: at.plan})
		},
		expect: []expectation{{name: "dst", got: dst, want: want, bound: 2e-6, scale: 4}},
	}
}

// blockOf is the number of a row's block of n positions.
func (c *marginCase) blockOf(r, n int) int {
	slot, p := c.place(r)
	if c.rows == 0 {
		return slot
	}
	return p/n - (c.lens[0]-c.rows)/n
}

// meanRows is the case of MeanRows, of rows of a shape that attention does not
// have.
func (c *marginCase) meanRows(b *bed) job {
	const width = 2 * 9
	c.fill(b)
	rows := c.queryRows()
	x, blocks := b.normal(rows*width), c.blockOf(rows-1, c.block)+1
	want, count := widen(filled(blocks*width, before)), make([]float64, blocks)
	for r := range rows {
		if slot, _ := c.place(r); c.lens[slot] == 0 {
			continue
		}
		at := c.blockOf(r, c.block)
		for i := range width {
			if count[at] == 0 {
				want[at*width+i] = 0
			}
			want[at*width+i] += float64(x[r*width+i])
		}
		count[at]++
	}
	for i := range want {
		if n := count[i/width]; n > 0 {
			want[i] /= n
		}
	}
	kv := b.cache(&c.attention, b.shuffled(&c.attention))
	in, dst := b.f32(x, rows, 2, 9), b.out(blocks, 2, 9)
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Summarize{Rule: device.MeanRows, Dst: dst, X: in, KV: kv, Block: c.block})
		},
		expect: []expectation{{name: "dst", got: dst, want: want, bound: 2e-6, scale: 1}},
	}
}

// withinMargin makes tensors until no position is so near the margin that
// rounding decides it.
func (c *marginCase) withinMargin(b *bed) job {
	rows, limit := c.queryRows(), c.longest()+3
	blocks, groups := c.blockOf(rows-1, c.block)+1, c.blockOf(rows-1, c.group)+1
	var q, top []float32
	index, count := filledI32(groups*c.heads*limit, -9), filledI32(groups*c.heads, -9)
	weight := widen(filled(len(index), before))
	for sound := false; !sound; {
		sound = true
		c.fill(b)
		q, top = b.normal(blocks*c.heads*c.dim), b.normal(blocks*c.heads)
		for i := range count {
			near, clear := c.wanted(i/c.heads, i%c.heads, q, top)
			sound = sound && clear
			if near == nil {
				continue
			}
			count[i] = 0
			for j, w := range near {
				if w > 0 {
					index[i*limit+int(count[i])], weight[i*limit+int(count[i])] = int32(j), w
					count[i]++
				}
			}
			for j := int(count[i]); j < limit; j++ { // of numbers not taken
				index[i*limit+j], weight[i*limit+j] = -9, before
			}
		}
	}
	at := b.attend(&c.attention, b.shuffled(&c.attention))
	means, tops := b.f32(q, blocks, c.heads, c.dim), b.f32(top, blocks, c.heads)
	l := device.List{Group: c.group, Index: b.i32(filledI32(len(index), -9), groups, c.heads, limit), Count: b.i32(filledI32(len(count), -9), groups, c.heads)}
	expect := []expectation{{name: "count", got: l.Count, ids: count}, {name: "index", got: l.Index, ids: index}}
	if c.twice > 0 {
		l.Weight = b.out(groups, c.heads, limit)
		expect = append(expect, expectation{name: "weight", got: l.Weight, want: weight})
	}
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Select{Rule: device.WithinMargin, List: l, Q: means, Scores: tops, KV: at.kv, Plan: at.plan, Rows: max(c.rows, 1), Block: c.block, Below: float32(c.margin), Twice: c.twice})
		},
		expect: expect,
	}
}

// wanted is the weight of each position on a group's list, nil for an idle slot;
// sound is false where rounding could decide.
func (c *marginCase) wanted(g, h int, q, top []float32) (weight []float64, sound bool) {
	first, blocks := -1, map[int]bool{}
	for r := range c.queryRows() {
		if c.blockOf(r, c.group) == g {
			if first < 0 {
				first = r
			}
			blocks[c.blockOf(r, c.block)] = true
		}
	}
	slot, p := c.place(first)
	if c.lens[slot] == 0 {
		return nil, true
	}
	everything, edges := c.attention, c.attention
	everything.selected, edges.selected = device.All, device.None
	weight, sound = make([]float64, p+1), true
	for j := range weight {
		if everything.weight(p, j, nil) == 0 || edges.weight(p, j, nil) > 0 {
			continue
		}
		near := false
		for at := range blocks {
			x := at*c.heads + h
			off := float64(top[x]) - c.score(q[x*c.dim:], h, slot, j)
			near = near || off <= c.margin
			sound = sound && !(math.Abs(off-c.margin) < 1e-4)
		}
		if near {
			weight[j] = 1
		}
		if j < c.twice {
			weight[j]++
		}
	}
	return weight, sound
}
