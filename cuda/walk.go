//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// Of the kernel walk_logs: terms of a partial sum, rows and columns of a tile, and the bytes of
// shared memory of a WalkTile (walk.cu).
const (
	walkRun     = 256
	walkRows    = 32
	walkColumns = 32
	walkTile    = walkRun*(walkRows+4)*4 + walkRun*walkColumns*4 + 2*8*walkColumns*4
)

// maxTopBlocks is the limit of the elements of a row that walk_top and walk_decode select from.
const maxTopBlocks = 4096

// walk continues rows by one step.
func (o *ops) walk(c *device.Walk) {
	w, ok := o.newWalk(c)
	switch {
	case !ok:
	case c.Dst.DType == device.I32:
		w.launch("walk").run(blocks{w.n, ceil(w.width, 32), w.slots}, 256)
		w.launch("walk_store").run(blocks{w.n, 1, w.slots}, 256)
	default:
		w.partialSums()
		w.launch("walk_top").topBlocks(&device.Select{KV: c.KV, Rows: c.Rows}, c.Dst).run(blocks{w.n, 1, w.slots}, threadsFor(w.width, 1024))
	}
}

// walkTop continues rows by one step and selects blocks.
func (o *ops) walkTop(c *device.Walk, top *device.Select) bool {
	if c.Dst.DType != device.F32 || c.Dst.Dim(1) > maxTopBlocks {
		return false
	}
	if o.suitsWalkDecode(c) {
		o.walkDecode(&tailSketch{kv: c.KV, scores: c.Pairs}, c, top)
		return true
	}
	if w, ok := o.newWalk(c); ok {
		w.partialSums()
		w.launch("walk_top").topBlocks(top, c.Dst).runShared(blocks{w.n, 1, w.slots}, 512, 4*w.width)
	}
	return true
}

// walk is a step of a walk.
type walk struct {
	*device.Walk
	o               *ops
	width, slots, n int // n: blocks of a slot that may be touched
	run             int // terms of a partial sum
}

// newWalk cuts the sums of a step so that they fit in the workspace; if they do not, it fails.
func (o *ops) newWalk(c *device.Walk) (w walk, ok bool) {
	w = walk{Walk: c, o: o, width: walkWidth(c.Dst), slots: c.KV.Len.Dim(0), n: tailBlocks(c.Rows)}
	for w.run = walkRun; w.run < w.width && w.size() > workspaceSize; w.run *= 2 {
	}
	return w, o.fits("Walk", w.size())
}

// size is the bytes of the partial sums.
func (w *walk) size() int { return 8 * w.slots * w.n * w.width * ceil(w.width, w.run) }

// launch starts the launch of a kernel that takes a WalkArgs.
func (w *walk) launch(name string) *launch {
	return w.o.launch(name).tensor(w.Dst).tensor(w.Src).work(0).int(w.width, w.Dst.Dim(0)).bool(w.Dst.DType == device.I32).
		int(w.Exponent, w.slots, w.n, w.run).float(w.Own).tensor(w.Pairs).int(w.Pairs.RowLen()).bool(w.Pairs.Rank() == 3).pages(w.KV, w.Rows)
}

// partialSums computes the partial sums of logarithms into the workspace.
func (w *walk) partialSums() {
	if w.Src.Absent() {
		return
	}
	w.launch("walk_logs").runShared(blocks{ceil(w.n, walkRows), ceil(w.width, walkColumns), w.slots * ceil(w.width, w.run)}, 256, walkTile)
}

// walkWidth is the elements of a row of a walk; an f64 takes two of i32.
func walkWidth(rows device.Tensor) int {
	if rows.DType == device.I32 {
		return rows.Dim(1) / 2
	}
	return rows.Dim(1)
}
