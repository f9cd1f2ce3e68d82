package devtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// codeCase is labels of the newest positions of slots, and scores by them.
type codeCase struct {
	attention
	groups, n, levels int   // of Channels
	widths            []int // of the layers of a Net
	relu              bool
	keyGroups         int // of the keys' Net; the queries' has one for each head
}

// codePlans are the plans whose selected region is scored.
var codePlans = map[string]attention{
	"decode":  {selected: device.None, sink: 4, recent: 10, lens: []int{200, 0, 1, 64, 65}},
	"prefill": {selected: device.None, sink: 4, recent: 10, lens: []int{150}, rows: 70},
	"whole":   {selected: device.None, recent: 1, lens: []int{130}, rows: 130},
	"back":    {selected: device.None, sink: 2, recent: 3, back: 70, lens: []int{200, 90}},
	"drop":    {selected: device.None, sink: 2, recent: 3, drop: .4, spanSink: 5, lens: []int{200, 90}},
}

func codeCases() []testCase {
	var cases []testCase
	for name, a := range codePlans {
		for _, s := range []codeCase{
			{groups: 2, n: 4}, {groups: 4, n: 4}, {groups: 2, n: 1}, {groups: 8, n: 5, levels: 16}, {groups: 2, n: 8, levels: 4},
		} {
			c := s
			c.attention = a
			c.heads, c.kvHeads, c.dim = 8, 2, 32
			cases = append(cases, testCase{fmt.Sprintf("op=ChannelScores/%s/groups=%d/n=%d/levels=%d", name, s.groups, s.n, s.levels), c.channelScores})
		}
		for _, s := range []codeCase{
			{keyGroups: 4, widths: []int{32, 48, 32}}, {keyGroups: 2, widths: []int{32, 32}, relu: true},
			{keyGroups: 4, widths: []int{32, 20, 64, 80, 40}}, {keyGroups: 2, widths: []int{20, 16, 7}},
		} {
			if len(s.widths) > 4 && name != "decode" { // a deep net, which knows nothing of plans
				continue
			}
			c := s
			c.attention = a
			c.heads, c.kvHeads, c.dim = 4, 2, s.widths[0]
			cases = append(cases, testCase{fmt.Sprintf("op=SignScores/%s/groups=%d/widths=%v/relu=%v", name, s.keyGroups, s.widths, s.relu), c.signScores})
		}
	}
	return cases
}

// keyRows is the keys of all positions of the slots, [positions of slot 0 ...,
// kvheads, dim], and the call that stores those of one slot.
func (c *codeCase) keyRows(b *bed, kv device.KV, store func(ops device.Queue, x device.Tensor, kv device.KV)) func(ops device.Queue) {
	var calls []func(ops device.Queue)
	for slot, n := range c.lens {
		if n == 0 {
			continue
		}
		var rows []float32
		for j := range n {
			for h := range c.kvHeads {
				rows = append(rows, c.at(c.k, slot, j, h)...)
			}
		}
		x, one := b.f32(rows, n, c.kvHeads, c.dim), kv
		one.Pages, one.Len = kv.Pages.Rows(slot, slot+1), kv.Len.Rows(slot, slot+1)
		part := n / 2 // in two calls, the last of one row where there are many slots
		if len(c.lens) > 1 {
			part = n - 1
		}
		early := one
		early.Len = b.i32([]int32{int32(part)}, 1)
		calls = append(calls, func(ops device.Queue) {
			if part > 0 {
				store(ops, x.Rows(0, part), early)
			}
			store(ops, x.Rows(part, n), one)
		})
	}
	return func(ops device.Queue) {
		for _, call := range calls {
			call(ops)
		}
	}
}

// want is the scores of all rows; what is beyond a row is as before.
func (c *codeCase) want(width int, score func(r, h, slot, j int) float64) []float64 {
	all, edges := c.attention, c.attention
	all.selected = device.All
	want := widen(filled(c.queryRows()*c.heads*width, before))
	for r := range c.queryRows() {
		slot, p := c.place(r)
		for h := range c.heads {
			for j := 0; j <= p; j++ {
				x := math.Inf(-1)
				if all.weight(p, j, nil) > 0 && edges.weight(p, j, nil) == 0 {
					x = score(r, h, slot, j)
				}
				want[(r*c.heads+h)*width+j] = x
			}
		}
	}
	return want
}

