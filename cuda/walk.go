//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// Sizes of sketch.cu and walk.cu.
const (
	compareRows    = 36
	compareColumns = 16
	walkRun        = 256 // of the m
	walkRows       = 32
	walkColumns    = 32
	walkTile       = walkRun*(walkRows+4)*4 + walkRun*walkColumns*4 + 2*8*walkColumns*4 // WalkTile
	pickMost       = 4096
	newestDim      = 256
	newestThreads  = 512
	newestGroup    = 8
	newestCompared = 32
	newestRoom     = 2048 // least words of shared memory
)

// walk continues rows by one step.
func (o *ops) walk(c *device.Walk) {
	w := o.walkOf(c)
	switch {
	case !w.fits("Walk"):
	case c.Dst.DType == device.I32:
		w.call("walk").run(blocks{w.n, ceil(w.width, 32), w.slots}, 256)
		w.call("walk_store").run(blocks{w.n, 1, w.slots}, 256)
	default:
		w.sums()
		w.call("walk_top").pick(device.List{}, 0, newest{c.KV, c.Rows}, device.BlockBudget{}, w).run(blocks{w.n, 1, w.slots}, threadsFor(w.width, 1024))
	}
}

// walkTop continues rows by one step and lists blocks.
func (o *ops) walkTop(c *device.Walk, top *device.Select) bool {
	if c.Dst.DType != device.F32 || c.Dst.Dim(1) > pickMost {
		return false
	}
	if o.suitsNewest(c) {
		o.newest(&newestSketch{}, c.Pairs, c.KV, *c, *top)
		return true
	}
	if w := o.walkOf(c); w.fits("Walk") {
		w.sums()
		w.call("walk_top").pick(top.List, top.List.Index.Dim(2), newest{c.KV, c.Rows}, top.Blocks, w).runShared(blocks{w.n, 1, w.slots}, 512, 4*w.width)
	}
	return true
}

// walk is the arguments of a step of a walk.
type walk struct {
	o                         *ops
	dst, src, pairs           device.Tensor
	at                        newest
	square                    bool
	width, slots, n, exponent int
	run                       int // m of a sum in the workspace
}

// walkOf is the arguments of a call.
func (o *ops) walkOf(c *device.Walk) walk {
	w := walk{o: o, dst: c.Dst, src: c.Src, pairs: c.Pairs, at: newest{c.KV, c.Rows}, width: walkWidth(c.Dst), exponent: c.Exponent}
	w.square, w.slots, w.n = c.Pairs.Rank() == 3, c.KV.Len.Dim(0), touched(c.Rows)
	for w.run = walkRun; w.run < w.width && w.need() > workspaceSize; w.run *= 2 {
	}
	return w
}

// need is the bytes of workspace that the sums of runs take.
func (w walk) need() int { return 8 * w.slots * w.n * w.width * ceil(w.width, w.run) }

// fits says whether the workspace holds what the kernels pass on; it keeps a failure.
func (w walk) fits(op string) bool {
	need := w.need()
	if need > workspaceSize {
		w.o.d.keep(fmt.Errorf("%s: %d rows of %d need %d bytes of workspace, there are %d", op, w.slots*w.n, w.width, need, workspaceSize))
	}
	return need <= workspaceSize
}

// call begins a call of a kernel that takes a WalkArgs.
func (w walk) call(name string) *call {
	return w.o.call(name).tensor(w.dst).tensor(w.src).work(0).int(w.width, w.dst.Dim(0)).bool(w.dst.DType == device.I32).
		int(w.exponent, w.slots, w.n, w.run).tensor(w.pairs).int(w.pairs.RowLen()).bool(w.square).pages(w.at.KV, w.at.N)
}

// sums leaves the sums of runs in the workspace.
func (w walk) sums() {
	if w.src.Absent() {
		return
	}
	w.call("walk_logs").runShared(blocks{ceil(w.n, walkRows), ceil(w.width, walkColumns), w.slots * ceil(w.width, w.run)}, 256, walkTile)
}

// walkWidth is how many numbers a row of a walk has.
func walkWidth(rows device.Tensor) int {
	if rows.DType == device.I32 {
		return rows.Dim(1) / 2
	}
	return rows.Dim(1)
}
