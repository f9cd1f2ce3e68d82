package cpu

import "github.com/gollm/gollm/device"

// sketchScratch is the scratch of the calls on blocks: sums, projections, walks and top-k of
// blocks.
type sketchScratch struct {
	mean   []float32 // of the heads of a row, or of a block
	walk   walkTask
	scores []float64 // a row of a walk
	each   []float32 // a row of pairs by one head
	sum    []float64 // of them over the heads
	blocks []int32   // candidates
	nans   int       // scores that were NaN
}

// sumBlocks adds rows to the running sums of their blocks.
func (o *ops) sumBlocks(c *device.Summarize) {
	heads, dim := c.Dst.Dim(1), c.Dst.Dim(2)
	g, sums := newPages(c.KV), f32s(c.Dst)
	o.eachRow("SumBlocks", c.KV, c.X.Dim(0), func(r, slot, _, p int) {
		page := o.page(&g, slot, p/device.PageLen)
		if page < 0 {
			return
		}
		for h := range heads {
			to := row(sums, page*heads+h, dim)
			if p%device.PageLen == 0 {
				clear(to)
			}
			o.vec.Add(to, o.headMean(c.X, r, h, heads))
		}
	})
}

// headMean is the mean of the heads of row r of x that share head h of heads (GQA).
func (o *ops) headMean(x device.Tensor, r, h, heads int) []float32 {
	all, dim, v := x.Dim(1), x.Dim(2), f32s(x)
	n := all / heads
	mean := grown(&o.tasks.sketch.mean, dim)
	copy(mean, row(v, r*all+h*n, dim))
	for u := 1; u < n; u++ {
		o.vec.Add(mean, row(v, r*all+h*n+u, dim))
	}
	for i := range mean {
		mean[i] /= float32(n)
	}
	return mean
}

// projectMeans projects the means of the blocks that the newest rows lie in.
func (o *ops) projectMeans(c *device.Summarize) {
	dst, sums, basis := f32s(c.Dst), f32s(c.X), f32s(c.Basis)
	heads, width, dim := c.Dst.Dim(1), c.Basis.Dim(0), c.Basis.Dim(1)
	o.eachBlock("ProjectMeans", c.KV, c.Rows, touched, func(b callBlock) {
		for h := range heads {
			mean := grown(&o.tasks.sketch.mean, dim)
			for i, v := range row(sums, b.page*heads+h, dim) {
				mean[i] = v / float32(b.positions())
			}
			project(row(dst, b.page*heads+h, width), basis, mean)
		}
	})
}

// projectRows projects the newest row of each slot.
func (o *ops) projectRows(c *device.Summarize) {
	dst, basis := f32s(c.Dst), f32s(c.Basis)
	heads, width := c.Dst.Dim(1), c.Basis.Dim(0)
	g := newPages(c.KV)
	o.eachRow("ProjectRows", c.KV, c.X.Dim(0), func(r, slot, _, p int) {
		page := o.page(&g, slot, p/device.PageLen)
		if page < 0 || p != int(g.lengths[slot])-1 {
			return
		}
		for h := range heads {
			project(row(dst, page*heads+h, width), basis, o.headMean(c.X, r, h, heads))
		}
	})
}

// project is dst = basis·x.
func project(dst, basis, x []float32) {
	for i := range dst {
		dst[i] = float32(dot(row(basis, i, len(x)), x))
	}
}
