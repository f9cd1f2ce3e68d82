package devtest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// sketchBound is the error of products and sums of the operations on blocks,
// relative to the largest of the result; that of logarithms is absolute error
// over their largest size.
const sketchBound = 1e-6

// blocks is a case of the operations on blocks in plain Go.
type blocks struct {
	lens  []int // positions of each slot
	rows  int   // rows of the only slot; 0: one row of each
	pages [][]int32
	kv    device.KV
}

// blockShapes are calls of every kind: prompts that start and end inside blocks
// and at their edges, and decode steps with idle slots.
var blockShapes = []blocks{
	{lens: []int{1}, rows: 1}, {lens: []int{page}, rows: page}, {lens: []int{page + 1}, rows: 1},
	{lens: []int{5*page + 7}, rows: 5*page + 7}, {lens: []int{6 * page}, rows: 2 * page}, {lens: []int{6*page - 3}, rows: page + 5},
	{lens: []int{3, 0, 4 * page, 4*page + 1, 19*page + 5}}, {lens: []int{0, 2*page - 1}}, {lens: []int{37*page + 1}, rows: 70},
}

func (c blocks) String() string { return fmt.Sprintf("lens=%v/rows=%d", c.lens, c.rows) }

// with gives the case a cache on a bed.
func (c blocks) with(b *bed) blocks {
	a := attention{heads: 1, kvHeads: 1, dim: 1, lens: c.lens, rows: c.rows}
	a.random(b)
	c.pages = b.shuffled(&a)
	c.kv = b.cache(&a, c.pages)
	return c
}

// newRows names the blocks of the call's rows.
func (c *blocks) newRows() int { return max(c.rows, 1) }

func (c *blocks) pageCount() int { return c.kv.K.Dim(0) }
func (c *blocks) width() int     { return c.kv.Pages.Dim(1) }

// touched are the blocks of a slot that its rows lie in, [lo, hi).
func (c *blocks) touched(slot int) (lo, hi int) {
	n := c.lens[slot]
	if n == 0 {
		return 0, 0
	}
	return (n - max(c.rows, 1)) / page, (n-1)/page + 1
}

// stored is how many positions of block i of a slot are stored.
func (c *blocks) stored(slot, i int) int { return min(c.lens[slot]-i*page, page) }

// row is where block i of a slot has its row of a walk of n rows.
func (c *blocks) row(slot, i, n int) int {
	if len(c.lens) > 1 {
		return slot
	}
	return i % n
}

// walkRows is the fewest rows that the walk of a call needs.
func (c *blocks) walkRows() int {
	if len(c.lens) > 1 {
		return len(c.lens)
	}
	lo, hi := c.touched(0)
	return hi - lo
}

// eachTouched calls f for every block that the call's rows lie in.
func (c *blocks) eachTouched(f func(slot, i int)) {
	for slot := range c.lens {
		lo, hi := c.touched(slot)
		for i := lo; i < hi; i++ {
			f(slot, i)
		}
	}
}

// walkHeadless are the rules here whose tensors have no head dimension, see complete.
var walkHeadless = []string{"Walk", "Score(SketchScores)", "Select(TopBlocks)"}

