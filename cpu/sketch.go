package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// sketcher is the scratch of the operations on blocks. It grows to the longest
// sequence seen and is then used again.
type sketcher struct {
	mean  []float32 // of the heads of a row, or of a block
	top   []float64 // walk: the largest term of each element
	sum   []float64 // walk: the sum of its terms
	keys  []float64 // ranking: the elements of a row
	order []int32   // ranking: blocks, best first
}

// grown is s with room for n elements, n of them in use.
func grown[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n+n/2)
	}
	*s = (*s)[:cap(*s)]
	return (*s)[:n]
}

// chunkBlock is one of the blocks that a call's rows lie in.
type chunkBlock struct {
	slot, index int // whose block, and which of its blocks
	page        int
	first       int // position of the slot's first row of the call
	len         int // positions of the slot
}

// positions is how many positions of the block are stored.
func (b chunkBlock) positions() int { return min(b.len-b.index*device.PageLen, device.PageLen) }

// blocks is how many blocks the slot has.
func (b chunkBlock) blocks() int { return (b.len + device.PageLen - 1) / device.PageLen }

// group is the block's place among the blocks of the call.
func (b chunkBlock) group() int { return b.slot + b.index - b.first/device.PageLen }

// which says which blocks of a slot a call is about.
type which int

const (
	touched   which = iota // those that its rows lie in
	completed              // and the one before them where they start a block
	every                  // all
)

// eachBlock calls f for blocks of each slot, in order.
func (o *ops) eachBlock(op string, at device.Newest, w which, f func(chunkBlock)) {
	device.CheckKV(op, at.KV)
	g := newPages(at.KV)
	for slot := range at.KV.Len.Dim(0) {
		first, ok := o.first(op, &g, slot, at.N)
		if !ok {
			continue
		}
		b := chunkBlock{slot: slot, index: first / device.PageLen, first: first, len: first + at.N}
		switch {
		case w == every:
			b.index = 0
		case w == completed && b.index > 0 && first%device.PageLen == 0:
			b.index--
		}
		for ; b.index < b.blocks(); b.index++ {
			if b.page = o.page(&g, slot, b.index); b.page >= 0 {
				f(b)
			}
		}
	}
}

// BlockSum adds rows to the sums of their blocks.
func (o *ops) BlockSum(sum, x device.Tensor, kv device.KV) {
	const op = "BlockSum"
	device.CheckKV(op, kv)
	device.CheckShape(op, "sum", sum, device.F32, kv.K.Dim(0), -1, -1)
	heads, dim := sum.Dim(1), sum.Dim(2)
	checkHeads(op, x, heads, dim)
	g := newPages(kv)
	o.eachRow(op, kv, x.Dim(0), func(r, slot, _, p int) {
		page := o.page(&g, slot, p/device.PageLen)
		if page < 0 {
			return
		}
		for h := range heads {
			to := row(f32s(sum), page*heads+h, dim)
			if p%device.PageLen == 0 {
				clear(to)
			}
			o.vec.Add(to, o.headMean(x, r, h, heads))
		}
	})
}

// checkHeads panics unless x is rows of a multiple of heads.
func checkHeads(op string, x device.Tensor, heads, dim int) {
	device.CheckShape(op, "x", x, device.F32, -1, -1, dim)
	device.Check(heads > 0 && x.Dim(1)%heads == 0, op, "%d heads in x, want a multiple of %d", x.Dim(1), heads)
}

// headMean is the mean of the heads of row r of x that belong to head h of heads.
func (o *ops) headMean(x device.Tensor, r, h, heads int) []float32 {
	all, dim := x.Dim(1), x.Dim(2)
	n := all / heads
	mean := grown(&o.sketch.mean, dim)
	copy(mean, row(f32s(x), r*all+h*n, dim))
	for u := 1; u < n; u++ {
		o.vec.Add(mean, row(f32s(x), r*all+h*n+u, dim))
	}
	for i := range mean {
		mean[i] /= float32(n)
	}
	return mean
}

// SketchMeans projects the means of blocks.
func (o *ops) SketchMeans(dst, sum, basis device.Tensor, at device.Newest) {
	const op = "SketchMeans"
	pages, heads, width, dim := checkSketch(op, dst, basis, at.KV)
	device.CheckShape(op, "sum", sum, device.F32, pages, heads, dim)
	o.eachBlock(op, at, touched, func(b chunkBlock) {
		for h := range heads {
			mean := grown(&o.sketch.mean, dim)
			for i, v := range row(f32s(sum), b.page*heads+h, dim) {
				mean[i] = v / float32(b.positions())
			}
			project(row(f32s(dst), b.page*heads+h, width), f32s(basis), mean)
		}
	})
}

