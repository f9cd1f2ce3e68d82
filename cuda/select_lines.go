//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

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
