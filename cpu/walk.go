package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// walkRow is the number of the row of a block in a tensor of n rows.
func walkRow(b chunkBlock, slots, n int) int {
	if slots > 1 {
		return b.slot
	}
	return b.index % n
}

// walk continues rows by one step.
func (o *ops) walk(c *device.Walk) {
	dst, src, at := c.Dst, c.Src, newest{c.KV, c.Rows}
	w := &o.sketch.walk
	w.width = dst.Dim(1)
	if dst.DType == device.I32 {
		w.width /= 2
	}
	w.set(o, o.pairsOf(c.Pairs, at.KV), src, c.Exponent)
	o.eachBlock("Walk", at, touched, func(b chunkBlock) {
		w.blocks = append(w.blocks, walkBlock{b, walkRow(b, at.KV.Len.Dim(0), dst.Dim(0)), len(w.pairs.row(b, b.index))})
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

// walkBlock is a block whose row a walk continues.
type walkBlock struct {
	chunkBlock
	row int // of the tensors of rows
	end int // elements of it
}

// segmentLen is how many terms of each element are summed at a time: what their
// blocks have in pairs stays in a worker's cache between two readings.
const segmentLen = 64

// walk is one step of a walk. As a [Task] it sums logarithms: item i is segment
// i%segments of block i/segments.
type walk struct {
	o        *ops
	pairs    pairs
	blocks   []walkBlock
	width    int       // of rows
	started  bool      // there is a src
	logs     []float32 // src, [rows, width]
	values   []float64 // src, [rows, width]
	exponent int

	segments int
	top, sum []float32    // [blocks, segments, width]
	scratch  [3][]float32 // of join, [width]
	row64    []float64    // scratch of scaled
}

// set begins a call.
func (w *walk) set(o *ops, p pairs, src device.Tensor, exponent int) {
	w.o, w.pairs, w.exponent, w.started = o, p, exponent, !src.Absent()
	w.blocks, w.logs, w.values = w.blocks[:0], nil, nil
	switch {
	case !w.started:
	case src.DType == device.F32:
		w.logs = f32s(src)
	default:
		w.values = f64s(src)
	}
}

// size makes room for the sums of segments.
func (w *walk) size() {
	w.segments = (w.width + segmentLen - 1) / segmentLen
	n := len(w.blocks) * w.segments * w.width
	grown(&w.top, n)
	grown(&w.sum, n)
	for i := range w.scratch {
		grown(&w.scratch[i], w.width)
	}
}

// segment is the sums of segment s of block i: of each element the largest term
// and the sum over it. n is 0 where there is no such segment.
func (w *walk) segment(i, s int) (top, sum []float32, n int) {
	b := w.blocks[i]
	if s*segmentLen < b.end {
		n = len(w.pairs.row(b.chunkBlock, min(s*segmentLen+segmentLen, b.end)-1))
	}
	at := i*w.segments + s
	return row(w.top, at, w.width)[:n], row(w.sum, at, w.width)[:n], n
}

// Do sums segments of ln Σ_m exp(src[m] + exponent·pairs[m][j]). They are those
// of absolute m, so that the order of a sum does not depend on the workers.
func (w *walk) Do(_, lo, hi int) {
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
				w.o.vec.LogTop(top, w.pairs.row(b.chunkBlock, first+m), float32(w.exponent), l)
			}
		}
		for m, l := range src {
			if l > negInf {
				w.o.vec.LogSum(sum, top, w.pairs.row(b.chunkBlock, first+m), float32(w.exponent), l)
			}
		}
	}
}

