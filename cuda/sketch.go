//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// mostWidth is the most dimensions of what is sketched.
const mostWidth = 1024

// walkRun is WALK_RUN of sketch.cu.
const walkRun = 128

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
	n, heads, parts := touched(at.N), sizes[0], 1
	if n == 1 {
		parts = ceil(sizes[2], 8)
	}
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
	call := func(name string, y int) {
		o.call(name).tensor(dst).int(dst.RowLen()).bool(square).tensor(q).tensor(k).tensor(own).
			int(q.Dim(1)*q.Dim(2), int(c.Form)).bool(c.Log).float(scale).pages(at.KV, at.N).
			run(blocks{n, y, at.KV.Len.Dim(0)}, 256)
	}
	call("compare", ceil(width, 8))
	if c.Form == device.Softmax {
		call("compare_shares", 1)
	}
}

// Walk continues rows by one step.
func (o *ops) Walk(dst, src, pairs device.Tensor, at device.Newest, exponent int) {
	const op = "Walk"
	device.CheckKV(op, at.KV)
	width := checkWalk(op, dst, at.KV)
	if !src.Absent() {
		device.CheckLike(op, "src", src, dst)
	}
	square := checkPairs(op, pairs, at.KV)
	slots, n := at.KV.Len.Dim(0), touched(at.N)
	one, runs := n == 1 && dst.DType == device.F32, ceil(width, walkRun)
	if need := 8 * slots * max(n, runs) * width; need > workspaceSize {
		o.d.keep(fmt.Errorf("%s: %d rows of %d need %d bytes of workspace, there are %d", op, slots*n, width, need, workspaceSize))
		return
	}
	call := func(name string, x, y, threads int) {
		o.call(name).tensor(dst).tensor(src).work(0).int(width, dst.Dim(0)).bool(dst.DType == device.I32).int(exponent, slots, n).
			tensor(pairs).int(pairs.RowLen()).bool(square).pages(at.KV, at.N).
			run(blocks{x, y, slots}, threads)
	}
	if one {
		if !src.Absent() {
			call("walk_newest", ceil(width, 32), runs, 256)
		}
		call("walk_join", 1, 1, min(ceil(width, 32)*32, 1024))
		return
	}
	call("walk", ceil(n, 4), ceil(width, 32), 256)
	call("walk_store", n, 1, 256)
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
	width := checkWalk(op, rows, at.KV)
	device.CheckShape(op, "list", l.Index, device.I32, -1, 1, -1)
	groups, most := l.Index.Dim(0), l.Index.Dim(2)
	device.CheckShape(op, "count", l.Count, device.I32, groups, 1)
	if most < at.KV.Pages.Dim(1) {
		device.Check(false, op, "lists of %d, want at least %d", most, at.KV.Pages.Dim(1))
	}
	slots, threads := at.KV.Len.Dim(0), 256
	if touched(at.N) == 1 { // few lists, which wait for their slowest thread
		threads = min(ceil(at.KV.Pages.Dim(1), 32)*32, 1024)
	}
	o.call("top_blocks").tensor(l.Index).tensor(l.Count).tensor(rows).int(groups, most, rows.Dim(0), width).
		bool(rows.DType == device.I32).int(slots, p.Count).float(p.Share).bool(p.Free).span(p.Span).pages(at.KV, at.N).
		run(blocks{touched(at.N), 1, slots}, threads)
}