// channelScores stores labels and compares them.
func (c codeCase) channelScores(b *bed) job {
	var index []int32
	for range c.groups {
		for _, i := range b.rng.Perm(c.dim)[:c.n] {
			index = append(index, int32(i))
		}
	}
	c.random(b)
	c.redraw(b, index)
	width := c.longest() + 2
	kv := b.cache(&c.attention, b.shuffled(&c.attention))
	ch := device.Channels{Index: b.i32(index, c.groups, c.n), Levels: c.levels}
	labels := b.stored(filled(kv.K.Dim(0)*c.groups*c.n*page, 7), false, kv.K.Dim(0), c.groups, c.n, page)
	store := c.keyRows(b, kv, func(ops device.Queue, x device.Tensor, kv device.KV) {
		device.Do(ops, device.Summarize{Rule: device.KeyChannels, Dst: labels, X: x, Channels: ch, KV: kv})
	})
	dst, q := b.out(c.queryRows(), c.heads, width), b.f32(c.q, c.queryRows(), c.heads, c.dim)
	plan := device.Plan{Sink: c.sink, Recent: c.recent, Selected: device.None, Span: device.Span{Sink: c.spanSink, Back: c.back, Drop: c.drop}}
	return job{
		step: func(ops device.Queue) {
			store(ops)
			device.Do(ops, device.Score{Rule: device.ChannelScores, Dst: dst, Q: q, Keys: labels, Channels: ch, KV: kv, Plan: plan})
		},
		expect: []expectation{{name: "scores", got: dst, scale: 1, bound: 2e-6, want: c.want(width, func(r, h, slot, j int) float64 {
			set := index[h*c.groups/c.heads*c.n:][:c.n]
			key, query := c.label(c.at(c.k, slot, j, h*c.kvHeads/c.heads), set), c.label(c.q[(r*c.heads+h)*c.dim:][:c.dim], set)
			var s float64
			for i := range key {
				s += query[i] * halfValue(toHalf(key[i]))
			}
			return s / math.Sqrt(float64(c.dim))
		})}},
	}
}

// label is the channels of a vector, rounded to levels.
func (c *codeCase) label(x []float32, index []int32) []float64 {
	y, _ := c.rounded(x, index)
	return y
}

// rounded is label, and the minimum distance of a number from being rounded
// otherwise, in steps.
func (c *codeCase) rounded(x []float32, index []int32) (y []float64, gap float64) {
	for _, i := range index {
		y = append(y, float64(x[i]))
	}
	gap = 1
	low, high := slices.Min(y), slices.Max(y)
	if c.levels == 0 || low == high {
		return y, gap
	}
	step := (high - low) / float64(c.levels-1)
	for i, v := range y {
		at := (v - low) / step
		y[i] = low + step*math.RoundToEven(at)
		gap = min(gap, math.Abs(at-math.Floor(at)-.5))
		// and from the half precision number next to it
		if h := math.Abs(y[i]); c.levels > 0 && h > 0 {
			_, e := math.Frexp(h)
			ulps := h / math.Ldexp(1, e-11)
			gap = min(gap, math.Abs(ulps-math.Floor(ulps)-.5))
		}
	}
	return y, gap
}

// redraw replaces vectors of which a number is so near the middle of two
// levels, or of two half precision numbers, that rounding decides.
func (c *codeCase) redraw(b *bed, index []int32) {
	vectors := func(x []float32, heads int) {
		for v := 0; v < len(x)/c.dim; v++ {
			for set := v % heads * c.groups / heads; set < max(v%heads*c.groups/heads+1, (v%heads+1)*c.groups/heads); set++ {
				for one := x[v*c.dim:][:c.dim]; ; {
					if _, gap := c.rounded(one, index[set*c.n:][:c.n]); gap > 2e-3 {
						break
					}
					_, values := halves(b.normal(c.dim))
					copy(one, values)
					set = v % heads * c.groups / heads // all head groups once more
				}
			}
		}
	}
	vectors(c.k, c.kvHeads)
	vectors(c.q, c.heads)
}

// network is a Net in plain Go: weights [head groups][out][in] by layer.
type network struct {
	weight, bias [][]float32
	widths       []int
	groups       int
	relu         bool
}