// store finishes the row of block i: logarithms less the largest but the first.
func (w *walk) store(dst []float32, i int, b walkBlock) {
	if w.started {
		w.join(dst, i)
	} else {
		for j, e := range w.pairs.row(b.chunkBlock, b.index) {
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

// join is the logarithms of the sums of all segments of block i.
func (w *walk) join(dst []float32, i int) {
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

// scaled is Σ_m src[m]·pairs[m][j]^exponent over the largest but the first.
func (w *walk) scaled(b walkBlock) []float64 {
	sum := grown(&w.row64, b.end)
	clear(sum)
	if !w.started {
		for j, v := range w.pairs.row(b.chunkBlock, b.index) {
			sum[j] = power(float64(v), w.exponent)
		}
	} else {
		for m, l := range row(w.values, b.row, w.width)[:b.end] {
			for j, v := range w.pairs.row(b.chunkBlock, m) {
				sum[j] += l * power(float64(v), w.exponent)
			}
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

// f64s is the contents of rows of signed float64s.
func f64s(t device.Tensor) []float64 { return as[float64](bytesOf(t)) }

// topBlocks lists the blocks with the largest elements.
func (o *ops) topBlocks(c *device.Select) {
	l, rows, at := c.List, c.Scores, newest{c.KV, c.Rows}
	groups, most, slots := l.Index.Dim(0), l.Index.Dim(2), at.KV.Len.Dim(0)
	o.eachBlock("TopBlocks", at, touched, func(b chunkBlock) {
		if b.group() >= groups {
			o.d.fail("TopBlocks: block %d of the call, want 0 to %d", b.group(), groups-1)
			return
		}
		keys := o.walkKeys(rows, walkRow(b, slots, rows.Dim(0)), b.index+1)
		list := o.pick(keys, b, c.Blocks)
		copy(row(i32s(l.Index), b.group(), most), list)
		i32s(l.Count)[b.group()] = int32(len(list))
	})
}

// walkKeys is the first n elements of a row, NaN as -Inf.
func (o *ops) walkKeys(rows device.Tensor, r, n int) []float64 {
	keys := grown(&o.sketch.keys, n)
	if rows.DType == device.F32 {
		for j, v := range row(f32s(rows), r, rows.Dim(1))[:n] {
			keys[j] = float64(v)
		}
	} else {
		copy(keys, row(f64s(rows), r, rows.Dim(1)/2))
	}
	for j, v := range keys {
		if v != v {
			keys[j] = math.Inf(-1)
			o.sketch.nans++
		}
	}
	o.d.sawNaNs(&o.sketch.nans)
	return keys
}

// pick is the blocks that a block reads, ascending.
func (o *ops) pick(keys []float64, b chunkBlock, p device.BlockBudget) []int32 {
	v := reach{device.Plan{Span: p.Span}}
	list := grown(&o.sketch.order, b.index+1)[:0]
	for j := range b.index + 1 {
		if v.sees(max(b.first, b.index*device.PageLen), j) {
			list = append(list, int32(j))
		}
	}
	n := p.Of(len(list))
	if n >= len(list) {
		return list
	}
	// The best, after those that are read in any case: its own, which is last, and
	// block 0.
	own := len(list) - 1
	lo, hi, k := 0, own, n-1
	if p.Free {
		hi = own + 1
	} else if list[0] == 0 {
		lo, k = 1, n-2
	}
	k = max(k, 0)
	bestFirst(list[lo:hi], keys, k)
	list = list[:lo+k]
	if !slices.Contains(list, int32(b.index)) {
		list = append(list, int32(b.index))
	}
	slices.Sort(list)
	return list
}

// bestFirst moves the k elements of list with the largest keys to its front, in
// any order; ties to the lowest. It halves the part that the k-th lies in
// (Hoare's selection).
func bestFirst(list []int32, keys []float64, k int) {
	before := func(x, y int32) bool { return keys[x] > keys[y] || keys[x] == keys[y] && x < y }
	for lo, hi := 0, len(list)-1; lo < hi && k > lo; {
		pivot := list[(lo+hi)/2]
		i, j := lo, hi
		for i <= j {
			for before(list[i], pivot) {
				i++
			}
			for before(pivot, list[j]) {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i, j = i+1, j-1
			}
		}
		switch { // lo..j come before the pivot, i..hi after it
		case k-1 <= j:
			hi = j
		case k-1 >= i:
			lo = i
		default:
			return
		}
	}
}

// sees reports whether the row at p sees any position of block j.
func (v *reach) sees(p, j int) bool {
	last := min(j*device.PageLen+device.PageLen-1, p)
	sink := min(last, v.plan.Span.Sink-1)
	return v.spanned(p, last) || sink >= j*device.PageLen && v.spanned(p, sink)
}
