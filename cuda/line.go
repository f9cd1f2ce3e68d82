//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

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

// expandLines lists what columns and diagonals reach.
func (o *ops) expandLines(l, columns, diagonals device.List, kv device.KV, rows int) {
	const op = "ExpandLines"
	heads, words := l.Index.Dim(1), kv.Pages.Dim(1)
	o.inPieces(op, groups(rows, l.Group)*heads, 8*words, func(first, n int) {
		o.call("expand_lines").tensor(l.Index).tensor(l.Count).work(0).
			int(l.Index.Dim(0), heads, l.Index.Dim(2), l.Group, first, words).list(columns).list(diagonals).pages(kv, rows).
			run(blocks{n, 1, 1}, 128)
	})
}

// meanKeys averages the stored keys of each block of positions.
func (o *ops) meanKeys(dst device.Tensor, kv device.KV, block int) {
	n := dst.Dim(0)
	o.call("mean_keys").tensor(dst).int(n, block).pages(kv, 1).
		run(blocks{min(n, ceil(kv.Pages.Dim(1)*device.PageLen, block)), kv.K.Dim(1), 1}, 128)
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

// topLines lists the blocks of lines with the largest sums.
func (o *ops) topLines(c *device.Select) {
	const op = "TopLines"
	l, x := &c.List, c.Scores
	words := ceil(x.Dim(1), c.Block)
	o.inPieces(op, x.Dim(0), 8*words, func(first, n int) {
		o.call("top_lines").tensor(l.Index).tensor(l.Count).tensor(x).tensor(c.Agreement).work(0).
			int(x.Dim(1), l.Index.Dim(2), c.Block, first, words).float(c.Mass).int(c.Min, c.Max).pages(c.KV, 1).
			run(blocks{n, 1, 1}, 256)
	})
}

// expandBlocks lists pages for each block of rows.
func (o *ops) expandBlocks(c *device.Select) {
	const op = "ExpandBlocks"
	l, kv := &c.List, c.KV
	heads := l.Index.Dim(1)
	rows, words := groups(c.Rows, c.Block), ceil(kv.Pages.Dim(1)*device.PageLen, c.Block)
	o.inPieces(op, heads, 8*rows*words, func(first, n int) {
		call := func(name string, b blocks, threads int) {
			o.call(name).tensor(l.Index).tensor(l.Count).tensor(c.Q).tensor(c.Keys).tensor(c.Agreement).work(0).
				int(l.Index.Dim(0), heads, l.Index.Dim(2), c.Q.Dim(0), c.Keys.Dim(0), c.Block, first, words, rows).
				float(c.Mass).list(c.Columns).list(c.Diagonals).pages(kv, c.Rows).run(b, threads)
		}
		call("pooled_softmax", blocks{rows, n, 1}, 256)
		call("pooled_top", blocks{n, 1, 1}, 1024)
		call("expand_blocks", blocks{rows, n, 1}, 128)
	})
}