// network makes a random one.
func (b *bed) network(groups int, c *codeCase) network {
	n := network{widths: c.widths, groups: groups, relu: c.relu}
	for l := range len(c.widths) - 1 {
		w := b.normal(groups * c.widths[l] * c.widths[l+1])
		for i := range w {
			w[i] /= float32(math.Sqrt(float64(c.widths[l])))
		}
		n.weight, n.bias = append(n.weight, w), append(n.bias, b.normal(groups*c.widths[l+1]))
	}
	return n
}

// net is its tensors.
func (b *bed) net(n network) device.Net {
	t := device.Net{Relu: n.relu}
	for l := range n.weight {
		t.Weight[l] = b.f32(n.weight[l], n.groups, n.widths[l+1], n.widths[l])
		t.Bias[l] = b.f32(n.bias[l], n.groups, n.widths[l+1])
	}
	return t
}

// run is the outputs for a vector; near is their minimum distance from zero.
func (n *network) run(set int, v []float32) (x []float64, near float64) {
	x = widen(v)
	for l, w := range n.weight {
		in, out := n.widths[l], n.widths[l+1]
		y := widen(n.bias[l][set*out:][:out])
		for j := range y {
			for i, v := range x {
				y[j] += v * float64(w[(set*out+j)*in+i])
			}
			switch {
			case l == len(n.weight)-1:
			case n.relu:
				y[j] = max(0, y[j])
			default:
				y[j] /= 1 + math.Exp(-y[j])
			}
		}
		x = y
	}
	near = math.Inf(1)
	for _, v := range x {
		near = min(near, math.Abs(v))
	}
	return x, near
}

// signScores stores bit codes and scores them. Networks are made until no output is so near zero
// that rounding decides its sign.
func (c codeCase) signScores(b *bed) job {
	c.random(b)
	var query, key network
	for sound := false; !sound; {
		query, key, sound = b.network(c.heads, &c), b.network(c.keyGroups, &c), true
		for i := 0; i < len(c.q)/c.dim && sound; i++ {
			_, near := query.run(i%c.heads, c.q[i*c.dim:][:c.dim])
			sound = near > 1e-6
		}
		for i := 0; i < len(c.k)/c.dim*c.keyGroups/c.kvHeads && sound; i++ {
			_, near := key.run(i%c.keyGroups, c.k[i*c.kvHeads/c.keyGroups*c.dim:][:c.dim])
			sound = near > 1e-6
		}
	}
	width, bits := c.longest()+2, c.widths[len(c.widths)-1]
	kv := b.cache(&c.attention, b.shuffled(&c.attention))
	qn, kn := b.net(query), b.net(key)
	words := (bits + 31) / 32
	signs := b.i32(filledI32(kv.K.Dim(0)*c.keyGroups*page*words, 99), kv.K.Dim(0), c.keyGroups, page, words)
	store := c.keyRows(b, kv, func(ops device.Queue, x device.Tensor, kv device.KV) {
		device.Do(ops, device.Summarize{Rule: device.KeySigns, Dst: signs, X: x, Net: kn, KV: kv})
	})
	dst, q := b.out(c.queryRows(), c.heads, width), b.f32(c.q, c.queryRows(), c.heads, c.dim)
	plan := device.Plan{Sink: c.sink, Recent: c.recent, Selected: device.None, Span: device.Span{Sink: c.spanSink, Back: c.back, Drop: c.drop}}
	return job{
		step: func(ops device.Queue) {
			store(ops)
			device.Do(ops, device.Score{Rule: device.SignScores, Dst: dst, Q: q, Keys: signs, Net: qn, KV: kv, Plan: plan})
		},
		expect: []expectation{{name: "scores", got: dst, want: c.want(width, func(r, h, slot, j int) float64 {
			x, _ := query.run(h, c.q[(r*c.heads+h)*c.dim:][:c.dim])
			y, _ := key.run(h*c.keyGroups/c.heads, c.at(c.k, slot, j, h*c.kvHeads/c.heads))
			pooledAgreement := 0
			for i := range x {
				if x[i] > 0 == (y[i] > 0) {
					pooledAgreement++
				}
			}
			return float64(2*pooledAgreement - len(x))
		})}},
	}
}
