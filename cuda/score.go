//go:build cuda || cudaemu

package cuda

import (
	"math"

	"github.com/gollm/gollm/device"
)

// score scores what is stored for each row and head.
func (o *ops) score(c *device.Score) {
	switch c.Rule {
	case device.ExactScores:
		o.exactScores(c)
	case device.BoundScores:
		o.boundScores(c)
	case device.ChannelScores:
		o.channelScores(c)
	case device.SignScores:
		o.signScores(c)
	case device.MirrorScores:
		o.mirrorScores(c)
	case device.SketchScores:
		o.sketchScores(c)
	case device.VerticalSlash:
		o.verticalSlash(c)
	case device.AnchorMax:
		o.anchorMax(c)
	case device.PooledAgreement:
		o.pooledAgreement(c)
	case device.GroupMax:
		o.groupMax(c)
	default:
		device.Unknown("cuda", c)
	}
}

// pastBlocks is how many thread blocks share the past of a row: one per page, up to 64.
func pastBlocks(kv device.KV) int { return min(max(kv.Pages.Dim(1), 1), 64) }

// exactScores computes q·k/√dim over a region of the plan, -Inf elsewhere.
func (o *ops) exactScores(c *device.Score) {
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	perSlot := device.RowsPerSlot("Scores", rows, c.KV)
	if perSlot == 1 && o.scoreDecode(c) {
		return
	}
	plan := c.Plan
	if c.Region != device.Planned {
		plan.List = device.List{} // which the kernel would check
	}
	queue := func(name string, b blocks) {
		o.launch(name).tensor(c.Dst).tensor(c.Q).int(heads, c.Dst.Dim(2), int(c.Region)).pages(c.KV, perSlot).plan(plan).run(b, 256)
	}
	if units := listedUnits(c); units > 0 {
		queue("listed_scores", blocks{o.keyParts(rows, units, c.KV.Pages.Dim(1), 1).x, units, rows})
		return
	}
	queue("scores", blocks{rows, heads, pastBlocks(c.KV)})
}

// listedUnits is how many groups of heads have a list and a kv head in common, if the plan of a
// score reads its list with weight one and nothing else, otherwise 0.
func listedUnits(c *device.Score) int {
	p := &c.Plan
	if c.Region != device.Planned || p.Selected != device.Tokens || p.Sink != 0 || p.Recent != 0 || p.Align != 0 || !p.List.Weight.Absent() {
		return 0
	}
	units := max(p.List.Index.Dim(1), c.KV.K.Dim(1))
	if units%p.List.Index.Dim(1) != 0 || units%c.KV.K.Dim(1) != 0 || c.Q.Dim(1)%units != 0 {
		return 0
	}
	return units
}

// Of kernels that score all keys for the newest row of each slot on tensor cores: see keys.cuh.
const (
	maxKeysGroup = 8 // query heads per kv head
	keysWarps    = 8 // per block
	keysStages   = 3 // of a warp's pipeline, 16 keys each
)

// keysShared is the bytes of shared memory of their blocks.
func keysShared(dim int) int { return keysWarps * keysStages * 16 * 2 * dim }

// These kernels by head dimension: scores, and softmax over each page.
var (
	scoreDecodeKernels   = map[int]string{64: "score_decode_64", 128: "score_decode_128"}
	softmaxDecodeKernels = map[int]string{64: "softmax_decode_64", 128: "softmax_decode_128"}
)

// keysKernel is the one of kernels that takes a call, if there is one.
func (o *ops) keysKernel(kernels map[int]string, q device.Tensor, kv device.KV) (name string, ok bool) {
	dim := q.Dim(2)
	name, ok = kernels[dim]
	return name, ok && kv.K.DType == device.F16 && q.Dim(1)/kv.K.Dim(1) <= maxKeysGroup && keysShared(dim) <= o.room(name)
}

