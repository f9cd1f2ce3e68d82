package devtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// massPlans are the calls of AttentionMass.
var massPlans = map[string]attention{
	"dense":          {lens: []int{150, 0, 1, 64, 65}},
	"dense/prefill":  {lens: []int{200}, rows: 77},
	"dense/first":    {lens: []int{130}, rows: 130},
	"dense/full":     {full: true, lens: []int{131}, rows: 40},
	"back":           {back: 70, lens: []int{200}, rows: 90},
	"drop":           {drop: 0.4, spanSink: 5, lens: []int{200, 40}},
	"none":           {selected: device.None, sink: 4, recent: 30, lens: []int{150}, rows: 50},
	"tokens":         {selected: device.Tokens, recent: 1, listHeads: 2, lens: []int{300, 0, 70}},
	"tokens/heads":   {selected: device.Tokens, sink: 3, recent: 9, listHeads: 1, weighted: true, lens: []int{300, 130}},
	"blocks/prefill": {selected: device.Blocks, recent: 20, listHeads: 1, group: 16, weighted: true, lens: []int{330}, rows: 33},
}

// hittersHeadless are the rules here whose tensors have no head dimension, see complete.
var hittersHeadless = []string{"Select(HeavyHitters)"}

func massCases() []testCase {
	var cases []testCase
	for name, a := range massPlans {
		for _, s := range []struct{ heads, kvHeads, dim int }{{4, 2, 64}, {6, 2, 20}, {2, 2, 16}} {
			c := a
			c.heads, c.kvHeads, c.dim = s.heads, s.kvHeads, s.dim
			cases = append(cases, testCase{fmt.Sprintf("op=AttentionMass/%s/%+v", name, s), func(b *bed) job { return attentionMass(b, c) }})
		}
	}
	for _, name := range []string{"dense", "drop", "none", "tokens"} {
		for _, s := range []struct{ heads, kvHeads, dim int }{{4, 2, 64}, {12, 2, 64}, {3, 1, 128}, {8, 1, 128}} {
			c := massPlans[name]
			c.heads, c.kvHeads, c.dim = s.heads, s.kvHeads, s.dim
			if name == "none" {
				c.rows, c.lens = 0, []int{150, 0, 20}
			}
			if c.listHeads > c.kvHeads {
				c.listHeads = c.kvHeads
			}
			cases = append(cases, testCase{fmt.Sprintf("op=AttentionMass Attend/%s/%+v", name, s), func(b *bed) job { return massJob(b, c, true) }})
		}
	}
	cases = append(cases, dominatedMass()...)
	for name, k := range evictions {
		cases = append(cases, testCase{"op=HeavyHitters/" + name, k.job})
	}
	return cases
}

// attentionMass runs AttentionMass on sums that are not zero, some of them dropped.
func attentionMass(b *bed, c attention) job { return massJob(b, c, false) }

// massJob is that, and where attends attention over the same positions.
func massJob(b *bed, c attention, attends bool) job {
	at := b.attend(&c, b.shuffled(&c))
	width := c.longest() + 3
	first := make([]float32, len(c.lens)*c.kvHeads*width)
	for i := range first {
		if first[i] = float32(b.rng.Float64()); b.rng.IntN(9) == 0 {
			first[i] = float32(math.Inf(-1))
		} else if c.rise > 0 {
			first[i] = float32(encodedMass(math.Exp2(-160 * float64(first[i]))))
		}
	}
	want := widen(first)
	for i, x := range want {
		if x < 0 {
			want[i] = math.Exp2(x)
		}
		if math.IsInf(x, -1) {
			want[i] = x
		}
	}
	for r := range c.queryRows() {
		slot, p := c.place(r)
		if c.lens[slot] == 0 {
			continue
		}
		for kvHead := range c.kvHeads {
			sum := want[(slot*c.kvHeads+kvHead)*width:][:width]
			sum[p] = 0
			run := c.heads / c.kvHeads
			for h := kvHead * run; h < (kvHead+1)*run; h++ {
				for j, w := range c.shares(r, h, slot, p) {
					sum[j] += w
				}
			}
		}
	}
	for i, x := range want {
		if !math.IsInf(x, -1) {
			want[i] = encodedMass(x)
		}
	}
	sum := b.f32(first, len(c.lens), c.kvHeads, width)
	j := job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Summarize{Rule: device.AttentionMass, Dst: sum, X: at.q, KV: at.kv, Plan: at.plan})
			if attends {
				device.Do(ops, device.Attend{Dst: at.dst, Q: at.q, KV: at.kv, Plan: at.plan})
			}
		},
		expect: []expectation{{name: "sum", got: sum, want: want, bound: attendBound}},
	}
	if attends {
		j.expect = append(j.expect, expectation{name: "dst", got: at.dst, want: c.want(before), bound: attendBound})
	}
	return j
}

// shares is the softmax of a row and head over positions 0 to p, zero where it
// does not read.
func (a *attention) shares(r, h, slot, p int) []float64 {
	x, sum := make([]float64, p+1), 0.0
	for j := range x {
		w := a.weight(p, j, a.listOf(r, h))
		if w == 0 {
			continue
		}
		var s float64
		for i, k := range a.at(a.k, slot, j, h*a.kvHeads/a.heads) {
			s += float64(a.q[(r*a.heads+h)*a.dim+i]) * float64(k)
		}
		x[j] = w * math.Exp(s/math.Sqrt(float64(a.dim)))
		sum += x[j]
	}
	for j := range x {
		if sum > 0 {
			x[j] /= sum
		}
	}
	return x
}

