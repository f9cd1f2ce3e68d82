//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// mostWidth is the most dimensions of what is sketched.
const mostWidth = 1024

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

// touched is how many blocks the newest n rows of a slot lie in at most.
func touched(n int) int { return (max(n, 1)+device.PageLen-2)/device.PageLen + 1 }

// BlockSum adds rows to the sums of their blocks.
func (o *ops) BlockSum(sum, x device.Tensor, kv device.KV) {
	const op = "BlockSum"
	device.CheckKV(op, kv)
	device.CheckShape(op, "sum", sum, device.F32, kv.K.Dim(0), -1, -1)
	heads, dim := sum.Dim(1), sum.Dim(2)
	checkHeads(op, x, heads, dim)
	n := device.RowsPerSlot(op, x.Dim(0), kv)
	o.call("block_sum").tensor(sum).tensor(x).int(heads, x.Dim(1), dim).pages(kv, n).
		run(blocks{touched(n), heads * ceil(dim, 32), kv.Len.Dim(0)}, 512)
}

// checkHeads panics unless x is rows of a multiple of heads.
func checkHeads(op string, x device.Tensor, heads, dim int) {
	device.CheckShape(op, "x", x, device.F32, -1, -1, dim)
	if heads < 1 || x.Dim(1)%heads != 0 {
		device.Check(false, op, "%d heads in x, want a multiple of %d", x.Dim(1), heads)
	}
}

// SketchMeans projects the means of blocks.
func (o *ops) SketchMeans(dst, sum, basis device.Tensor, at device.Newest) {
	const op = "SketchMeans"
	pages, heads, width, dim := checkSketch(op, dst, basis, at.KV)
	device.CheckShape(op, "sum", sum, device.F32, pages, heads, dim)
	o.sketch(dst, sum, basis, at, [4]int{heads, 0, width, dim})
}

// SketchRows projects the newest row of each slot.
func (o *ops) SketchRows(dst, x, basis device.Tensor, kv device.KV) {
	const op = "SketchRows"
	_, heads, width, dim := checkSketch(op, dst, basis, kv)
	checkHeads(op, x, heads, dim)
	n := device.RowsPerSlot(op, x.Dim(0), kv)
	o.sketch(dst, x, basis, device.Newest{KV: kv, N: n}, [4]int{heads, x.Dim(1), width, dim})
}

// sketch spreads the elements of a sketch over blocks where there are few sketches.
func (o *ops) sketch(dst, x, basis device.Tensor, at device.Newest, sizes [4]int) {
	n, heads := touched(at.N), sizes[0]
	parts := min(ceil(sizes[2], 8), max(1, 512/(n*heads)))
	o.call("sketch").tensor(dst).tensor(x).tensor(basis).int(sizes[:]...).int(parts).pages(at.KV, at.N).
		run(blocks{n, heads * parts, at.KV.Len.Dim(0)}, 256)
}

// checkSketch panics unless dst and basis belong together, and gives their sizes.
func checkSketch(op string, dst, basis device.Tensor, kv device.KV) (pages, heads, width, dim int) {
	device.CheckKV(op, kv)
	device.CheckShape(op, "basis", basis, device.F32, -1, -1)
	pages, width, dim = kv.K.Dim(0), basis.Dim(0), basis.Dim(1)
	device.CheckShape(op, "dst", dst, device.F32, pages, -1, width)
	if dim > mostWidth {
		device.Check(false, op, "basis %v, want rows of at most %d", basis, mostWidth)
	}
	return pages, dst.Dim(1), width, dim
}

// checkPairs panics unless t is numbers that blocks made of each other.
func checkPairs(op string, t device.Tensor, kv device.KV) (square bool) {
	width := t.RowLen()
	square = t.Rank() == 3
	if square {
		device.CheckShape(op, "pairs", t, device.F32, kv.Len.Dim(0), width, width)
	} else {
		device.CheckShape(op, "pairs", t, device.F32, kv.K.Dim(0), width)
	}
	if width < kv.Pages.Dim(1) {
		device.Check(false, op, "pairs %v, want rows of at least %d", t, kv.Pages.Dim(1))
	}
	return square
}

