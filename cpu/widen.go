package cpu

import (
	"math/bits"
	"sync/atomic"

	"github.com/gollm/gollm/device"
)

// widenTask lists sets: item i is set i%sets of slot i/sets.
type widenTask struct {
	memo
	plan  device.Plan
	widen device.Neighbors
	pos   []int // by slot; -1 is skipped

	index, count []int32 // of the list
	limit        int
	cut          atomic.Bool // a list was too short

	// marks has a bit for each position, by worker; all are zero between items.
	marks [][]uint64
}

// Do lists items lo to hi-1.
func (t *widenTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		slot, set := i/t.sets, i%t.sets
		if p := t.pos[slot]; p >= 0 {
			marks := t.marks[worker][:p/64+1]
			t.mark(marks, slot, set, p)
			t.count[i] = int32(t.collect(row(t.index, i, t.limit), marks, p))
		}
	}
}

// mark sets the bits of what a set reads.
func (t *widenTask) mark(marks []uint64, slot, set, p int) {
	found := int(t.found[slot*t.sets+set])
	if found < 0 {
		_, number := t.place(slot, p)
		for _, j := range t.chosen(slot, set, number) {
			setBits(marks, int(j), int(j)+1)
		}
		return
	}
	own := int(t.record(slot, set, found)[0]) - 1
	best := t.widen.Best.Of(t.K.Of(own + 1))
	for i, j := range t.chosen(slot, set, found) {
		near := 0
		if i < best {
			near = t.widen.Each
		}
		setBits(marks, int(j)-near, int(j)+near+1)
	}
	if t.widen.KeepSlid {
		setBits(marks, recent(t.plan, own), recent(t.plan, p))
	}
}

// setBits sets bits [lo, hi) as far as they exist.
func setBits(marks []uint64, lo, hi int) {
	for j := max(lo, 0); j < min(hi, 64*len(marks)); j++ {
		marks[uint(j)/64] |= 1 << (uint(j) % 64)
	}
}

// collect writes the marked positions of the plan's middle, ascending, clears
// the marks and returns how many there were.
func (t *widenTask) collect(dst []int32, marks []uint64, p int) int {
	reach := reach{t.plan}
	middle := reach.middle(p)
	n := 0
	for w, word := range marks {
		if word == 0 {
			continue
		}
		marks[w] = 0
		word &= between(w, middle[0].lo, middle[0].hi) | between(w, middle[1].lo, middle[1].hi)
		for ; word != 0; word &= word - 1 {
			if n == len(dst) {
				t.cut.Store(true)
				break
			}
			dst[n] = int32(64*w + bits.TrailingZeros64(word))
			n++
		}
	}
	return n
}
