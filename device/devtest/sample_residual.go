package devtest

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// residualCase is a call of ResidualSample in plain Go, and its definition.
type residualCase struct {
	attention
	grouped  bool // head groups are kv heads
	residual device.Residual
	ranked   bool // the plan's list is what TopK makes of scores, and is dropped
}

// residuals are the parameters. Keys are closer together than in
// attention, so that budgets are between a pilot and everything.
var residuals = map[string]device.Residual{
	"plain":   {Pilot: device.Amount{Share: .1}, Eps: .1, Z: 1.96},
	"far":     {Pilot: device.Amount{Count: 5}, Eps: .9, Z: .5},
	"exact":   {Pilot: device.Amount{Share: .05}, Z: 1.96},
	"off":     {Eps: .1, Z: 1.96},
	"values":  {Pilot: device.Amount{Share: .2}, Eps: .8, Z: 1, Values: true},
	"finite":  {Pilot: device.Amount{Share: .1}, Eps: .05, Z: 1.96, Finite: true},
	"fresh":   {Pilot: device.Amount{Share: .1}, Eps: .1, Z: 1.96, Fresh: true},
	"replace": {Pilot: device.Amount{Share: .1}, Eps: .1, Z: 1.96, Replace: true},
	"pilot":   {Pilot: device.Amount{Share: .1}, Eps: 1},
	"listed":  {Pilot: device.Amount{Share: .1}, Eps: .1, Z: 1.96, Listed: true},
	"code":    {Pilot: device.Amount{Share: .1}, Z: 1.96, Listed: true, Replace: true, Fresh: true},
}

// residualPlans are plans that leave positions out, and the calls they are for.
var residualPlans = map[string]attention{
	"none":           {selected: device.None, sink: 3, recent: 9, lens: []int{300}},
	"none/slots":     {selected: device.None, sink: 3, recent: 9, lens: []int{150, 0, 1, 11, 14, 90}},
	"none/prefill":   {selected: device.None, sink: 2, recent: 5, lens: []int{131}, rows: 6},
	"none/back":      {selected: device.None, sink: 3, recent: 9, back: 90, lens: []int{200, 40}},
	"none/drop":      {selected: device.None, sink: 3, recent: 9, drop: .4, spanSink: 5, lens: []int{200, 40}},
	"none/full":      {selected: device.None, sink: 70, recent: 64, full: true, lens: []int{260}},
	"tokens":         {selected: device.Tokens, sink: 4, recent: 20, listHeads: 4, lens: []int{200, 0, 70}},
	"tokens/shared":  {selected: device.Tokens, sink: 4, recent: 20, listHeads: 1, weighted: true, lens: []int{200}},
	"tokens/prefill": {selected: device.Tokens, recent: 1, listHeads: 2, group: 16, lens: []int{150}, rows: 18},
	"tokens/drop":    {selected: device.Tokens, sink: 4, recent: 20, drop: .5, spanSink: 10, listHeads: 4, weighted: true, lens: []int{200}},
	"blocks":         {selected: device.Blocks, listHeads: 4, lens: []int{330, 64, 65}},
	"blocks/prefill": {selected: device.Blocks, listHeads: 1, group: page, recent: page, align: page, lens: []int{195}, rows: 12},
}

// groupHeadless are the rules here whose tensors have no head dimension, see complete.
var groupHeadless = []string{"Score(GroupMax)"}

func residualCases() []testCase {
	var cases []testCase
	for name, tail := range residuals {
		for plan, a := range residualPlans {
			if name != "plain" && name != "listed" && plan != "none" && plan != "tokens/shared" {
				continue
			}
			for _, s := range []struct {
				heads, kvHeads, dim int
				grouped             bool
			}{{4, 2, 64, true}, {4, 4, 20, false}, {8, 2, 128, false}} {
				c := residualCase{attention: a, grouped: s.grouped, residual: tail}
				c.heads, c.kvHeads, c.dim, c.spread = s.heads, s.kvHeads, s.dim, .5
				c.numbered()
				c.residual.Draw = rng.Address{Seed: 1 << 40, Request: 3, Layer: 2}
				cases = append(cases, testCase{fmt.Sprintf("op=ResidualSample/%s/%s/%+v", name, plan, s), c.job})
			}
		}
	}
	for _, dim := range []int{64, 20} {
		best := residualCase{attention: residualPlans["tokens"], grouped: true, residual: residuals["plain"], ranked: true}
		best.heads, best.kvHeads, best.listHeads, best.dim, best.spread = 4, 2, 2, dim, .5
		best.numbered()
		best.residual.Draw = rng.Address{Seed: 1 << 40, Request: 3, Layer: 2}
		cases = append(cases, testCase{fmt.Sprintf("op=TopK ResidualSample/dim=%d", dim), best.job})
	}
	for _, lens := range [][]int{{1}, {130}, {3, 0, 66}} {
		cases = append(cases, testCase{fmt.Sprintf("op=GroupMax/lens=%v", lens), func(b *bed) job { return groupMax(b, lens) }})
	}
	return cases
}

