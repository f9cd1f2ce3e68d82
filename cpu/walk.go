package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// walkRow is the row of block b in rows of a walk: by slot, or, with one slot, by block.
func walkRow(b callBlock, kv device.KV, rows device.Tensor) int {
	if kv.Len.Dim(0) > 1 {
		return b.slot
	}
	return b.index % rows.Dim(0)
}

// walk multiplies the rows of a walk by the matrix of pairs, and normalizes them.
func (o *ops) walk(c *device.Walk) {
	dst, src := c.Dst, c.Src
	w := &o.tasks.sketch.walk
	w.width = dst.Dim(1)
	if dst.DType == device.I32 {
		w.width /= 2
	}
	w.start(o, o.sketchPairs(c.Pairs, c.KV), src, c)
	o.eachBlock("Walk", c.KV, c.Rows, touched, func(b callBlock) {
		w.blocks = append(w.blocks, walkBlock{b, walkRow(b, c.KV, dst), len(w.pairs.row(b, b.index))})
	})
	if dst.DType == device.I32 {
		for _, b := range w.blocks {
			copy(row(f64s(dst), b.row, dst.Dim(1)/2), w.scaled(b))
		}
		return
	}
	if !src.Absent() {
		w.size()
		o.pool.RunChunks(len(w.blocks)*w.segments, 1, w)
	}
	for i, b := range w.blocks {
		w.store(row(f32s(dst), b.row, dst.Dim(1))[:b.end], i, b)
	}
}

// walkBlock is a block with its row of the walk.
type walkBlock struct {
	callBlock
	row int // of src and dst
	end int // elements of the row
}

// segmentLen is how many rows of pairs are reduced at a time (split-K): they are read twice,
// for the largest term and for the sum, and stay in the cache of a worker in between.
const segmentLen = 64

// walkTask is a step of a walk. As a [Task] it is log-sum-exp: item i is segment i%segments of
// block i/segments.
type walkTask struct {
	o        *ops
	pairs    sketchPairs
	blocks   []walkBlock
	width    int       // of rows
	started  bool      // has a src; otherwise the row is that of pairs
	logs     []float32 // src, [rows, width]
	values   []float64 // src, [rows, width]
	exponent int
	own      float64

	segments int
	top, sum []float32    // [blocks, segments, width]: partial results
	scratch  [3][]float32 // of join, [width]
	row64    []float64    // scratch of scaled and of damp
	walk64   []float64
}

// start looks up the operands of a call.
func (w *walkTask) start(o *ops, p sketchPairs, src device.Tensor, c *device.Walk) {
	w.o, w.pairs, w.exponent, w.own, w.started = o, p, c.Exponent, c.Own, !src.Absent()
	w.blocks, w.logs, w.values = w.blocks[:0], nil, nil
	switch {
	case !w.started:
	case src.DType == device.F32:
		w.logs = f32s(src)
	default:
		w.values = f64s(src)
	}
}

// size makes room for the partial results of segments.
func (w *walkTask) size() {
	w.segments = (w.width + segmentLen - 1) / segmentLen
	n := len(w.blocks) * w.segments * w.width
	grown(&w.top, n)
	grown(&w.sum, n)
	for i := range w.scratch {
		grown(&w.scratch[i], w.width)
	}
}

// segment is the partial result of segment s of block i: of each element the largest term,
// and the sum of exponentials relative to it. n is 0 where there is no such segment.
func (w *walkTask) segment(i, s int) (top, sum []float32, n int) {
	b := w.blocks[i]
	if s*segmentLen < b.end {
		n = len(w.pairs.row(b.callBlock, min(s*segmentLen+segmentLen, b.end)-1))
	}
	at := i*w.segments + s
	return row(w.top, at, w.width)[:n], row(w.sum, at, w.width)[:n], n
}

// Do reduces segments of ln Σ_m exp(src[m] + exponent·pairs[m][j]). A segment is of fixed m, so
// the order of a sum does not depend on the workers.
func (w *walkTask) Do(_, lo, hi int) {
	for i := lo; i < hi; i++ {
		b, s := w.blocks[i/w.segments], i%w.segments
		top, sum, n := w.segment(i/w.segments, s)
		if n == 0 {
			continue
		}
		for j := range top {
			top[j], sum[j] = -math.MaxFloat32, 0
		}
		first := s * segmentLen
		src := row(w.logs, b.row, w.width)[first:min(first+segmentLen, b.end)]
		for m, l := range src {
			if l > negInf {
				w.o.vec.LogTop(top, w.pairs.row(b.callBlock, first+m), float32(w.exponent), l)
			}
		}
		for m, l := range src {
			if l > negInf {
				w.o.vec.LogSum(sum, top, w.pairs.row(b.callBlock, first+m), float32(w.exponent), l)
			}
		}
	}
}

