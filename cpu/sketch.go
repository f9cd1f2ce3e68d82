package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// sketcher is the scratch of the operations on blocks. It grows to the longest
// sequence seen and is then used again.
type sketcher struct {
	mean  []float32 // of the heads of a row, or of a block
	walk  walk
	keys  []float64 // ranking: the elements of a row
	order []int32   // ranking: blocks, best first
	nans  int       // elements that were not numbers
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

// newest is the newest rows of each slot of a cache.
type newest struct {
	KV device.KV
	N  int // rows
}

// eachBlock calls f for blocks of each slot, in order.
func (o *ops) eachBlock(op string, at newest, w which, f func(chunkBlock)) {
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

// sumBlocks adds rows to the sums of their blocks.
func (o *ops) sumBlocks(c *device.Summarize) {
	const op = "SumBlocks"
	sum, x, kv := c.Dst, c.X, c.KV
	heads, dim := sum.Dim(1), sum.Dim(2)
	g, sums := newPages(kv), f32s(sum)
	o.eachRow(op, kv, x.Dim(0), func(r, slot, _, p int) {
		page := o.page(&g, slot, p/device.PageLen)
		if page < 0 {
			return
		}
		for h := range heads {
			to := row(sums, page*heads+h, dim)
			if p%device.PageLen == 0 {
				clear(to)
			}
			o.vec.Add(to, o.headMean(x, r, h, heads))
		}
	})
}

// headMean is the mean of the heads of row r of x that belong to head h of heads.
func (o *ops) headMean(x device.Tensor, r, h, heads int) []float32 {
	all, dim, v := x.Dim(1), x.Dim(2), f32s(x)
	n := all / heads
	mean := grown(&o.sketch.mean, dim)
	copy(mean, row(v, r*all+h*n, dim))
	for u := 1; u < n; u++ {
		o.vec.Add(mean, row(v, r*all+h*n+u, dim))
	}
	for i := range mean {
		mean[i] /= float32(n)
	}
	return mean
}

// projectMeans projects the means of blocks.
func (o *ops) projectMeans(c *device.Summarize) {
	dst, sum, basis := c.Dst, c.X, c.Basis
	heads, width, dim := dst.Dim(1), basis.Dim(0), basis.Dim(1)
	o.eachBlock("ProjectMeans", newest{c.KV, c.Rows}, touched, func(b chunkBlock) {
		for h := range heads {
			mean := grown(&o.sketch.mean, dim)
			for i, v := range row(f32s(sum), b.page*heads+h, dim) {
				mean[i] = v / float32(b.positions())
			}
			project(row(f32s(dst), b.page*heads+h, width), f32s(basis), mean)
		}
	})
}

// projectRows projects the newest row of each slot.
func (o *ops) projectRows(c *device.Summarize) {
	dst, x, basis, kv := c.Dst, c.X, c.Basis, c.KV
	heads, width := dst.Dim(1), basis.Dim(0)
	g := newPages(kv)
	o.eachRow("ProjectRows", kv, x.Dim(0), func(r, slot, _, p int) {
		page := o.page(&g, slot, p/device.PageLen)
		if page < 0 || p != int(g.lengths[slot])-1 {
			return
		}
		for h := range heads {
			project(row(f32s(dst), page*heads+h, width), f32s(basis), o.headMean(x, r, h, heads))
		}
	})
}

// project is dst = basis·x.
func project(dst, basis, x []float32) {
	for i := range dst {
		dst[i] = float32(dot(row(basis, i, len(x)), x))
	}
}

// sketchScores makes rows of pairs.
func (o *ops) sketchScores(c *device.Score) {
	q, k := c.Q, c.Keys
	p := o.pairsOf(c.Dst, c.KV)
	w := completed
	if p.square {
		w = every
	}
	size := q.Dim(1) * q.Dim(2)
	scale := float32(1 / (float64(q.Dim(1)) * math.Sqrt(float64(q.Dim(2)))))
	queries, keys, own := f32s(q), f32s(k), f32s(q)
	if !c.Product.Own.Absent() {
		own = f32s(c.Product.Own)
	}
	o.eachBlock("SketchScores", newest{c.KV, c.Rows}, w, func(b chunkBlock) {
		out := p.row(b, b.index)
		for j := range out {
			from := queries
			if j == b.index {
				from = own
			}
			out[j] = scale * dot32(row(from, b.page, size), row(keys, p.page(b, j), size))
		}
		o.countNaNs(out)
		shape(out, c.Product)
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

func (o *ops) pairsOf(t device.Tensor, kv device.KV) pairs {
	return pairs{data: f32s(t), width: t.RowLen(), o: o, pages: newPages(kv), square: t.Rank() == 3}
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

// dot32 is a product in f32, in four sums.
func dot32(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	n := len(a) &^ 3
	b = b[:len(a)]
	for i := 0; i < n; i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
	}
	for i := n; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// shape brings a row of products to the form asked for. What is not finite
// counts as 0.
func shape(x []float32, c device.SketchProduct) {
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
