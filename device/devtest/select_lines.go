package devtest

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// lineShape is the heads of a case.
type lineShape struct {
	heads, kvHeads, dim int
	full                bool
	rise                float64 // of scores from key to key, below one that dominates; see dominateFirst
}

// lineShapes have vectors of odd lengths too.
var lineShapes = []lineShape{{4, 2, 16, false, 0}, {3, 3, 20, true, 0}, {8, 2, 64, false, 0}, {2, 1, 8, true, 0}}

// linesHeadless are the rules here whose tensors have no head dimension, see complete.
var linesHeadless = []string{"Select(TopLines)", "Select(ExpandLines)", "Select(ExpandBlocks)"}

func lineCases() []testCase {
	var cases []testCase
	add := func(name string, f func(b *bed) job) { cases = append(cases, testCase{"op=" + name, f}) }
	for _, s := range lineShapes {
		for _, call := range [][2]int{{1, 1}, {64, 64}, {65, 65}, {200, 64}, {330, 128}, {131, 3}} {
			for _, f := range []forced{{}, {Columns: 30, Diagonals: 100}, {Columns: 2}} {
				add(fmt.Sprintf("VerticalSlash/len=%d/rows=%d/%+v/%+v", call[0], call[1], s, f), func(b *bed) job { return verticalSlash(b, call[0], call[1], s, f) })
			}
		}
		for _, n := range []int{1, 63, 64, 65, 300} {
			for _, block := range []int{16, 64, 128, 100} {
				add(fmt.Sprintf("MeanKeys/len=%d/block=%d/%+v", n, block, s), func(b *bed) job { return meanKeys(b, n, block, s) })
				add(fmt.Sprintf("PooledAgreement/len=%d/block=%d/%+v", n, block, s), func(b *bed) job { return pooledAgreement(b, n, block, s) })
			}
		}
		for _, call := range [][2]int{{64, 64}, {65, 65}, {200, 200}, {900, 900}, {900, 300}, {520, 7}, {1024, 512}} {
			for _, block := range []int{64, 128} {
				for _, share := range []float64{.3, .9, 1} {
					add(fmt.Sprintf("ExpandBlocks/len=%d/rows=%d/block=%d/share=%v/%+v", call[0], call[1], block, share, s),
						func(b *bed) job { return expandBlocks(b, call[0], call[1], block, share, s) })
				}
			}
		}
	}
	for _, call := range [][3]int{{1, 1, 64}, {64, 64, 64}, {300, 300, 64}, {300, 100, 64}, {777, 256, 64}, {300, 50, 16}, {130, 3, 100}} {
		for _, limit := range []int{0, 3, 20, 1000} {
			add(fmt.Sprintf("ExpandLines/len=%d/rows=%d/group=%d/limit=%d", call[0], call[1], call[2], limit), func(b *bed) job { return expandLines(b, call[0], call[1], call[2], limit) })
		}
	}
	for _, n := range []int{1, 63, 128, 1000} {
		for i, c := range []device.Select{
			{Block: 16, Mass: .5}, {Block: 64, Mass: .9, Min: 2}, {Block: 10, Mass: .99, Max: 7}, {Block: 64, Mass: .9999, Min: 3}, {Block: 1, Mass: 0}, {Block: 32, Mass: .7, Min: 100, Max: 3},
		} {
			add(fmt.Sprintf("TopLines/len=%d/%d", n, i), func(b *bed) job { return topLines(b, n, c) })
		}
	}
	return append(cases, dominatedLines()...)
}

// with is a slot of n positions, the newest rows of which have queries.
func (s lineShape) with(b *bed, n, rows int) (a *attention, kv device.KV) {
	a = &attention{heads: s.heads, kvHeads: s.kvHeads, dim: s.dim, full: s.full, lens: []int{n}, rows: rows, rise: s.rise}
	a.random(b)
	return a, b.cache(a, b.shuffled(a))
}

// forced is how many of the first columns and diagonals are +Inf.
type forced struct{ Columns, Diagonals int }

