package cpu

import "github.com/gollm/gollm/device"

// first is the position of the first of a call's rows in a slot, and ok whether the slot has
// any. The last row is at the slot's length less one.
func (o *ops) first(op string, g *pages, slot, rows int) (pos int, ok bool) {
	n := int(g.lengths[slot])
	if n == 0 {
		return 0, false
	}
	if n < rows || n > g.width*device.PageLen {
		o.d.fail("%s: slot %d has length %d, want %d to %d for %d rows", op, slot, n, rows, g.width*device.PageLen, rows)
		return 0, false
	}
	return n - rows, true
}

// eachRow calls f for every row of a slot that is not idle; first is the position of the
// slot's first row, p that of row r.
func (o *ops) eachRow(op string, kv device.KV, rows int, f func(r, slot, first, p int)) {
	perSlot := device.RowsPerSlot(op, rows, kv)
	g := newPages(kv)
	for r := range rows {
		slot := r / perSlot
		if first, ok := o.first(op, &g, slot, perSlot); ok {
			f(r, slot, first, first+r%perSlot)
		}
	}
}

// positions appends the position of each row to pos, a number below 0 for a row of an idle
// slot.
func (o *ops) positions(op string, kv device.KV, rows int, pos []int) []int {
	g, perSlot := newPages(kv), device.RowsPerSlot(op, rows, kv)
	for r := range rows {
		first, ok := o.first(op, &g, r/perSlot, perSlot)
		if !ok {
			first = -1 - perSlot // every row of the slot is below 0
		}
		pos = append(pos, first+r%perSlot)
	}
	return pos
}

// newestPositions is the position of the newest row of each slot, -1 where the slot is idle,
// has a page outside the cache, or is at limit or beyond, which is a failure. It reuses pos.
func (o *ops) newestPositions(op string, kv device.KV, limit int, pos []int) []int {
	pos = pos[:0]
	g := newPages(kv)
	for slot := range g.lengths {
		p, ok := o.first(op, &g, slot, 1)
		if !ok || !o.hasPages(&g, slot, p+1) {
			p = -1
		}
		if p >= limit {
			o.d.fail("%s: the row at position %d, and room for %d positions", op, p, limit)
			p = -1
		}
		pos = append(pos, p)
	}
	return pos
}

// slotRow is where a query row is: its slot, the position of the slot's first row, and its
// own position, -1 for a row that is skipped.
type slotRow struct{ slot, first, p int }

// slotRow is row i of the perSlot rows of a slot. A position of limit or more, for which
// there is no room in what the call writes, is a failure.
func (o *ops) slotRow(op string, g *pages, slot, i, perSlot, limit int) slotRow {
	skip := slotRow{slot: slot, first: -1, p: -1}
	first, ok := o.first(op, g, slot, perSlot)
	if !ok {
		return skip
	}
	p := first + i
	if p >= limit {
		o.d.fail("%s: the row at position %d, and room for %d positions", op, p, limit)
		return skip
	}
	if !o.hasPages(g, slot, p+1) {
		return skip
	}
	return slotRow{slot: slot, first: first, p: p}
}

// onlyLen is the length of the only slot of a call, 0 for one above limit, which is a
// failure.
func (o *ops) onlyLen(op string, kv device.KV, limit int) int {
	n := int(i32s(kv.Len)[0])
	if n < 0 || n > limit {
		o.d.fail("%s: %d positions, want 0 to %d", op, n, limit)
		return 0
	}
	return n
}