func walkCases() []testCase {
	var cases []testCase
	add := func(name string, c blocks, f func(b *bed, c blocks) job) {
		cases = append(cases, testCase{"op=" + name + "/" + c.String(), func(b *bed) job { return f(b, c.with(b)) }})
	}
	for _, c := range blockShapes {
		for _, s := range [][4]int{{1, 4, 8, 8}, {2, 4, 20, 7}, {3, 3, 64, 64}, {1, 1, 128, 33}} {
			at := fmt.Sprintf("/heads=%d of %d/dim=%d/width=%d", s[0], s[1], s[2], s[3])
			add("SumBlocks"+at, c, func(b *bed, c blocks) job { return sumBlocks(b, c, s[0], s[1], s[2]) })
			add("ProjectMeans"+at, c, func(b *bed, c blocks) job { return projectMeans(b, c, s[0], s[2], s[3]) })
			add("ProjectRows"+at, c, func(b *bed, c blocks) job { return projectRows(b, c, s[0], s[1], s[2], s[3]) })
		}
		for _, form := range []device.ProductForm{device.Raw, device.Relu, device.Softmax} {
			for _, log := range []bool{true, false} {
				for _, square := range []bool{false, true} {
					at := fmt.Sprintf("/form=%d/log=%v/square=%v", form, log, square)
					add("SketchScores"+at, c, func(b *bed, c blocks) job {
						return sketchScores(b, c, device.SketchProduct{Form: form, Log: log}, square)
					})
					add("SketchScores"+at+"/each", c, func(b *bed, c blocks) job {
						return sketchScores(b, c, device.SketchProduct{Form: form, Log: log, Each: true, Temperature: .3}, square)
					})
				}
			}
		}
		for _, w := range []walkCase{
			{log: true, exponent: 8}, {log: true, exponent: 1, square: true}, {exponent: 3}, {exponent: 2, square: true},
			{log: true, exponent: 8, own: .75}, {exponent: 3, own: .25}, {log: true, exponent: 1, own: .5, inPlace: true, square: true}, {exponent: 2, own: .5, start: true},
			{log: true, exponent: 8, start: true}, {exponent: 3, start: true}, {log: true, exponent: 4, inPlace: true}, {exponent: 1, inPlace: true, square: true},
		} {
			add(fmt.Sprintf("Walk/%+v", w), c, w.job)
		}
		for i, p := range []device.BlockBudget{
			{Share: .2}, {Share: .5}, {Count: 3}, {Count: 100}, {Share: .4, Free: true},
			{Share: .3, Span: device.Span{Back: 3 * page}}, {Count: 4, Span: device.Span{Drop: .5, Sink: page + 1}}, {Share: .3, Span: device.Span{Drop: .7}},
			{Share: .5, First: device.Amount{Count: 2}, Last: device.Amount{Share: .3}}, {Share: .6, First: device.Amount{Share: .3}}, {Count: 3, Last: device.Amount{Count: 5}},
			{Share: .4, First: device.Amount{Count: 2}, Last: device.Amount{Count: 2}, Span: device.Span{Drop: .5, Sink: page + 1}}, {Share: .2, Dense: 3},
		} {
			add(fmt.Sprintf("TopBlocks/pick=%d", i), c, func(b *bed, c blocks) job { return topBlocks(b, c, p, i%2 == 0) })
		}
	}
	for _, c := range []blocks{{lens: []int{150*page + 9}, rows: 1}, {lens: []int{129 * page, 2, 270*page + 1}}} { // long steps
		for _, w := range []walkCase{{log: true, exponent: 8}, {log: true, exponent: 1, square: true}, {log: true, exponent: 4, inPlace: true}} {
			add(fmt.Sprintf("Walk/%+v", w), c, w.job)
		}
		add("TopBlocks/long", c, func(b *bed, c blocks) job { return topBlocks(b, c, device.BlockBudget{Share: .1}, true) })
	}
	return append(cases, fusedWalkCases()...)
}

// wantRows is a tensor of n numbers before a call, to be changed in places.
func wantRows(n int) []float64 { return widen(filled(n, before)) }

// meanOfHeads is the mean in float64 of the heads of row r that belong to head h.
func meanOfHeads(x []float32, r, h, heads, all, dim int) []float64 {
	mean := make([]float64, dim)
	n := all / heads
	for u := range n {
		for i := range mean {
			mean[i] += float64(x[((r*all)+h*n+u)*dim+i]) / float64(n)
		}
	}
	return mean
}