// groups is the number of lists of a row.
func (c *residualCase) groups() int {
	if c.grouped {
		return c.kvHeads
	}
	return c.heads
}

// job makes tensors until no budget is so near an integer that rounding
// decides it.
func (c residualCase) job(b *bed) job {
	var index, count []int32
	var weight []float64
	rows, groups, limit := c.queryRows(), c.groups(), c.longest()+3
	for clear := false; !clear; {
		c.q, c.lists = nil, nil
		c.random(b)
		for i := range c.k {
			if !c.residual.Scored() { // no key is read
				c.k[i] = float32(math.NaN())
			}
		}
		index, count, clear = filledI32(rows*groups*limit, -9), filledI32(rows*groups, -9), true
		weight = widen(filled(len(index), before))
		for i := range count {
			slot, p := c.place(i / groups)
			if c.lens[slot] == 0 {
				continue
			}
			list, sound := c.list(i/groups, i%groups, slot, p)
			clear = clear && sound
			count[i] = int32(len(list))
			for j, e := range list {
				index[i*limit+j], weight[i*limit+j] = int32(e.index), float64(e.weight)
			}
		}
	}
	at := b.attend(&c.attention, b.shuffled(&c.attention))
	c.residual.Requests = b.of(&c.attention)
	l := device.List{Index: b.i32(filledI32(len(index), -9), rows, groups, limit), Count: b.i32(filledI32(len(count), -9), rows, groups), Weight: b.out(rows, groups, limit)}
	sample := device.Sample{Rule: device.ResidualSample, List: l, Q: at.q, KV: at.kv, Plan: at.plan, Residual: c.residual}
	step := func(ops device.Queue) { device.Do(ops, sample) }
	if c.ranked {
		scores := c.ranks(b)
		step = func(ops device.Queue) {
			device.Do(ops, device.Select{Rule: device.TopK, List: at.plan.List, Scores: scores, KV: at.kv, K: device.Amount{Share: 1}})
			device.Do(ops, sample)
			device.Do(ops, device.Discard{List: at.plan.List})
		}
	}
	return job{
		step: step,
		expect: []expectation{
			{name: "count", got: l.Count, ids: count}, {name: "index", got: l.Index, ids: index},
			{name: "weight", got: l.Weight, want: weight, bound: 1e-7, scale: 1},
		},
	}
}

// ranks is scores that are above -Inf for what the case lists.
func (c *residualCase) ranks(b *bed) device.Tensor {
	width := c.longest() + 3
	scores := filled(len(c.lists)*width, float32(math.Inf(-1)))
	for i, l := range c.lists {
		for _, e := range l {
			scores[i*width+e.index] = float32(b.rng.NormFloat64())
		}
	}
	return b.f32(scores, c.queryRows(), c.groups(), width)
}

// list is what a head group of the row at p reads in the selected region; sound is false
// where rounding could decide its budget.
func (c *residualCase) list(r, set, slot, p int) (list []entry, sound bool) {
	everything, edges := c.attention, c.attention
	everything.selected, edges.selected = device.All, device.None
	group := c.heads / c.groups()
	fixed := make([]float64, p+1)
	var tail []int
	for j := range fixed {
		for h := set * group; h < (set+1)*group; h++ {
			fixed[j] = max(fixed[j], c.weight(p, j, c.listOf(r, h)))
		}
		if everything.weight(p, j, nil) > 0 && (fixed[j] == 0 || c.residual.Listed && edges.weight(p, j, nil) == 0) {
			tail = append(tail, j)
		}
	}
	n := len(tail)
	drawn, each, sound := map[int]bool{}, 1.0, true
	switch {
	case c.residual.Pilot == device.Amount{}:
	case n < 2:
		drawn = whole(tail)
	default:
		var b int
		if b, sound = c.budget(r, set, slot, p, fixed, tail); b == n && !c.residual.Replace {
			drawn = whole(tail)
			break
		}
		each = float64(n) / float64(b)
		for _, j := range c.sample(set, slot, p, rng.ForKeys, tail, b) {
			drawn[j] = true
		}
	}
	for j, w := range fixed {
		switch {
		case edges.weight(p, j, nil) > 0:
		case w > 0:
			list = append(list, entry{j, float32(w)})
		case drawn[j]:
			list = append(list, entry{j, float32(each)})
		}
	}
	return list, sound
}

func whole(tail []int) map[int]bool {
	all := map[int]bool{}
	for _, j := range tail {
		all[j] = true
	}
	return all
}

