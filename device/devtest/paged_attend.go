package devtest

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

const page = device.PageLen

// attendBound is the error of attention in float32, relative to the largest
// value of the result.
const attendBound = 4e-6

// attentions are the cases of Attend, by name.
func attentions() map[string]attention {
	m := map[string]attention{}
	add := func(name string, a attention) {
		if _, dup := m[name]; dup {
			panic("devtest: case " + name + " twice")
		}
		m[name] = a
	}
	// dense: every shape, around the page
	for _, s := range []struct{ heads, kv, dim int }{{4, 1, 64}, {8, 2, 128}, {3, 3, 80}, {7, 1, 96}, {8, 1, 16}, {6, 2, 8}, {2, 1, 256}, {5, 1, 20}} {
		for _, n := range []int{1, page - 1, page, page + 1, 3*page + 5} {
			for _, full := range []bool{false, true} {
				at := fmt.Sprintf("/heads=%d/kvheads=%d/dim=%d/full=%v/len=%d", s.heads, s.kv, s.dim, full, n)
				add("plan=dense/rows=1"+at, attention{heads: s.heads, kvHeads: s.kv, dim: s.dim, full: full, lens: []int{n}})
				for _, rows := range []int{2, 7, 70} {
					if rows <= n {
						add(fmt.Sprintf("plan=dense/rows=%d%s", rows, at),
							attention{heads: s.heads, kvHeads: s.kv, dim: s.dim, full: full, lens: []int{n}, rows: rows})
					}
				}
			}
		}
	}
	// one long context, split by backends, with a spread softmax and a sharp one
	for _, spread := range []float64{0.1, 1, 8} {
		add(fmt.Sprintf("plan=dense/long/spread=%v/rows=1", spread), attention{heads: 4, kvHeads: 1, dim: 64, lens: []int{2500}, spread: spread})
		add(fmt.Sprintf("plan=dense/long/spread=%v/rows=33", spread), attention{heads: 4, kvHeads: 1, dim: 64, lens: []int{1200}, rows: 33, spread: spread})
	}
	plans := map[string]attention{
		"dense":       {},
		"back":        {back: 70},
		"back1":       {back: 1},
		"spansink":    {back: 40, spanSink: 5},
		"drop":        {drop: 0.3},
		"dropall":     {drop: 1},
		"dropsink":    {drop: 0.5, spanSink: 66, back: 120},
		"stream":      {selected: device.None, sink: 4, recent: 30},
		"streamblock": {selected: device.None, sink: page, recent: 2 * page},
		"nothing":     {selected: device.None},
		"recent1":     {selected: device.None, recent: 1},
		"streamspan":  {selected: device.None, sink: 4, recent: 90, back: 50, spanSink: 2},
		"streamalign": {selected: device.None, sink: 4, recent: 30, align: 16},
		"align0":      {selected: device.None, align: 100},
	}
	for _, l := range []struct {
		name   string
		middle device.Selection
	}{{"blocks", device.Blocks}, {"tokens", device.Tokens}} {
		for _, heads := range []int{8, 2, 1} {
			a := attention{selected: l.middle, listHeads: heads}
			name := fmt.Sprintf("%s/listheads=%d", l.name, heads)
			plans[name] = a
			a.sink, a.recent = 4, 20
			plans[name+"/edges"] = a
			a.group = 16
			plans[name+"/group=16"] = a
			a.align = 16
			plans[name+"/group=16/align=16"] = a
			a.align = 0
			a.weighted, a.back = true, 150
			plans[name+"/group=16/weighted/back"] = a
			a.group, a.mixture, a.back = 0, true, 0
			plans[name+"/mixture"] = a
		}
	}
	for name, a := range plans {
		a.heads, a.kvHeads, a.dim = 8, 2, 64
		for _, lens := range [][]int{{150}, {300}, {3, 0, 130, 190}, {0, 1}} {
			b := a
			b.lens = lens
			add(fmt.Sprintf("plan=%s/decode/lens=%v", name, lens), b)
		}
		for _, rows := range []int{2, 37, 150} {
			b := a
			b.lens, b.rows = []int{230}, rows
			add(fmt.Sprintf("plan=%s/prefill/rows=%d", name, rows), b)
		}
	}
	return m
}

func attendCases() []testCase {
	all := attentions()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	var cases []testCase
	for _, name := range names {
		a := all[name]
		cases = append(cases, testCase{"op=Attend/" + name, func(b *bed) job {
			return attendJob(b, a)
		}})
	}
	return cases
}

// call is the tensors of a case.
type call struct {
	dst, q device.Tensor
	kv     device.KV
	plan   device.Plan
}

