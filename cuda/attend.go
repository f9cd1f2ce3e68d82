//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// maxSplits is the split-K of attention by the kernel attend: parts of a decoded row's past.
const maxSplits = 32

// maxDim is the largest head dimension.
const maxDim = 512

// checkDim panics for a head dimension that kernels have no room for.
func checkDim(op string, dim int) {
	if dim > maxDim {
		device.Check(false, op, "heads of %d, want at most %d", dim, maxDim)
	}
}

// attention computes softmax(q·k/√dim + ln weight)·v over the plan, causal.
func (o *ops) attention(c *device.Attend) {
	checkDim("Attend", c.Q.Dim(2))
	perSlot := device.RowsPerSlot("Attend", c.Q.Dim(0), c.KV)
	switch {
	case perSlot >= flashRows && suitsFlash(c):
		o.flash(c)
	case perSlot > 1 && suitsFlash(c):
		o.flashFew(c)
	case perSlot > 1 && perSlot < flashRows && o.listsOfRows(c):
	case perSlot == 1 && o.decode(c):
	default:
		o.attend(c)
	}
}

// listsOfRows attends with few rows of a slot that have position lists of their own, if head
// dimension and cache are those of flash_rows. Rows whose list leaves nothing out have the bits of
// dense attention: flash_rows attends densely, and attend then does all other rows.
func (o *ops) listsOfRows(c *device.Attend) bool {
	dense := *c
	dense.Plan.Selected, dense.Plan.List = device.All, device.List{}
	if c.Plan.Selected != device.Tokens || !suitsFlash(&dense) || c.Plan.Mixture {
		return false
	}
	o.flashFew(&dense)
	o.attendAll(c, true)
	return true
}

// Of the kernel decode: see decode.cuh.
const (
	ringWarps      = 4 // per block
	ringStages     = 3
	maxDecodeGroup = 8 // heads per block
	mmaHeads       = 4 // heads of an mma
)

// Of the kernels decode_each and decode_whole: see decode_each.cu.
const (
	decodeWarps   = 8           // per block of decode_each
	eachStages    = 2           // pipeline stages of a warp
	eachStageSize = 2 * 2 * 512 // bytes of a stage
	eachPlaces    = 2048        // positions whose pages are resolved at a time
	wholeHeads    = 4           // per block of decode_whole
	wholeStages   = 2
)

// The kernels of decode attention by head dimension: for up to mmaHeads query heads per kv
// head and for more, and for position lists where every query head has a kv head of its own:
// each those lists that leave something out, whole those that leave nothing out.
var (
	decodeKernels      = map[int]string{64: "decode_64", 128: "decode_128"}
	decodeMoreKernels  = map[int]string{64: "decode_more_64", 128: "decode_more_128"}
	decodeEachKernels  = map[int]string{64: "decode_each_64", 128: "decode_each_128"}
	decodeWholeKernels = map[int]string{64: "decode_whole_64", 128: "decode_whole_128"}
)

// decode attends with one row per slot on tensor cores, if the call suits its kernels.
func (o *ops) decode(c *device.Attend) bool {
	q, kv, p := c.Q, c.KV, c.Plan
	rows, heads, dim, kvHeads := q.Dim(0), q.Dim(1), q.Dim(2), kv.K.Dim(1)
	group := heads / kvHeads
	name, ok := decodeKernels[dim]
	if !ok || kv.K.DType != device.F16 || group > maxDecodeGroup || rows*heads > maxCounters {
		return false
	}
	if heads == kvHeads && p.Selected == device.Tokens && rows*heads >= 2*o.d.drv.multiprocessors() {
		o.decodeEach(c)
		o.decodeWhole(c)
		return true
	}
	splits, cluster := o.decodeSplits(c)
	if hasList(p) && kvHeads%p.List.Index.Dim(1) != 0 {
		group = 1 // heads of a block share a list
	}
	if group > mmaHeads {
		name = decodeMoreKernels[dim]
	}
	shared := ringWarps * ringStages * kvTileSize(dim)
	parts := rows * heads * splits * dim * 4
	if parts+rows*heads*splits*8 > workspaceSize || shared > o.room(name) {
		return false
	}
	o.launch(name).tensor(c.Dst).tensor(q).work(0).work(parts).counters().int(heads, splits, group, cluster).
		bool(o.pastComplete()).pages(kv, 1).plan(p).pdlEarly().pdlHold(hasList(p)).
		inClusters(cluster).runShared(blocks{rows, heads / group, splits}, ringWarps*32, shared)
	return true
}

