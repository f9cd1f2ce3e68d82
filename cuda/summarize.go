//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// summarize brings an index beside the pages up to date for the newest rows.
func (o *ops) summarize(c *device.Summarize) {
	switch c.Rule {
	case device.SumBlocks:
		o.sumBlocks(c)
	case device.ProjectMeans:
		o.sketch(c, 0, c.Rows)
	case device.ProjectRows:
		o.sketch(c, c.X.Dim(1), device.RowsPerSlot("ProjectRows", c.X.Dim(0), c.KV))
	case device.KeyBounds:
		o.keyBounds(c)
	case device.KeyChannels:
		o.keyChannels(c)
	case device.KeySigns:
		o.keySigns(c)
	case device.KeyMirror:
		o.keyMirror(c)
	case device.KeyHashes:
		o.keyHashes(c)
	case device.MeanRows:
		o.meanRows(c)
	case device.MeanKeys:
		o.meanKeys(c)
	case device.AttentionMass:
		o.attentionMass(c)
	default:
		device.Unknown("cuda", c)
	}
}

// tailBlocks is the maximum of pages that the newest n rows of a slot lie in.
func tailBlocks(n int) int { return tailGroups(n, device.PageLen) }

// tailGroups is the same for groups of other lengths.
func tailGroups(n, group int) int { return (max(n, 1)+group-2)/group + 1 }

// sumBlocks adds rows to the sums of their blocks.
func (o *ops) sumBlocks(c *device.Summarize) {
	heads, dim := c.Dst.Dim(1), c.Dst.Dim(2)
	n := device.RowsPerSlot("SumBlocks", c.X.Dim(0), c.KV)
	o.launch("block_sum").tensor(c.Dst).tensor(c.X).int(heads, c.X.Dim(1), dim).pages(c.KV, n).
		run(blocks{tailBlocks(n), heads * ceil(dim, 32), c.KV.Len.Dim(0)}, 512)
}

// maxSketchDim is the limit of the dimension of what is projected.
const maxSketchDim = 1024

// sketch projects block means, or the newest row of each slot: xHeads is then the heads of X,
// otherwise 0. Few sketches are spread over several thread blocks each.
func (o *ops) sketch(c *device.Summarize, xHeads, rows int) {
	heads, width, dim := c.Dst.Dim(1), c.Basis.Dim(0), c.Basis.Dim(1)
	if dim > maxSketchDim {
		device.Check(false, "Sketch", "basis %v, want rows of at most %d", c.Basis, maxSketchDim)
	}
	n := tailBlocks(rows)
	perHead := min(ceil(width, 8), max(1, 512/(n*heads)))
	o.launch("sketch").tensor(c.Dst).tensor(c.X).tensor(c.Basis).int(heads, xHeads, width, dim, perHead).pages(c.KV, rows).
		run(blocks{n, heads * perHead, c.KV.Len.Dim(0)}, 256)
}

// meanRows averages the rows of blocks of positions.
func (o *ops) meanRows(c *device.Summarize) {
	n := c.X.Len() / max(c.X.Dim(0), 1)
	perSlot := device.RowsPerSlot("MeanRows", c.X.Dim(0), c.KV)
	o.launch("mean_rows").tensor(c.Dst).tensor(c.X).int(c.Dst.Dim(0), n, c.Block).pages(c.KV, perSlot).
		run(blocks{tailGroups(perSlot, c.Block), ceil(n, 256), c.KV.Len.Dim(0)}, 256)
}

// meanKeys averages the stored keys of blocks of positions.
func (o *ops) meanKeys(c *device.Summarize) {
	n := c.Dst.Dim(0)
	o.launch("mean_keys").tensor(c.Dst).int(n, c.Block).pages(c.KV, 1).
		run(blocks{min(n, ceil(c.KV.Pages.Dim(1)*device.PageLen, c.Block)), c.KV.K.Dim(1), 1}, 128)
}

// attentionMass adds the softmax weights of the rows to the sums of the positions that they
// read.
func (o *ops) attentionMass(c *device.Summarize) {
	const op = "AttentionMass"
	rows, heads, kvHeads := c.X.Dim(0), c.X.Dim(1), c.KV.K.Dim(1)
	perSlot, splits := device.RowsPerSlot(op, rows, c.KV), 1
	if perSlot == 1 && o.decodeMass(c, device.Tensor{}) {
		return
	}
	if perSlot == 1 {
		splits = min(pastBlocks(c.KV), 32)
	}
	if !o.fits(op, 8*rows*heads*splits) {
		return
	}
	o.softmaxStates(c.X, c.KV, c.Plan, headGroups{heads / kvHeads, 0, kvHeads}, splits, 0)
	o.launch("attention_mass").tensor(c.Dst).tensor(c.X).work(0).int(heads, splits, c.Dst.Dim(2)).
		pages(c.KV, perSlot).plan(c.Plan).
		runShared(blocks{c.KV.Pages.Dim(1), kvHeads, c.KV.Len.Dim(0)}, 256, keyTileSize(c.X.Dim(2)))
}
