//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math/bits"

	"github.com/gollm/gollm/device"
)

// mostRoom is the bytes of shared memory that a choice takes at most: several blocks
// fit on a multiprocessor.
const mostRoom = 32 << 10

// memo gives a Memo of heads query heads.
func (c *call) memo(m device.Memo, heads int) *call {
	return c.tensor(m.Query).tensor(m.Entry).tensor(m.Index).tensor(m.Since).tensor(m.Found).tensor(m.Tally).
		int(heads, m.Found.Dim(1), m.Block, m.Index.Dim(2)).bool(m.Relative).bool(m.Chain).float(m.Above).
		int(m.K.Count).float(m.K.Share)
}

// Recall sets Found to the entry that each set uses and notes the queries.
func (o *ops) Recall(m device.Memo, q device.Tensor, kv device.KV) {
	const op = "Recall"
	device.CheckShape(op, "q", q, device.F32, kv.Len.Dim(0), -1, -1)
	device.CheckMemo(op, m, q.Dim(1), kv)
	o.call("recall").memo(m, q.Dim(1)).tensor(q).pages(kv, 1).
		run(blocks{m.Found.Dim(1), kv.Len.Dim(0), 1}, 256)
}

// Choose makes an entry of the newest position for every set that found none.
func (o *ops) Choose(m device.Memo, scores, q device.Tensor, kv device.KV, p device.Plan) {
	const op = "Choose"
	slots, heads := kv.Len.Dim(0), q.Dim(1)
	device.CheckMemo(op, m, heads, kv)
	device.CheckShape(op, "q", q, device.F32, slots, heads, m.Query.Dim(2))
	device.CheckShape(op, "scores", scores, device.F32, slots, heads, -1)
	sets := m.Found.Dim(1)
	places := 1 << bits.Len(uint(max(m.Index.Dim(2), 1)-1))
	if need := 8 * slots * sets * places; need > workspaceSize {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of workspace, there are %d", op, need, workspaceSize))
		return
	}
	room := min(8*max(ceil(scores.Dim(2), 2), places), mostRoom)
	call := func(name string, b blocks, threads, shared int) {
		o.call(name).memo(m, heads).tensor(scores).tensor(q).work(0).int(scores.Dim(2), places, room).pages(kv, 1).plan(p).
			runShared(b, threads, shared)
	}
	call("choose_scores", blocks{ceil(kv.Pages.Dim(1)*device.PageLen, scoreChunk), kv.K.Dim(1), slots}, 128, 0)
	call("choose", blocks{sets, slots, 1}, 256, room)
}

// Reuse lists what each set reads in the plan's middle.
func (o *ops) Reuse(l device.List, m device.Memo, kv device.KV, p device.Plan, w device.Widen) {
	const op = "Reuse"
	device.CheckShape(op, "query", m.Query, device.F32, -1, -1, -1)
	heads := m.Query.Dim(1) / max(m.Block, 1)
	device.CheckMemo(op, m, heads, kv)
	slots, sets := kv.Len.Dim(0), m.Found.Dim(1)
	device.CheckShape(op, "list", l.Index, device.I32, slots, sets, -1)
	device.CheckShape(op, "list count", l.Count, device.I32, slots, sets)
	if need := 8 * slots * sets * kv.Pages.Dim(1); need > workspaceSize {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of workspace, there are %d", op, need, workspaceSize))
		return
	}
	o.call("reuse").tensor(l.Index).tensor(l.Count).work(0).int(l.Index.Dim(2)).memo(m, heads).
		int(w.Best.Count).float(w.Best.Share).int(w.Near).bool(w.Slid).pages(kv, 1).plan(p).
		run(blocks{sets, slots, 1}, 256)
}