// keysGrid is their grid: parts of the past, kv heads, rows.
func (o *ops) keysGrid(rows, kvHeads int) blocks {
	return blocks{max(1, o.d.drv.multiprocessors()/max(rows*kvHeads, 1)), kvHeads, rows}
}

// pooled reports whether scores are those of kv heads, each the largest of its query heads: what
// GroupMax makes of them.
func pooled(c *device.Score) bool { return c.Dst.Dim(1) < c.Q.Dim(1) }

// scoreDecode is exactScores of one row per slot on tensor cores, if its kernels take the call. Dst
// may be pooled.
func (o *ops) scoreDecode(c *device.Score) bool {
	name, ok := o.keysKernel(scoreDecodeKernels, c.Q, c.KV)
	if !ok || c.Region == device.Planned && hasList(c.Plan) {
		return false
	}
	o.launch(name).tensor(c.Dst).tensor(c.Q).int(c.Q.Dim(1), c.Dst.Dim(2)).
		bool(pooled(c)).bool(o.pastComplete()).bool(c.Region == device.SelectedRegion).bool(c.Region == device.Planned).pages(c.KV, 1).plan(c.Plan).pdlEarly().
		runShared(o.keyParts(c.Q.Dim(0), c.KV.K.Dim(1), c.KV.Pages.Dim(1), keysWarps/2), keysWarps*32, keysShared(c.Q.Dim(2)))
	return true
}

// keyParts is the grid of kernels that read an index of all keys: parts of the past, kv heads, rows.
// Two blocks are resident per multiprocessor, and a part has at least so many pages.
func (o *ops) keyParts(rows, kvHeads, pages, least int) blocks {
	return blocks{max(1, min(2*o.d.drv.multiprocessors()/max(rows*kvHeads, 1), pages/least)), kvHeads, rows}
}

// boundKernels are the kernels of BoundScores over f16 bounds by head dimension.
var boundKernels = map[int]string{64: "bound_scores_64", 128: "bound_scores_128"}

// boundScores is an upper bound of the scores of each sub-page.
func (o *ops) boundScores(c *device.Score) {
	slots, groups, pages := c.Dst.Dim(0), c.Dst.Dim(1), c.KV.Pages.Dim(1)
	name, ok := boundKernels[c.Q.Dim(2)]
	ok = ok && c.Keys.DType == device.F16 && o.aligned(c.Keys)
	grid := o.keyParts(slots, c.KV.K.Dim(1), pages, device.PageLen/c.Keys.Dim(2)) // eight rows a warp
	if !ok {
		name, grid = "bound_scores", blocks{slots, groups, pastBlocks(c.KV)}
	}
	l := o.launch(name).tensor(c.Dst).tensor(c.Q).tensor(c.Keys).int(c.Q.Dim(1), groups, c.Dst.Dim(2), c.Keys.Dim(2)).pages(c.KV, 1)
	if ok {
		l.pdlEarly()
	}
	l.run(grid, 32*keysWarps)
}

// Query heads that share a load of a label or of sign bits, and the positions of a block in its
// loop over those of a row.
const (
	labelHeads     = 4
	labelPositions = 1024
)

// labelParts is the grid of the kernel that scores labels of head groups, four blocks per
// multiprocessor.
func (o *ops) labelParts(rows, groups int, kv device.KV) blocks {
	return blocks{max(1, min(4*o.d.drv.multiprocessors()/max(rows*groups, 1), ceil(kv.Pages.Dim(1)*device.PageLen, labelPositions))), groups, rows}
}

// channelScores computes the products of channel labels over the selected region.
func (o *ops) channelScores(c *device.Score) {
	n := c.Channels.Index.Dim(1)
	o.channels("channel_scores", c.Keys, c.Q, c.Channels, c.Dst, c.KV).plan(c.Plan).
		runShared(o.labelParts(c.Q.Dim(0), c.Keys.Dim(1), c.KV), 256, 4*labelHeads*n)
}

