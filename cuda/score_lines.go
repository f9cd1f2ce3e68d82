//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// vectorsPerTile is the queries per tile of the kernels of shares.cuh.
const vectorsPerTile = 16

// keyTileSize is the bytes of a KeyTile of shares.cuh.
func keyTileSize(dim int) int { return 4 * (device.PageLen*(dim+1) + vectorsPerTile*dim) }

// headGroups is n groups of size query heads each, from group first on.
type headGroups struct{ size, first, n int }

// softmaxStates computes the softmax state (max, sum) of each query over a plan, in splits of
// the past, into the workspace from byte at on.
func (o *ops) softmaxStates(q device.Tensor, kv device.KV, p device.Plan, g headGroups, splits, at int) {
	perSlot := device.RowsPerSlot("states", q.Dim(0), kv)
	o.launch("softmax_states").tensor(q).work(at).int(q.Dim(1), g.size, splits, g.first).pages(kv, perSlot).plan(p).
		runShared(blocks{ceil(perSlot*g.size, vectorsPerTile) * splits, g.n, kv.Len.Dim(0)}, 256, keyTileSize(q.Dim(2)))
}

// verticalSlash sums softmax weights along columns and diagonals.
func (o *ops) verticalSlash(c *device.Score) {
	rows, heads, dim := c.Q.Dim(0), c.Q.Dim(1), c.Q.Dim(2)
	pages, perPage := c.KV.Pages.Dim(1), rows+device.PageLen-1 // diagonals through a page
	o.inPieces("VerticalSlash", heads, 8*(pages*perPage+rows), func(first, n int) {
		states := 8 * n * pages * perPage // behind the sums of each page's diagonals
		o.softmaxStates(c.Q, c.KV, device.Plan{}, headGroups{1, first, n}, 1, states)
		queue := func(name string, b blocks, shared int) {
			o.launch(name).tensor(c.Dst).tensor(c.Diagonals).tensor(c.Q).work(states).work(0).int(heads, c.Dst.Dim(1), first).
				int(c.ForcedColumns, c.ForcedDiagonals).pages(c.KV, rows).runShared(b, 256, shared)
		}
		queue("vertical_slash", blocks{pages, n, 1}, keyTileSize(dim)+8+8*perPage)
		queue("slash_sums", blocks{min(ceil(pages*device.PageLen, 256), 64), n, 1}, 0)
	})
}

// pooledAgreement reports for each head whether pooled queries and keys predict the column sums.
func (o *ops) pooledAgreement(c *device.Score) {
	heads, words := c.Q.Dim(1), c.Keys.Dim(0)
	o.inPieces("PooledAgreement", heads, 2*8*words, func(first, n int) {
		o.launch("pooled_agreement").tensor(c.Dst).tensor(c.Columns).tensor(c.Q).tensor(c.Keys).work(0).
			int(heads, c.Columns.Dim(1), c.Block, words, first, words).float(c.MaxDivergence).pages(c.KV, 1).
			run(blocks{n, 1, 1}, 256)
	})
}
