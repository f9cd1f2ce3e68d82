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

// mirrorKernels are the kernels of MirrorScores on tensor cores by bits and head dimension.
var mirrorKernels = map[[2]int]string{
	{4, 64}: "mirror_decode_q4_64", {4, 128}: "mirror_decode_q4_128",
	{8, 64}: "mirror_decode_q8_64", {8, 128}: "mirror_decode_q8_128",
}

// maxMirrorPool is the limit of the heads of a kv head whose scores they pool.
const maxMirrorPool = 8

// mirrorHeads is the query heads that the kernel mirror_scores takes at a time.
const mirrorHeads = 4

// mirrorScratch is the bytes of shared memory for their queries.
func mirrorScratch(dim int) int { return 4 * mirrorHeads * (dim + dim/4 + 1) }

// mirrorScores scores low-bit keys.
func (o *ops) mirrorScores(c *device.Score) {
	if o.mirrorDecode(c) {
		return
	}
	rows, kvHeads, dim := c.Q.Dim(0), c.KV.K.Dim(1), c.Q.Dim(2)
	parts := max(1, min(8*o.d.drv.multiprocessors()/max(rows*kvHeads, 1), ceil(c.KV.Pages.Dim(1), 256/device.PageLen)))
	o.mirrorLaunch("mirror_scores", c).runShared(blocks{parts, kvHeads, rows}, 256, mirrorScratch(dim))
}

// mirrorDecode is mirrorScores on tensor cores, if its kernels take the call. Dst may be pooled.
func (o *ops) mirrorDecode(c *device.Score) bool {
	dim, kvHeads := c.Q.Dim(2), c.KV.K.Dim(1)
	name, ok := mirrorKernels[[2]int{device.MirrorBits(dim, c.Keys.Dim(2)), dim}]
	if !ok || !o.aligned(c.Keys) || pooled(c) && c.Q.Dim(1)/kvHeads > maxMirrorPool {
		return false
	}
	o.mirrorLaunch(name, c).pdlEarly().run(o.keyParts(c.Q.Dim(0), kvHeads, c.KV.Pages.Dim(1), keysWarps/2), 32*keysWarps)
	return true
}

// mirrorLaunch starts a launch of one of the kernels of MirrorScores.
func (o *ops) mirrorLaunch(name string, c *device.Score) *launch {
	return o.launch(name).tensor(c.Dst).tensor(c.Q).mirror(c.Keys, c.Q.Dim(2)).int(c.Q.Dim(1), c.Dst.Dim(2)).
		bool(c.Region == device.SelectedRegion).bool(pooled(c)).
		pages(c.KV, device.RowsPerSlot("MirrorScores", c.Q.Dim(0), c.KV)).plan(c.Plan)
}

// mirror appends the MirrorKeys of keys, which may be absent.
func (c *launch) mirror(keys device.Tensor, dim int) *launch {
	if keys.Absent() {
		return c.word(0).int(0, 0, 0).float(0)
	}
	words, block := keys.Dim(2), device.MirrorBlock(dim)
	return c.tensor(keys).int(words-1, device.MirrorBits(dim, words), block).float(float64(float32(1 / (float64(block) * math.Sqrt(float64(dim))))))
}
