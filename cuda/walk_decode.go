//go:build cuda || cudaemu

package cuda

import (
	"math"

	"github.com/gollm/gollm/device"
)

// Of the kernel walk_decode; see walk_decode.cu.
const (
	maxStepDim       = 256  // of rows and of sketches
	walkDecodeGroup  = 8    // elements of a row per block that walks
	walkDecodeScores = 32   // block scores per block
	minWalkShared    = 2048 // words of shared memory
	walkDecodeBlock  = 512  // threads
)

// tailSketch is the sketches and block scores of the newest row of each slot: its query and key
// are added to the sums of their block, projected, and compared with the blocks before.
type tailSketch struct {
	q, k         device.Tensor // f32 [slots, ·, dim]; q is absent where the scores are there
	qSums, kSums device.Tensor // f32 [pages, 1, dim]
	qSketch      device.Tensor // f32 [pages, 1, width]
	kSketch      device.Tensor // f32 [pages, 1, width]
	basis        device.Tensor // f32 [width, dim]
	scores       device.Tensor // as device.SketchScores makes them
	product      device.SketchProduct
	token        bool // qSketch keeps the sketch of the row, not that of its block's mean
	kv           device.KV
}

// suits reports whether the kernel takes it.
func (s *tailSketch) suits() bool {
	width, dim := s.basis.Dim(0), s.basis.Dim(1)
	return s.kSketch.Dim(1) == 1 && width%4 == 0 && dim%4 == 0 && max(width, dim) <= maxStepDim &&
		s.product.Form != device.Softmax && s.product.Own.Absent()
}

// suitsWalkDecode reports whether the kernel takes a step of a walk and the selection of blocks.
func (o *ops) suitsWalkDecode(w *device.Walk) bool {
	slots := w.KV.Len.Dim(0)
	return w.Rows == 1 && w.Own == 0 && w.Pairs.Rank() == 2 && w.Dst.DType == device.F32 && w.Dst.Dim(1) <= maxTopBlocks && w.Dst.Dim(1)%4 == 0 &&
		w.Pairs.RowLen()%walkDecodeGroup == 0 && slots <= maxCounters && 8*slots*w.Dst.Dim(1) <= workspaceSize
}

// walkDecode launches the kernel: s without q has no sketch, w without Dst no walk.
func (o *ops) walkDecode(s *tailSketch, w *device.Walk, top *device.Select) {
	slots, pages := s.kv.Len.Dim(0), s.kv.Pages.Dim(1)
	rows, width := 0, 0
	if !w.Dst.Absent() {
		rows, width = w.Dst.Dim(0), w.Dst.Dim(1)
	}
	early := o.d.hazards.complete(s.kSketch, s.qSketch, s.basis, s.scores, w.Src)
	c := o.launch("walk_decode").sketch(s).tensor(w.Dst).tensor(w.Src).work(0).int(width, rows, w.Exponent, slots)
	c.topBlocks(top, w.Dst).counters().bool(early).pdlEarly().
		runShared(blocks{ceil(ceil(pages, walkDecodeGroup), 2) + 2 + ceil(pages, walkDecodeScores), slots, 1}, walkDecodeBlock, 4*max(width, minWalkShared))
}

// sketch appends a SketchDecodeArgs.
func (c *launch) sketch(s *tailSketch) *launch {
	qHeads, kHeads, dim, width, scale, constant := 0, 0, 0, 0, 0.0, false
	if !s.q.Absent() {
		qHeads, kHeads, dim, width = s.q.Dim(1), s.k.Dim(1), s.basis.Dim(1), s.basis.Dim(0)
		scale, constant = float64(float32(1/math.Sqrt(float64(width)))), s.basis.Memory().(*memory).constant
	}
	return c.tensor(s.kSums).tensor(s.qSums).tensor(s.kSketch).tensor(s.qSketch).tensor(s.basis).tensor(s.q).tensor(s.k).tensor(s.scores).
		int(qHeads, kHeads, dim, width, s.scores.RowLen()).bool(s.token).int(int(s.product.Form)).bool(s.product.Log).
		float(scale).bool(constant).pages(s.kv, 1)
}
