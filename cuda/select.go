//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// selectKeys lists what rows read.
func (o *ops) selectKeys(c *device.Select) {
	switch c.Rule {
	case device.TopK:
		o.topK(c.List, c.Scores, c.KV, c.K)
	case device.TopP:
		o.topP(c.List, c.Scores, c.KV, c.Mass)
	case device.TopBlocks:
		o.topBlocks(c)
	case device.TopParts:
		o.topParts(c)
	case device.TopLines:
		o.topLines(c)
	case device.HeavyHitters:
		o.heavyHitters(c)
	case device.WithinMargin:
		o.withinMargin(c)
	case device.Collisions:
		o.collisions(c.List, c.Hash, c.Q, c.KV, c.Plan)
	case device.ExpandLines:
		o.expandLines(c.List, c.Columns, c.Diagonals, c.KV, c.Rows)
	case device.ExpandBlocks:
		o.expandBlocks(c)
	default:
		device.Unknown("cuda", c)
	}
}

// maxMarks is the bytes of a bit for each position that a choice keeps in shared memory
// at most.
const maxMarks = 32 << 10

// topK lists the k best positions of each row and head.
func (o *ops) topK(l device.List, scores device.Tensor, kv device.KV, k device.Amount) {
	o.rank("TopK", l, scores, kv, k, 0)
}

// topP lists the best positions of each row and head until they hold a share of
// the row's mass.
func (o *ops) topP(l device.List, scores device.Tensor, kv device.KV, share float64) {
	o.rank("TopP", l, scores, kv, device.Amount{}, share)
}

func (o *ops) rank(op string, l device.List, scores device.Tensor, kv device.KV, k device.Amount, mass float64) {
	rows, heads, width := scores.Dim(0), scores.Dim(1), scores.Dim(2)
	shared := 8 * kv.Pages.Dim(1)
	marked := shared <= maxMarks
	if !marked {
		shared = 0
	}
	o.call("top_positions").tensor(l.Index).tensor(l.Count).tensor(scores).int(heads, width, l.Index.Dim(2), k.Count).
		float(k.Share, mass).bool(marked).pages(kv, device.RowsPerSlot(op, rows, kv)).
		runShared(blocks{rows, heads, 1}, threadsFor(width, 1024), shared)
}

// pick gives a SelectBlocksArgs of a walk's rows.
func (c *call) pick(l device.List, most int, at newest, p device.BlockBudget, w walk) *call {
	groups, rows := 0, 0
	if most > 0 {
		groups = l.Index.Dim(0)
	}
	if !w.dst.Absent() {
		rows = w.dst.Dim(0)
	}
	return c.tensor(l.Index).tensor(l.Count).tensor(w.dst).int(groups, most, rows, w.width).
		bool(w.dst.DType == device.I32).int(w.slots, p.Count).float(p.Share).bool(p.Free).span(p.Span).pages(at.KV, at.N)
}

// topBlocks lists the blocks with the largest elements.
func (o *ops) topBlocks(c *device.Select) {
	w := walk{dst: c.Scores, width: walkWidth(c.Scores), slots: c.KV.Len.Dim(0)}
	o.call("top_blocks").pick(c.List, c.List.Index.Dim(2), newest{c.KV, c.Rows}, c.Blocks, w).run(blocks{touched(c.Rows), 1, w.slots}, 512)
}

// topParts lists the row's own part and the best of the others.
func (o *ops) topParts(c *device.Select) {
	l, scores := &c.List, c.Scores
	slots, sets := scores.Dim(0), scores.Dim(1)
	o.call("top_subpages").tensor(l.Index).tensor(l.Count).tensor(scores).int(sets, scores.Dim(2), l.Index.Dim(2), c.PerPage).
		int(c.K.Count).float(c.K.Share).int(c.Min).span(c.Plan.Span).pages(c.KV, 1).
		run(blocks{slots, sets, 1}, 256)
}

// heavyHitters lists what stays of the positions before the newest of each slot, and
// drops the others.
func (o *ops) heavyHitters(c *device.Select) {
	l, sum, kv := &c.List, c.Scores, c.KV
	o.call("evict").tensor(l.Index).tensor(l.Count).tensor(sum).tensor(c.Since).int(l.Index.Dim(2), sum.Dim(2)).
		int(c.K.Count).float(c.K.Share).int(c.Recent.Count).float(c.Recent.Share).span(c.Plan.Span).pages(kv, 1).
		run(blocks{kv.K.Dim(1), kv.Len.Dim(0), 1}, 1024)
}

// collisions lists the positions that collide with each row's queries.
func (o *ops) collisions(l device.List, h device.Hash, q device.Tensor, kv device.KV, p device.Plan) {
	const op = "Collisions"
	checkDim(op, q.Dim(2))
	slots, heads := q.Dim(0), q.Dim(1)
	if need := 8 * slots * heads * kv.Pages.Dim(1); need > workspaceSize {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of workspace, there are %d", op, need, workspaceSize))
		return
	}
	call := func(name string, b blocks, threads, shared int) {
		o.call(name).hash(h, kv.K.Dim(1)).tensor(l.Index).tensor(l.Count).tensor(l.Weight).tensor(q).work(0).
			int(heads, l.Index.Dim(2)).pages(kv, 1).plan(p).runShared(b, threads, shared)
	}
	call("lsh_collisions", blocks{heads, parts(kv), slots}, 256, h.Planes.Dim(0))
	call("lsh_list", blocks{heads, slots, 1}, 512, 0)
}
