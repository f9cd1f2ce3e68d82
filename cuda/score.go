//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// scoreKeys makes numbers that say how much rows want of what is stored.
func (o *ops) scoreKeys(c *device.Score) {
	switch c.Rule {
	case device.ExactScores:
		o.exactScores(c.Dst, c.Q, c.KV, c.Plan, c.Region)
	case device.BoundScores:
		o.boundScores(c.Dst, c.Q, c.Keys, c.KV)
	case device.ChannelScores:
		o.channelScores(c.Dst, c.Q, c.Keys, c.Channels, c.KV, c.Plan)
	case device.SignScores:
		o.signScores(c.Dst, c.Q, c.Keys, c.Net, c.KV, c.Plan)
	case device.SketchScores:
		o.sketchScores(c)
	case device.VerticalSlash:
		o.verticalSlash(c)
	case device.AnchorMax:
		o.anchorMax(c.Dst, c.Q, c.KV, c.Plan)
	case device.PooledAgreement:
		o.pooledAgreement(c)
	case device.GroupMax:
		o.groupMax(c.Dst, c.Q, c.KV)
	default:
		device.Unknown("cuda", c)
	}
}

// parts is how many blocks share a row that is as long as its sequence can get.
func parts(kv device.KV) int { return min(max(kv.Pages.Dim(1), 1), 64) }

// exactScores computes q·k/√dim over a part of what each row sees, -Inf elsewhere.
func (o *ops) exactScores(dst, q device.Tensor, kv device.KV, p device.Plan, part device.Region) {
	const op = "Scores"
	rows, heads := q.Dim(0), q.Dim(1)
	if device.RowsPerSlot(op, rows, kv) == 1 && o.scoreRows(dst, q, kv, p, part) {
		return
	}
	o.call("scores").tensor(dst).tensor(q).int(heads, dst.Dim(2), int(part)).
		pages(kv, device.RowsPerSlot(op, rows, kv)).plan(p).
		run(blocks{rows, heads, parts(kv)}, 256)
}

const (
	keysGroup = 8 // heads of a kv head that keys.cuh takes at a time
	keyWarps  = 8 // of a block
	keyStages = 3 // of a warp, of 16 keys
)

// keyShared is the bytes of shared memory of a block that scores keys with keys.cuh.
func keyShared(dim int) int { return keyWarps * keyStages * 16 * 2 * dim }

// The kernels that score keys with keys.cuh, by the length of a head.
var (
	scoreKernels = map[int]string{64: "score_decode_64", 128: "score_decode_128"}
	shareKernels = map[int]string{64: "softmax_decode_64", 128: "softmax_decode_128"}
)

// keyed is the one of such kernels that suits the newest row of each slot, if one does.
func (o *ops) keyed(kernels map[int]string, q device.Tensor, kv device.KV) (name string, ok bool) {
	dim := q.Dim(2)
	name, ok = kernels[dim]
	return name, ok && kv.K.DType == device.F16 && q.Dim(1)/kv.K.Dim(1) <= keysGroup && keyShared(dim) <= o.room(name)
}

// keyBlocks is the blocks of a kernel that scores keys with keys.cuh: parts of the past,
// kv heads, and rows.
func (o *ops) keyBlocks(rows, kvHeads int) blocks {
	return blocks{max(1, o.d.drv.multiprocessors()/max(rows*kvHeads, 1)), kvHeads, rows}
}

// scoreRows is Scores of one row of each slot if keys.cuh suits it.
func (o *ops) scoreRows(dst, q device.Tensor, kv device.KV, p device.Plan, part device.Region) bool {
	name, ok := o.keyed(scoreKernels, q, kv)
	if !ok || part == device.Planned && lists(p) {
		return false
	}
	o.call(name).tensor(dst).tensor(q).int(q.Dim(1), dst.Dim(2)).
		bool(!o.d.stored).bool(part == device.SelectedRegion).bool(part == device.Planned).pages(kv, 1).plan(p).pdlEarly().
		runShared(o.keyBlocks(q.Dim(0), kv.K.Dim(1)), keyWarps*32, keyShared(q.Dim(2)))
	return true
}

// boundScores is the most that a key of each part can score.
func (o *ops) boundScores(dst, q, bounds device.Tensor, kv device.KV) {
	n := bounds.Dim(2)
	slots, sets := dst.Dim(0), dst.Dim(1)
	o.call("bound_scores").tensor(dst).tensor(q).tensor(bounds).int(q.Dim(1), sets, dst.Dim(2), n).pages(kv, 1).
		run(blocks{slots, sets, parts(kv)}, 256)
}

// channelScores computes the products of labels over the middle of a plan.
func (o *ops) channelScores(dst, q, labels device.Tensor, c device.Channels, kv device.KV, p device.Plan) {
	checkLabel("ChannelScores", c)
	o.channels("channel_scores", labels, q, c, dst, kv, p, blocks{q.Dim(0), q.Dim(1), parts(kv)}, 256)
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

// sketchScores makes rows of pairs.
func (o *ops) sketchScores(c *device.Score) {
	dst, q, k, at, own := c.Dst, c.Q, c.Keys, newest{c.KV, c.Rows}, c.Q
	if !c.Product.Own.Absent() {
		own = c.Product.Own
	}
	square := dst.Rank() == 3
	scale := float64(float32(1 / (float64(q.Dim(1)) * math.Sqrt(float64(q.Dim(2))))))
	width := at.KV.Pages.Dim(1)
	n := touched(at.N) + 1
	if square {
		n = width
	}
	call := func(name string, b blocks) {
		o.call(name).tensor(dst).int(dst.RowLen()).bool(square).tensor(q).tensor(k).tensor(own).
			int(q.Dim(1)*q.Dim(2), int(c.Product.Form)).bool(c.Product.Log).float(scale).pages(at.KV, at.N).run(b, 256)
	}
	slots := at.KV.Len.Dim(0)
	call("sketch_scores", blocks{ceil(width, compareColumns), ceil(n, compareRows), slots})
	if c.Product.Form == device.Softmax {
		call("sketch_softmax", blocks{n, 1, slots})
	}
}

// groupMax is the largest of the heads of each kv head.
func (o *ops) groupMax(dst, x device.Tensor, kv device.KV) {
	rows, heads, width := x.Dim(0), x.Dim(1), x.Dim(2)
	o.call("group_max").tensor(dst).tensor(x).int(heads, width).pages(kv, device.RowsPerSlot("GroupMax", rows, kv)).
		run(blocks{rows, kv.K.Dim(1), parts(kv)}, 256)
}