// SketchRows projects the newest row of each slot.
func (o *ops) SketchRows(dst, x, basis device.Tensor, kv device.KV) {
	const op = "SketchRows"
	_, heads, width, dim := checkSketch(op, dst, basis, kv)
	checkHeads(op, x, heads, dim)
	g := newPages(kv)
	o.eachRow(op, kv, x.Dim(0), func(r, slot, _, p int) {
		page := o.page(&g, slot, p/device.PageLen)
		if page < 0 || p != int(g.lengths[slot])-1 {
			return
		}
		for h := range heads {
			project(row(f32s(dst), page*heads+h, width), f32s(basis), o.headMean(x, r, h, heads))
		}
	})
}

// checkSketch panics unless dst and basis belong together, and gives their sizes.
func checkSketch(op string, dst, basis device.Tensor, kv device.KV) (pages, heads, width, dim int) {
	device.CheckKV(op, kv)
	device.CheckShape(op, "basis", basis, device.F32, -1, -1)
	pages, width, dim = kv.K.Dim(0), basis.Dim(0), basis.Dim(1)
	device.CheckShape(op, "dst", dst, device.F32, pages, -1, width)
	return pages, dst.Dim(1), width, dim
}

// project is dst = basis·x.
func project(dst, basis, x []float32) {
	for i := range dst {
		dst[i] = float32(dot(row(basis, i, len(x)), x))
	}
}

// CompareBlocks makes rows of pairs.
func (o *ops) CompareBlocks(dst, q, k device.Tensor, at device.Newest, c device.Compare) {
	const op = "CompareBlocks"
	device.CheckShape(op, "q", q, device.F32, at.KV.K.Dim(0), -1, -1)
	checkLike(op, "k", k, q)
	if !c.Own.Absent() {
		checkLike(op, "own", c.Own, q)
	}
	p := o.pairsOf(op, dst, at.KV)
	w := completed
	if p.square {
		w = every
	}
	o.eachBlock(op, at, w, func(b chunkBlock) {
		out := p.row(b, b.index)
		for j := range out {
			to := p.page(b, j)
			from := q
			if j == b.index && !c.Own.Absent() {
				from = c.Own
			}
			out[j] = pairOf(from, k, b.page, to)
		}
		shape(out, c)
	})
}

// pairs are the numbers that blocks made of each other.
type pairs struct {
	data   []float32
	width  int
	square bool // [slots, width, width], otherwise [pages, width]
	o      *ops
	pages  pages
}

func (o *ops) pairsOf(op string, t device.Tensor, kv device.KV) pairs {
	p := pairs{data: f32s(t), o: o, pages: newPages(kv), square: t.Rank() == 3}
	p.width = t.RowLen()
	if p.square {
		device.CheckShape(op, "pairs", t, device.F32, kv.Len.Dim(0), p.width, p.width)
	} else {
		device.CheckShape(op, "pairs", t, device.F32, kv.K.Dim(0), p.width)
	}
	device.Check(p.width >= kv.Pages.Dim(1), op, "pairs %v, want rows of at least %d", t, kv.Pages.Dim(1))
	return p
}

// page is the page of block i of b's slot; a failure gives b's own.
func (p *pairs) page(b chunkBlock, i int) int {
	if page := p.o.page(&p.pages, b.slot, i); page >= 0 {
		return page
	}
	return b.page
}

// row is what block i of b's slot made of the blocks that it looks at.
func (p *pairs) row(b chunkBlock, i int) []float32 {
	if p.square {
		return row(p.data, b.slot*p.width+i, p.width)[:b.blocks()]
	}
	return row(p.data, p.page(b, i), p.width)[:i+1]
}

// pairOf is q·k / (heads·√width) of the sketches beside two pages.
func pairOf(q, k device.Tensor, from, to int) float32 {
	heads, width := q.Dim(1), q.Dim(2)
	sum := dot(row(f32s(q), from, heads*width), row(f32s(k), to, heads*width))
	return float32(sum / (float64(heads) * math.Sqrt(float64(width))))
}

