package cpu

import (
	"cmp"
	"slices"

	"github.com/gollm/gollm/device"
)

// blockPair is a block of rows and a block of keys, as the number of their bit, with the
// probability of the pair.
type blockPair struct {
	mass float64
	bit  int32
}

// expandBlocksTask is ExpandBlocks: item i is head i.
type expandBlocksTask struct {
	outList
	o                  *ops
	columns, diagonals device.List
	agreement          []int32   // [heads]
	queries, keys      []float32 // pooled: [blocks of rows, heads, dim], [blocks, kvheads, dim]
	heads, kvHeads     int
	dim, block         int     // block: positions
	first, len         int     // block of the first row; positions of the slot
	mass               float64 // of a row of pooled attention
	scratch            []pooledScratch
}

// expandBlocks lists pages for each block of rows: of columns, of diagonals, and of pooled
// attention (FlexPrefill).
func (o *ops) expandBlocks(c *device.Select) {
	const op = "ExpandBlocks"
	l := &c.List
	t := &o.tasks.expandBlocks
	*t = expandBlocksTask{
		outList: newOutList(c.List), o: o, columns: c.Columns, diagonals: c.Diagonals,
		agreement: i32s(c.Agreement), queries: f32s(c.Q), keys: f32s(c.Keys), mass: c.Mass,
		heads: l.Index.Dim(1), kvHeads: c.Keys.Dim(1), dim: c.Keys.Dim(2), block: c.Block, scratch: o.pooledScratch(),
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
func (t *expandBlocksTask) Do(worker, lo, hi int) {
	s := &t.scratch[worker]
	all := (t.len + t.block - 1) / t.block
	words := (all + 63) / 64
	rows := all - t.first
	for h := lo; h < hi; h++ {
		marks := grown(&s.blocks, rows*words)
		clear(marks)
		columns, diagonals := t.o.list(t.columns, 0, h, t.heads).index, t.o.list(t.diagonals, 0, h, t.heads).index
		for r := range rows {
			t.addLines(row(marks, r, words), columns, diagonals, t.first+r)
		}
		if t.agreement[h] != 0 {
			t.addPooled(s, marks, h, rows, words)
		}
		for r := range rows {
			t.write(row(marks, r, words), r, h)
		}
	}
}

// addLines marks block i, the blocks of columns, and those on diagonals from block i.
func (t *expandBlocksTask) addLines(marks []uint64, columns, diagonals []int32, i int) {
	marks[i/64] |= 1 << (i % 64)
	for _, j := range columns {
		if j >= 0 && int(j) <= i {
			marks[j/64] |= 1 << (j % 64)
		}
	}
	for _, o := range diagonals {
		if j := i - int(o); j >= 0 && j <= i {
			marks[j/64] |= 1 << (j % 64)
		}
	}
}

// addPooled marks the pairs of blocks with the largest pooled attention of a head.
func (t *expandBlocksTask) addPooled(s *pooledScratch, marks []uint64, h, rows, words int) {
	s.pairs = s.pairs[:0]
	for r := range rows {
		probabilities := grown(&s.x, t.first+r+1)
		meanSoftmax(probabilities, row(t.queries, r*t.heads+h, t.dim), t.keys, h*t.kvHeads/t.heads, t.kvHeads)
		for j, x := range probabilities {
			s.pairs = append(s.pairs, blockPair{x, int32(r*64*words + j)})
		}
	}
	slices.SortFunc(s.pairs, func(a, b blockPair) int {
		if c := cmp.Compare(b.mass, a.mass); c != 0 {
			return c
		}
		return cmp.Compare(a.bit, b.bit)
	})
	sum := 0.0
	for _, p := range s.pairs {
		if sum += p.mass; !(sum <= t.mass*float64(rows)*device.Slack) {
			break
		}
		marks[p.bit/64] |= 1 << (p.bit % 64)
	}
}

// write lists the pages of the marked blocks, for block r of rows and a head.
func (t *expandBlocksTask) write(marks []uint64, r, h int) {
	at := r*t.heads + h
	out, n := row(t.index, at, t.limit), 0
	last := pagesOf(min((t.first+r+1)*t.block, t.len))
	per := t.block / device.PageLen
	for j := range t.first + r + 1 {
		if marks[j/64]>>(j%64)&1 == 0 {
			continue
		}
		for page := j * per; page < min((j+1)*per, last); page++ {
			out[n] = int32(page)
			n++
		}
	}
	t.count[at] = int32(n)
}
