//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// flashRows is the minimum number of rows per slot for FlashAttention with f16 operands; fewer
// have the precision of f32.
const flashRows = 256

// flashKernels are its kernels by head dimension: rows for few rows and mma for many on any GPU, and for compute capability
// 9.0 wgmma with one and with two consumer warpgroups per block.
var flashKernels = map[int]struct{ rows, mma, wgmma1, wgmma2 string }{
	64:  {"flash_rows_64", "flash_64", "flash_wgmma_1wg_64", "flash_wgmma_64"},
	128: {"flash_rows_128", "flash_128", "flash_wgmma_1wg_128", "flash_wgmma_128"},
}

// suitsFlash reports whether they take a call: a block has a page of rows, which must share a
// list.
func suitsFlash(c *device.Attend) bool {
	_, ok := flashKernels[c.Q.Dim(2)]
	return ok && c.KV.K.DType == device.F16 && !c.Plan.Mixture && (!hasList(c.Plan) || max(c.Plan.List.Group, 1)%device.PageLen == 0)
}

// hasList reports whether a plan reads blocks or positions of a list.
func hasList(p device.Plan) bool { return p.Selected == device.Blocks || p.Selected == device.Tokens }

// flash attends with the rows of one slot on tensor cores.
func (o *ops) flash(c *device.Attend) {
	if o.d.drv.hasWGMMA() {
		o.flashWGMMA(c)
	} else {
		o.flashMMA(c)
	}
}

// flashMMA is flash by mma.sync.
func (o *ops) flashMMA(c *device.Attend) {
	rows, heads, dim := c.Q.Dim(0), c.Q.Dim(1), c.Q.Dim(2)
	o.launch(flashKernels[dim].mma).tensor(c.Dst).tensor(c.Q).int(heads).bool(false).pages(c.KV, rows).plan(c.Plan).
		runShared(blocks{tailBlocks(rows), heads, 1}, 128, flashStages(dim))
}

// flashStages is the shared memory of flash.cu: two stages of K, V, positions and biases.
func flashStages(dim int) int { return 2 * (2*2*device.PageLen*(dim+8) + device.PageLen*(4+4)) }

// flashRowsBlocks is the blocks per multiprocessor that flash_rows splits the past for: its
// registers allow two at a time.
const flashRowsBlocks = 2

// flashFew attends with few rows of one slot on tensor cores, split-K.
func (o *ops) flashFew(c *device.Attend) {
	rows, heads, dim := c.Q.Dim(0), c.Q.Dim(1), c.Q.Dim(2)
	tiles := tailBlocks(rows)
	splits := ceil(flashRowsBlocks*o.d.drv.multiprocessors(), tiles*heads)
	splits = max(1, min(splits, maxSplits, c.KV.Pages.Dim(1), workspaceSize/4/max(rows*heads*(dim+2), 1)))
	o.launch(flashKernels[dim].rows).tensor(c.Dst).tensor(c.Q).int(heads).bool(false).pages(c.KV, rows).plan(c.Plan).work(0).int(splits).
		runShared(blocks{tiles, heads, splits}, 128, flashStages(dim))
	if splits > 1 {
		o.attendMerge(c, splits)
	}
}

// flashWGMMA is flash by wgmma. Two warpgroups share the tiles of K and V where two heads of a
// kv head, or neighbouring tiles of rows, read the same positions.
func (o *ops) flashWGMMA(c *device.Attend) {
	heads, p := c.Q.Dim(1), c.Plan
	byHeads := heads/c.KV.K.Dim(1)%2 == 0 && (!hasList(p) || heads/p.List.Index.Dim(1)%2 == 0)
	names := flashKernels[c.Q.Dim(2)]
	if byHeads || !hasList(p) || p.List.Group%(2*device.PageLen) == 0 {
		o.wgmma(names.wgmma2, c, byHeads, 2)
	} else {
		o.wgmma(names.wgmma1, c, false, 1)
	}
}

// wgmma launches a kernel of flash_wgmma.cu with one or two consumer warpgroups per block, which
// take two heads, or neighbouring tiles of rows.
func (o *ops) wgmma(name string, c *device.Attend, byHeads bool, warpgroups int) {
	rows, heads, dim := c.Q.Dim(0), c.Q.Dim(1), c.Q.Dim(2)
	grid := blocks{(tailBlocks(rows) + 2*warpgroups - 2) / warpgroups, heads, 1}
	if byHeads {
		grid = blocks{tailBlocks(rows), heads / 2, 1}
	}
	// Pipeline stages of K, V, masks, biases and barriers, and a BlockWork.
	const stages, step, blockWork = 3, 2 * device.PageLen, 256
	o.launch(name).tensor(c.Dst).tensor(c.Q).int(heads).bool(byHeads).pages(c.KV, rows).plan(c.Plan).matrix(c.KV.K).matrix(c.KV.V).
		runShared(grid, 128*(warpgroups+1), stages*(2*2*step*dim+step*(4+4)+4*8)+blockWork)
}