// shape brings a row of products to the form asked for. What is not finite
// counts as 0.
func shape(x []float32, c device.Compare) {
	for j, v := range x {
		if v-v != 0 || c.Form == device.Relu && v < 0 {
			x[j] = 0
		}
	}
	var total float64
	if c.Form == device.Softmax {
		top := slices.Max(x)
		for _, v := range x {
			total += math.Exp(float64(v - top))
		}
		total = float64(top) + math.Log(total)
	}
	for j, v := range x {
		y := float64(v)
		switch {
		case c.Form == device.Softmax && c.Log:
			y -= total
		case c.Form == device.Softmax:
			y = math.Exp(y - total)
		case c.Log:
			y = math.Log(math.Abs(y))
		}
		x[j] = float32(y)
	}
}

// walkRow is the number of the row of a block in a tensor of n rows.
func walkRow(b chunkBlock, slots, n int) int {
	if slots > 1 {
		return b.slot
	}
	return b.index % n
}

// Walk continues rows by one step.
func (o *ops) Walk(dst, src, pairs device.Tensor, at device.Newest, exponent int) {
	const op = "Walk"
	if !src.Absent() {
		checkLike(op, "src", src, dst)
	}
	checkWalk(op, dst, at.KV)
	p, n, slots := o.pairsOf(op, pairs, at.KV), dst.Dim(0), at.KV.Len.Dim(0)
	o.eachBlock(op, at, touched, func(b chunkBlock) {
		r := walkRow(b, slots, n)
		end := len(p.row(b, b.index))
		sum := grown(&o.sketch.sum, end)
		if dst.DType == device.F32 {
			var from []float32
			if !src.Absent() {
				from = row(f32s(src), r, src.Dim(1))[:end]
			}
			o.walkLogs(sum, from, &p, b, float64(exponent))
			for j, v := range sum {
				row(f32s(dst), r, dst.Dim(1))[j] = float32(v)
			}
			return
		}
		var from []float64
		if !src.Absent() {
			from = row(f64s(src), r, src.Dim(1)/2)[:end]
		}
		walkScaled(sum, from, &p, b, exponent)
		copy(row(f64s(dst), r, dst.Dim(1)/2), sum)
	})
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

// walkLogs is ln Σ_m exp(src[m] + exponent·pairs[m][j]) less the largest.
func (o *ops) walkLogs(sum []float64, src []float32, p *pairs, b chunkBlock, exponent float64) {
	top := grown(&o.sketch.top, len(sum))
	for j := range sum {
		sum[j], top[j] = 0, math.Inf(-1)
	}
	if src == nil {
		for j, e := range p.row(b, b.index) {
			sum[j] = exponent * float64(e)
		}
		less(sum)
		return
	}
	for m, l := range src {
		for j, e := range p.row(b, m) {
			top[j] = max(top[j], float64(l)+exponent*float64(e))
		}
	}
	for m, l := range src {
		for j, e := range p.row(b, m) {
			if t := float64(l) + exponent*float64(e); t > math.Inf(-1) {
				sum[j] += math.Exp(t - top[j])
			}
		}
	}
	for j := range sum {
		if sum[j] > 0 {
			sum[j] = top[j] + math.Log(sum[j])
		} else {
			sum[j] = math.Inf(-1)
		}
	}
	less(sum)
}

// less subtracts the largest element but the first.
func less(x []float64) {
	top := slices.Max(x[min(1, len(x)-1):])
	if top == math.Inf(-1) {
		return
	}
	for j := range x {
		x[j] -= top
	}
}

// walkScaled is Σ_m src[m]·pairs[m][j]^exponent over the largest.
func walkScaled(sum, src []float64, p *pairs, b chunkBlock, exponent int) {
	clear(sum)
	if src == nil {
		for j, w := range p.row(b, b.index) {
			sum[j] = power(float64(w), exponent)
		}
	}
	for m, l := range src {
		for j, w := range p.row(b, m) {
			sum[j] += l * power(float64(w), exponent)
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

// TopBlocks lists the blocks with the largest elements.
func (o *ops) TopBlocks(l device.List, rows device.Tensor, at device.Newest, p device.Pick) {
	const op = "TopBlocks"
	checkWalk(op, rows, at.KV)
	device.CheckShape(op, "list", l.Index, device.I32, -1, 1, -1)
	device.CheckShape(op, "count", l.Count, device.I32, l.Index.Dim(0), 1)
	groups, most := l.Index.Dim(0), l.Index.Dim(2)
	device.Check(most >= at.KV.Pages.Dim(1), op, "lists of %d, want at least %d", most, at.KV.Pages.Dim(1))
	slots := at.KV.Len.Dim(0)
	o.eachBlock(op, at, touched, func(b chunkBlock) {
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
func (o *ops) pick(keys []float64, b chunkBlock, p device.Pick) []int32 {
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