// store writes the row of block i: logarithms less the largest of them, the first left out.
func (w *walkTask) store(dst []float32, i int, b walkBlock) {
	if w.started {
		w.join(dst, i)
		if w.own > 0 {
			w.damp(dst, b)
		}
	} else {
		for j, e := range w.pairs.row(b.callBlock, b.index) {
			dst[j] = float32(w.exponent) * e
		}
	}
	largest := slices.Max(dst[min(1, len(dst)-1):])
	if largest == negInf {
		return
	}
	for j := range dst {
		dst[j] -= largest
	}
}

// join merges the partial results of the segments of block i into logarithms.
func (w *walkTask) join(dst []float32, i int) {
	n := len(dst)
	largest, total, part := w.scratch[0][:n], w.scratch[1][:n], w.scratch[2][:n]
	for j := range dst {
		largest[j], total[j] = -math.MaxFloat32, 0
	}
	for s := range w.segments {
		top, _, n := w.segment(i, s)
		w.o.vec.LogTop(largest[:n], top, 1, 0)
	}
	for s := range w.segments {
		top, sum, n := w.segment(i, s)
		clear(part[:n])
		w.o.vec.LogSum(part[:n], largest[:n], top, 1, 0)
		w.o.vec.ScaleMul(part[:n], part[:n], sum, 1)
		w.o.vec.Add(total[:n], part[:n])
	}
	for j := range dst {
		dst[j] = negInf
		if total[j] > 0 {
			dst[j] = largest[j] + float32(math.Log(float64(total[j])))
		}
	}
}

// damp adds the own row of b to the row of a walk dst, both of logarithms.
func (w *walkTask) damp(dst []float32, b walkBlock) {
	pairs := w.pairs.row(b.callBlock, b.index)
	own := grown(&w.row64, len(dst))
	for j, e := range pairs {
		own[j] = float64(float32(w.exponent) * e)
	}
	walked := grown(&w.walk64, len(dst))
	for j, l := range dst {
		walked[j] = float64(l)
	}
	// What stands before each part, so that it sums to 1 - own and own.
	from, to := math.Log(1-w.own)-logSum(walked), math.Log(w.own)-logSum(own)
	for j := range dst {
		dst[j] = float32(logAdd(walked[j]+from, own[j]+to))
	}
}

// logSum is ln Σ exp(x), 0 where there is nothing to scale.
func logSum(x []float64) float64 {
	top, sum := slices.Max(x), 0.0
	if math.IsInf(top, -1) {
		return 0
	}
	for _, v := range x {
		sum += math.Exp(v - top)
	}
	return top + math.Log(sum)
}

// logAdd is ln(exp(x) + exp(y)).
func logAdd(x, y float64) float64 {
	if x < y {
		x, y = y, x
	}
	if math.IsInf(x, -1) {
		return x
	}
	return x + math.Log1p(math.Exp(y-x))
}

// scaled is Σ_m src[m]·pairs[m][j]^exponent over the largest of them, the first left out.
func (w *walkTask) scaled(b walkBlock) []float64 {
	sum := grown(&w.row64, b.end)
	clear(sum)
	if !w.started {
		for j, v := range w.pairs.row(b.callBlock, b.index) {
			sum[j] = power(float64(v), w.exponent)
		}
	} else {
		for m, l := range row(w.values, b.row, w.width)[:b.end] {
			for j, v := range w.pairs.row(b.callBlock, m) {
				sum[j] += l * power(float64(v), w.exponent)
			}
		}
		if w.own > 0 {
			w.dampScaled(sum, b)
		}
	}
	var top float64
	for _, v := range sum[min(1, len(sum)-1):] {
		top = max(top, math.Abs(v))
	}
	for j := range sum {
		if top > 0 {
			sum[j] /= top
		}
	}
	return sum
}

// dampScaled adds the own row of b to the row of a walk sum.
func (w *walkTask) dampScaled(sum []float64, b walkBlock) {
	own := grown(&w.walk64, len(sum))
	var all, mine float64
	for j, v := range w.pairs.row(b.callBlock, b.index) {
		own[j] = power(float64(v), w.exponent)
		all, mine = all+math.Abs(sum[j]), mine+math.Abs(own[j])
	}
	for j := range sum {
		if all > 0 {
			sum[j] *= (1 - w.own) / all
		}
		if mine > 0 {
			sum[j] += own[j] * w.own / mine
		}
	}
}

// power is x to the n, n at least 1.
func power(x float64, n int) float64 {
	y := 1.0
	for ; n > 0; n /= 2 {
		if n%2 == 1 {
			y *= x
		}
		x *= x
	}
	return y
}

// f64s is the contents of an I32 tensor that holds the bits of float64s.
func f64s(t device.Tensor) []float64 { return as[float64](bytesOf(t)) }
