//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// channels queues a kernel for the labels of x; scores may be absent.
func (o *ops) channels(name string, labels, x device.Tensor, c device.Channels, scores device.Tensor, kv device.KV, p device.Plan, b blocks, threads int) {
	width := 0
	if !scores.Absent() {
		width = scores.Dim(2)
	}
	o.call(name).tensor(labels).tensor(x).tensor(c.Index).int(c.Index.Dim(0), c.Index.Dim(1), c.Levels, x.Dim(1)).
		tensor(scores).int(width).pages(kv, device.RowsPerSlot(name, x.Dim(0), kv)).plan(p).run(b, threads)
}

// checkLabel panics for labels that no kernel has room for.
func checkLabel(op string, c device.Channels) {
	if n := c.Index.Dim(1); n > maxDim {
		device.Check(false, op, "labels of %d, want at most %d", n, maxDim)
	}
}

// keyChannels stores the labels of the call's keys at their positions.
func (o *ops) keyChannels(labels, x device.Tensor, c device.Channels, kv device.KV) {
	const op = "KeyChannels"
	checkLabel(op, c)
	o.channels("key_channels", labels, x, c, device.Tensor{}, kv, device.Plan{}, blocks{x.Dim(0), c.Index.Dim(0), 1}, 64)
}

// channelScores computes the products of labels over the middle of a plan.
func (o *ops) channelScores(dst, q, labels device.Tensor, c device.Channels, kv device.KV, p device.Plan) {
	checkLabel("ChannelScores", c)
	o.channels("channel_scores", labels, q, c, dst, kv, p, blocks{q.Dim(0), q.Dim(1), parts(kv)}, 256)
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

// signScores compares signs over the middle of a plan.
func (o *ops) signScores(dst, q, signs device.Tensor, n device.Net, kv device.KV, p device.Plan) {
	const op = "SignScores"
	rows, heads := q.Dim(0), q.Dim(1)
	if need := 4 * rows * heads * n.Words(); need > workspaceSize {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of workspace, there are %d", op, need, workspaceSize))
		return
	}
	o.net(q, n, kv, func(c *call) *call { return c.work(0) }, false)
	o.call("sign_scores").tensor(dst).work(0).tensor(signs).int(heads, signs.Dim(1), dst.Dim(2), n.Words(), n.Bits()).
		pages(kv, device.RowsPerSlot(op, rows, kv)).plan(p).run(blocks{rows, heads, parts(kv)}, 256)
}
