package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// walkRow is the number of the row of a block in a tensor of n rows.
func walkRow(b block, slots, n int) int {
	if slots > 1 {
		return b.slot
	}
	return b.index % n
}

// Walk continues rows by one step.
func (o *ops) Walk(dst, src, pairs device.Tensor, at device.Newest, exponent int) {
	const op = "Walk"
	checkWalk(op, dst, at.KV)
	if !src.Absent() {
		checkLike(op, "src", src, dst)
	}
	w := &o.sketch.walk
	w.width = dst.Dim(1)
	if dst.DType == device.I32 {
		w.width /= 2
	}
	w.set(o, o.pairsOf(op, pairs, at.KV), src, exponent)
	o.eachBlock(op, at, touched, func(b block) {
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
		o.pool.RunChunks(len(w.blocks)*w.strips, 1, w)
	}
	for i, b := range w.blocks {
		w.store(row(f32s(dst), b.row, dst.Dim(1))[:b.end], i, b)
	}
}

// walkBlock is a block whose row a walk continues.
type walkBlock struct {
	block
	row int // of the tensors of rows
	end int // elements of it
}

// stripLen is how many elements of a row one worker takes at a time: what the
// pairs of 1,000 blocks have of them stays in its cache between two readings.
const stripLen = 128

// walk is one step of a walk. As a [Task] it sums logarithms: item i is strip
// i%strips of block i/strips.
type walk struct {
	o        *ops
	pairs    pairs
	blocks   []walkBlock
	logs     []float32 // src, [rows, width]
	values   []float64 // src, [rows, width]
	started  bool      // there is a src
	exponent int

	width, strips int       // of rows
	top, sum      []float32 // [blocks, width]
	row64         []float64 // scratch of scaled
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

// size makes room for the sums.
func (w *walk) size() {
	w.strips = (w.width + stripLen - 1) / stripLen
	n := len(w.blocks) * w.width
	top, sum := grown(&w.top, n), grown(&w.sum, n)
	for i := range top {
		top[i], sum[i] = -math.MaxFloat32, 0
	}
}

// Do sums strips: ln Σ_m exp(src[m] + exponent·pairs[m][j]), as the largest
// term and the sum over it. Each element is summed in the order of m, whatever
// the strips.
func (w *walk) Do(_, lo, hi int) {
	for i := lo; i < hi; i++ {
		b, from := w.blocks[i/w.strips], i%w.strips*stripLen
		if from >= b.end {
			continue
		}
		src := row(w.logs, b.row, w.width)[:b.end]
		top, sum := w.strip(w.top, i, from), w.strip(w.sum, i, from)
		w.eachTerm(b, src, from, func(x []float32, l float32) { w.o.vec.LogTop(top, x, float32(w.exponent), l) })
		w.eachTerm(b, src, from, func(x []float32, l float32) { w.o.vec.LogSum(sum, top, x, float32(w.exponent), l) })
	}
}

// strip is a strip of the sums of item i.
func (w *walk) strip(x []float32, i, from int) []float32 {
	return row(x[:len(w.blocks)*w.width], i/w.strips, w.width)[from:min(from+stripLen, w.width)]
}

// eachTerm calls f with what each block made of the strip's blocks, and with
// the logarithm that the row has for it.
func (w *walk) eachTerm(b walkBlock, src []float32, from int, f func(x []float32, l float32)) {
	for m, l := range src {
		if l == negInf {
			continue
		}
		if x := w.pairs.row(b.block, m); len(x) > from {
			f(x[from:min(from+stripLen, len(x))], l)
		}
	}
}

// store finishes the row of block i: logarithms less the largest but the first.
func (w *walk) store(dst []float32, i int, b walkBlock) {
	if !w.started {
		for j, e := range w.pairs.row(b.block, b.index) {
			dst[j] = float32(w.exponent) * e
		}
	} else {
		top, sum := row(w.top, i, w.width), row(w.sum, i, w.width)
		for j := range dst {
			dst[j] = negInf
			if sum[j] > 0 {
				dst[j] = top[j] + float32(math.Log(float64(sum[j])))
			}
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

// scaled is Σ_m src[m]·pairs[m][j]^exponent over the largest but the first.
func (w *walk) scaled(b walkBlock) []float64 {
	sum := grown(&w.row64, b.end)
	clear(sum)
	if !w.started {
		for j, v := range w.pairs.row(b.block, b.index) {
			sum[j] = power(float64(v), w.exponent)
		}
	} else {
		for m, l := range row(w.values, b.row, w.width)[:b.end] {
			for j, v := range w.pairs.row(b.block, m) {
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

// checkWalk panics unless t is rows of a walk.
func checkWalk(op string, t device.Tensor, kv device.KV) {
	n := -1
	if slots := kv.Len.Dim(0); slots > 1 {
		n = slots
	}
	device.Check(t.DType == device.F32 || t.DType == device.I32, op, "rows %v, want F32 or I32", t)
	device.CheckShape(op, "rows", t, t.DType, -1, -1)
	device.Check(t.Dim(0) >= n && t.Dim(0) > 0, op, "rows %v, want at least %d", t, max(n, 1))
}

// f64s is the contents of rows of signed float64s.
func f64s(t device.Tensor) []float64 { return as[float64](bytesOf(t)) }

// TopBlocks lists the blocks with the largest elements.
func (o *ops) TopBlocks(l device.List, rows device.Tensor, at device.Newest, p device.Pick) {
	const op = "TopBlocks"
	checkWalk(op, rows, at.KV)
	device.CheckShape(op, "list", l.Index, device.I32, -1, 1, -1)
	device.CheckShape(op, "count", l.Count, device.I32, l.Index.Dim(0), 1)
	groups, most := l.Index.Dim(0), l.Index.Dim(2)
	device.Check(most >= at.KV.Pages.Dim(1), op, "lists of %d, want at least %d", most, at.KV.Pages.Dim(1))
	slots := at.KV.Len.Dim(0)
	o.eachBlock(op, at, touched, func(b block) {
		if b.group() >= groups {
			o.d.fail("TopBlocks: block %d of the call, want 0 to %d", b.group(), groups-1)
			return
		}
		keys := o.walkKeys(rows, walkRow(b, slots, rows.Dim(0)), b.index+1)
		list := o.pick(keys, b, p)
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
		}
	}
	return keys
}

// pick is the blocks that a block reads, ascending.
func (o *ops) pick(keys []float64, b block, p device.Pick) []int32 {
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
	// The best, after those that are read in any case: its own, which is last,
	// and the first.
	own := len(list) - 1
	lo, hi, k := 0, own, n-1
	if p.Free {
		hi = own + 1
	} else if list[0] == 0 {
		lo, k = 1, n-2
	}
	slices.SortFunc(list[lo:hi], func(x, y int32) int {
		return cmp.Or(cmp.Compare(keys[y], keys[x]), cmp.Compare(x, y))
	})
	list = list[:lo+max(k, 0)]
	if !slices.Contains(list, int32(b.index)) {
		list = append(list, int32(b.index))
	}
	slices.Sort(list)
	return list
}

// sees reports whether the row at p sees any position of block j.
func (v *reach) sees(p, j int) bool {
	last := min(j*device.PageLen+device.PageLen-1, p)
	sink := min(last, v.plan.Span.Sink-1)
	return v.spanned(p, last) || sink >= j*device.PageLen && v.spanned(p, sink)
}
