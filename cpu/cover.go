package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// coverScratch is what one worker needs to choose blocks.
type coverScratch struct {
	x, y   []float64 // by line or by block
	order  []int32
	pairs  []weighted
	blocks []uint64 // [blocks of rows, words]: blocks, as words
}

// weighted is a pair of a block of rows and a block, as one number.
type weighted struct {
	share float64
	pair  int32
}

// coverScratch is the scratch of every worker.
func (o *ops) coverScratch() []coverScratch {
	for len(o.cover) < o.pool.Workers() {
		o.cover = append(o.cover, coverScratch{})
	}
	return o.cover
}

// slotLen is the length of the only slot of a call, 0 where it has no room.
func (o *ops) slotLen(op string, kv device.KV, width int) int {
	n := int(i32s(kv.Len)[0])
	if n < 0 || n > width {
		o.d.fail("%s: %d positions, want 0 to %d", op, n, width)
		return 0
	}
	return n
}

// agreeTask is Agree: item i is head i.
type agreeTask struct {
	agree      []int32
	columns, q []float32 // [heads, width], [heads, dim]
	keys       []float32 // [blocks, kvheads, dim]
	heads      int
	kvHeads    int
	width, dim int
	block, len int
	near       float64
	scratch    []coverScratch
}

// pooledAgreement says for each head whether means tell what columns do.
func (o *ops) pooledAgreement(c *device.Score) {
	t := &o.agreement
	*t = agreeTask{
		agree: i32s(c.Dst), columns: f32s(c.Columns), q: f32s(c.Q), keys: f32s(c.Keys), heads: c.Q.Dim(1), kvHeads: c.Keys.Dim(1),
		width: c.Columns.Dim(1), dim: c.Q.Dim(2), block: c.Block, near: c.MaxDivergence, scratch: o.coverScratch(),
	}
	if t.len = o.slotLen("PooledAgreement", c.KV, min(t.width, c.Keys.Dim(0)*c.Block)); t.len > 0 {
		o.pool.RunChunks(t.heads, 1, t)
	}
}

// Do compares for heads lo to hi-1.
func (t *agreeTask) Do(worker, lo, hi int) {
	s := &t.scratch[worker]
	n := (t.len + t.block - 1) / t.block
	for h := lo; h < hi; h++ {
		means, sums := grown(&s.x, n), grown(&s.y, n)
		meanSoftmax(means, row(t.q, h, t.dim), t.keys, h*t.kvHeads/t.heads, t.kvHeads)
		poolLines(sums, row(t.columns, h, t.width)[:t.len], t.block)
		var total float64
		for _, x := range sums {
			total += x
		}
		for i := range sums {
			sums[i] /= total
		}
		t.agree[h] = 0
		if divergence(means, sums) < t.near {
			t.agree[h] = 1
		}
	}
}

// meanSoftmax sets dst to softmax(q·k/√dim) for the first blocks of mean keys
// k [blocks, kvheads, dim].
func meanSoftmax(dst []float64, q, k []float32, kvHead, kvHeads int) {
	top := math.Inf(-1)
	for j := range dst {
		dst[j] = dot(q, row(k, j*kvHeads+kvHead, len(q))) / math.Sqrt(float64(len(q)))
		if dst[j] > top {
			top = dst[j]
		}
	}
	var sum float64
	for j, x := range dst {
		dst[j] = 0
		if x > math.Inf(-1) {
			dst[j] = math.Exp(x - top)
			sum += dst[j]
		}
	}
	for j := range dst {
		if sum > 0 {
			dst[j] /= sum
		}
	}
}

// poolLines sums lines in blocks.
func poolLines(dst []float64, x []float32, block int) {
	clear(dst)
	for i, v := range x {
		dst[i/block] += device.DecodeMass(v)
	}
}

// divergence is the root of the Jensen-Shannon divergence, with 0·ln 0 = 0.
func divergence(p, q []float64) float64 {
	var sum float64
	for i := range p {
		m := (p[i] + q[i]) / 2
		if p[i] > 0 {
			sum += p[i] * math.Log(p[i]/m) / 2
		}
		if q[i] > 0 {
			sum += q[i] * math.Log(q[i]/m) / 2
		}
	}
	if sum < 0 { // rounding; NaN stays
		sum = 0
	}
	return math.Sqrt(sum)
}

// topLinesTask is TopLines: item i is head i.
type topLinesTask struct {
	x            []float32 // [heads, width]
	width, len   int
	call         *device.Select
	agree        []int32
	index, count []int32 // of the list
	limit        int
	scratch      []coverScratch
}

// topLines lists the blocks of lines with the largest sums.
func (o *ops) topLines(c *device.Select) {
	const op = "TopLines"
	t, l, x := &o.lineTop, &c.List, c.Scores
	*t = topLinesTask{
		x: f32s(x), width: x.Dim(1), call: c, agree: i32s(c.Agreement),
		index: i32s(l.Index), count: i32s(l.Count), limit: l.Index.Dim(2), scratch: o.coverScratch(),
	}
	if t.len = o.slotLen(op, c.KV, min(t.width, t.limit*c.Block)); t.len > 0 {
		o.pool.RunChunks(x.Dim(0), 1, t)
	}
}

// Do lists for heads lo to hi-1.
func (t *topLinesTask) Do(worker, lo, hi int) {
	s := &t.scratch[worker]
	for h := lo; h < hi; h++ {
		x := row(t.x, h, t.width)[:t.len]
		n := 0
		if t.agree[h] == 0 {
			n = t.lines(s, x)
		}
		keep := t.call.LineBlocksOf(n, t.len)
		sums := grown(&s.y, (t.len+t.call.Block-1)/t.call.Block)
		poolLines(sums, x, t.call.Block)
		order := grown(&s.order, len(sums)-1)
		for i := range order {
			order[i] = int32(i + 1)
		}
		slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(sums[b], sums[a]) })
		slices.Sort(order[:keep-1])
		out := row(t.index, h, t.limit)
		out[0] = 0
		copy(out[1:], order[:keep-1])
		t.count[h] = int32(keep)
	}
}

