package cpu

import "github.com/gollm/gollm/device"

// meanKeys is the mean of the stored keys of each block of positions of one slot.
func (o *ops) meanKeys(c *device.Summarize) {
	t := &o.tasks.meanKeys
	t.o, t.pages, t.block, t.dst = o, newPages(c.KV), c.Block, f32s(c.Dst)
	t.len = o.onlyLen("MeanKeys", c.KV, min(t.pages.width*device.PageLen, c.Dst.Dim(0)*c.Block))
	n := (t.len + c.Block - 1) / c.Block
	t.keys = perWorker(o.pool, t.keys)
	for i := range t.keys {
		grown(&t.keys[i], t.pages.dim)
	}
	o.pool.Run(n*t.pages.heads, t)
}

// meanKeysTask is MeanKeys: item i is kv head i%kvheads of block i/kvheads.
type meanKeysTask struct {
	o          *ops
	pages      pages
	dst        []float32 // [blocks, kvheads, dim]
	block, len int
	keys       [][]float32 // by worker: [dim]
}

// Do averages items lo to hi-1.
func (t *meanKeysTask) Do(worker, lo, hi int) {
	k := t.keys[worker][:t.pages.dim]
	for i := lo; i < hi; i++ {
		mean, from := row(t.dst, i, t.pages.dim), i/t.pages.heads*t.block
		to := min(from+t.block, t.len)
		clear(mean)
		for j := from; j < to; j++ {
			page := t.o.page(&t.pages, 0, j/device.PageLen)
			if page < 0 {
				return
			}
			t.o.load(k, t.pages.k, t.pages.element(page, i%t.pages.heads, j%device.PageLen), t.pages.half)
			t.o.vec.Add(mean, k)
		}
		for e := range mean {
			mean[e] /= float32(to - from)
		}
	}
}

// meanRows is the mean of the rows of each block of positions, added in their order.
func (o *ops) meanRows(c *device.Summarize) {
	const op = "MeanRows"
	out, in, rows := f32s(c.Dst), f32s(c.X), c.X.Dim(0)
	n := c.X.Len() / max(rows, 1)
	perSlot := device.RowsPerSlot(op, rows, c.KV)
	count := 0 // rows of the current block
	o.eachRow(op, c.KV, rows, func(r, slot, first, p int) {
		g := listGroup(device.List{Group: c.Block}, slot, first, p)
		if g >= c.Dst.Dim(0) {
			o.d.fail("%s: block %d, want 0 to %d", op, g, c.Dst.Dim(0)-1)
			return
		}
		mean := row(out, g, n)
		if count == 0 {
			clear(mean)
		}
		o.vec.Add(mean, row(in, r, n))
		count++
		if perSlot > 1 && r < rows-1 && (p+1)%c.Block != 0 {
			return
		}
		for i := range mean {
			mean[i] /= float32(count)
		}
		count = 0
	})
}