func verticalSlash(b *bed, n, rows int, s lineShape, f forced) job {
	a, kv := s.with(b, n, rows)
	width := n + 5
	columns, diagonals := widen(filled(s.heads*width, before)), widen(filled(s.heads*width, before))
	for h := range s.heads {
		c, d := columns[h*width:][:n], diagonals[h*width:][:n]
		clear(c)
		clear(d)
		for r := range rows {
			_, p := a.place(r)
			x := make([]float64, p+1)
			for j := range x {
				for i, k := range a.at(a.k, 0, j, h*s.kvHeads/s.heads) {
					x[j] += float64(a.q[(r*s.heads+h)*s.dim+i]) * float64(k) / math.Sqrt(float64(s.dim))
				}
			}
			for j, w := range softmaxOf(x) {
				c[j] += w
				d[p-j] += w
			}
		}
		for i := range n {
			c[i], d[i] = encodedMass(c[i]), encodedMass(d[i])
			if i < f.Columns {
				c[i] = math.Inf(1)
			}
			if i < f.Diagonals {
				d[i] = math.Inf(1)
			}
		}
	}
	q, got := b.f32(a.q, rows, s.heads, s.dim), [2]device.Tensor{b.out(s.heads, width), b.out(s.heads, width)}
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Score{Rule: device.VerticalSlash, Dst: got[0], Diagonals: got[1], Q: q, KV: kv, ForcedColumns: f.Columns, ForcedDiagonals: f.Diagonals})
		},
		expect: []expectation{
			{name: "columns", got: got[0], want: columns, bound: 2e-6, scale: float64(rows) + 2*s.rise*float64(n)},
			{name: "diagonals", got: got[1], want: diagonals, bound: 2e-6, scale: float64(rows) + 2*s.rise*float64(n)},
		},
	}
}

// softmaxOf is exp(x) scaled to sum to 1.
func softmaxOf(x []float64) []float64 {
	top, sum, y := slices.Max(x), 0.0, make([]float64, len(x))
	for i, v := range x {
		y[i] = math.Exp(v - top)
		sum += y[i]
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

// randomLines is up to limit ascending lines below n.
func randomLines(b *bed, n, limit int) []int32 {
	all := b.rng.Perm(n)
	list := make([]int32, 0, limit)
	for _, i := range all[:min(limit, n)] {
		list = append(list, int32(i))
	}
	slices.Sort(list)
	return list
}

// lists makes lists of one group, one for each head.
func (b *bed) lists(lists [][]int32, limit int) device.List {
	index, count := filledI32(len(lists)*limit, -9), filledI32(len(lists), 0)
	for i, l := range lists {
		copy(index[i*limit:], l)
		count[i] = int32(len(l))
	}
	return device.List{Index: b.i32(index, 1, len(lists), limit), Count: b.i32(count, 1, len(lists))}
}

// listed is a list to be made and what must be in it.
func (b *bed) listed(groups, heads, limit int, want func(group, head int) []int32) (l device.List, expect []expectation) {
	index, count := filledI32(groups*heads*limit, -9), filledI32(groups*heads, -9)
	l = device.List{Index: b.i32(slices.Clone(index), groups, heads, limit), Count: b.i32(slices.Clone(count), groups, heads)}
	for i := range count {
		if list := want(i/heads, i%heads); list != nil {
			copy(index[i*limit:], list)
			count[i] = int32(len(list))
		}
	}
	return l, []expectation{{name: "count", got: l.Count, ids: count}, {name: "index", got: l.Index, ids: index}}
}

func expandLines(b *bed, n, rows, group, limit int) job {
	const heads = 3
	_, kv := lineShape{heads: heads, kvHeads: 1, dim: 8}.with(b, n, rows)
	columns, diagonals := make([][]int32, heads), make([][]int32, heads)
	for h := range heads {
		columns[h], diagonals[h] = randomLines(b, n, limit*h/2), randomLines(b, n, limit)
	}
	first := n - rows
	groups := device.BlocksOf(first, rows, group)
	l, expect := b.listed(groups+1, heads, n, func(g, h int) []int32 {
		if g == groups {
			return nil
		}
		start := (first/group + g) * group
		end := min(start+group, n)
		read := make([]bool, n+group)
		tiles(read, diagonals[h], start, group)
		for _, j := range columns[h] {
			read[j] = true
		}
		list := []int32{}
		for j, yes := range read[:end] {
			if yes {
				list = append(list, int32(j))
			}
		}
		return list
	})
	l.Group = group
	c, d := b.lists(columns, n+1), b.lists(diagonals, n+2)
	return job{step: func(ops device.Queue) {
		device.Do(ops, device.Select{Rule: device.ExpandLines, List: l, Columns: c, Diagonals: d, KV: kv, Rows: rows})
	}, expect: expect}
}

// tiles marks what diagonals need for the group that starts at start.
func tiles(read []bool, diagonals []int32, start, group int) {
	var starts []int
	for _, o := range diagonals {
		if int(o) < start+group {
			starts = append(starts, max(start-int(o), 0))
		}
	}
	slices.Sort(starts)
	end := -1 // of the last tile
	for _, s := range starts {
		from := s
		switch {
		case end >= s+group:
			continue
		case end >= s:
			from = end
		}
		end = from + group
		for j := from; j < min(end, len(read)); j++ {
			read[j] = true
		}
	}
}

func meanKeys(b *bed, n, block int, s lineShape) job {
	a, kv := s.with(b, n, 1)
	blocks := (n+block-1)/block + 1
	want := widen(filled(blocks*s.kvHeads*s.dim, before))
	for i := range blocks - 1 {
		for h := range s.kvHeads {
			copy(want[(i*s.kvHeads+h)*s.dim:], meanKey(a, i, h, block))
		}
	}
	dst := b.out(blocks, s.kvHeads, s.dim)
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Summarize{Rule: device.MeanKeys, Dst: dst, KV: kv, Block: block})
		},
		expect: []expectation{{name: "dst", got: dst, want: want, bound: 1e-6, scale: 1}},
	}
}

