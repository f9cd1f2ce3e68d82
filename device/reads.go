package device

import "slices"

// reads is what a plan reads of the cache of a layer.
type reads struct {
	pairs int64 // (query head and row, position)
	rows  int64 // of K, and as many of V, of one kv head: each once for all queries
}

// reads counts what n rows of some query heads read by a plan. Lists of positions of several rows
// of one slot are not intersected: rows is that of the longest list, a lower bound.
func (s Stored) reads(p *Plan, kv KV, n, heads int) (r reads) {
	c := s.counter(p, kv, n)
	for row, pos := range c.pos {
		for list := range c.lists {
			if pos >= 0 { // not an idle slot
				r.pairs += int64(heads/c.lists) * int64(c.of(row, pos, list))
			}
		}
	}
	for _, g := range c.slots() {
		r.rows += c.distinct(g[0], g[1])
	}
	return r
}

// listBytes is the size of the list entries of n rows.
func (s Stored) listBytes(l *List, kv KV, n int) (size int64) {
	if l.Index.Absent() {
		return 0
	}
	entry := int64(l.Index.DType.BlockSize())
	if !l.Weight.Absent() {
		entry += int64(l.Weight.DType.BlockSize())
	}
	c := s.counter(&Plan{Selected: Tokens, List: *l}, kv, n)
	for _, g := range c.slots() {
		for group := c.group(g[0]); group <= c.group(g[1]-1); group++ {
			for list := range c.lists {
				size += entry * int64(c.length(group, list))
			}
		}
	}
	return size
}

// counter is a readCounter for n rows and a plan.
func (s Stored) counter(p *Plan, kv KV, n int) *readCounter {
	c := &readCounter{stored: s, plan: p, pos: s.positions(kv, n), kvHeads: kv.K.Dim(1), lists: 1, apart: kv.Len.Dim(0) > 1}
	if c.listed() && len(c.pos) > 0 {
		c.lists, c.counts = p.List.Index.Dim(1), s(p.List.Count)
	}
	return c
}

// readCounter counts what rows read by a plan.
type readCounter struct {
	stored  Stored
	plan    *Plan
	pos     []int // of each row
	kvHeads int
	lists   int     // for a group of rows
	counts  []int32 // [groups, lists]
	apart   bool    // every row is in another slot: a decode step
	has     []bool  // scratch of distinct
}

func (c *readCounter) listed() bool { return c.plan.Selected == Blocks || c.plan.Selected == Tokens }

// exact reports whether lists are read entry by entry.
func (c *readCounter) exact() bool { return c.plan.Selected == Blocks || c.apart || len(c.pos) == 1 }

// group is the group of lists of a row.
func (c *readCounter) group(row int) int {
	if c.apart {
		return row
	}
	n := max(c.plan.List.Group, 1)
	return c.pos[row]/n - c.pos[0]/n
}

// length is the number of entries of a list.
func (c *readCounter) length(group, list int) int {
	i := group*c.lists + list
	if i >= len(c.counts) {
		return 0
	}
	return min(max(int(c.counts[i]), 0), c.plan.List.Index.Dim(2))
}

// slots is the rows [from, to) of each slot that is not idle.
func (c *readCounter) slots() (all [][2]int) {
	if !c.apart && len(c.pos) > 0 {
		return [][2]int{{0, len(c.pos)}}
	}
	for row, pos := range c.pos {
		if pos >= 0 {
			all = append(all, [2]int{row, row + 1})
		}
	}
	return all
}

// entries is the entries of a list.
func (c *readCounter) entries(group, list int) []int32 {
	n := c.length(group, list)
	if n == 0 {
		return nil
	}
	return c.stored(c.plan.List.Index.At(group).At(list).Rows(0, n))
}

// of is the number of positions that a row reads by a list.
func (c *readCounter) of(row, pos, list int) int {
	lo, hi := c.plan.between(pos)
	n := c.edges(pos)
	switch c.plan.Selected {
	case All:
		n += c.plan.Span.count(pos, lo, hi)
	case Tokens:
		n += c.length(c.group(row), list)
	case Blocks:
		for _, b := range c.entries(c.group(row), list) {
			n += c.plan.Span.count(pos, max(lo, int(b)*PageLen), min(hi, int(b+1)*PageLen))
		}
	}
	return n
}

// edges is the number of positions in the sinks and the recent window of the row at pos.
func (c *readCounter) edges(pos int) int {
	lo, hi := c.plan.between(pos)
	return c.plan.Span.count(pos, 0, lo) + c.plan.Span.count(pos, hi, pos+1)
}