// attend fills in the case's numbers and makes its tensors, with the page
// numbers given, [slots][pages].
func (b *bed) attend(a *attention, pages [][]int32) call {
	rows := a.queryRows()
	if a.q == nil {
		a.random(b)
	}
	c := call{dst: b.out(rows, a.heads, a.dim), q: b.f32(a.q, rows, a.heads, a.dim), kv: b.cache(a, pages)}
	c.plan = device.Plan{Sink: a.sink, Recent: a.recent, Align: a.align, Selected: a.selected, Mixture: a.mixture,
		Span: device.Span{Sink: a.spanSink, Back: a.back, Drop: a.drop}}
	if a.listHeads > 0 {
		c.plan.List = b.list(a)
	}
	return c
}

// random fills in queries, keys, values and lists. Keys of positions that are
// multiples of 13 point towards the first query, so that softmax is not flat.
func (a *attention) random(b *bed) {
	if a.spread == 0 {
		a.spread = 1
	}
	a.q = b.normal(a.queryRows() * a.heads * a.dim)
	n := len(a.lens) * a.longest() * a.kvHeads * a.dim
	a.k, a.v = b.normal(n), b.normal(n)
	for i := range a.k {
		a.k[i] *= float32(a.spread)
		if j := i / (a.dim * a.kvHeads); j%13 == 0 {
			a.k[i] += float32(a.spread) * a.q[i%a.dim] / 2
		}
	}
	if a.rise > 0 {
		a.dominateFirst()
	}
	if !a.full {
		_, a.k = halves(a.k)
		_, a.v = halves(a.v)
	}
	if a.listHeads > 0 {
		a.randomLists(b)
	}
}

// randomLists lists about a third of the selected region of each group's last row.
func (a *attention) randomLists(b *bed) {
	groups, n := a.queryRows(), max(a.group, 1)
	if a.rows > 0 {
		groups = (a.lens[0]-1)/n - (a.lens[0]-a.rows)/n + 1
	}
	for g := range groups {
		last := 0
		if a.rows > 0 {
			last = min(a.lens[0], ((a.lens[0]-a.rows)/n+g+1)*n) - 1
		} else {
			last = a.lens[g] - 1
		}
		for range a.listHeads {
			a.lists = append(a.lists, a.randomList(b, last))
		}
	}
}

// randomList is a list for rows up to the one at last. One in eight is empty.
func (a *attention) randomList(b *bed, last int) []entry {
	unit := 1
	if a.selected == device.Blocks {
		unit = page
	}
	var l []entry
	if b.rng.IntN(8) == 0 {
		return l
	}
	for i := (a.sink + unit - 1) / unit; (i+1)*unit-1 <= last-a.recent; i++ {
		if b.rng.IntN(3) == 0 || unit > 1 && b.rng.IntN(2) == 0 {
			w := float32(1)
			if a.weighted || a.mixture {
				w = float32(0.1 + 3*b.rng.Float64())
			}
			l = append(l, entry{i, w})
		}
	}
	return l
}

// list makes the tensors of the case's lists. What lies beyond a count is
// poison: numbers that would be seen in the result.
func (b *bed) list(a *attention) device.List {
	limit := 1
	for _, l := range a.lists {
		limit = max(limit, len(l)+1)
	}
	groups := len(a.lists) / a.listHeads
	index := filledI32(len(a.lists)*limit, 0)
	weight := filled(len(index), float32(math.NaN()))
	var count []int32
	for i, l := range a.lists {
		count = append(count, int32(len(l)))
		for j, e := range l {
			index[i*limit+j], weight[i*limit+j] = int32(e.index), e.weight
		}
	}
	l := device.List{Group: a.group, Index: b.i32(index, groups, a.listHeads, limit), Count: b.i32(count, groups, a.listHeads)}
	if a.weighted || a.mixture {
		l.Weight = b.f32(weight, groups, a.listHeads, limit)
	}
	return l
}

// shuffled gives each slot pages in a random order, with pages between them
// that belong to nobody.
func (b *bed) shuffled(a *attention) [][]int32 {
	per := (a.longest()+page-1)/page + 1
	free := b.rng.Perm(len(a.lens)*per + 3)
	all := make([][]int32, len(a.lens))
	for s := range all {
		for range per {
			all[s] = append(all[s], int32(free[0]))
			free = free[1:]
		}
	}
	return all
}

// cache makes the paged cache of a case. What no row may read is not a
// number: pages of nobody, and positions at and beyond a slot's length.
func (b *bed) cache(a *attention, pages [][]int32) device.KV {
	slots, per := len(a.lens), len(pages[0])
	count := slots*per + 3
	rest := a.rest
	if rest == 0 {
		rest = float32(math.NaN())
	}
	k := filled(count*a.kvHeads*page*a.dim, rest)
	v := slices.Clone(k)
	var table, length []int32
	for s := range slots {
		table, length = append(table, pages[s]...), append(length, int32(a.lens[s]))
		for j := range a.lens[s] {
			for h := range a.kvHeads {
				to := ((int(pages[s][j/page])*a.kvHeads+h)*page + j%page) * a.dim
				copy(k[to:], a.at(a.k, s, j, h))
				copy(v[to:], a.at(a.v, s, j, h))
			}
		}
	}
	kv := device.KV{Pages: b.i32(table, slots, per), Len: b.i32(length, slots)}
	kv.K = b.stored(k, a.full, count, a.kvHeads, page, a.dim)
	kv.V = b.stored(v, a.full, count, a.kvHeads, page, a.dim)
	return kv
}