// sumBlocks adds the call's rows to sums of what came before.
func sumBlocks(b *bed, c blocks, heads, all, dim int) job {
	rows := max(c.rows, len(c.lens))
	x, first := b.normal(rows*all*dim), b.normal(c.pageCount()*heads*dim)
	sum, src := b.f32(first, c.pageCount(), heads, dim), b.f32(x, rows, all, dim)
	want := widen(first)
	for r := range rows {
		slot, p := r, 0
		if c.rows > 0 {
			slot, p = 0, c.lens[0]-c.rows+r
		} else {
			p = c.lens[r] - 1
		}
		if p < 0 {
			continue
		}
		for h := range heads {
			to := want[(int(c.pages[slot][p/page])*heads+h)*dim:][:dim]
			if p%page == 0 {
				clear(to)
			}
			for i, v := range meanOfHeads(x, r, h, heads, all, dim) {
				to[i] += v
			}
		}
	}
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Summarize{Rule: device.SumBlocks, Dst: sum, X: src, KV: c.kv})
		},
		expect: []expectation{{name: "sum", got: sum, want: want, bound: sketchBound}},
	}
}

// projected is basis·x in float64.
func projected(basis []float32, x []float64) []float64 {
	y := make([]float64, len(basis)/len(x))
	for c := range y {
		for i, v := range x {
			y[c] += v * float64(basis[c*len(x)+i])
		}
	}
	return y
}

func projectMeans(b *bed, c blocks, heads, dim, width int) job {
	n := c.pageCount()
	x, basis := b.normal(n*heads*dim), b.normal(width*dim)
	dst, sum, m := b.out(n, heads, width), b.f32(x, n, heads, dim), b.f32(basis, width, dim)
	want := wantRows(n * heads * width)
	c.eachTouched(func(slot, i int) {
		for h := range heads {
			at := int(c.pages[slot][i])*heads + h
			mean := widen(x[at*dim:][:dim])
			for i2 := range mean {
				mean[i2] /= float64(c.stored(slot, i))
			}
			copy(want[at*width:], projected(basis, mean))
		}
	})
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Summarize{Rule: device.ProjectMeans, Dst: dst, X: sum, Basis: m, KV: c.kv, Rows: c.newRows()})
		},
		expect: []expectation{{name: "dst", got: dst, want: want, bound: sketchBound}},
	}
}

func projectRows(b *bed, c blocks, heads, all, dim, width int) job {
	n, rows := c.pageCount(), max(c.rows, len(c.lens))
	x, basis := b.normal(rows*all*dim), b.normal(width*dim)
	dst, src, m := b.out(n, heads, width), b.f32(x, rows, all, dim), b.f32(basis, width, dim)
	want := wantRows(n * heads * width)
	for slot, length := range c.lens {
		if length == 0 {
			continue
		}
		r := slot
		if c.rows > 0 {
			r = c.rows - 1
		}
		for h := range heads {
			at := int(c.pages[slot][(length-1)/page])*heads + h
			copy(want[at*width:], projected(basis, meanOfHeads(x, r, h, heads, all, dim)))
		}
	}
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Summarize{Rule: device.ProjectRows, Dst: dst, X: src, Basis: m, KV: c.kv})
		},
		expect: []expectation{{name: "dst", got: dst, want: want, bound: sketchBound}},
	}
}

