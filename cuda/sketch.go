//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// maxWidth is the most dimensions of what is sketched.
const maxWidth = 1024

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

// newest is the newest rows of each slot of a cache.
type newest struct {
	KV device.KV
	N  int // rows
}

// touched is how many blocks the newest n rows of a slot lie in at most.
func touched(n int) int { return (max(n, 1)+device.PageLen-2)/device.PageLen + 1 }

// sumBlocks adds rows to the sums of their blocks.
func (o *ops) sumBlocks(c *device.Summarize) {
	sum, x, kv := c.Dst, c.X, c.KV
	heads, dim := sum.Dim(1), sum.Dim(2)
	n := device.RowsPerSlot("SumBlocks", x.Dim(0), kv)
	o.call("block_sum").tensor(sum).tensor(x).int(heads, x.Dim(1), dim).pages(kv, n).
		run(blocks{touched(n), heads * ceil(dim, 32), kv.Len.Dim(0)}, 512)
}

// projectMeans projects the means of blocks.
func (o *ops) projectMeans(c *device.Summarize) {
	o.sketch(c.Dst, c.X, 0, c.Basis, newest{c.KV, c.Rows})
}

// projectRows projects the newest row of each slot.
func (o *ops) projectRows(c *device.Summarize) {
	n := device.RowsPerSlot("ProjectRows", c.X.Dim(0), c.KV)
	o.sketch(c.Dst, c.X, c.X.Dim(1), c.Basis, newest{KV: c.KV, N: n})
}

// sketch spreads the elements of a sketch over blocks where there are few sketches. of is
// the heads of rows in x, 0 for sums of blocks.
func (o *ops) sketch(dst, x device.Tensor, of int, basis device.Tensor, at newest) {
	if basis.Dim(1) > maxWidth {
		device.Check(false, "Sketch", "basis %v, want rows of at most %d", basis, maxWidth)
	}
	sizes := [4]int{dst.Dim(1), of, basis.Dim(0), basis.Dim(1)}
	n, heads := touched(at.N), sizes[0]
	parts := min(ceil(sizes[2], 8), max(1, 512/(n*heads)))
	o.call("sketch").tensor(dst).tensor(x).tensor(basis).int(sizes[:]...).int(parts).pages(at.KV, at.N).
		run(blocks{n, heads * parts, at.KV.Len.Dim(0)}, 256)
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

// newestSketch is the row of each slot that is added to its block, sketched and compared
// with the blocks before.
type newestSketch struct {
	q, k          device.Tensor // f32 [slots, ·, dim]
	keys, queries device.Tensor // f32 [pages, 1, dim]: sums of blocks
	keySketch     device.Tensor // f32 [pages, 1, width]
	querySketch   device.Tensor // f32 [pages, 1, width]
	basis         device.Tensor // f32 [width, dim]
	compare       device.SketchProduct
	row           bool // querySketch keeps the sketch of the row, not that of its block's mean
}

// suits reports whether there is a kernel for it.
func (s *newestSketch) suits() bool {
	width, dim := s.basis.Dim(0), s.basis.Dim(1)
	return s.keySketch.Dim(1) == 1 && width%4 == 0 && dim%4 == 0 && max(width, dim) <= newestDim &&
		s.compare.Form != device.Softmax && s.compare.Own.Absent()
}

// suitsNewest reports whether the kernel for one row of each slot walks and lists blocks.
func (o *ops) suitsNewest(w *device.Walk) bool {
	slots := w.KV.Len.Dim(0)
	return w.Rows == 1 && w.Pairs.Rank() == 2 && w.Dst.DType == device.F32 && w.Dst.Dim(1) <= pickMost && w.Dst.Dim(1)%4 == 0 &&
		w.Pairs.RowLen()%newestGroup == 0 && slots <= decodeCounts && 8*slots*w.Dst.Dim(1) <= workspaceSize
}

// newest compares the row of each slot with the blocks before, unless s is the zero one,
// and walks and lists blocks, unless w is.
func (o *ops) newest(s *newestSketch, pairs device.Tensor, kv device.KV, w device.Walk, top device.Select) {
	slots, sizes, scale, fixed := kv.Len.Dim(0), [4]int{}, 0.0, false
	if !s.q.Absent() {
		width, dim := s.basis.Dim(0), s.basis.Dim(1)
		sizes, scale, fixed = [4]int{s.q.Dim(1), s.k.Dim(1), dim, width}, float64(float32(1/math.Sqrt(float64(width)))), s.basis.Memory().(*memory).fixed
	}
	at, rows, most, row := newest{KV: kv, N: 1}, 0, 0, walk{o: o, slots: slots}
	if !w.Dst.Absent() {
		row, rows, most = o.walkOf(&w), w.Dst.Dim(0), top.List.Index.Dim(2)
	}
	early := o.d.hazards.settled(s.keySketch, s.querySketch, s.basis, pairs, w.Src)
	c := o.call("walk_decode").tensor(s.keys).tensor(s.queries).tensor(s.keySketch).tensor(s.querySketch).tensor(s.basis).tensor(s.q).tensor(s.k).
		tensor(pairs).int(sizes[:]...).int(pairs.RowLen()).bool(s.row).int(int(s.compare.Form)).bool(s.compare.Log).float(scale).bool(fixed).pages(kv, 1)
	c.tensor(w.Dst).tensor(w.Src).work(0).int(row.width, rows, w.Exponent, slots)
	c.pick(top.List, most, at, top.Blocks, row).word(uint64(o.d.counts.at)).bool(early).pdlEarly().
		runShared(blocks{ceil(ceil(kv.Pages.Dim(1), newestGroup), 2) + 2 + ceil(kv.Pages.Dim(1), newestCompared), slots, 1}, newestThreads, 4*max(row.width, newestRoom))
}

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

// pick gives a SelectBlocksArgs of a walk's rows.
func (c *call) pick(l device.List, most int, at newest, p device.BlockBudget, w walk) *call {
	groups, rows := 0, 0
	if most > 0 {
		groups = l.Index.Dim(0)
	}
	if !w.dst.Absent() {
		rows = w.dst.Dim(0)
	}
	return c.tensor(l.Index).tensor(l.Count).tensor(w.dst).int(groups, most, rows, w.width).
		bool(w.dst.DType == device.I32).int(w.slots, p.Count).float(p.Share).bool(p.Free).span(p.Span).pages(at.KV, at.N)
}

// walkWidth is how many numbers a row of a walk has.
func walkWidth(rows device.Tensor) int {
	if rows.DType == device.I32 {
		return rows.Dim(1) / 2
	}
	return rows.Dim(1)
}

// topBlocks lists the blocks with the largest elements.
func (o *ops) topBlocks(c *device.Select) {
	w := walk{dst: c.Scores, width: walkWidth(c.Scores), slots: c.KV.Len.Dim(0)}
	o.call("top_blocks").pick(c.List, c.List.Index.Dim(2), newest{c.KV, c.Rows}, c.Blocks, w).run(blocks{touched(c.Rows), 1, w.slots}, 512)
}
