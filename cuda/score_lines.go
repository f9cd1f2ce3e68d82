//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

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

// verticalSlash adds up attention weights along columns and diagonals.
func (o *ops) verticalSlash(c *device.Score) {
	const op = "VerticalSlash"
	q, kv := c.Q, c.KV
	rows, heads, dim := q.Dim(0), q.Dim(1), q.Dim(2)
	wide, pages := rows+device.PageLen-1, kv.Pages.Dim(1)
	o.inPieces(op, heads, 8*(pages*wide+rows), func(first, n int) {
		at := 8 * n * pages * wide // what the pages have of diagonals lies before the states
		o.states(q, kv, device.Plan{}, 1, first, n, 1, at)
		call := func(name string, b blocks, shared int) {
			o.call(name).tensor(c.Dst).tensor(c.Diagonals).tensor(q).work(at).work(0).int(heads, c.Dst.Dim(1), first).
				int(c.ForcedColumns, c.ForcedDiagonals).pages(kv, rows).runShared(b, 256, shared)
		}
		call("vertical_slash", blocks{pages, n, 1}, tileSize(dim)+8+8*wide)
		call("slash_sums", blocks{min(ceil(pages*device.PageLen, 256), 64), n, 1}, 0)
	})
}

// pooledAgreement says for each head whether means tell what columns do.
func (o *ops) pooledAgreement(c *device.Score) {
	heads, words := c.Q.Dim(1), c.Keys.Dim(0)
	o.inPieces("PooledAgreement", heads, 2*8*words, func(first, n int) {
		o.call("pooled_agreement").tensor(c.Dst).tensor(c.Columns).tensor(c.Q).tensor(c.Keys).work(0).
			int(heads, c.Columns.Dim(1), c.Block, words, first, words).float(c.MaxDivergence).pages(c.KV, 1).
			run(blocks{n, 1, 1}, 256)
	})
}
