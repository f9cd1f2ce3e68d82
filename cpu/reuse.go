package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
)

// memo is a device.SelectionCache with its tensors looked up.
type memo struct {
	device.SelectionCache
	query                             []float32
	entry, index, since, found, tally []int32
	heads, sets, most, dim            int
}

func (o *ops) memo(op string, m device.SelectionCache, heads int, kv device.KV) memo {
	return memo{
		SelectionCache: m, query: f32s(m.Query),
		entry: i32s(m.Entry), index: i32s(m.Index), since: i32s(m.Since), found: i32s(m.Found), tally: i32s(m.Counters),
		heads: heads, sets: m.Found.Dim(1), most: m.Index.Dim(2), dim: m.Query.Dim(2),
	}
}

// place is the block of position p of a slot: where it starts, and the number
// of p in it.
func (m *memo) place(slot, p int) (start, number int) { return m.Origin(p, int(m.since[slot])) }

// record is entry e of a set: position plus one, source, count.
func (m *memo) record(slot, set, e int) []int32 {
	return row(m.entry, (slot*m.sets+set)*m.Block+e, 3)
}

// chosen is what entry e of a set chose, best first.
func (m *memo) chosen(slot, set, e int) []int32 {
	n := min(max(int(m.record(slot, set, e)[2]), 0), m.most)
	return row(m.index, (slot*m.sets+set)*m.Block+e, m.most)[:n]
}

// noted is the query of entry e of a head.
func (m *memo) noted(slot, head, e int) []float32 {
	return row(m.query, (slot*m.heads+head)*m.Block+e, m.dim)
}

// members is the heads of a set.
func (m *memo) members(set int) (lo, hi int) {
	return set * m.heads / m.sets, (set + 1) * m.heads / m.sets
}

// eachNewest calls f for the newest row of every slot that is not idle and
// whose pages are sound.
func (o *ops) eachNewest(op string, kv device.KV, f func(slot, p int)) {
	g := newPages(kv)
	for slot, n := range g.lengths {
		if n == 0 {
			continue
		}
		p, ok := o.first(op, &g, slot, 1)
		for b := 0; ok && b <= p/device.PageLen; b++ {
			ok = o.page(&g, slot, b) >= 0
		}
		if ok {
			f(slot, p)
		}
	}
}

// reuseSelection lists what each set reads in the plan's middle: what it finds again, or what
// it chooses now.
func (o *ops) reuseSelection(l device.List, dm device.SelectionCache, scores, asked, q device.Tensor, kv device.KV, p device.Plan, w device.Neighbors) {
	const op = "Reuse"
	m := o.memo(op, dm, q.Dim(1), kv)
	o.recallSets(op, m, asked, kv)
	o.chooseSets(op, m, scores, q, kv, p)
	o.widenSets(op, l, m, kv, p, w)
}

// recallSets sets Found to the entry that each set uses and notes the queries.
func (o *ops) recallSets(op string, m memo, asked device.Tensor, kv device.KV) {
	queries := f32s(asked)
	o.eachNewest(op, kv, func(slot, p int) {
		_, number := m.place(slot, p)
		rows := row(queries, slot, m.heads*m.dim)
		for set := range m.sets {
			m.found[slot*m.sets+set] = int32(m.recall(slot, set, p, rows))
		}
		for h := range m.heads {
			copy(m.noted(slot, h, number), row(rows, h, m.dim))
		}
	})
}

// recall is the entry that a set uses at position p, -1 for none. q is the
// queries of all heads.
func (m *memo) recall(slot, set, p int, q []float32) int {
	start, number := m.place(slot, p)
	lo, hi := m.members(set)
	for e := number - 1; e >= 0; e-- {
		rec := m.record(slot, set, e)
		if at := int(rec[0]) - 1; at != start+e || at < int(m.since[slot]) {
			continue
		}
		alike := math.Inf(1)
		for h := lo; h < hi; h++ {
			alike = min(alike, cosine(row(q, h, m.dim), m.noted(slot, h, e)))
		}
		if alike > m.MinCosine {
			return int(rec[1])
		}
	}
	return -1
}

// cosine is a·b/(‖a‖·‖b‖), at most 1, and less than any cosine for a vector of
// length zero.
func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	b = b[:len(a)]
	for i, x := range a {
		x, y := float64(x), float64(b[i])
		ab += x * y
		aa += x * x
		bb += y * y
	}
	if aa == 0 || bb == 0 {
		return math.Inf(-1)
	}
	return min(ab/math.Sqrt(aa*bb), 1)
}

// widenSets lists what each set reads in the plan's middle.
func (o *ops) widenSets(op string, l device.List, m memo, kv device.KV, p device.Plan, w device.Neighbors) {
	t := &o.widen
	*t = widenTask{memo: m, plan: p, widen: w, index: i32s(l.Index), count: i32s(l.Count), limit: l.Index.Dim(2),
		pos: o.newest(op, kv, t.pos), marks: t.marks}
	for len(t.marks) < o.pool.Workers() {
		t.marks = append(t.marks, nil)
	}
	for i, b := range t.marks {
		if need := kv.Pages.Dim(1); len(b) < need {
			t.marks[i] = make([]uint64, need)
		}
	}
	o.pool.Run(kv.Len.Dim(0)*m.sets, t)
	if t.cut.Load() {
		o.d.fail("%s: more entries than a list of %d takes", op, t.limit)
	}
}

// newest is the position of the newest row of each slot, -1 for one that is
// skipped; it reuses pos.
func (o *ops) newest(op string, kv device.KV, pos []int) []int {
	pos = pos[:0]
	for range kv.Len.Dim(0) {
		pos = append(pos, -1)
	}
	o.eachNewest(op, kv, func(slot, p int) { pos[slot] = p })
	return pos
}
