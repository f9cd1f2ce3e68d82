//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// keyBounds updates the element-wise bounds of the keys of the newest positions' sub-pages.
func (o *ops) keyBounds(c *device.Summarize) {
	o.launch("key_bounds").tensor(c.Dst).int(c.Dst.Dim(2)).pages(c.KV, c.Rows).
		run(blocks{tailBlocks(c.Rows), c.KV.K.Dim(1), c.KV.Len.Dim(0)}, 256)
}

// keyChannels stores the channel labels of the rows' keys.
func (o *ops) keyChannels(c *device.Summarize) {
	o.channels("key_channels", c.Dst, c.X, c.Channels, device.Tensor{}, c.KV).plan(device.Plan{}).
		run(blocks{c.X.Dim(0), c.Channels.Index.Dim(0), 1}, 64)
}

// channels starts a launch for the channel labels of x, without its plan; scores may be absent.
func (o *ops) channels(name string, labels, x device.Tensor, c device.Channels, scores device.Tensor, kv device.KV) *launch {
	if n := c.Index.Dim(1); n > maxDim {
		device.Check(false, name, "labels of %d channels, want at most %d", n, maxDim)
	}
	width := 0
	if !scores.Absent() {
		width = scores.Dim(2)
	}
	return o.launch(name).tensor(labels).tensor(x).tensor(c.Index).int(c.Index.Dim(0), c.Index.Dim(1), c.Levels, x.Dim(1)).
		tensor(scores).int(width).pages(kv, device.RowsPerSlot(name, x.Dim(0), kv))
}

// keySigns stores the sign bits that a network makes of the rows' keys.
func (o *ops) keySigns(c *device.Summarize) {
	o.signs(func(name string) *launch { return o.launch(name).tensor(c.Dst) }, c.X, c.Net, c.KV, true)
}

// netRows is the vectors per block of the kernel key_signs; up to fewRows vectors take row_signs,
// which reads the weights anew for each.
const (
	netRows = 8
	fewRows = 4
)

// signs launches a network over x; begin starts the launch of a kernel with the address of the
// signs, which are stored beside the pages or not.
func (o *ops) signs(begin func(name string) *launch, x device.Tensor, n device.Net, kv device.KV, stored bool) {
	rows, groups, widest := x.Dim(0), n.Weight[0].Dim(0), x.Dim(2)
	name, each := "key_signs", netRows
	if rows <= fewRows {
		name, each = "row_signs", 1
	}
	c := begin(name).tensor(x)
	for _, t := range n.Weight {
		c.tensor(t)
	}
	for _, t := range n.Bias {
		c.tensor(t)
	}
	for _, t := range n.Weight {
		out := 0
		if !t.Absent() {
			out = t.Dim(1)
		}
		widest = max(widest, out)
		c.int(out)
	}
	c.int(n.Layers(), groups).bool(n.Relu).int(n.Words(), widest, rows, x.Dim(1)).bool(stored).
		pages(kv, device.RowsPerSlot("signs", rows, kv)).
		runShared(blocks{ceil(rows, each), groups, 1}, 256, 4*2*each*widest)
}

// Of the kernels that make codes and sort positions by them, which in most steps have nothing to do.
const (
	hashBlocks  = 4 // per multiprocessor, at most
	hashSorters = 8 // warps of a block that sorts
)

// keyHashes makes the LSH codes of positions that have none.
func (o *ops) keyHashes(c *device.Summarize) {
	dim := c.KV.K.Dim(3)
	checkDim("KeyHashes", dim)
	heads, slots := c.KV.K.Dim(1), c.KV.Len.Dim(0)
	queue := func(name string, b blocks, threads, shared int) {
		o.launch(name).hash(c.Hash, heads).pages(c.KV, 1).pdlEarly().runShared(b, threads, shared)
	}
	all := hashBlocks * o.d.drv.multiprocessors()
	queue("hash_center", blocks{heads, slots, 1}, 1024, 0)
	queue("hash_codes", blocks{heads, slots, max(1, min(all/(heads*slots), pastBlocks(c.KV)))}, 256, 0)
	if c.Hash.Bucketed() {
		queue("hash_sort", blocks{max(1, min(all/slots, heads*c.Hash.Tables)), slots, 1}, 32*hashSorters, 2*hashSorters<<c.Hash.Bits())
	}
	queue("hash_newest", o.projectGrid(c.Hash, slots, heads), 256, 4*32*dim)
}

// projectGrid is the grid of kernels that multiply vectors of each slot with the planes, 32 at a
// time: parts of the planes, slots, vectors.
func (o *ops) projectGrid(h device.Hash, slots, vectors int) blocks {
	return blocks{max(1, min(ceil(h.Planes.Dim(0), 8), 2*o.d.drv.multiprocessors())), slots, ceil(vectors, 32)}
}

// hash appends a Hash of a cache with kvHeads heads.
func (c *launch) hash(h device.Hash, kvHeads int) *launch {
	stride := 0
	if h.Bucketed() {
		stride = 2 * h.Members.Dim(2)
	}
	return c.tensor(h.Planes).tensor(h.Codes).tensor(h.Norm).tensor(h.Center).tensor(h.Since).tensor(h.Done).
		int(h.Planes.Dim(0), h.Tables, h.MinCollisions, h.Codes.Dim(1)/kvHeads, h.Norm.Dim(2)).
		bool(h.Mean).bool(h.Queries).int(h.Sink, h.Recent).tensor(h.Sorted).tensor(h.Buckets).tensor(h.Members).int(stride)
}
