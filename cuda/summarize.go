//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// summarize brings what is kept of stored keys and queries up to date.
func (o *ops) summarize(c *device.Summarize) {
	switch c.Rule {
	case device.SumBlocks:
		o.sumBlocks(c)
	case device.ProjectMeans:
		o.projectMeans(c)
	case device.ProjectRows:
		o.projectRows(c)
	case device.KeyBounds:
		o.keyBounds(c.Dst, newest{c.KV, c.Rows})
	case device.KeyChannels:
		o.keyChannels(c.Dst, c.X, c.Channels, c.KV)
	case device.KeySigns:
		o.keySigns(c.Dst, c.X, c.Net, c.KV)
	case device.KeyHashes:
		o.keyHashes(c.Hash, c.KV)
	case device.MeanRows:
		o.meanRows(c.Dst, c.X, c.KV, c.Block)
	case device.MeanKeys:
		o.meanKeys(c.Dst, c.KV, c.Block)
	case device.AttentionMass:
		o.attentionMass(c.Dst, c.X, c.KV, c.Plan)
	default:
		device.Unknown("cuda", c)
	}
}

// newest is the newest rows of each slot of a cache.
type newest struct {
	KV device.KV
	N  int // rows
}

// touched is how many blocks the newest n rows of a slot lie in at most.
func touched(n int) int { return (max(n, 1)+device.PageLen-2)/device.PageLen + 1 }

// groups is how many groups of positions the newest n rows of a slot lie in at most.
func groups(n, group int) int { return (max(n, 1)+group-2)/group + 1 }

// sumBlocks adds rows to the sums of their blocks.
func (o *ops) sumBlocks(c *device.Summarize) {
	sum, x, kv := c.Dst, c.X, c.KV
	heads, dim := sum.Dim(1), sum.Dim(2)
	n := device.RowsPerSlot("SumBlocks", x.Dim(0), kv)
	o.call("block_sum").tensor(sum).tensor(x).int(heads, x.Dim(1), dim).pages(kv, n).
		run(blocks{touched(n), heads * ceil(dim, 32), kv.Len.Dim(0)}, 512)
}

// maxWidth is the most dimensions of what is sketched.
const maxWidth = 1024

// projectMeans projects the means of blocks.
func (o *ops) projectMeans(c *device.Summarize) {
	o.sketch(c.Dst, c.X, 0, c.Basis, newest{c.KV, c.Rows})
}

// projectRows projects the newest row of each slot.
func (o *ops) projectRows(c *device.Summarize) {
	n := device.RowsPerSlot("ProjectRows", c.X.Dim(0), c.KV)
	o.sketch(c.Dst, c.X, c.X.Dim(1), c.Basis, newest{KV: c.KV, N: n})
}

// sketch spreads the elements of a sketch over blocks where there are few sketches. of is
// the heads of rows in x, 0 for sums of blocks.
func (o *ops) sketch(dst, x device.Tensor, of int, basis device.Tensor, at newest) {
	if basis.Dim(1) > maxWidth {
		device.Check(false, "Sketch", "basis %v, want rows of at most %d", basis, maxWidth)
	}
	sizes := [4]int{dst.Dim(1), of, basis.Dim(0), basis.Dim(1)}
	n, heads := touched(at.N), sizes[0]
	parts := min(ceil(sizes[2], 8), max(1, 512/(n*heads)))
	o.call("sketch").tensor(dst).tensor(x).tensor(basis).int(sizes[:]...).int(parts).pages(at.KV, at.N).
		run(blocks{n, heads * parts, at.KV.Len.Dim(0)}, 256)
}

// meanRows averages the rows of blocks of positions.
func (o *ops) meanRows(dst, x device.Tensor, kv device.KV, block int) {
	const op = "MeanRows"
	n := x.Len() / max(x.Dim(0), 1)
	if block < 1 || dst.DType != device.F32 || x.DType != device.F32 || dst.Len() != n*dst.Dim(0) {
		device.Check(false, op, "x %v and dst %v in blocks of %d, want f32, rows of one length and blocks of at least 1", x, dst, block)
	}
	perSlot := device.RowsPerSlot(op, x.Dim(0), kv)
	o.call("mean_rows").tensor(dst).tensor(x).int(dst.Dim(0), n, block).pages(kv, perSlot).
		run(blocks{groups(perSlot, block), ceil(n, 256), kv.Len.Dim(0)}, 256)
}

// meanKeys averages the stored keys of each block of positions.
func (o *ops) meanKeys(dst device.Tensor, kv device.KV, block int) {
	n := dst.Dim(0)
	o.call("mean_keys").tensor(dst).int(n, block).pages(kv, 1).
		run(blocks{min(n, ceil(kv.Pages.Dim(1)*device.PageLen, block)), kv.K.Dim(1), 1}, 128)
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
