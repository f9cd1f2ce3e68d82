//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// topLines selects the blocks of columns or diagonals with the largest sums.
func (o *ops) topLines(c *device.Select) {
	width := c.Scores.Dim(1)
	words := ceil(width, c.Block)
	o.inPieces("TopLines", c.Scores.Dim(0), 8*words, func(first, n int) {
		o.launch("top_lines").tensor(c.List.Index).tensor(c.List.Count).tensor(c.Scores).tensor(c.Agreement).work(0).
			int(width, c.List.Index.Dim(2), c.Block, first, words).float(c.Mass).int(c.Min, c.Max).pages(c.KV, 1).
			run(blocks{n, 1, 1}, 256)
	})
}

// expandLines lists the positions on columns and diagonals.
func (o *ops) expandLines(c *device.Select) {
	l := &c.List
	heads, words := l.Index.Dim(1), c.KV.Pages.Dim(1)
	o.inPieces("ExpandLines", tailGroups(c.Rows, l.Group)*heads, 8*words, func(first, n int) {
		o.launch("expand_lines").tensor(l.Index).tensor(l.Count).work(0).
			int(l.Index.Dim(0), heads, l.Index.Dim(2), l.Group, first, words).list(c.Columns).list(c.Diagonals).pages(c.KV, c.Rows).
			run(blocks{n, 1, 1}, 128)
	})
}

// expandBlocks lists the pages on blocks of columns and diagonals, and those that pooled
// queries and keys select.
func (o *ops) expandBlocks(c *device.Select) {
	l := &c.List
	heads := l.Index.Dim(1)
	rows, words := tailGroups(c.Rows, c.Block), ceil(c.KV.Pages.Dim(1)*device.PageLen, c.Block)
	o.inPieces("ExpandBlocks", heads, 8*rows*words, func(first, n int) {
		queue := func(name string, b blocks, threads int) {
			o.launch(name).tensor(l.Index).tensor(l.Count).tensor(c.Q).tensor(c.Keys).tensor(c.Agreement).work(0).
				int(l.Index.Dim(0), heads, l.Index.Dim(2), c.Q.Dim(0), c.Keys.Dim(0), c.Block, first, words, rows).
				float(c.Mass).list(c.Columns).list(c.Diagonals).pages(c.KV, c.Rows).run(b, threads)
		}
		queue("pooled_softmax", blocks{rows, n, 1}, 256)
		queue("pooled_top", blocks{n, 1, 1}, 1024)
		queue("expand_blocks", blocks{rows, n, 1}, 128)
	})
}
