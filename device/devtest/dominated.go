package devtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// Keys that dominate: one position's score lies so far above the others that
// their probability underflows f32, and they are ranked all the same.

// dominatedReuses are cases of Reuse whose newest keys dominate.
func dominatedReuses(base reuse) map[string]reuse {
	base.rise, base.groups, base.lens, base.steps, base.minCosine = 0.25, 2, []int{206, 0, 150}, 4, 1
	m := map[string]reuse{}
	add := func(name string, change func(r *reuse)) {
		r := base
		change(&r)
		m["dominated "+name] = r
	}
	add("head groups", func(r *reuse) {})
	add("head groups of 64", func(r *reuse) { r.dim = 64 })
	add("head groups of 128", func(r *reuse) { r.heads, r.dim = 8, 128 })
	add("one head group", func(r *reuse) { r.heads, r.kvHeads, r.groups = 5, 1, 1 })
	add("head groups, most of the region selected", func(r *reuse) { r.topK = device.Amount{Share: 0.6} })
	add("head groups and a span", func(r *reuse) { r.drop, r.spanSink, r.keep = 0.5, 8, 12 })
	add("head groups, odd keys", func(r *reuse) { r.odd, r.full, r.minCosine, r.neighbors = true, true, 1, 0 })
	add("head groups, steep", func(r *reuse) { r.rise, r.full = 2, true })
	return m
}

// dominate gives keys scores that rise with their position, by rise for each, and
// the rows' own keys four times as much as the last of the others. The other
// dimensions stay as they are.
func (r *reuse) dominate() {
	for s, n := range r.lens {
		for j := range n {
			x := r.rise * float64(j)
			if j >= n-r.steps {
				x = 4 * r.rise * float64(n)
			}
			for h := range r.kvHeads {
				r.at(r.k, s, j, h)[0] = float32(x)
			}
		}
	}
	for _, q := range append(slices.Clone(r.queries), r.q) {
		for i := 0; i < len(q); i += r.dim {
			q[i] = float32(math.Sqrt(float64(r.dim)))
		}
	}
}

// dominatedLines are cases of VerticalSlash whose first key dominates: where all rows read
// it, the mass of nearly all columns and diagonals underflows f32.
func dominatedLines() []testCase {
	var cases []testCase
	for _, s := range []lineShape{{4, 2, 16, true, 0.5}, {2, 1, 64, false, 1}} {
		for _, call := range [][2]int{{200, 64}, {300, 128}} {
			cases = append(cases, testCase{fmt.Sprintf("op=VerticalSlash/dominated/len=%d/rows=%d/%+v", call[0], call[1], s), func(b *bed) job {
				return verticalSlash(b, call[0], call[1], s, forced{Columns: 2})
			}})
		}
	}
	return cases
}

// dominateFirst gives keys scores that rise with their position, by a.rise for each, and
// the first one a score above them all. The other dimensions stay as they are.
func (a *attention) dominateFirst() {
	rise := a.rise
	for s, n := range a.lens {
		for j := range n {
			x := rise * float64(j-n)
			if j == 0 {
				x = rise * float64(n) / 2
			}
			for h := range a.kvHeads {
				a.at(a.k, s, j, h)[0] = float32(x)
			}
		}
	}
	for i := 0; i < len(a.q); i += a.dim {
		a.q[i] = float32(math.Sqrt(float64(a.dim)))
	}
}

// dominatedMass are calls of AttentionMass whose first key dominates.
func dominatedMass() []testCase {
	var cases []testCase
	for name, a := range map[string]attention{
		"prefill": {lens: []int{200}, rows: 77}, "first": {lens: []int{130}, rows: 130}, "decode": {lens: []int{190, 0, 130}},
		"tokens": {selected: device.Tokens, sink: 3, recent: 9, listHeads: 1, weighted: true, lens: []int{200, 130}},
	} {
		for _, dim := range []int{20, 64} {
			c := a
			c.heads, c.kvHeads, c.dim, c.rise = 4, 2, dim, 0.7
			cases = append(cases, testCase{fmt.Sprintf("op=AttentionMass/dominated/%s/dim=%d", name, dim), func(b *bed) job { return attentionMass(b, c) }})
		}
	}
	return cases
}

// encodedMass is a sum of weights as devices hold it.
func encodedMass(sum float64) float64 {
	switch {
	case sum >= 0x1p-100:
		return sum
	case sum > 0:
		return math.Log2(sum)
	}
	return -math.MaxFloat32
}

// logAdd is ln(exp a + exp b).
func logAdd(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	if math.IsInf(b, -1) {
		return a
	}
	return a + math.Log1p(math.Exp(b-a))
}

// lengths is the length of each list.
func lengths(lists [][]int) []int32 {
	n := make([]int32, len(lists))
	for i, l := range lists {
		n[i] = int32(len(l))
	}
	return n
}

// padded is lists one after the other, with zeros up to width each.
func padded(lists [][]int, width int) []int32 {
	x := make([]int32, len(lists)*width)
	for i, l := range lists {
		for k, j := range l {
			x[i*width+k] = int32(j)
		}
	}
	return x
}