// sketchScores has a page whose sketch is zero and one that is not a number.
func sketchScores(b *bed, c blocks, form device.SketchProduct, square bool) job {
	const shared, width = 2, 24
	heads, n := shared, c.pageCount()
	if form.Each {
		heads *= 3
	}
	q, k, own := b.normal(n*heads*width), b.normal(n*shared*width), b.normal(n*heads*width)
	last := len(c.lens) - 1
	clear(k[int(c.pages[last][0])*shared*width:][:shared*width])
	k[int(c.pages[0][1])*shared*width] = float32(math.NaN())
	tq, tk := b.f32(q, n, heads, width), b.f32(k, n, shared, width)
	if form.Log {
		form.Own = b.f32(own, n, heads, width)
	}
	product := func(slot, i, j, h int) float64 {
		from := q
		if i == j && form.Log {
			from = own
		}
		x, y := from[(int(c.pages[slot][i])*heads+h)*width:], k[(int(c.pages[slot][j])*shared+h*shared/heads)*width:]
		var sum float64
		for d := range width {
			sum += float64(x[d]) * float64(y[d])
		}
		return sum / math.Sqrt(width)
	}
	dst, want := b.out(n, c.width()), wantRows(n*c.width())
	if square {
		dst, want = b.out(len(c.lens), c.width(), c.width()), wantRows(len(c.lens)*c.width()*c.width())
	}
	for slot := range c.lens {
		lo, hi := c.touched(slot)
		if start := c.lens[slot] - max(c.rows, 1); lo > 0 && start%page == 0 {
			lo--
		}
		if square {
			lo = 0
		}
		for i := lo; i < hi; i++ {
			at, end := int(c.pages[slot][i])*c.width(), i+1
			if square {
				at, end = (slot*c.width()+i)*c.width(), hi
			}
			row := want[at:][:end]
			overHeads(row, heads, form, func(j, h int) float64 { return product(slot, i, j, h) })
		}
	}
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Score{Rule: device.SketchScores, Dst: dst, Q: tq, Keys: tk, KV: c.kv, Rows: c.newRows(), Product: form})
		},
		expect: []expectation{{name: "pairs", got: dst, want: want, bound: 3e-5}},
	}
}

// overHeads makes a row of scores of the products of heads.
func overHeads(row []float64, heads int, c device.SketchProduct, product func(j, h int) float64) {
	clear(row)
	one := make([]float64, len(row))
	for h := range heads {
		for j := range one {
			one[j] = product(j, h)
		}
		if c.Each {
			formed(one, device.SketchProduct{Form: c.Form, Temperature: c.Temperature})
		}
		for j, v := range one {
			row[j] += v
		}
	}
	for j := range row {
		row[j] /= float64(heads)
	}
	if !c.Each {
		formed(row, c)
	} else if c.Log {
		for j, v := range row {
			row[j] = math.Log(math.Abs(v))
		}
	}
}

// formed is what a [device.SketchProduct] makes of a row of products.
func formed(row []float64, c device.SketchProduct) {
	var sum float64
	for j, v := range row {
		if math.IsNaN(v) || c.Form == device.Relu && v < 0 {
			row[j] = 0
		}
		if c.Temperature > 0 && c.Form == device.Softmax {
			row[j] /= c.Temperature
		}
		sum += math.Exp(row[j])
	}
	for j, v := range row {
		if c.Form == device.Softmax {
			v = math.Exp(v) / sum
		}
		if c.Log {
			v = math.Log(math.Abs(v))
		}
		row[j] = v
	}
}

// walkCase is a case of Walk.
type walkCase struct {
	log, square, start, inPlace bool
	exponent                    int
	far                         bool // the best of src meet the least of pairs
	values                      int  // of pairs there are so many; 0: as many as numbers
	skew                        bool // one of pairs in 100 is far above the others
	level                       bool // all that counts of src is two blocks before the newest
	own                         float64
}

func (w walkCase) job(b *bed, c blocks) job {
	k := w.walk(b, c, c.width())
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Walk{Dst: k.dst, Src: k.src, Pairs: k.pairs, KV: c.kv, Rows: c.newRows(), Exponent: w.exponent, Own: w.own})
		},
		expect: []expectation{{name: "rows", got: k.dst, want: k.want, bound: sketchBound}},
	}
}

// walked is the tensors of a step of a walk, and the rows that come of it.
type walked struct {
	dst, src, pairs device.Tensor
	want            []float64
}