// lines is how many single lines, the best first, the share needs: one more than
// sum to at most the share of all.
func (t *topLinesTask) lines(s *coverScratch, x []float32) int {
	sorted := grown(&s.x, len(x))
	var total float64
	for i, v := range x {
		sorted[i] = device.DecodeMass(v)
		total += sorted[i]
	}
	slices.Sort(sorted)
	n, sum := 1, 0.0
	for _, v := range slices.Backward(sorted) {
		if sum += v; !(sum <= t.call.Mass*total*device.Slack) {
			break
		}
		n++
	}
	return n
}

// blocksTask is ExpandBlocks: item i is head i.
type blocksTask struct {
	o                  *ops
	columns, diagonals device.List
	agree              []int32
	queries, keys      []float32 // [blocks of rows, heads, dim], [blocks, kvheads, dim]
	heads, kvHeads     int
	dim, block         int
	first, len         int // block of the first row; positions
	share              float64
	index, count       []int32 // of the list made
	limit              int
	scratch            []coverScratch
}

// expandBlocks lists pages for each block of rows.
func (o *ops) expandBlocks(c *device.Select) {
	const op = "ExpandBlocks"
	t, l := &o.blocks, &c.List
	*t = blocksTask{
		o: o, columns: c.Columns, diagonals: c.Diagonals, agree: i32s(c.Agreement), queries: f32s(c.Q), keys: f32s(c.Keys),
		heads: l.Index.Dim(1), kvHeads: c.Keys.Dim(1), dim: c.Keys.Dim(2), block: c.Block, share: c.Mass,
		index: i32s(l.Index), count: i32s(l.Count), limit: l.Index.Dim(2), scratch: o.coverScratch(),
	}
	g := newPages(c.KV)
	first, ok := o.first(op, &g, 0, c.Rows)
	if !ok {
		return
	}
	t.first, t.len = first/t.block, first+c.Rows
	rows := device.BlocksOf(first, c.Rows, t.block)
	if rows > min(l.Index.Dim(0), c.Q.Dim(0)) || t.first+rows > c.Keys.Dim(0) || pagesOf(t.len) > t.limit {
		o.d.fail("%s: %d blocks of rows and %d positions for %d lists of %d, %d mean queries and %d mean keys",
			op, rows, t.len, l.Index.Dim(0), t.limit, c.Q.Dim(0), c.Keys.Dim(0))
		return
	}
	o.pool.RunChunks(t.heads, 1, t)
}

// Do lists for heads lo to hi-1.
func (t *blocksTask) Do(worker, lo, hi int) {
	s := &t.scratch[worker]
	all := (t.len + t.block - 1) / t.block
	words := (all + 63) / 64
	rows := all - t.first
	for h := lo; h < hi; h++ {
		set := grown(&s.blocks, rows*words)
		clear(set)
		columns, diagonals := t.o.list(t.columns, 0, h, t.heads).index, t.o.list(t.diagonals, 0, h, t.heads).index
		for r := range rows {
			t.reach(row(set, r, words), columns, diagonals, t.first+r)
		}
		if t.agree[h] != 0 {
			t.cover(s, set, h, rows, words)
		}
		for r := range rows {
			t.write(row(set, r, words), r, h)
		}
	}
}

// reach adds to a set what columns and diagonals reach from block i.
func (t *blocksTask) reach(set []uint64, columns, diagonals []int32, i int) {
	set[i/64] |= 1 << (i % 64)
	for _, j := range columns {
		if j >= 0 && int(j) <= i {
			set[j/64] |= 1 << (j % 64)
		}
	}
	for _, o := range diagonals {
		if j := i - int(o); j >= 0 && j <= i {
			set[j/64] |= 1 << (j % 64)
		}
	}
}

// cover adds the pairs that means choose for a head.
func (t *blocksTask) cover(s *coverScratch, set []uint64, h, rows, words int) {
	s.pairs = s.pairs[:0]
	for r := range rows {
		shares := grown(&s.x, t.first+r+1)
		meanSoftmax(shares, row(t.queries, r*t.heads+h, t.dim), t.keys, h*t.kvHeads/t.heads, t.kvHeads)
		for j, x := range shares {
			s.pairs = append(s.pairs, weighted{x, int32(r*64*words + j)})
		}
	}
	slices.SortFunc(s.pairs, func(a, b weighted) int {
		if c := cmp.Compare(b.share, a.share); c != 0 {
			return c
		}
		return cmp.Compare(a.pair, b.pair)
	})
	sum := 0.0
	for _, p := range s.pairs {
		if sum += p.share; !(sum <= t.share*float64(rows)*device.Slack) {
			break
		}
		set[p.pair/64] |= 1 << (p.pair % 64)
	}
}

// write lists the pages of the blocks of row r of a head.
func (t *blocksTask) write(set []uint64, r, h int) {
	at := r*t.heads + h
	out, n := row(t.index, at, t.limit), 0
	last := pagesOf(min((t.first+r+1)*t.block, t.len))
	per := t.block / device.PageLen
	for j := range t.first + r + 1 {
		if set[j/64]>>(j%64)&1 == 0 {
			continue
		}
		for page := j * per; page < min((j+1)*per, last); page++ {
			out[n] = int32(page)
			n++
		}
	}
	t.count[at] = int32(n)
}