// evictCase is a call of HeavyHitters.
type evictCase struct {
	lens          []int
	since         []int32
	heavy, recent device.Amount
	back          int
	drop          float64
	spanSink      int
	ties          bool
}

var evictions = map[string]evictCase{
	"counts":     {lens: []int{150, 0, 1, 2, 30, 65}, since: []int32{100, 9, 0, 1, 30, 40}, heavy: device.Amount{Count: 20}, recent: device.Amount{Count: 12}},
	"shares":     {lens: []int{150, 90}, since: []int32{100, 90}, heavy: device.Amount{Share: .1}, recent: device.Amount{Share: .3}},
	"no prompt":  {lens: []int{150, 90}, since: []int32{0, 0}, heavy: device.Amount{Share: .1}, recent: device.Amount{Share: .3}},
	"everything": {lens: []int{150}, since: []int32{0}, heavy: device.Amount{Share: 1}},
	"all new":    {lens: []int{150}, since: []int32{0}, recent: device.Amount{Count: 999}},
	"nothing":    {lens: []int{150}, since: []int32{0}},
	"ties":       {lens: []int{200, 201}, since: []int32{0, 0}, heavy: device.Amount{Count: 30}, recent: device.Amount{Count: 3}, ties: true},
	"one more":   {lens: []int{200, 41, 197}, since: []int32{0, 0, 0}, heavy: device.Amount{Count: 195}, recent: device.Amount{Count: 3}, ties: true},
	"back":       {lens: []int{150}, since: []int32{100}, heavy: device.Amount{Count: 30}, recent: device.Amount{Count: 5}, back: 60},
	"drop":       {lens: []int{150}, since: []int32{100}, heavy: device.Amount{Count: 20}, recent: device.Amount{Count: 5}, drop: .5, spanSink: 9},
}

// job runs HeavyHitters twice: what was dropped stays away.
func (k evictCase) job(b *bed) job {
	const kvHeads, dim = 2, 16
	slots := len(k.lens)
	a := attention{heads: kvHeads, kvHeads: kvHeads, dim: dim, lens: k.lens}
	a.k = filled(slots*a.longest()*kvHeads*dim, 0)
	a.v = a.k
	width := a.longest() + 2
	first := make([]float32, slots*kvHeads*width)
	for i := range first {
		first[i] = float32(b.rng.Float64())
		switch {
		case k.ties:
			first[i] = float32(b.rng.IntN(4))
		case b.rng.IntN(9) == 0:
			first[i] = float32(math.Inf(-1))
		case i%50 == 20:
			first[i] = float32(math.NaN())
		}
	}
	want := widen(first)
	index, count := filledI32(len(first), -9), filledI32(slots*kvHeads, -9)
	for i := range count {
		if n := k.lens[i/kvHeads]; n > 0 {
			list := k.evict(want[i*width:][:n-1], int(k.since[i/kvHeads]))
			count[i] = int32(len(list))
			copy(index[i*width:], list)
		}
	}
	sum := b.f32(first, slots, kvHeads, width)
	kv := b.cache(&a, b.shuffled(&a))
	l := device.List{Index: b.i32(filledI32(len(first), -9), slots, kvHeads, width), Count: b.i32(filledI32(slots*kvHeads, -9), slots, kvHeads)}
	since := b.i32(k.since, slots, 1)
	plan := device.Plan{Recent: 1, Selected: device.Tokens, Span: device.Span{Back: k.back, Drop: k.drop, Sink: k.spanSink}}
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Select{Rule: device.HeavyHitters, List: l, Scores: sum, KV: kv, Plan: plan, K: k.heavy, Recent: k.recent, Since: since})
			device.Do(ops, device.Select{Rule: device.HeavyHitters, List: l, Scores: sum, KV: kv, Plan: plan, K: k.heavy, Recent: k.recent, Since: since})
		},
		expect: []expectation{
			{name: "count", got: l.Count, ids: count}, {name: "index", got: l.Index, ids: index}, {name: "sum", got: sum, want: want},
		},
	}
}

// evict is the positions of sums that stay, ascending; the others become -Inf.
func (k evictCase) evict(sum []float64, since int) []int32 {
	p := len(sum)
	best, newest := k.heavy.Of(p), k.recent.Of(p)
	if since > 0 {
		best, newest = k.heavy.Of(since), k.recent.Of(since)
	}
	a := attention{back: k.back, drop: k.drop, spanSink: k.spanSink}
	var old, stay []int32
	for j, x := range sum {
		switch {
		case !(x > math.Inf(-1)) || a.weight(p, j, nil) == 0:
		case j >= p-newest:
			stay = append(stay, int32(j))
		default:
			old = append(old, int32(j))
		}
	}
	slices.SortStableFunc(old, func(i, j int32) int {
		switch {
		case sum[i] > sum[j]:
			return -1
		case sum[i] < sum[j]:
			return 1
		}
		return 0
	})
	stay = append(stay, old[:min(best, len(old))]...)
	slices.Sort(stay)
	for j := range sum {
		if _, found := slices.BinarySearch(stay, int32(j)); !found {
			sum[j] = math.Inf(-1)
		}
	}
	return stay
}