// distinct is the number of rows of K, of all kv heads, that the rows [from, to) of a slot read.
// What a row sees of the positions before the first row shrinks from row to row, so that the union
// is what the first row reads and one new position per row.
func (c *readCounter) distinct(from, to int) (n int64) {
	first, last := c.pos[from], c.pos[to-1]
	if !c.listed() {
		return int64(c.kvHeads) * int64(c.of(from, first, 0)+last-first)
	}
	for head := range c.kvHeads {
		lists := c.listsOf(head)
		if c.exact() {
			n += int64(c.union(from, to, lists))
			continue
		}
		longest := 0
		for group := range c.group(to-1) + 1 {
			for _, list := range lists {
				longest = max(longest, c.length(group, list))
			}
		}
		n += int64(c.edges(first) + last - first + longest)
	}
	return n
}

// listsOf is the lists of the query heads that share a kv head.
func (c *readCounter) listsOf(head int) (all []int) {
	if c.lists <= c.kvHeads {
		return []int{head * c.lists / c.kvHeads}
	}
	for i := range c.lists / c.kvHeads {
		all = append(all, head*c.lists/c.kvHeads+i)
	}
	return all
}

// union is the number of positions that any of the rows [from, to) reads by any of the lists.
func (c *readCounter) union(from, to int, lists []int) (n int) {
	first, last := c.pos[from], c.pos[to-1]
	c.has = slices.Grow(c.has[:0], last+1)[:last+1]
	clear(c.has)
	lo, hi := c.plan.between(first)
	mark := func(lo, hi int) {
		for j := max(lo, 0); j < min(hi, last+1); j++ {
			c.has[j] = c.has[j] || c.plan.Span.Sees(max(j, first), j)
		}
	}
	mark(0, lo)
	mark(hi, first+1)
	if to > from+1 {
		mark(first+1, last+1)
	}
	size := 1
	if c.plan.Selected == Blocks {
		size = PageLen
	}
	for group := c.group(from); group <= c.group(to-1); group++ {
		for _, list := range lists {
			for _, j := range c.entries(group, list) {
				mark(int(j)*size, int(j+1)*size)
			}
		}
	}
	for _, has := range c.has {
		if has {
			n++
		}
	}
	return n
}

// between is the selected region [lo, hi) of the row at pos.
func (p *Plan) between(pos int) (lo, hi int) {
	lo, hi = p.Sink, pos+1-p.Recent
	if p.Align > 0 {
		hi = pos - pos%p.Align - p.Recent
	}
	lo = min(max(lo, 0), pos+1)
	return lo, min(max(hi, lo), pos+1)
}

// count is the number of positions in [lo, hi) that the row at pos sees.
func (s Span) count(pos, lo, hi int) int {
	hi = min(hi, pos+1)
	if s.Back > 0 {
		lo = max(lo, pos-s.Back+1)
	}
	lo = max(lo, 0)
	if lo >= hi {
		return 0
	}
	hidden := 0
	if bound := s.Bound(pos); bound > s.Sink {
		hidden = max(min(hi, bound)-max(lo, s.Sink), 0)
	}
	return hi - lo - hidden
}

// region is what n rows read of a plan's selected region when they read all of it.
func (s Stored) region(p *Plan, kv KV, n, heads int) (r reads) {
	all, ends := *p, *p
	all.Selected, all.Sink, all.Recent, all.Align, all.List = All, 0, 0, 0, List{}
	ends.Selected, ends.List = None, List{}
	r, without := s.reads(&all, kv, n, heads), s.reads(&ends, kv, n, heads)
	return reads{pairs: r.pairs - without.pairs, rows: max(r.rows-without.rows, 0)}
}

// rowBytes is the size of n rows of K of one kv head, or of V.
func (kv *KV) rowBytes(n int64) int64 { return n * int64(kv.K.DType.RowSize(kv.K.Dim(3))) }

// past is the sum of position + 1 over n rows: the (row, position) pairs of causal attention.
func (s Stored) past(kv KV, n int) (sum int64) {
	for _, pos := range s.positions(kv, n) {
		sum += int64(pos + 1)
	}
	return sum
}

// blockCount counts stored blocks of all slots.
type blockCount struct {
	stored    int64
	touched   int64 // blocks that the newest rows are in
	pairs     int64 // (touched block, block up to it)
	triangles int64 // (touched block, pair of blocks up to it)
}

// blocks counts blocks of a length, for the newest rows of each slot.
func (s Stored) blocks(kv KV, rows, length int) (b blockCount) {
	if s == nil {
		return b
	}
	for _, stored := range s(kv.Len) {
		n := int64(stored)
		if n == 0 {
			continue
		}
		first, last := max(n-int64(max(rows, 1)), 0)/int64(length), (n-1)/int64(length)
		b.stored += last + 1
		for i := first + 1; i <= last+1; i++ {
			b.touched++
			b.pairs += i
			b.triangles += i * (i + 1) / 2
		}
	}
	return b
}