// CompareBlocks makes rows of pairs.
func (o *ops) CompareBlocks(dst, q, k device.Tensor, at device.Newest, c device.Compare) {
	const op = "CompareBlocks"
	device.CheckKV(op, at.KV)
	device.CheckShape(op, "q", q, device.F32, at.KV.K.Dim(0), -1, -1)
	device.CheckLike(op, "k", k, q)
	own := q
	if !c.Own.Absent() {
		device.CheckLike(op, "own", c.Own, q)
		own = c.Own
	}
	square := checkPairs(op, dst, at.KV)
	scale := float64(float32(1 / (float64(q.Dim(1)) * math.Sqrt(float64(q.Dim(2))))))
	width := at.KV.Pages.Dim(1)
	n := touched(at.N) + 1
	if square {
		n = width
	}
	call := func(name string, b blocks) {
		o.call(name).tensor(dst).int(dst.RowLen()).bool(square).tensor(q).tensor(k).tensor(own).
			int(q.Dim(1)*q.Dim(2), int(c.Form)).bool(c.Log).float(scale).pages(at.KV, at.N).run(b, 256)
	}
	slots := at.KV.Len.Dim(0)
	call("compare", blocks{ceil(width, compareColumns), ceil(n, compareRows), slots})
	if c.Form == device.Softmax {
		call("compare_shares", blocks{n, 1, slots})
	}
}

// FuseSketchNewest adds the row of each slot to its block and compares it.
func (o *ops) FuseSketchNewest(s device.NewestSketch, q, k device.Tensor, kv device.KV) bool {
	return o.newest("SketchNewest", s, q, k, kv, device.NewestWalk{})
}

// FuseWalkNewest is FuseSketchNewest, and then a step of a walk that lists blocks.
func (o *ops) FuseWalkNewest(s device.NewestSketch, q, k device.Tensor, kv device.KV, w device.NewestWalk) bool {
	return o.newest("WalkNewest", s, q, k, kv, w)
}

// walkNewest is the kernel of walk_row.cu.
const walkNewest = "walk_newest"

// newest compares the row of each slot with the blocks before, unless q is absent, and walks
// and lists blocks, unless the walk is absent.
func (o *ops) newest(op string, s device.NewestSketch, q, k device.Tensor, kv device.KV, w device.NewestWalk) bool {
	slots, sizes, scale, fixed := kv.Len.Dim(0), [4]int{}, 0.0, false
	if checkPairs(op, s.Pairs, kv) {
		return false
	}
	if !q.Absent() {
		_, heads, width, dim := checkSketch(op, s.KeySketch, s.Basis, kv)
		if heads != 1 || width%4 != 0 || dim%4 != 0 || max(width, dim) > newestDim || s.Compare.Form == device.Softmax || !s.Compare.Own.Absent() {
			return false
		}
		device.CheckLike(op, "query sketches", s.QuerySketch, s.KeySketch)
		device.CheckShape(op, "key sums", s.Keys, device.F32, kv.K.Dim(0), 1, dim)
		device.CheckLike(op, "query sums", s.Queries, s.Keys)
		device.CheckShape(op, "q", q, device.F32, slots, -1, dim)
		device.CheckShape(op, "k", k, device.F32, slots, -1, dim)
		sizes, scale, fixed = [4]int{q.Dim(1), k.Dim(1), dim, width}, float64(float32(1/math.Sqrt(float64(width)))), s.Basis.Memory().(*memory).fixed
	}
	at, most, rows, row := device.Newest{KV: kv, N: 1}, 0, 0, walk{o: o, slots: slots}
	if !w.Dst.Absent() {
		if w.Dst.DType != device.F32 || w.Dst.Dim(1) > pickMost || w.Dst.Dim(1)%4 != 0 || s.Pairs.RowLen()%newestGroup != 0 || slots > decodeCounts {
			return false
		}
		row = o.checkedWalk(op, w.Dst, w.Src, s.Pairs, at, w.Exponent)
		most, rows = o.checkPick(op, w.List, at), w.Dst.Dim(0)
		if 8*slots*row.width > workspaceSize {
			return false
		}
	}
	early := o.d.calls.settled()
	c := o.call(walkNewest).tensor(s.Keys).tensor(s.Queries).tensor(s.KeySketch).tensor(s.QuerySketch).tensor(s.Basis).tensor(q).tensor(k).
		tensor(s.Pairs).int(sizes[:]...).int(s.Pairs.RowLen()).bool(s.Row).int(int(s.Compare.Form)).bool(s.Compare.Log).float(scale).bool(fixed).pages(kv, 1)
	c.tensor(w.Dst).tensor(w.Src).work(0).int(row.width, rows, w.Exponent, slots)
	c.pick(w.List, most, at, w.Pick, row).word(uint64(o.d.counts.at)).bool(early).ahead().
		runShared(blocks{ceil(ceil(kv.Pages.Dim(1), newestGroup), 2) + 2 + ceil(kv.Pages.Dim(1), newestCompared), slots, 1}, newestThreads, 4*max(row.width, newestRoom))
	return true
}

