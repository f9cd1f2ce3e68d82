package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
)

// selectionCache is a device.SelectionCache with its tensors looked up.
type selectionCache struct {
	device.SelectionCache
	query                                []float32 // [slots, heads·Block, dim]
	entry, index, since, found, counters []int32   // see there
	heads, groups, dim                   int
	maxSelected                          int // positions of an entry
}

func newSelectionCache(m device.SelectionCache, heads int) selectionCache {
	return selectionCache{
		SelectionCache: m, query: f32s(m.Query),
		entry: i32s(m.Entry), index: i32s(m.Index), since: i32s(m.Since), found: i32s(m.Found), counters: i32s(m.Counters),
		heads: heads, groups: m.Found.Dim(1), maxSelected: m.Index.Dim(2), dim: m.Query.Dim(2),
	}
}

// blockOf is the block of position p of a slot: its first position, and the number of p in it.
func (m *selectionCache) blockOf(slot, p int) (start, number int) {
	return m.Origin(p, int(m.since[slot]))
}

// entryAt is entry e of the current block of a head group: its position plus one, the entry
// whose selection it uses, and the number of positions that it selected.
func (m *selectionCache) entryAt(slot, group, e int) []int32 {
	return row(m.entry, (slot*m.groups+group)*m.Block+e, 3)
}

// selected is the positions that entry e of a head group selected, best first.
func (m *selectionCache) selected(slot, group, e int) []int32 {
	n := min(max(int(m.entryAt(slot, group, e)[2]), 0), m.maxSelected)
	return row(m.index, (slot*m.groups+group)*m.Block+e, m.maxSelected)[:n]
}

// queryAt is the query of entry e of a head.
func (m *selectionCache) queryAt(slot, head, e int) []float32 {
	return row(m.query, (slot*m.heads+head)*m.Block+e, m.dim)
}

// headsOf is the heads of a head group.
func (m *selectionCache) headsOf(group int) (lo, hi int) {
	return group * m.heads / m.groups, (group + 1) * m.heads / m.groups
}

// reuseSelection lists what each head group reads in the selected region: a cached selection
// with its neighbors, or a new one.
func (o *ops) reuseSelection(c *device.ReuseSelection) {
	const op = "ReuseSelection"
	m, t := newSelectionCache(c.Cache, c.Q.Dim(1)), &o.tasks.refresh
	pos := o.newestPositions(op, c.KV, c.Scores.Dim(2), t.pos)
	m.lookupAll(f32s(c.Compared), pos)
	o.refresh(op, c, m, pos)
	o.listNeighbors(op, c, m, pos)
}

// lookupAll sets Found to the entry that each head group uses, and stores the queries of the
// positions.
func (m *selectionCache) lookupAll(queries []float32, pos []int) {
	for slot, p := range pos {
		if p < 0 {
			continue
		}
		_, number := m.blockOf(slot, p)
		rows := row(queries, slot, m.heads*m.dim)
		for group := range m.groups {
			m.found[slot*m.groups+group] = int32(m.lookup(slot, group, p, rows))
		}
		for h := range m.heads {
			copy(m.queryAt(slot, h, number), row(rows, h, m.dim))
		}
	}
}

// lookup is the entry that a head group uses at position p: the newest whose queries are all
// more similar than MinCosine; -1 for none. q is the queries of all heads.
func (m *selectionCache) lookup(slot, group, p int, q []float32) int {
	start, number := m.blockOf(slot, p)
	lo, hi := m.headsOf(group)
	for e := number - 1; e >= 0; e-- {
		entry := m.entryAt(slot, group, e)
		if at := int(entry[0]) - 1; at != start+e || at < int(m.since[slot]) {
			continue
		}
		similarity := math.Inf(1)
		for h := lo; h < hi; h++ {
			similarity = min(similarity, cosine(row(q, h, m.dim), m.queryAt(slot, h, e)))
		}
		if similarity > m.MinCosine {
			return int(entry[1])
		}
	}
	return -1
}

// cosine is a·b/(‖a‖·‖b‖), at most 1; -Inf for a vector of length zero.
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