// decodeSplits is the split-K of a decoded row, and the blocks per cluster, which merge their
// parts in distributed shared memory. It does not depend on the heads per block, so that a
// list that leaves nothing out has the bits of dense attention.
func (o *ops) decodeSplits(c *device.Attend) (splits, cluster int) {
	p := &c.Plan
	heads, multiprocessors := max(c.Q.Dim(0)*c.KV.K.Dim(1), 1), o.d.drv.multiprocessors()
	splits = max(1, multiprocessors/heads)
	if splits == 1 { // two blocks are resident on a multiprocessor
		splits = max(1, 2*multiprocessors/heads)
	}
	if p.Mixture && p.Span == (device.Span{}) && p.Align == 0 {
		tiles := (ceil(p.Sink, device.PageLen) + ceil(p.Recent, device.PageLen) + 1) * 4
		splits = max(1, min(splits, ceil(tiles+ceil(p.List.Index.Dim(2), 16), ringWarps)))
	}
	if !c.KV.Short {
		return splits, 1 // on a long past a GPC has no room for all blocks of a cluster at once
	}
	cluster = 1
	for 2*cluster <= min(splits, o.d.drv.maxCluster()) {
		cluster *= 2
	}
	if cluster > 1 {
		splits = cluster
	}
	return splits, cluster
}

// kvTileSize is the bytes of a KVTile of decode.cuh.
func kvTileSize(dim int) int { return 2*2*16*(dim+8) + 16*4 }

// decodeEach attends over the position lists that leave something out, one block per head.
func (o *ops) decodeEach(c *device.Attend) {
	rows, heads, dim := c.Q.Dim(0), c.Q.Dim(1), c.Q.Dim(2)
	o.launch(decodeEachKernels[dim]).tensor(c.Dst).tensor(c.Q).int(0, 0, 0).int(heads, 1, 1, 1, 0).
		pages(c.KV, 1).plan(c.Plan).pdlEarly().runShared(blocks{rows, heads, 1}, decodeWarps*32, decodeWarps*eachStages*eachStageSize+8*eachPlaces)
}

// decodeWhole attends over those that leave nothing out.
func (o *ops) decodeWhole(c *device.Attend) {
	rows, heads, dim := c.Q.Dim(0), c.Q.Dim(1), c.Q.Dim(2)
	o.launch(decodeWholeKernels[dim]).tensor(c.Dst).tensor(c.Q).int(0, 0, 0).int(heads, 1, 1, 1, 0).
		pages(c.KV, 1).plan(c.Plan).pdlEarly().runShared(blocks{rows, ceil(heads, wholeHeads), 1}, ringWarps*32, ringWarps*wholeStages*kvTileSize(dim))
}

// attend attends for any plan and shape, in f32 on CUDA cores.
func (o *ops) attend(c *device.Attend) { o.attendAll(c, false) }

// attendAll is attend, and with keepWhole leaves rows alone whose list leaves nothing out.
func (o *ops) attendAll(c *device.Attend, keepWhole bool) {
	rows, heads, dim := c.Q.Dim(0), c.Q.Dim(1), c.Q.Dim(2)
	perSlot, splits := device.RowsPerSlot("Attend", rows, c.KV), 1
	if perSlot == 1 {
		splits = max(1, min(maxSplits, workspaceSize/4/max(rows*heads*(dim+2), 1)))
	}
	o.launch("attend").tensor(c.Dst).tensor(c.Q).work(0).int(heads, splits).bool(keepWhole).pages(c.KV, perSlot).plan(c.Plan).
		run(blocks{rows, heads, splits}, 128)
	if splits > 1 {
		o.attendMerge(c, splits)
	}
}

// attendMerge merges the splits of attend or flash_rows in the workspace.
func (o *ops) attendMerge(c *device.Attend, splits int) {
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	o.launch("attend_merge").tensor(c.Dst).work(0).int(heads, splits).bool(c.Plan.Mixture).pages(c.KV, device.RowsPerSlot("Attend", rows, c.KV)).
		run(blocks{rows, heads, 1}, 128)
}