// meanKey is the mean of the keys of a block.
func meanKey(a *attention, i, kvHead, block int) []float64 {
	mean, to := make([]float64, a.dim), min((i+1)*block, a.lens[0])
	for j := i * block; j < to; j++ {
		for e, k := range a.at(a.k, 0, j, kvHead) {
			mean[e] += float64(k) / float64(to-i*block)
		}
	}
	return mean
}

// randomPooled are means that are no means of anything. With blocks of 16 they
// are so large that some probabilities are 0.
func randomPooled(b *bed, s lineShape, block, rows, all int) (m device.Select, q, k []float32) {
	q, k = b.normal(rows*s.heads*s.dim), b.normal(all*s.kvHeads*s.dim)
	for i := range q {
		if block == 16 {
			q[i] *= 500
		}
	}
	return device.Select{Block: block, Q: b.f32(q, rows, s.heads, s.dim), Keys: b.f32(k, all, s.kvHeads, s.dim), Agreement: b.i32(filledI32(s.heads, 9), s.heads)}, q, k
}

// shares is softmax(q·k/√dim) of a head over the first blocks.
func (s lineShape) shares(q, k []float32, row, head, blocks int) []float64 {
	x := make([]float64, blocks)
	for j := range x {
		for i := range s.dim {
			x[j] += float64(q[(row*s.heads+head)*s.dim+i]) * float64(k[(j*s.kvHeads+head*s.kvHeads/s.heads)*s.dim+i]) / math.Sqrt(float64(s.dim))
		}
	}
	return softmaxOf(x)
}

func pooledAgreement(b *bed, n, block int, s lineShape) job {
	_, kv := s.with(b, n, 1)
	blocks, width := (n+block-1)/block, n+2
	m, q, k := randomPooled(b, s, block, 1, blocks)
	columns, near := b.normal(s.heads*width), 0.3
	want := make([]int32, s.heads)
	for h := range want {
		x := columns[h*width:][:width]
		for i := range x {
			x[i] = x[i] * x[i]
			if (i/block)%5 == 3 {
				x[i] = 0
			}
		}
		means, sums := s.shares(q, k, 0, h, blocks), make([]float64, blocks)
		if h%2 == 1 { // columns that agree with the pooled attention
			for i := range x[:n] {
				x[i] = float32(means[i/block]) * (1 + x[i]/10)
			}
		}
		var total, d float64
		for i, v := range x[:n] {
			sums[i/block] += float64(v)
			total += float64(v)
		}
		for i, p := range means {
			half := (p + sums[i]/total) / 2
			for _, v := range []float64{p, sums[i] / total} {
				if v > 0 {
					d += v * math.Log(v/half) / 2
				}
			}
		}
		if math.Sqrt(max(d, 0)) < near {
			want[h] = 1
		}
	}
	c, last := b.f32(columns, s.heads, width), m.Q
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Score{Rule: device.PooledAgreement, Dst: m.Agreement, Columns: c, Q: last, Keys: m.Keys, Block: m.Block, KV: kv, MaxDivergence: near})
		},
		expect: []expectation{{name: "agree", got: m.Agreement, ids: want}},
	}
}

