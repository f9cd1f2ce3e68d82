package devtest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// scorePlans are calls of Scores.
var scorePlans = map[string]attention{
	"dense":          {lens: []int{1, 0, 63, 64, 65, 1100}},
	"dense/prefill":  {lens: []int{150}, rows: 70},
	"edges":          {selected: device.None, sink: 3, recent: 40, lens: []int{200, 30, 44}},
	"edges/prefill":  {selected: device.None, sink: 70, recent: 5, lens: []int{230}, rows: 19},
	"edges/align":    {selected: device.None, sink: 3, recent: 10, align: 16, lens: []int{130}, rows: 18},
	"span":           {selected: device.None, back: 90, spanSink: 2, sink: 120, recent: 7, lens: []int{200, 90}},
	"drop":           {selected: device.None, drop: .4, spanSink: 5, sink: 3, recent: 9, lens: []int{200, 40}},
	"tokens":         {selected: device.Tokens, sink: 4, recent: 20, listHeads: 4, weighted: true, lens: []int{200, 0, 70}},
	"tokens/prefill": {selected: device.Tokens, recent: 1, listHeads: 2, group: 16, lens: []int{150}, rows: 18},
	"listed":         {selected: device.Tokens, back: 90, listHeads: 4, lens: []int{200, 0, 70}},
	"listed/shared":  {selected: device.Tokens, listHeads: 1, group: 16, lens: []int{150}, rows: 18},
	"blocks":         {selected: device.Blocks, sink: 1, recent: 1, listHeads: 1, full: true, lens: []int{330, 64}},
}

// topHeadless are the rules here whose tensors have no head dimension, see complete.
var topHeadless = []string{"Select(TopK)", "Select(TopP)"}

func topCases() []testCase {
	var cases []testCase
	for name, a := range scorePlans {
		for _, s := range [][3]int{{4, 2, 16}, {8, 1, 64}, {6, 2, 128}, {4, 4, 20}} {
			for _, part := range []device.Region{device.Visible, device.SelectedRegion, device.Planned} {
				c := a
				c.heads, c.kvHeads, c.dim = s[0], s[1], s[2]
				if c.listHeads > c.heads {
					c.listHeads = c.heads
				}
				at := fmt.Sprintf("op=ExactScores/%s/%v/part=%d", name, s, part)
				cases = append(cases, testCase{at, func(b *bed) job { return exactScores(b, c, part) }})
				if s[2] >= 64 {
					cases = append(cases, testCase{at + "/pooled", func(b *bed) job { return pooledScores(b, c, part) }})
				}
			}
		}
	}
	for _, c := range []topCase{
		{lens: []int{1}}, {lens: []int{130, 0, 3}}, {lens: []int{90}, rows: 7}, {lens: []int{5000}}, {lens: []int{9001}, rows: 2},
	} {
		for _, values := range []int{2, 30, 1 << 20} {
			c.values = values
			for _, k := range []device.Amount{{}, {Count: 1}, {Count: 40}, {Share: .1}, {Share: .5}, {Share: .999}, {Share: 1}} {
				at := fmt.Sprintf("op=TopK/lens=%v/rows=%d/values=%d/k=%v", c.lens, c.rows, values, k)
				cases = append(cases, testCase{at, func(b *bed) job { return topK(b, c, k) }})
			}
		}
	}
	for _, k := range []int{1, 2, 40} {
		c := topCase{lens: []int{100}, rows: 3, alike: k}
		cases = append(cases, testCase{fmt.Sprintf("op=TopK/alike=%d", k), func(b *bed) job { return topK(b, c, device.Amount{Count: k}) }})
	}
	for _, scores := range hardScoreNames {
		for _, n := range []int{1, 33, 4099} {
			c := topCase{lens: []int{n}, scores: hardScores[scores]}
			for _, k := range []int{1, n/2 + 1, n} {
				at := fmt.Sprintf("op=TopK/scores=%s/len=%d/k=%d", scores, n, k)
				cases = append(cases, testCase{at, func(b *bed) job { return topK(b, c, device.Amount{Count: k}) }})
			}
		}
		c := topCase{lens: []int{4099}, scores: hardScores[scores]}
		cases = append(cases, testCase{"op=TopP/scores=" + scores, func(b *bed) job { return topP(b, c, .7) }})
	}
	long := topCase{lens: []int{128 << 10}}
	cases = append(cases, testCase{"op=TopP/len=128k", func(b *bed) job { return topP(b, long, .5) }})
	for _, values := range []int{3, 1 << 30} {
		c := long
		c.values = values
		cases = append(cases, testCase{fmt.Sprintf("op=TopK/len=128k/values=%d", values), func(b *bed) job { return topK(b, c, device.Amount{Share: .1}) }})
	}
	for _, c := range []topCase{{lens: []int{1}}, {lens: []int{130, 0, 3}}, {lens: []int{90}, rows: 7}, {lens: []int{5000}}} {
		for _, mass := range []float64{.001, .5, .9, .999} {
			at := fmt.Sprintf("op=TopP/lens=%v/rows=%d/mass=%v", c.lens, c.rows, mass)
			cases = append(cases, testCase{at, func(b *bed) job { return topP(b, c, mass) }})
		}
	}
	return cases
}