// walk makes a step of rows of width elements.
func (w walkCase) walk(b *bed, c blocks, width int) walked {
	n := c.walkRows()
	dims := []int{c.pageCount(), width}
	if w.square {
		dims = []int{len(c.lens), width, width}
	}
	pairs := b.normal(size(dims))
	for i, v := range pairs {
		if i%5 == 0 {
			v = 0
		}
		if pairs[i] = v; w.log {
			pairs[i] = float32(5 * math.Log(math.Abs(float64(v))))
		}
	}
	for i, v := range pairs {
		if w.values > 0 {
			pairs[i] = float32(i*7%101%w.values) / 8
		}
		if w.skew {
			pairs[i] = v / 4096
			if i%100 == 33 {
				pairs[i] = 64
			}
		}
	}
	values := widen(b.normal(n * width))
	for i := range values {
		if i%7 == 0 {
			values[i] = 0
		}
		if w.log {
			values[i] = float64(float32(20 * math.Log(math.Abs(values[i]))))
		}
	}
	if w.level {
		own := (c.lens[0] - 1) / page
		for i := range values {
			values[i] = -100
			if i%width == own-2 {
				values[i] = 0
			}
		}
	}
	if w.far {
		for i := range values {
			values[i] -= float64(i % width % 2 * 300)
		}
		for m, page := range c.pages[0] {
			for j := range pairs[int(page)*width:][:width] {
				pairs[int(page)*width+j] -= float32((1 - m%2) * 300 / w.exponent)
			}
		}
	}
	row := func(slot, i int) []float32 { return pairs[int(c.pages[slot][i])*width:][:i+1] }
	if w.square {
		row = func(slot, i int) []float32 {
			_, hi := c.touched(slot)
			return pairs[(slot*width+i)*width:][:hi]
		}
	}
	before := widen(filled(n*width, before))
	k := walked{dst: w.rows(b, before, n), pairs: b.f32(pairs, dims...)}
	switch {
	case w.inPlace:
		before = slices.Clone(values)
		k.dst = w.rows(b, values, n)
		k.src = k.dst
	case !w.start:
		k.src = w.rows(b, values, n)
	}
	k.want = before
	c.eachTouched(func(slot, i int) {
		at := c.row(slot, i, n) * width
		copy(k.want[at:], w.step(values[at:][:len(row(slot, i))], i, func(m int) []float32 { return row(slot, m) }))
	})
	return k
}

// rows is a tensor of n rows of a walk.
func (w walkCase) rows(b *bed, x []float64, n int) device.Tensor {
	if w.log {
		y := make([]float32, len(x))
		for i, v := range x {
			y[i] = float32(v)
		}
		return b.f32(y, n, len(x)/n)
	}
	var raw []byte
	for _, v := range x {
		raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v))
	}
	return b.tensor(device.I32, raw, n, 2*len(x)/n)
}

// step is one step of the walk of block i.
func (w walkCase) step(src []float64, i int, row func(m int) []float32) []float64 {
	next := make([]float64, len(src))
	for j := range next {
		var terms []float64 // values, or logarithms
		for m := range src {
			if j >= len(row(m)) || w.start && m != i {
				continue
			}
			v := float64(row(m)[j])
			switch {
			case w.log && w.start:
				v *= float64(w.exponent)
			case w.log:
				v = src[m] + float64(w.exponent)*v
			case w.start:
				v = math.Pow(v, float64(w.exponent))
			default:
				v = src[m] * math.Pow(v, float64(w.exponent))
			}
			terms = append(terms, v)
		}
		next[j] = w.add(terms)
	}
	if w.own > 0 && !w.start {
		w.damp(next, row(i))
	}
	top := math.Inf(-1)
	for _, v := range next[min(1, len(next)-1):] {
		if !w.log {
			v = math.Abs(v)
		}
		top = max(top, v)
	}
	for j := range next {
		if w.log && !math.IsInf(top, -1) {
			next[j] -= top
		} else if !w.log && top > 0 {
			next[j] /= top
		}
	}
	return next
}