// signScores counts agreeing sign bits over the selected region.
func (o *ops) signScores(c *device.Score) {
	const op = "SignScores"
	rows, heads, words := c.Q.Dim(0), c.Q.Dim(1), c.Net.Words()
	if !o.fits(op, 4*rows*heads*words) {
		return
	}
	o.signs(func(name string) *launch { return o.launch(name).work(0) }, c.Q, c.Net, c.KV, false)
	o.launch("sign_scores").tensor(c.Dst).work(0).tensor(c.Keys).int(heads, c.Keys.Dim(1), c.Dst.Dim(2), words, c.Net.Bits()).
		pages(c.KV, device.RowsPerSlot(op, rows, c.KV)).plan(c.Plan).
		runShared(o.keyParts(rows, c.Keys.Dim(1), c.KV.Pages.Dim(1), labelPositions/device.PageLen), 256, 4*labelHeads*ceil(words, 4)*4)
}

// Block scores that a thread block of the kernel sketch_scores computes.
const (
	sketchScoreRows    = 36
	sketchScoreColumns = 16
)

// sketchScores makes block scores of sketches.
func (o *ops) sketchScores(c *device.Score) {
	own, p := c.Q, &c.Product
	if !p.Own.Absent() {
		own = p.Own
	}
	square := c.Dst.Rank() == 3
	scale := float64(float32(1 / (float64(c.Q.Dim(1)) * math.Sqrt(float64(c.Q.Dim(2))))))
	slots, width := c.KV.Len.Dim(0), c.KV.Pages.Dim(1)
	n := tailBlocks(c.Rows) + 1
	if square {
		n = width
	}
	compare := func(name string, scale float64) *launch {
		return o.launch(name).tensor(c.Dst).int(c.Dst.RowLen()).bool(square).tensor(c.Q).tensor(c.Keys).tensor(own).
			int(c.Q.Dim(1)*c.Q.Dim(2), int(p.Form)).bool(p.Log).float(scale, temperature(p)).pages(c.KV, c.Rows)
	}
	if p.Each {
		o.headScores(c, n, func(name string) *launch { return compare(name, float64(float32(1/math.Sqrt(float64(c.Q.Dim(2)))))) })
		return
	}
	compare("sketch_scores", scale).run(blocks{ceil(width, sketchScoreColumns), ceil(n, sketchScoreRows), slots}, 256)
	if p.Form == device.Softmax {
		compare("sketch_softmax", scale).run(blocks{n, 1, slots}, 256)
	}
}

// temperature is what the products of a softmax are divided by.
func temperature(p *device.SketchProduct) float64 {
	if p.Form != device.Softmax || p.Temperature == 0 {
		return 1
	}
	return p.Temperature
}

// headScores makes n rows of block scores of each slot by every head; compare starts the launch
// of a kernel that takes a CompareHeadsArgs.
func (o *ops) headScores(c *device.Score, n int, compare func(name string) *launch) {
	heads, slots, width := c.Q.Dim(1), c.KV.Len.Dim(0), c.KV.Pages.Dim(1)
	if !o.fits("SketchScores", 8*slots*n*heads) {
		return
	}
	queue := func(name string) *launch {
		return compare(name).work(0).int(heads, c.Keys.Dim(1), c.Q.Dim(2), n)
	}
	if c.Product.Form == device.Softmax {
		queue("sketch_head_sums").runShared(blocks{n, heads, slots}, 256, 4*width)
	}
	queue("sketch_head_scores").run(blocks{ceil(width, 8), n, slots}, 256)
}

// groupMax is the maximum of the scores of the heads of each kv head.
func (o *ops) groupMax(c *device.Score) {
	rows, heads, width := c.Q.Dim(0), c.Q.Dim(1), c.Q.Dim(2)
	o.launch("group_max").tensor(c.Dst).tensor(c.Q).int(heads, width).pages(c.KV, device.RowsPerSlot("GroupMax", rows, c.KV)).
		run(blocks{rows, c.KV.K.Dim(1), pastBlocks(c.KV)}, 256)
}