// exactScores is a call of Scores and its definition.
func exactScores(b *bed, a attention, part device.Region) job {
	return exactScoresOf(b, a, b.attend(&a, b.shuffled(&a)), part)
}

// pooledScores is exactScores whose scores are pooled over the heads of kv heads, and dropped.
func pooledScores(b *bed, a attention, part device.Region) job {
	at := b.attend(&a, b.shuffled(&a))
	return poolJob(b, &a, at.kv, exactScoresOf(b, a, at, part))
}

// poolJob pools the scores that a job expects.
func poolJob(b *bed, a *attention, kv device.KV, j job) job {
	scores, step := j.expect[0], j.step
	width, group := scores.got.Dim(2), a.heads/a.kvHeads
	dst := b.out(a.queryRows(), a.kvHeads, width)
	want, undefined := make([]float64, dst.Len()), make([]bool, dst.Len())
	for i := range want {
		from := i/width*group*width + i%width
		want[i] = math.Inf(-1)
		for h := range group {
			if v := scores.want[from+h*width]; v > want[i] {
				want[i] = v
			}
		}
		undefined[i] = scores.undefined != nil && scores.undefined[from] || scores.want[from] == before
	}
	j.expect[0].got, j.expect[0].want, j.expect[0].undefined = dst, want, undefined
	j.step = func(ops device.Queue) {
		step(ops)
		device.Do(ops, device.Score{Rule: device.GroupMax, Dst: dst, Q: scores.got, KV: kv})
		device.Do(ops, device.Discard{T: scores.got})
	}
	return j
}

// exactScoresOf is exactScores of a call's operands.
func exactScoresOf(b *bed, a attention, at call, part device.Region) job {
	width := a.longest() + 3
	dst := b.out(a.queryRows(), a.heads, width)
	visible := a
	visible.selected = device.All
	want, undefined := widen(filled(dst.Len(), before)), make([]bool, dst.Len())
	for i := range want {
		r, h, j := i/width/a.heads, i/width%a.heads, i%width
		slot, p := a.place(r)
		if j >= a.lens[slot] || j > p {
			undefined[i] = true
			continue
		}
		w := visible.weight(p, j, nil)
		switch newest := p; part {
		case device.SelectedRegion:
			if a.align > 0 {
				newest = p/a.align*a.align - 1
			}
			if j < a.sink || newest-j < a.recent {
				w = 0
			}
		case device.Planned:
			w = a.weight(p, j, a.listOf(r, h))
		}
		want[i] = math.Log(w)
		for e, k := range a.at(a.k, slot, j, h*a.kvHeads/a.heads) {
			want[i] += float64(a.q[(r*a.heads+h)*a.dim+e]) * float64(k) / math.Sqrt(float64(a.dim))
		}
	}
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Score{Rule: device.ExactScores, Dst: dst, Q: at.q, KV: at.kv, Plan: at.plan, Region: part})
		},
		expect: []expectation{{name: "dst", got: dst, want: want, bound: 1e-6, undefined: undefined}},
	}
}

// topCase is a call of TopK.
type topCase struct {
	lens   []int
	rows   int
	values int                    // number of distinct scores: with few there are many ties
	alike  int                    // the place of the middle one of three equal scores, the others being different
	scores func(i, n int) float32 // score i of a row of n, instead of random ones
}

// hardScores are scores that a histogram of their values or bits has a hard time with.
var hardScores = map[string]func(i, n int) float32{
	"equal":    func(int, int) float32 { return -3.5 },
	"denormal": func(i, _ int) float32 { return math.Float32frombits(uint32(i * 7919 % 4099)) },
	"zeros":    func(i, _ int) float32 { return float32(math.Copysign(0, float64(i%3-1))) },
	"infinite": func(i, _ int) float32 { return []float32{1, float32(math.Inf(1)), -1, float32(math.Inf(-1)), 2}[i%5] },
	"nan":      func(i, _ int) float32 { return []float32{float32(math.NaN()), float32(i % 100)}[i%2] },
	"nothing":  func(i, _ int) float32 { return []float32{float32(math.NaN()), float32(math.Inf(-1))}[i%2] },
	"huge":     func(i, _ int) float32 { return (float32(i*7919%4099) - 2000) * 1.6e35 },
	"outlier":  func(i, _ int) float32 { return float32(math.Ldexp(float64(1+i%2*(i*7919%4099)), 60*((i+1)%64/63))) },
	// Of the best few all others are within a bin; what is equal lies at both ends of each eighth of the row.
	"borders": func(i, n int) float32 {
		part := max(n/8, 1)
		if at := i % part; at < 2 || at >= part-2 {
			return 1.5
		}
		return []float32{1, 2}[i*7919%17/16]
	},
}

// hardScoreNames are their names in order.
var hardScoreNames = slices.Sorted(maps.Keys(hardScores))

