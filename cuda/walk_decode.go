//go:build cuda || cudaemu

package cuda

import (
	"math"

	"github.com/gollm/gollm/device"
)

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
