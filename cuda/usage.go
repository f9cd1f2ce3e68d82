//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// vectors is how many queries the kernels of shares.cuh have in hand.
const vectors = 16

// tileSize is the bytes of a KeyTile of shares.cuh.
func tileSize(dim int) int { return 4 * (device.PageLen*(dim+1) + vectors*dim) }

// states queues what finds the state of each query over a plan, in parts: of sets of
// run heads, n sets from one on. They lie in the workspace from byte at on.
func (o *ops) states(q device.Tensor, kv device.KV, p device.Plan, run, set, n, splits, at int) {
	perSlot := device.RowsPerSlot("states", q.Dim(0), kv)
	o.call("softmax_states").tensor(q).work(at).int(q.Dim(1), run, splits, set).pages(kv, perSlot).plan(p).
		runShared(blocks{ceil(perSlot*run, vectors) * splits, n, kv.Len.Dim(0)}, 256, tileSize(q.Dim(2)))
}

// attentionMass adds the softmax weights of the rows of a call to the sums of the
// positions that they read.
func (o *ops) attentionMass(sum, q device.Tensor, kv device.KV, p device.Plan) {
	const op = "AttentionMass"
	rows, heads, kvHeads := q.Dim(0), q.Dim(1), kv.K.Dim(1)
	splits := 1
	if device.RowsPerSlot(op, rows, kv) == 1 {
		splits = min(parts(kv), 32)
	}
	if need := 8 * rows * heads * splits; need > workspaceSize {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of workspace, there are %d", op, need, workspaceSize))
		return
	}
	o.states(q, kv, p, heads/kvHeads, 0, kvHeads, splits, 0)
	o.call("attention_mass").tensor(sum).tensor(q).work(0).int(heads, splits, sum.Dim(2)).
		pages(kv, device.RowsPerSlot(op, rows, kv)).plan(p).
		runShared(blocks{kv.Pages.Dim(1), kvHeads, kv.Len.Dim(0)}, 256, tileSize(q.Dim(2)))
}

// heavyHitters lists what stays of the positions before the newest of each slot, and
// drops the others.
func (o *ops) heavyHitters(c *device.Select) {
	l, sum, kv := &c.List, c.Scores, c.KV
	o.call("evict").tensor(l.Index).tensor(l.Count).tensor(sum).tensor(c.Since).int(l.Index.Dim(2), sum.Dim(2)).
		int(c.K.Count).float(c.K.Share).int(c.Recent.Count).float(c.Recent.Share).span(c.Plan.Span).pages(kv, 1).
		run(blocks{kv.K.Dim(1), kv.Len.Dim(0), 1}, 1024)
}