// topK is a call of TopK and its definition.
func topK(b *bed, c topCase, k device.Amount) job {
	const heads = 2
	a := attention{heads: heads, kvHeads: 1, dim: 4, lens: c.lens, rows: c.rows}
	at := b.attend(&a, b.shuffled(&a))
	rows, width := a.queryRows(), a.longest()
	x := make([]float32, rows*heads*width)
	for i := range x {
		x[i] = float32(b.rng.IntN(max(c.values, 1)) - c.values/2)
		switch b.rng.IntN(16) {
		case 0:
			x[i] = float32(math.Inf(-1))
		case 1:
			x[i] = float32(math.NaN())
		}
	}
	x[len(x)/2] = float32(math.Inf(1))
	for r := 0; c.alike > 0 && r < len(x); r += width {
		for place, j := range b.rng.Perm(width) {
			if place == c.alike-2 || place == c.alike {
				place = c.alike - 1
			}
			x[r+j] = -float32(place)
		}
	}
	for i := range x {
		if c.scores != nil {
			x[i] = c.scores(i%width, width)
		}
	}
	in := b.f32(x, rows, heads, width)
	limit := max(1, k.Of(width))
	index, count := filledI32(rows*heads*limit, -9), filledI32(rows*heads, -9)
	undefined := make([]bool, len(index))
	for i := range count {
		slot, p := a.place(i / heads)
		if c.lens[slot] == 0 {
			continue
		}
		best := ranked(x[i*width:][:p+1])
		best = best[:min(k.Of(p+1), len(best))]
		slices.Sort(best)
		count[i] = int32(len(best))
		copy(index[i*limit:], best)
		for j := len(best); j < limit; j++ {
			undefined[i*limit+j] = true
		}
	}
	l := device.List{Index: b.i32(filledI32(len(index), -9), rows, heads, limit), Count: b.i32(filledI32(len(count), -9), rows, heads)}
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Select{Rule: device.TopK, List: l, Scores: in, KV: at.kv, K: k})
		},
		expect: []expectation{
			{name: "count", got: l.Count, ids: count},
			{name: "index", got: l.Index, ids: index, undefined: undefined},
		},
	}
}

// topP is a call of TopP and its definition. No sum of weights is so near the mass that
// rounding decides.
func topP(b *bed, c topCase, mass float64) job {
	const heads = 2
	a := attention{heads: heads, kvHeads: 1, dim: 4, lens: c.lens, rows: c.rows}
	at := b.attend(&a, b.shuffled(&a))
	rows, width := a.queryRows(), a.longest()
	x := make([]float32, rows*heads*width)
	index, count := filledI32(len(x), -9), filledI32(rows*heads, -9)
	undefined := make([]bool, len(x))
	for i := range count {
		slot, p := a.place(i / heads)
		if c.lens[slot] == 0 {
			continue
		}
		row := x[i*width:][:width]
		var best []int32
		for sound := false; !sound; {
			copy(row, b.normal(width))
			for j := 0; j < width; j += 5 { // what is no number, and ties
				row[j] = [...]float32{float32(math.NaN()), float32(math.Inf(-1)), 1.5, 1.5}[b.rng.IntN(4)]
			}
			if c.scores != nil {
				for j := range row {
					row[j] = c.scores(j, width)
				}
			}
			best, sound = nucleus(row[:p+1], mass)
			sound = sound || c.scores != nil
		}
		slices.Sort(best)
		count[i] = int32(len(best))
		copy(index[i*width:], best)
		for j := len(best); j < width; j++ {
			undefined[i*width+j] = true
		}
	}
	in := b.f32(x, rows, heads, width)
	l := device.List{Index: b.i32(filledI32(len(index), -9), rows, heads, width), Count: b.i32(filledI32(len(count), -9), rows, heads)}
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Select{Rule: device.TopP, List: l, Scores: in, KV: at.kv, Mass: mass})
		},
		expect: []expectation{
			{name: "count", got: l.Count, ids: count},
			{name: "index", got: l.Index, ids: index, undefined: undefined},
		},
	}
}

// nucleus is the best positions whose weights sum to a mass, and whether no sum is so near it
// that rounding decides.
func nucleus(x []float32, mass float64) (best []int32, sound bool) {
	all := ranked(x)
	var total, sum float64
	for _, j := range all {
		total += math.Exp(float64(x[j]) - float64(x[all[0]]))
	}
	for i, j := range all {
		sum += math.Exp(float64(x[j]) - float64(x[all[0]]))
		switch gap := sum/total - mass; {
		case math.Abs(gap) < 1e-6:
			return nil, false
		case gap > 0:
			return all[:i+1], true
		}
	}
	return all, len(all) == 0
}

// ranked is the positions with a score above -Inf, best first, ties to the
// lowest.
func ranked(x []float32) []int32 {
	var all []int32
	for j, v := range x {
		if v > float32(math.Inf(-1)) {
			all = append(all, int32(j))
		}
	}
	slices.SortStableFunc(all, func(i, j int32) int { return cmp.Compare(x[j], x[i]) })
	return all
}