func topLines(b *bed, n int, c device.Select) job {
	const heads = 4
	_, kv := lineShape{heads: heads, kvHeads: 1, dim: 8}.with(b, n, 1)
	width, blocks := n+3, (n+c.Block-1)/c.Block
	x, pooledAgreement := b.normal(heads*width), []int32{0, 1, 0, 0}
	for i := range x {
		x[i] = float32(math.Exp(float64(x[i]) * float64(1+i/width)))
	}
	in, gate := b.f32(x, heads, width), b.i32(pooledAgreement, heads)
	l, expect := b.listed(1, heads, blocks+2, func(_, h int) []int32 {
		return topLinesOf(x[h*width:][:n], c, pooledAgreement[h] != 0)
	})
	c.Rule, c.List, c.Scores, c.KV, c.Agreement = device.TopLines, l, in, kv, gate
	return job{step: func(ops device.Queue) { device.Do(ops, c) }, expect: expect}
}

// topLinesOf is the blocks of lines that TopLines selects.
func topLinesOf(x []float32, c device.Select, least bool) []int32 {
	sorted, total, n := widen(x), 0.0, 1
	slices.Sort(sorted)
	for _, v := range sorted {
		total += v
	}
	for i := len(sorted) - 1; i >= 0; i-- {
		sum := 0.0
		for j := len(sorted) - 1; j >= i; j-- {
			sum += sorted[j]
		}
		if sum <= c.Mass*total*device.Slack {
			n++
		}
	}
	keep, blocks := n/c.Block+1, (len(x)+c.Block-1)/c.Block
	if least {
		keep = 1
	}
	keep = min(max(keep, c.Min), blocks)
	if c.Max > 0 {
		keep = min(keep, c.Max)
	}
	sums, order := make([]float64, blocks), make([]int32, blocks)
	for i := range x {
		sums[i/c.Block] += float64(x[i])
	}
	sums[0] = math.Inf(1)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(sums[b], sums[a]) })
	slices.Sort(order[:keep])
	return order[:keep]
}

func expandBlocks(b *bed, n, rows, block int, share float64, s lineShape) job {
	_, kv := s.with(b, n, rows)
	first, all := (n-rows)/block, (n+block-1)/block
	m, q, k := randomPooled(b, s, block, all-first+1, all+1)
	m.Rows = rows
	columns, diagonals, pooledAgreement := make([][]int32, s.heads), make([][]int32, s.heads), make([]int32, s.heads)
	read := make([][][]bool, s.heads) // of each head and block of rows: the blocks
	for h := range s.heads {
		columns[h], diagonals[h], pooledAgreement[h] = randomLines(b, all, 2), randomLines(b, all, 2), int32(h%2)
		read[h] = make([][]bool, all-first)
		for r := range read[h] {
			i := first + r
			read[h][r] = make([]bool, i+1)
			for j := range i + 1 {
				read[h][r][j] = j == i || slices.Contains(columns[h], int32(j)) || slices.Contains(diagonals[h], int32(i-j))
			}
		}
		if pooledAgreement[h] == 1 {
			s.best(read[h], q, k, h, share)
		}
	}
	l, expect := b.listed(all-first+1, s.heads, kv.Pages.Dim(1), func(g, h int) []int32 {
		if g == all-first {
			return nil
		}
		list := []int32{}
		for at := 0; at < min((first+g+1)*block, n); at += page {
			if read[h][g][at/block] {
				list = append(list, int32(at/page))
			}
		}
		return list
	})
	l.Group = block
	c, d := b.lists(columns, all+1), b.lists(diagonals, all)
	m.Agreement, m.Mass = b.i32(pooledAgreement, s.heads), share
	m.Rule, m.List, m.Columns, m.Diagonals, m.KV = device.ExpandBlocks, l, c, d, kv
	return job{step: func(ops device.Queue) { device.Do(ops, m) }, expect: expect}
}

// best marks the blocks of all rows that hold the mass of the pooled attention.
func (s lineShape) best(read [][]bool, q, k []float32, head int, share float64) {
	type pair struct {
		share float64
		r, j  int
	}
	var all []pair
	for r := range read {
		for j, x := range s.shares(q, k, r, head, len(read[r])) {
			all = append(all, pair{x, r, j})
		}
	}
	slices.SortStableFunc(all, func(a, b pair) int { return cmp.Compare(b.share, a.share) })
	sum := 0.0
	for _, p := range all {
		if sum += p.share; sum > share*float64(len(read))*device.Slack {
			break
		}
		read[p.r][p.j] = true
	}
}
