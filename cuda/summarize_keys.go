//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// keyBounds makes the bounds of the parts that hold the newest positions.
func (o *ops) keyBounds(bounds device.Tensor, at newest) {
	n := bounds.Dim(2)
	o.call("key_bounds").tensor(bounds).int(n).pages(at.KV, at.N).
		run(blocks{touched(at.N), at.KV.K.Dim(1), at.KV.Len.Dim(0)}, 256)
}

// checkLabel panics for labels that no kernel has room for.
func checkLabel(op string, c device.Channels) {
	if n := c.Index.Dim(1); n > maxDim {
		device.Check(false, op, "labels of %d, want at most %d", n, maxDim)
	}
}

// channels queues a kernel for the labels of x; scores may be absent.
func (o *ops) channels(name string, labels, x device.Tensor, c device.Channels, scores device.Tensor, kv device.KV, p device.Plan, b blocks, threads int) {
	width := 0
	if !scores.Absent() {
		width = scores.Dim(2)
	}
	o.call(name).tensor(labels).tensor(x).tensor(c.Index).int(c.Index.Dim(0), c.Index.Dim(1), c.Levels, x.Dim(1)).
		tensor(scores).int(width).pages(kv, device.RowsPerSlot(name, x.Dim(0), kv)).plan(p).run(b, threads)
}

// keyChannels stores the labels of the call's keys at their positions.
func (o *ops) keyChannels(labels, x device.Tensor, c device.Channels, kv device.KV) {
	const op = "KeyChannels"
	checkLabel(op, c)
	o.channels("key_channels", labels, x, c, device.Tensor{}, kv, device.Plan{}, blocks{x.Dim(0), c.Index.Dim(0), 1}, 64)
}

// netRows is how many vectors a block of the kernel signs takes.
const netRows = 8

// net queues the network over x; to is where the signs go, beside pages or not.
func (o *ops) net(x device.Tensor, n device.Net, kv device.KV, to func(c *call) *call, stored bool) {
	sets, widest := n.Weight[0].Dim(0), x.Dim(2)
	c := to(o.call("key_signs")).tensor(x)
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
	rows := x.Dim(0)
	c.int(n.Layers(), sets).bool(n.Relu).int(n.Words(), widest, rows, x.Dim(1)).bool(stored).
		pages(kv, device.RowsPerSlot("signs", rows, kv)).
		runShared(blocks{ceil(rows, netRows), sets, 1}, 256, 4*2*netRows*widest)
}

// keySigns stores the signs of the call's keys at their positions.
func (o *ops) keySigns(signs, x device.Tensor, n device.Net, kv device.KV) {
	o.net(x, n, kv, func(c *call) *call { return c.tensor(signs) }, true)
}

// hash gives a Hash of a cache with kvHeads heads.
func (c *call) hash(h device.Hash, kvHeads int) *call {
	return c.tensor(h.Planes).tensor(h.Codes).tensor(h.Norm).tensor(h.Center).tensor(h.Since).tensor(h.Done).
		int(h.Planes.Dim(0), h.Tables, h.MinCollisions, h.Codes.Dim(1)/kvHeads, h.Norm.Dim(2)).
		bool(h.Mean).bool(h.Queries).int(h.Sink, h.Recent)
}

// keyHashes makes the codes of positions that have none.
func (o *ops) keyHashes(h device.Hash, kv device.KV) {
	const op = "KeyHashes"
	checkDim(op, kv.K.Dim(3))
	heads, slots := kv.K.Dim(1), kv.Len.Dim(0)
	o.call("hash_center").hash(h, heads).pages(kv, 1).run(blocks{heads, slots, 1}, 1024)
	o.call("hash_codes").hash(h, heads).pages(kv, 1).run(blocks{heads, slots, parts(kv)}, 256)
	o.call("hash_done").hash(h, heads).pages(kv, 1).run(blocks{slots, 1, 1}, 32)
}