// Walk continues rows by one step.
func (o *ops) Walk(dst, src, pairs device.Tensor, at device.Newest, exponent int) {
	w := o.checkedWalk("Walk", dst, src, pairs, at, exponent)
	switch {
	case !w.fits("Walk"):
	case dst.DType == device.I32:
		w.call("walk").run(blocks{w.n, ceil(w.width, 32), w.slots}, 256)
		w.call("walk_store").run(blocks{w.n, 1, w.slots}, 256)
	default:
		w.sums()
		w.call("walk_join").pick(device.List{}, 0, at, device.Pick{}, w).run(blocks{w.n, 1, w.slots}, threadsFor(w.width, 1024))
	}
}

// FuseWalkTop continues rows by one step and lists blocks.
func (o *ops) FuseWalkTop(l device.List, dst, src, pairs device.Tensor, at device.Newest, exponent int, p device.Pick) bool {
	const op = "WalkTop"
	if dst.DType != device.F32 || dst.Dim(1) > pickMost {
		return false
	}
	if at.N == 1 && o.newest(op, device.NewestSketch{Pairs: pairs}, device.Tensor{}, device.Tensor{}, at.KV, device.NewestWalk{Dst: dst, Src: src, Exponent: exponent, List: l, Pick: p}) {
		return true
	}
	w := o.checkedWalk(op, dst, src, pairs, at, exponent)
	most := o.checkPick(op, l, at)
	if w.fits(op) {
		w.sums()
		w.call("walk_join").pick(l, most, at, p, w).runShared(blocks{w.n, 1, w.slots}, 512, 4*w.width)
	}
	return true
}

// walk is the arguments of a step of a walk.
type walk struct {
	o                         *ops
	dst, src, pairs           device.Tensor
	at                        device.Newest
	square                    bool
	width, slots, n, exponent int
	run                       int // m of a sum in the workspace
}

// checkedWalk panics unless the arguments belong together.
func (o *ops) checkedWalk(op string, dst, src, pairs device.Tensor, at device.Newest, exponent int) walk {
	device.CheckKV(op, at.KV)
	w := walk{o: o, dst: dst, src: src, pairs: pairs, at: at, width: checkWalk(op, dst, at.KV), exponent: exponent}
	if !src.Absent() {
		device.CheckLike(op, "src", src, dst)
	}
	w.square, w.slots, w.n = checkPairs(op, pairs, at.KV), at.KV.Len.Dim(0), touched(at.N)
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

// pick gives a PickArgs of a walk's rows.
func (c *call) pick(l device.List, most int, at device.Newest, p device.Pick, w walk) *call {
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

// checkWalk panics unless t is rows of a walk, and gives their length.
func checkWalk(op string, t device.Tensor, kv device.KV) (width int) {
	n := 1
	if slots := kv.Len.Dim(0); slots > 1 {
		n = slots
	}
	if t.DType != device.F32 && t.DType != device.I32 {
		device.Check(false, op, "rows %v, want F32 or I32", t)
	}
	device.CheckShape(op, "rows", t, t.DType, -1, -1)
	if t.Dim(0) < n {
		device.Check(false, op, "rows %v, want at least %d", t, n)
	}
	if t.DType == device.I32 {
		return t.Dim(1) / 2
	}
	return t.Dim(1)
}

// TopBlocks lists the blocks with the largest elements.
func (o *ops) TopBlocks(l device.List, rows device.Tensor, at device.Newest, p device.Pick) {
	const op = "TopBlocks"
	device.CheckKV(op, at.KV)
	w := walk{dst: rows, width: checkWalk(op, rows, at.KV), slots: at.KV.Len.Dim(0)}
	most := o.checkPick(op, l, at)
	o.call("top_blocks").pick(l, most, at, p, w).run(blocks{touched(at.N), 1, w.slots}, 512)
}

// checkPick panics unless lists have room for all blocks, and gives how many they hold.
func (o *ops) checkPick(op string, l device.List, at device.Newest) (most int) {
	device.CheckShape(op, "list", l.Index, device.I32, -1, 1, -1)
	groups, most := l.Index.Dim(0), l.Index.Dim(2)
	device.CheckShape(op, "count", l.Count, device.I32, groups, 1)
	if most < at.KV.Pages.Dim(1) {
		device.Check(false, op, "lists of %d, want at least %d", most, at.KV.Pages.Dim(1))
	}
	return most
}
