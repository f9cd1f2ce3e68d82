//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math/bits"

	"github.com/gollm/gollm/device"
)

const (
	scoreBins   = 2048 // of a choice, in reuse.cu
	scoreCrowd  = 32
	mostScores  = 8 << 10        // scores that a block keeps for itself; several blocks fit on a multiprocessor
	mostRanks   = 2 << 10        // chosen positions likewise
	reuseBlocks = 4              // of a multiprocessor
	reusePages  = 2              // the fewest that are worth a block
	ownReuse    = 4 << 10        // bytes that the kernel declares
	reuseRing   = 8 * 2 * 4 * 32 // pieces of 16 bytes
)

// memo gives a Memo of heads query heads.
func (c *call) memo(m device.Memo, heads int) *call {
	return c.tensor(m.Query).tensor(m.Entry).tensor(m.Index).tensor(m.Since).tensor(m.Found).tensor(m.Tally).
		int(heads, m.Found.Dim(1), m.Block, m.Index.Dim(2)).bool(m.Relative).bool(m.Chain).float(m.Above).
		int(m.K.Count).float(m.K.Share)
}

// Reuse lists what each set reads in the plan's middle: what it finds again, or what
// it chooses now.
func (o *ops) Reuse(l device.List, m device.Memo, scores, asked, q device.Tensor, kv device.KV, p device.Plan, w device.Widen) {
	const op = "Reuse"
	slots, heads := kv.Len.Dim(0), q.Dim(1)
	device.CheckMemo(op, m, heads, kv)
	device.CheckShape(op, "q", q, device.F32, slots, heads, m.Query.Dim(2))
	device.CheckLike(op, "asked", asked, q)
	device.CheckShape(op, "scores", scores, device.F32, slots, heads, -1)
	sets, pages := m.Found.Dim(1), kv.Pages.Dim(1)
	device.CheckShape(op, "list", l.Index, device.I32, slots, sets, -1)
	device.CheckShape(op, "list count", l.Count, device.I32, slots, sets)
	places := 1 << bits.Len(uint(m.Index.Dim(2)+scoreCrowd-1))
	room := min(ceil(scores.Dim(2), 2)*2, mostScores)
	choose := 4 * scoreBins
	if places <= mostRanks {
		choose += 8 * places
	} else if need := 8 * slots * sets * places; need > workspaceSize {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of workspace, there are %d", op, need, workspaceSize))
		return
	}
	shared := max(16*reuseRing, choose) + 8*pages + 4*room + 4*heads/sets*m.Query.Dim(2) + 12*m.Block
	if most := o.d.drv.sharedMemory() - ownReuse; shared > most {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of a block's memory, there are %d", op, shared, most))
		return
	}
	parts := 1
	if slots*sets <= decodeCounts {
		parts = max(1, min(reuseBlocks*o.d.drv.multiprocessors()/max(slots*sets, 1), pages/reusePages))
	}
	c := o.call("reuse").tensor(l.Index).tensor(l.Count).int(l.Index.Dim(2)).memo(m, heads).
		tensor(scores).tensor(asked).tensor(q)
	if places <= mostRanks {
		c.word(0)
	} else {
		c.work(0)
	}
	c.word(uint64(o.d.counts.at)).int(scores.Dim(2), places, room, reuseRing).
		int(w.Best.Count).float(w.Best.Share).int(w.Near).bool(w.Slid).pages(kv, 1).plan(p).ahead().
		runShared(blocks{parts, sets, slots}, 256, shared)
}