// stored is a tensor of numbers that are exact in its type, which go with a cache.
func (b *bed) stored(x []float32, full bool, dims ...int) device.Tensor {
	b.t.Helper()
	defer func() { b.first[len(b.first)-1].kept = true }()
	if full {
		return b.f32(x, dims...)
	}
	bits := make([]uint16, len(x))
	for i, v := range x {
		if v != v {
			bits[i] = 0x7e00
			continue
		}
		bits[i] = toHalf(float64(v))
	}
	return b.tensor(device.F16, bits, dims...)
}

// run attends once and gives the bits of the result.
func (b *bed) run(c call) []byte {
	b.t.Helper()
	device.Do(b.d.Queue(), device.Attend{Dst: c.dst, Q: c.q, KV: c.kv, Plan: c.plan})
	b.sync()
	return b.raw(c.dst)
}

// idleRows: the row of an idle slot stays as it is, in Append and Attend.
func idleRows(t *testing.T, d device.Device) {
	b := newBed(t, d)
	a := attention{heads: 4, kvHeads: 2, dim: 64, lens: []int{0, 70, 0}}
	c := b.attend(&a, b.shuffled(&a))
	got := decodeF32(b.run(c))
	n := a.heads * a.dim
	for i, v := range got {
		if idle := i/n != 1; idle && v != before || !idle && v == before {
			t.Fatalf("dst[%d] = %v: idle rows stay, others are written", i, v)
		}
	}
	k := b.raw(c.kv.K)
	x := b.f32(b.normal(3*2*64), 3, 2, 64)
	device.Do(d.Queue(), device.Append{KV: c.kv, K: x, V: x})
	b.sync()
	changed := 0
	for i, v := range b.raw(c.kv.K) {
		if v != k[i] {
			changed++
		}
	}
	if limit := 2 * 64 * 2; changed == 0 || changed > limit {
		t.Errorf("Append with one busy slot changed %d bytes of k, want 1 to %d", changed, limit)
	}
}

// pagesDoNotMatter: which pages hold a sequence changes no bit.
func pagesDoNotMatter(t *testing.T, d device.Device) {
	for _, name := range []string{
		"plan=dense/decode/lens=[3 0 130 190]", "plan=dense/prefill/rows=150",
		"plan=blocks/listheads=2/edges/decode/lens=[300]", "plan=tokens/listheads=8/group=16/prefill/rows=37",
	} {
		a, ok := attentions()[name]
		if !ok {
			t.Fatalf("devtest: no case %s", name)
		}
		b := newBed(t, d)
		want := b.run(b.attend(&a, b.shuffled(&a)))
		for range 3 {
			if !bytes.Equal(b.run(b.attend(&a, b.shuffled(&a))), want) {
				t.Errorf("%s: other pages, other bits", name)
			}
		}
	}
}

// chunksDoNotMatter: a row of a prefill has the same bits whatever chunk of two
// or more rows it arrives in.
func chunksDoNotMatter(t *testing.T, d device.Device) {
	const n = 200
	for _, plan := range []attention{
		{}, {back: 70, spanSink: 3}, {selected: device.None, sink: 4, recent: 50},
	} {
		a := plan
		a.heads, a.kvHeads, a.dim, a.lens, a.rows = 8, 2, 64, []int{n}, n
		b := newBed(t, d)
		pages := b.shuffled(&a)
		want := b.run(b.attend(&a, pages))
		row := len(want) / n
		for _, cut := range []int{2, 3, 63, 64, 65, 101, 198} {
			head, tail := a, a
			head.rows, head.lens, head.q = cut, []int{cut}, a.q[:len(a.q)/n*cut]
			head.k, head.v = a.k[:len(a.k)/n*cut], a.v[:len(a.v)/n*cut]
			tail.rows, tail.q = n-cut, a.q[len(a.q)/n*cut:]
			if !bytes.Equal(b.run(b.attend(&head, pages)), want[:cut*row]) {
				t.Errorf("%+v: the first %d rows alone give other bits", plan, cut)
			}
			if !bytes.Equal(b.run(b.attend(&tail, pages)), want[cut*row:]) {
				t.Errorf("%+v: rows from %d on alone give other bits", plan, cut)
			}
		}
	}
}