// damp adds the own row to a row of a walk.
func (w walkCase) damp(next []float64, row []float32) {
	own, walked := make([]float64, len(next)), make([]float64, len(next))
	var mine, all float64
	for j := range own {
		if own[j], walked[j] = math.Pow(float64(row[j]), float64(w.exponent)), next[j]; w.log {
			own[j], walked[j] = math.Exp(float64(row[j])*float64(w.exponent)), math.Exp(next[j])
		}
		mine, all = mine+math.Abs(own[j]), all+math.Abs(walked[j])
	}
	for j := range next {
		next[j] = 0
		if all > 0 {
			next[j] += (1 - w.own) * walked[j] / all
		}
		if mine > 0 {
			next[j] += w.own * own[j] / mine
		}
		if w.log {
			next[j] = math.Log(next[j])
		}
	}
}

// add is the sum of terms, of logarithms as a logarithm.
func (w walkCase) add(terms []float64) float64 {
	var sum float64
	if !w.log {
		for _, v := range terms {
			sum += v
		}
		return sum
	}
	top := slices.Max(terms)
	if math.IsInf(top, -1) {
		return top
	}
	for _, v := range terms {
		sum += math.Exp(v - top)
	}
	return top + math.Log(sum)
}

// topBlocks ranks rows with many ties, some -Inf and some not numbers.
func topBlocks(b *bed, c blocks, p device.BlockBudget, log bool) job {
	n := c.walkRows()
	w := walkCase{log: log}
	values := make([]float64, n*c.width())
	for i := range values {
		values[i] = float64(b.rng.IntN(6)) - 3
		switch b.rng.IntN(9) {
		case 0:
			values[i] = math.Inf(-1)
		case 1:
			values[i] = math.NaN()
		}
	}
	rows := w.rows(b, values, n)
	l, expect := c.best(b, values, c.width(), p)
	return job{step: func(ops device.Queue) {
		device.Do(ops, device.Select{Rule: device.TopBlocks, List: l, Scores: rows, KV: c.kv, Rows: c.newRows(), Blocks: p})
	}, expect: expect}
}

// bestBlocks is what the block whose row and first position are given reads.
func bestBlocks(row []float64, first int, p device.BlockBudget) []int32 {
	own := int32(len(row) - 1)
	var seen []int32
	for j := range row {
		for at := j * page; at < (j+1)*page && at <= first; at++ {
			far := p.Span.Back > 0 && first-at >= p.Span.Back
			dropped := p.Span.Drop > 0 && at >= p.Span.Sink && at < int(math.Floor(p.Span.Drop*float64(first+1)+1e-9))-1
			if !far && !dropped {
				seen = append(seen, int32(j))
				break
			}
		}
	}
	n := p.Count
	if n == 0 {
		n = max(2, int(math.Ceil(p.Share*float64(len(seen))-1e-9)))
	}
	if n >= len(seen) || len(seen) <= 2 || p.Dense > 0 && int(own) >= p.Dense {
		return seen
	}
	key := func(j int32) float64 {
		if v := row[j]; v == v {
			return v
		}
		return math.Inf(-1)
	}
	order := slices.Clone(seen)
	slices.SortStableFunc(order, func(x, y int32) int { return cmp.Compare(key(y), key(x)) })
	list := []int32{own}
	if p.Free {
		for _, j := range order[:n-1] {
			if j != own {
				list = append(list, j)
			}
		}
	} else {
		edge := func(a device.Amount) int32 {
			return int32(max(1, float64(a.Count), math.Ceil(a.Share*float64(len(seen))-1e-9)))
		}
		for _, j := range seen {
			if j != own && (j < edge(p.First) || j > own-edge(p.Last)) {
				list = append(list, j)
			}
		}
		for _, j := range order {
			if len(list) < n && !slices.Contains(list, j) {
				list = append(list, j)
			}
		}
	}
	slices.Sort(list)
	return list
}
