package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// sketchScores computes rows of pairs: the products of blocks' sketches (Sketch&Walk).
func (o *ops) sketchScores(c *device.Score) {
	p := o.sketchPairs(c.Dst, c.KV)
	which := completed
	if p.square {
		which = every
	}
	s := sketchTask{o: o, c: c, pairs: p, own: c.Q, heads: c.Q.Dim(1), width: c.Q.Dim(2), product: c.Product}
	if !c.Product.Own.Absent() {
		s.own = c.Product.Own
	}
	s.product.Log = c.Product.Log && !c.Product.Each
	o.eachBlock("SketchScores", c.KV, c.Rows, which, func(b callBlock) {
		if c.Product.Each {
			s.eachHead(b)
		} else {
			s.products(p.row(b, b.index), b, 0, 0, s.heads)
		}
	})
}

// sketchTask is a call of SketchScores.
type sketchTask struct {
	o            *ops
	c            *device.Score
	pairs        sketchPairs
	own          device.Tensor // the queries of the diagonal
	heads, width int           // of queries
	product      device.SketchProduct
}

// products makes out the scores of block b by n heads of its query from head q on, and n of the
// keys from k on.
func (s *sketchTask) products(out []float32, b callBlock, q, k, n int) {
	queries, own, keys := f32s(s.c.Q), f32s(s.own), f32s(s.c.Keys)
	scale := float32(1 / (float64(n) * math.Sqrt(float64(s.width))))
	size, each := n*s.width, s.c.Keys.Dim(1)*s.width
	for j := range out {
		from := queries
		if j == b.index {
			from = own
		}
		x, y := row(from, b.page, s.heads*s.width)[q*s.width:][:size], row(keys, s.pairs.page(b, j), each)[k*s.width:][:size]
		out[j] = scale * dot32(x, y)
	}
	s.o.countNaNs(out)
	transformProducts(out, s.product)
}

// eachHead makes the row of block b the mean of the scores by each head of its query.
func (s *sketchTask) eachHead(b callBlock) {
	out := s.pairs.row(b, b.index)
	group := s.heads / s.c.Keys.Dim(1)
	one, sum := grown(&s.o.tasks.sketch.each, len(out)), grown(&s.o.tasks.sketch.sum, len(out))
	clear(sum)
	for h := range s.heads {
		s.products(one, b, h, h/group, 1)
		for j, v := range one {
			sum[j] += float64(v)
		}
	}
	for j, v := range sum {
		if v /= float64(s.heads); s.c.Product.Log {
			v = math.Log(math.Abs(v))
		}
		out[j] = float32(v)
	}
}

// sketchPairs is a tensor of scores of pairs of blocks: see the comment on pairs in package
// device.
type sketchPairs struct {
	data   []float32
	width  int
	square bool // data is [slots, width, width], otherwise [pages, width]
	o      *ops
	pages  pages
}

func (o *ops) sketchPairs(t device.Tensor, kv device.KV) sketchPairs {
	return sketchPairs{data: f32s(t), width: t.RowLen(), o: o, pages: newPages(kv), square: t.Rank() == 3}
}

// page is the page number of block i of b's slot; on a failure b's own.
func (p *sketchPairs) page(b callBlock, i int) int {
	if page := p.o.page(&p.pages, b.slot, i); page >= 0 {
		return page
	}
	return b.page
}

// row is the row of pairs of block i of b's slot.
func (p *sketchPairs) row(b callBlock, i int) []float32 {
	if p.square {
		return row(p.data, b.slot*p.width+i, p.width)[:b.blocks()]
	}
	return row(p.data, p.page(b, i), p.width)[:i+1]
}

// dot32 is a·b in float32, in four partial sums.
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

// transformProducts applies the form of c to a row of products. What is not finite counts
// as 0.
func transformProducts(x []float32, c device.SketchProduct) {
	for j, v := range x {
		if v-v != 0 || c.Form == device.Relu && v < 0 {
			x[j] = 0
		}
	}
	var total float64
	if c.Form == device.Softmax {
		if c.Temperature > 0 {
			for j := range x {
				x[j] /= float32(c.Temperature)
			}
		}
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
