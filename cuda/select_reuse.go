//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math/bits"

	"github.com/gollm/gollm/device"
)

const (
	scoreBins   = 2048 // of a choice, in selection_cache.cu
	scoreCrowd  = 32
	maxScores   = 8 << 10        // scores that a block keeps for itself; several blocks fit on a multiprocessor
	maxRanks    = 2 << 10        // chosen positions likewise
	reuseBlocks = 4              // of a multiprocessor
	reusePages  = 2              // the fewest that are worth a block
	reuseRing   = 8 * 2 * 4 * 32 // pieces of 16 bytes
)

// memo gives a SelectionCache of heads query heads.
func (c *call) memo(m device.SelectionCache, heads int) *call {
	return c.tensor(m.Query).tensor(m.Entry).tensor(m.Index).tensor(m.Since).tensor(m.Found).tensor(m.Counters).
		int(heads, m.Found.Dim(1), m.Block, m.Index.Dim(2)).bool(m.Relative).bool(m.Chain).float(m.MinCosine).
		int(m.K.Count).float(m.K.Share)
}

// reuseSelection lists what each set reads in the plan's middle: what it finds again, or what
// it chooses now.
func (o *ops) reuseSelection(r *device.ReuseSelection) {
	c, ok := o.choosing(r)
	if !ok {
		return
	}
	slots, sets, pages := r.KV.Len.Dim(0), r.Cache.Found.Dim(1), r.KV.Pages.Dim(1)
	shared := c.shared(pages, r)
	if most := o.room("reuse_selection"); shared > most {
		o.d.keep(fmt.Errorf("ReuseSelection: needs %d bytes of a block's memory, there are %d", shared, most))
		return
	}
	parts := 1
	if slots*sets <= decodeCounts {
		parts = max(1, min(reuseBlocks*o.d.drv.multiprocessors()/max(slots*sets, 1), pages/reusePages))
	}
	o.reuse("reuse_selection", c, r).runShared(blocks{parts, sets, slots}, 256, shared)
}

// choosing is what a block that chooses has room for.
type choosing struct {
	places int // chosen positions and others beside them
	room   int // scores
}

// choosing is the room of a call; false is a failure.
func (o *ops) choosing(r *device.ReuseSelection) (choosing, bool) {
	slots, sets := r.KV.Len.Dim(0), r.Cache.Found.Dim(1)
	c := choosing{places: 1 << bits.Len(uint(r.Cache.Index.Dim(2)+scoreCrowd-1)), room: min(ceil(r.Scores.Dim(2), 2)*2, maxScores)}
	if need := 8 * slots * sets * c.places; c.places > maxRanks && need > workspaceSize {
		o.d.keep(fmt.Errorf("ReuseSelection: needs %d bytes of workspace, there are %d", need, workspaceSize))
		return c, false
	}
	return c, true
}

// first is the bytes of a block's memory that hold keys, and what ranks them after that.
func (c choosing) first() int {
	choose := 4 * scoreBins
	if c.places <= maxRanks {
		choose += 8 * c.places
	}
	return max(16*reuseRing, choose)
}

// shared is the bytes of a block's memory.
func (c choosing) shared(pages int, r *device.ReuseSelection) int {
	m := &r.Cache
	return c.first() + 8*pages + 4*c.room + 4*r.Q.Dim(1)/m.Found.Dim(1)*m.Query.Dim(2) + 12*m.Block
}

// reuse makes a call with a ReuseArgs.
func (o *ops) reuse(name string, by choosing, r *device.ReuseSelection) *call {
	l, w := &r.List, &r.Neighbors
	c := o.call(name).tensor(l.Index).tensor(l.Count).int(l.Index.Dim(2)).memo(r.Cache, r.Q.Dim(1)).
		tensor(r.Scores).tensor(r.Compared).tensor(r.Q)
	if by.places <= maxRanks {
		c.word(0)
	} else {
		c.work(0)
	}
	return c.word(uint64(o.d.counts.at)).int(r.Scores.Dim(2), by.places, by.room, reuseRing).
		int(w.Best.Count).float(w.Best.Share).int(w.Each).bool(w.KeepSlid).pages(r.KV, 1).plan(r.Plan).pdlEarly()
}

// reuseAttendKernels are the kernels that attend as well, by the length of a head.
var reuseAttendKernels = map[int]string{64: "reuse_attend_64", 128: "reuse_attend_128"}

// maxListed is the positions that a block reads, at most, which attends to what it lists.
const maxListed = 4 << 10

// reuseAttend attends to what sets read that are heads which share no keys.
func (o *ops) reuseAttend(dst device.Tensor, r *device.ReuseSelection) bool {
	q, kv, p := r.Q, r.KV, r.Plan
	slots, heads := kv.Len.Dim(0), q.Dim(1)
	name, ok := reuseAttendKernels[q.Dim(2)]
	listed := r.List.Index.Dim(2) + p.Sink + p.Recent + p.Align
	if !ok || kv.K.DType != device.F16 || kv.K.Dim(1) != heads || r.Cache.Found.Dim(1) != heads || p.Mixture || !r.List.Weight.Absent() ||
		slots*heads < 2*o.d.drv.multiprocessors() || listed > maxListed {
		return false
	}
	c, ok := o.choosing(r)
	if !ok {
		return true
	}
	if c.places > maxRanks || r.Scores.Dim(2) > c.room {
		return false
	}
	marks := c.first()
	own := marks + 8*kv.Pages.Dim(1)
	local := own + 8*kv.Pages.Dim(1)
	question := local + 4*max(c.room, ceil(listed, 2)*2)
	records := question + 4*q.Dim(2)
	shared := records + 12*r.Cache.Block
	if shared > o.room(name) {
		return false
	}
	m := &r.Cache
	early := !o.d.stored && o.d.hazards.settled(m.Entry, m.Query, m.Index, m.Since)
	o.reuse(name, c, r).tensor(dst).bool(early).int(listed, marks, own, local, question, records).pdlHold(true).
		runShared(blocks{1, heads, slots}, 256, shared)
	o.decodeWhole(dst, q, kv, p)
	return true
}