// sample is b positions of a residual, by the random numbers of a head group.
func (c *residualCase) sample(set, slot, p int, use rng.Purpose, tail []int, b int) []int {
	d := c.address(c.residual.Draw, slot)
	d.Head, d.Pos, d.Purpose = uint32(set), uint32(p), use
	shuffle := d.Shuffle(len(tail))
	picked := make([]int, b)
	for i := range picked {
		if c.residual.Replace {
			picked[i] = tail[d.Below(uint32(i), len(tail))]
		} else {
			picked[i] = tail[shuffle.At(i)]
		}
	}
	return picked
}

// budget is the sample size: the largest need of the heads of a group.
func (c *residualCase) budget(r, set, slot, p int, fixed []float64, tail []int) (b int, sound bool) {
	n, use, group := len(tail), rng.ForKeys, c.heads/c.groups()
	if c.residual.Fresh {
		use = rng.ForPilot
	}
	pilot := c.sample(set, slot, p, use, tail, min(n, max(2, c.residual.Pilot.Of(n))))
	sound = true
	switch {
	case c.residual.Eps == 0:
		return n, true
	case c.residual.Z == 0:
		return len(pilot), true
	}
	for h := set * group; h < (set+1)*group; h++ {
		need := c.need(r, h, slot, fixed, pilot, n)
		if need >= float64(n) {
			need = float64(n)
		} else if off := math.Abs(need - math.Round(need)); off < 1e-4*need && need > float64(len(pilot)) {
			sound = false
		}
		b = max(b, int(math.Ceil(need)))
	}
	return max(b, len(pilot)), sound
}

// need is the size of the sample that one head asks for.
func (c *residualCase) need(r, h, slot int, fixed []float64, pilot []int, n int) float64 {
	kvHead := h * c.kvHeads / c.heads
	term := func(j int) (x float64, xv []float64) {
		var s float64
		for i, k := range c.at(c.k, slot, j, kvHead) {
			s += float64(c.q[(r*c.heads+h)*c.dim+i]) * float64(k)
		}
		x = math.Exp(s / math.Sqrt(float64(c.dim)))
		for _, v := range c.at(c.v, slot, j, kvHead) {
			xv = append(xv, x*float64(v))
		}
		return x, xv
	}
	den, num := 0.0, make([]float64, c.dim)
	for j, w := range fixed {
		if w > 0 {
			x, xv := term(j)
			den += w * x
			for i := range num {
				num[i] += w * xv[i]
			}
		}
	}
	xs := make([][]float64, c.dim+1) // of the pilot: x, and x times each dimension of v
	for _, j := range pilot {
		x, xv := term(j)
		xs[0] = append(xs[0], x)
		for i := range xv {
			xs[i+1] = append(xs[i+1], xv[i])
		}
	}
	mean, variance := moments(xs[0])
	spread, eps := float64(n)*math.Sqrt(variance)/(den+float64(n)*mean), c.residual.Eps
	if c.residual.Values {
		var trace, norm float64
		for i := range num {
			mean, variance := moments(xs[i+1])
			trace += variance
			norm += (num[i] + float64(n)*mean) * (num[i] + float64(n)*mean)
		}
		spread, eps = spread+float64(n)*math.Sqrt(trace/norm), eps/2
	}
	need := math.Pow(c.residual.Z*spread/eps, 2)
	if c.residual.Finite {
		need = need * float64(n) / (need + float64(n))
	}
	return need
}

// moments are the mean and the variance of a sample.
func moments(x []float64) (mean, variance float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x)-1)
	}
	return mean, variance
}

func groupMax(b *bed, lens []int) job {
	const heads, kvHeads, width = 6, 2, 140
	a := attention{heads: heads, kvHeads: kvHeads, dim: 4, lens: lens}
	a.random(b)
	kv := b.cache(&a, b.shuffled(&a))
	x := b.normal(len(lens) * heads * width)
	x[1], x[width], x[2] = float32(math.Inf(-1)), float32(math.Inf(-1)), float32(math.NaN())
	in, dst := b.f32(x, len(lens), heads, width), b.out(len(lens), kvHeads, width)
	want := widen(filled(len(lens)*kvHeads*width, before))
	for i := range want {
		if slot := i / width / kvHeads; i%width < lens[slot] {
			want[i] = math.Inf(-1)
			for h := range heads / kvHeads {
				if v := float64(x[(i/width*heads/kvHeads+h)*width+i%width]); v > want[i] {
					want[i] = v
				}
			}
		}
	}
	return job{
		step:   func(ops device.Queue) { device.Do(ops, device.Score{Rule: device.GroupMax, Dst: dst, Q: in, KV: kv}) },
		expect: []expectation{{name: "dst", got: dst, want: want}},
	}
}
