package cpu

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/gollm/gollm/device"
)

// Lines are columns (key positions) or diagonals (distances to the query) of the attention
// matrix, with the attention mass that Score(VerticalSlash) finds on them.

// topLinesTask is TopLines: item i is head i.
type topLinesTask struct {
	outList
	mass       []float32 // [heads, width]: of the lines
	width, len int
	call       *device.Select
	agreement  []int32 // [heads]
	scratch    []pooledScratch
}

// topLines lists the blocks of lines with the largest mass.
func (o *ops) topLines(c *device.Select) {
	t := &o.tasks.topLines
	*t = topLinesTask{
		outList: newOutList(c.List), mass: f32s(c.Scores), width: c.Scores.Dim(1),
		call: c, agreement: i32s(c.Agreement), scratch: o.pooledScratch(),
	}
	if t.len = o.onlyLen("TopLines", c.KV, min(t.width, t.limit*c.Block)); t.len > 0 {
		o.pool.RunChunks(c.Scores.Dim(0), 1, t)
	}
}

// Do lists for heads lo to hi-1: block 0, then the best of the others.
func (t *topLinesTask) Do(worker, lo, hi int) {
	s := &t.scratch[worker]
	for h := lo; h < hi; h++ {
		x := row(t.mass, h, t.width)[:t.len]
		n := 0
		if t.agreement[h] == 0 {
			n = t.linesOfMass(s, x)
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

// linesOfMass is how many single lines, by falling mass, the budget's share of the total
// needs: one more than sum to at most that share.
func (t *topLinesTask) linesOfMass(s *pooledScratch, x []float32) int {
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

// expandLinesTask is ExpandLines: item i is head i%heads of list group i/heads.
type expandLinesTask struct {
	outList
	o                  *ops
	columns, diagonals device.List
	group, heads       int // positions of a list group, heads of the list
	first, rows        int // position of the first row, rows of the call

	marks [][]uint64 // by worker: a bit for each position
}

// expandLines lists the positions of columns and diagonals (MInference).
func (o *ops) expandLines(c *device.Select) {
	const op = "ExpandLines"
	g, t := newPages(c.KV), &o.tasks.expandLines
	first, ok := o.first(op, &g, 0, c.Rows)
	if !ok {
		return
	}
	*t = expandLinesTask{
		outList: newOutList(c.List), o: o, columns: c.Columns, diagonals: c.Diagonals,
		group: c.List.Group, heads: c.List.Index.Dim(1), first: first, rows: c.Rows, marks: perWorker(o.pool, t.marks),
	}
	groups := device.BlocksOf(first, c.Rows, t.group)
	if have := c.List.Index.Dim(0); groups > have {
		o.d.fail("%s: %d groups of rows, want at most %d", op, groups, have)
		return
	}
	for i := range t.marks {
		grown(&t.marks[i], g.width)
	}
	o.pool.RunChunks(groups*t.heads, 1, t)
	t.checkOverflow(o, op)
}

// Do lists items lo to hi-1.
func (t *expandLinesTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		start := (t.first/t.group + i/t.heads) * t.group
		end := min(start+t.group, t.first+t.rows)
		marks := t.marks[worker][:pagesOf(end)]
		clear(marks)
		t.layTiles(marks, t.o.list(t.diagonals, 0, i%t.heads, t.heads).index, start, end)
		for _, j := range t.o.list(t.columns, 0, i%t.heads, t.heads).index {
			if j >= 0 && int(j) < end {
				marks[j/device.PageLen] |= 1 << (j % device.PageLen)
			}
		}
		t.write(i, marks)
	}
}

// write lists marked positions.
func (t *expandLinesTask) write(i int, marks []uint64) {
	out, n := row(t.index, i, t.limit), 0
	for b, w := range marks {
		for ; w != 0 && n < len(out); w &= w - 1 {
			out[n] = int32(b*device.PageLen + bits.TrailingZeros64(w))
			n++
		}
		if w != 0 {
			t.overflow.Store(true)
		}
	}
	t.count[i] = int32(n)
}

// layTiles marks the tiles of t.group positions over diagonals, which ascend, for the list
// group at positions start to end-1: see device.ExpandLines.
func (t *expandLinesTask) layTiles(marks []uint64, diagonals []int32, start, end int) {
	lo, hi := 0, 0 // adjacent tiles that are not marked yet
	flush := func() {
		for b := lo / device.PageLen; b*device.PageLen < min(hi, end); b++ {
			marks[b] |= between(b, lo, min(hi, end))
		}
	}
	for _, o := range slices.Backward(diagonals) {
		from := max(start-int(o), 0)
		switch {
		case o < 0 || int(o) >= start+t.group:
		case hi == 0 || from > hi:
			flush()
			lo, hi = from, from+t.group
		case from+t.group > hi:
			hi += t.group
		}
	}
	flush()
}
