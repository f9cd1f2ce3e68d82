//go:build cuda || cudaemu

package cuda

import (
	"math"

	"github.com/gollm/gollm/device"
)

// keyMirror keeps low-bit copies of the newest keys.
func (o *ops) keyMirror(c *device.Summarize) {
	dim, words := c.KV.K.Dim(3), c.Dst.Dim(2)
	o.launch("key_mirror").tensor(c.Dst).int(words-1, device.MirrorBits(dim, words), device.MirrorBlock(dim)).pages(c.KV, c.Rows).
		runShared(blocks{c.Rows, c.KV.K.Dim(1), c.KV.Len.Dim(0)}, 64, 4*dim)
}

// mirrorHeads is the query heads that the kernel mirror_scores takes at a time.
const mirrorHeads = 4

// mirrorScores scores low-bit keys.
func (o *ops) mirrorScores(c *device.Score) {
	rows, heads, dim, words := c.Q.Dim(0), c.Q.Dim(1), c.Q.Dim(2), c.Keys.Dim(2)
	block, kvHeads := device.MirrorBlock(dim), c.KV.K.Dim(1)
	parts := max(1, min(8*o.d.drv.multiprocessors()/max(rows*kvHeads, 1), ceil(c.KV.Pages.Dim(1), 256/device.PageLen)))
	o.launch("mirror_scores").tensor(c.Dst).tensor(c.Q).tensor(c.Keys).int(heads, c.Dst.Dim(2), words-1, device.MirrorBits(dim, words), block).
		bool(c.Region == device.SelectedRegion).float(float64(float32(1/(float64(block)*math.Sqrt(float64(dim)))))).
		pages(c.KV, device.RowsPerSlot("MirrorScores", rows, c.KV)).plan(c.Plan).
		runShared(blocks{parts, kvHeads, rows}, 256, 4*mirrorHeads*(dim+dim/4+1))
}
