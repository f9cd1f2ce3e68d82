package cpu

import (
	"math/bits"

	"github.com/gollm/gollm/device"
)

// listNeighbors lists the selection of each head group, widened by neighbors where it is a
// cached one.
func (o *ops) listNeighbors(op string, c *device.ReuseSelection, m selectionCache, pos []int) {
	t := &o.tasks.neighbors
	*t = neighborTask{
		selectionCache: m, list: newOutList(c.List), mask: mask{c.Plan}, neighbors: c.Neighbors, pos: pos,
		marks: perWorker(o.pool, t.marks),
	}
	for i, b := range t.marks {
		if need := c.KV.Pages.Dim(1); len(b) < need {
			t.marks[i] = make([]uint64, need)
		}
	}
	o.pool.Run(len(pos)*m.groups, t)
	t.list.checkOverflow(o, op)
}

// neighborTask lists selections: item i is head group i%groups of slot i/groups.
type neighborTask struct {
	selectionCache
	list      outList
	mask      mask
	neighbors device.Neighbors
	pos       []int // by slot; -1 is skipped

	// marks has a bit for each position, by worker; all are zero between items.
	marks [][]uint64
}

// Do lists items lo to hi-1.
func (t *neighborTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		slot, group := i/t.groups, i%t.groups
		if p := t.pos[slot]; p >= 0 {
			marks := t.marks[worker][:p/64+1]
			t.mark(marks, slot, group, p)
			t.list.count[i] = int32(t.collect(row(t.list.index, i, t.list.limit), marks, p))
		}
	}
}

// mark sets the bits of what a head group reads.
func (t *neighborTask) mark(marks []uint64, slot, group, p int) {
	found := int(t.found[slot*t.groups+group])
	if found < 0 {
		_, number := t.blockOf(slot, p)
		for _, j := range t.selected(slot, group, number) {
			setBits(marks, int(j), int(j)+1)
		}
		return
	}
	own := int(t.entryAt(slot, group, found)[0]) - 1
	best := t.neighbors.Best.Of(t.K.Of(own + 1))
	for i, j := range t.selected(slot, group, found) {
		each := 0
		if i < best {
			each = t.neighbors.Each
		}
		setBits(marks, int(j)-each, int(j)+each+1)
	}
	if t.neighbors.KeepSlid {
		setBits(marks, windowStart(t.mask.plan, own), windowStart(t.mask.plan, p))
	}
}

// setBits sets bits [lo, hi), as far as marks has them.
func setBits(marks []uint64, lo, hi int) {
	for j := max(lo, 0); j < min(hi, 64*len(marks)); j++ {
		marks[uint(j)/64] |= 1 << (uint(j) % 64)
	}
}

// collect lists the marked positions of the selected region, clears the marks, and returns how
// many positions it listed.
func (t *neighborTask) collect(dst []int32, marks []uint64, p int) int {
	region := t.mask.region(p)
	n := 0
	for w, word := range marks {
		if word == 0 {
			continue
		}
		marks[w] = 0
		word &= between(w, region[0].lo, region[0].hi) | between(w, region[1].lo, region[1].hi)
		for ; word != 0; word &= word - 1 {
			if n == len(dst) {
				t.list.overflow.Store(true)
				break
			}
			dst[n] = int32(64*w + bits.TrailingZeros64(word))
			n++
		}
	}
	return n
}
