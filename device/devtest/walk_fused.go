package devtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// fusedWalkCases are what package device computes of blocks in one call where the backend
// can.
func fusedWalkCases() []testCase {
	var cases []testCase
	add := func(name string, c blocks, f func(b *bed, c blocks) job) {
		cases = append(cases, testCase{"op=" + name + "/" + c.String(), func(b *bed) job { return f(b, c.with(b)) }})
	}
	steps := []blocks{
		{lens: []int{1}}, {lens: []int{page}}, {lens: []int{page + 1}}, {lens: []int{3, 0, 4 * page, 4*page + 1, 19*page + 5}},
		{lens: []int{150*page + 9}}, {lens: []int{129 * page, 2, 270*page + 1}},
	}
	for _, c := range steps {
		for _, s := range []sketchTailCase{
			{all: 4, kvHeads: 2, dim: 32, width: 16, log: true}, {all: 3, kvHeads: 1, dim: 128, width: 64, log: true, row: true},
			{all: 8, kvHeads: 4, dim: 20, width: 12, form: device.Relu}, {all: 2, kvHeads: 2, dim: 16, width: 6, log: true},
		} {
			add(fmt.Sprintf("SketchTail/%+v", s), c, s.job)
		}
		for _, w := range []walkCase{{log: true, exponent: 8}, {log: true, exponent: 8, start: true}, {log: true, exponent: 4, inPlace: true}, {exponent: 3}, {log: true, exponent: 2, own: .75}} {
			add(fmt.Sprintf("WalkTop/%+v", w), c, func(b *bed, c blocks) job { return walkTop(b, c, w, device.BlockBudget{Share: .2}) })
		}
		for _, s := range []sketchTailCase{{all: 4, kvHeads: 2, dim: 32, width: 16, log: true}, {all: 32, kvHeads: 8, dim: 128, width: 64, log: true}, {all: 2, kvHeads: 1, dim: 256, width: 256, log: true, row: true}} {
			add(fmt.Sprintf("WalkNewest/%+v", s), c, func(b *bed, c blocks) job { return lookAndWalk(b, c, walkCase{}, s) })
		}
	}
	// More equal elements than are compared with each other, and than there is room for.
	add("WalkNewest/level", blocks{lens: []int{901*page + 3}}, func(b *bed, c blocks) job {
		return lookAndWalk(b, c, walkCase{values: 1, level: true}, sketchTailCase{all: 4, kvHeads: 2, dim: 32, width: 16, log: true})
	})
	for _, c := range []blocks{{lens: []int{6 * page}, rows: 2 * page}, {lens: []int{37*page + 1}, rows: 70}, {lens: []int{300 * page}, rows: 40 * page}} {
		for i, p := range []device.BlockBudget{{Share: .1}, {Count: 3}, {Share: .4, Free: true}, {Share: .3, Span: device.Span{Back: 3 * page}}, edges} {
			add(fmt.Sprintf("WalkTop/pick=%d", i), c, func(b *bed, c blocks) job { return walkTop(b, c, walkCase{log: true, exponent: 2}, p) })
		}
	}
	// More blocks than a GPU has threads to rank them.
	add("TopBlocks/many", blocks{lens: []int{1100*page + 3}}, func(b *bed, c blocks) job { return topBlocks(b, c, device.BlockBudget{Share: .3}, true) })
	add("WalkTop/many", blocks{lens: []int{600*page + 3}}, func(b *bed, c blocks) job {
		return walkTop(b, c, walkCase{log: true, exponent: 8}, device.BlockBudget{Share: .1})
	})
	// Rows where many elements are equal, or nearly so beside others.
	for _, w := range []walkCase{{values: 1}, {values: 2}, {values: 30}, {skew: true}} {
		for i, p := range []device.BlockBudget{{Share: .1}, {Share: .4, Free: true}, {Share: .5, Span: device.Span{Back: 300 * page}}, edges} {
			w.log, w.start, w.exponent = true, true, 2
			add(fmt.Sprintf("WalkTop/%+v/pick=%d", w, i), blocks{lens: []int{600*page + 3}}, func(b *bed, c blocks) job { return walkTop(b, c, w, p) })
		}
	}
	// Chains of blocks whose best terms lie far from the best of each side, and far below.
	add("WalkTop/far", blocks{lens: []int{270*page + 1}, rows: 5 * page}, func(b *bed, c blocks) job {
		return walkTop(b, c, walkCase{log: true, exponent: 8, far: true}, device.BlockBudget{Share: .2})
	})
	return cases
}

// edges is a budget with more blocks that are always selected than the first and the own.
var edges = device.BlockBudget{Share: .3, First: device.Amount{Share: .05}, Last: device.Amount{Count: 3}}

// unit is a width of rows of which each starts on 32 bytes.
func unit(n int) int { return (n + 7) / 8 * 8 }

// sketchTailCase is a case of SketchTail.
type sketchTailCase struct {
	all, kvHeads, dim, width int
	form                     device.ProductForm
	log, row                 bool

	expect []expectation // of all that changes but the pairs
}

func (s sketchTailCase) job(b *bed, c blocks) job {
	q, k, state, pairs := s.sketch(b, c, filled(c.pageCount()*unit(c.width()), before))
	step := func(ops device.Queue) { SketchTail(ops, state, q, k, c.kv) }
	return job{step, append(s.expect, expectation{name: "pairs", got: state.Pairs, want: pairs, bound: 3e-5})}
}

// sketch makes what a call takes that changes pairs, what it changes, and the pairs that come
// of it.
func (s *sketchTailCase) sketch(b *bed, c blocks, before []float32) (q, k device.Tensor, state TailSketch, pairs []float64) {
	n, slots, wide := c.pageCount(), len(c.lens), unit(c.width())
	qs, ks, basis := b.normal(slots*s.all*s.dim), b.normal(slots*s.kvHeads*s.dim), b.normal(s.width*s.dim)
	sums := [2][]float32{b.normal(n * s.dim), b.normal(n * s.dim)} // of keys, of queries
	sketches := [2][]float32{b.normal(n * s.width), b.normal(n * s.width)}
	var t [4]device.Tensor
	for i := range sums {
		t[i], t[2+i] = b.f32(sums[i], n, 1, s.dim), b.f32(sketches[i], n, 1, s.width)
	}
	form := device.SketchProduct{Form: s.form, Log: s.log}
	var want [4][]float64
	for i := range sums {
		want[i], want[2+i] = widen(sums[i]), widen(sketches[i])
	}
	pairs = widen(before)
	for slot, length := range c.lens {
		if length == 0 {
			continue
		}
		own := (length - 1) / page
		at := int(c.pages[slot][own])
		for i, x := range [2][]float32{ks, qs} {
			sum, mean := want[i][at*s.dim:][:s.dim], make([]float64, s.dim)
			if (length-1)%page == 0 {
				clear(sum)
			}
			for d, v := range meanOfHeads(x, slot, 0, 1, []int{s.kvHeads, s.all}[i], s.dim) {
				sum[d] += v
				mean[d] = sum[d] / float64(c.stored(slot, own))
			}
			copy(want[2+i][at*s.width:], projected(basis, mean))
		}
		asked := projected(basis, meanOfHeads(qs, slot, 0, 1, s.all, s.dim))
		if s.row {
			copy(want[3][at*s.width:], asked)
		}
		compare := func(i int, from []float64) {
			row := pairs[int(c.pages[slot][i])*wide:][:i+1]
			for j := range row {
				row[j] = 0
				for x, v := range from {
					row[j] += v * want[2][int(c.pages[slot][j])*s.width+x]
				}
				row[j] /= math.Sqrt(float64(s.width))
			}
			formed(row, form)
		}
		compare(own, asked)
		if own > 0 && (length-1)%page == 0 {
			compare(own-1, want[3][int(c.pages[slot][own-1])*s.width:][:s.width])
		}
	}
	q, k = b.f32(qs, slots, s.all, s.dim), b.f32(ks, slots, s.kvHeads, s.dim)
	state = TailSketch{Keys: t[0], Queries: t[1], KeySketch: t[2], QuerySketch: t[3], Basis: b.f32(basis, s.width, s.dim), Pairs: b.f32(before, n, wide), Compare: form, Row: s.row}
	for i, name := range []string{"key sums", "query sums", "key sketches", "query sketches"} {
		s.expect = append(s.expect, expectation{name: name, got: t[i], want: want[i], bound: sketchBound})
	}
	return q, k, state, pairs
}

// walkTop walks rows and lists blocks of what came of it.
func walkTop(b *bed, c blocks, w walkCase, p device.BlockBudget) job {
	k := w.walk(b, c, unit(c.width()))
	l, expect := c.best(b, k.want, unit(c.width()), p)
	return job{
		step: func(ops device.Queue) {
			WalkTop(ops, device.Walk{Dst: k.dst, Src: k.src, Pairs: k.pairs, KV: c.kv, Rows: c.newRows(), Exponent: w.exponent, Own: w.own}, l, p)
		},
		expect: append(expect, expectation{name: "rows", got: k.dst, want: k.want, bound: sketchBound}),
	}
}

// best is room for lists of the best blocks by the rows of a walk, which are wide apart,
// and what is to be there.
func (c *blocks) best(b *bed, rows []float64, wide int, p device.BlockBudget) (device.List, []expectation) {
	n := c.walkRows()
	groups, most := 0, c.width()
	c.eachTouched(func(slot, i int) { groups++ })
	groups = max(groups, len(c.lens))
	index, count := filledI32(groups*most, -7), filledI32(groups, -7)
	l := device.List{Index: b.i32(index, groups, 1, most), Count: b.i32(count, groups, 1)}
	index, count = slices.Clone(index), slices.Clone(count)
	c.eachTouched(func(slot, i int) {
		lo, _ := c.touched(slot)
		first := max(c.lens[slot]-max(c.rows, 1), i*page)
		list := bestBlocks(rows[c.row(slot, i, n)*wide:][:i+1], first, p)
		copy(index[(slot+i-lo)*most:], list)
		count[slot+i-lo] = int32(len(list))
	})
	return l, []expectation{{name: "index", got: l.Index, ids: index}, {name: "count", got: l.Count, ids: count}}
}

// lookAndWalk compares and walks, as a step does: of the pairs, only the rows that were
// there come as they are.
func lookAndWalk(b *bed, c blocks, w walkCase, s sketchTailCase) job {
	w.log, w.exponent = true, 1
	p := device.BlockBudget{Share: .2}
	n, wide := c.walkRows(), unit(c.width())
	k := w.walk(b, c, wide)
	q, key, state, pairs := s.sketch(b, c, decodeF32(b.raw(k.pairs)))
	src := widen(decodeF32(b.raw(k.src)))
	want := wantRows(n * wide)
	c.eachTouched(func(slot, i int) {
		at := c.row(slot, i, n) * wide
		copy(want[at:], w.step(src[at:][:i+1], i, func(m int) []float32 {
			row := make([]float32, m+1)
			for j, v := range pairs[int(c.pages[slot][m])*wide:][:m+1] {
				row[j] = float32(v)
			}
			return row
		}))
	})
	l, expect := c.best(b, want, wide, p)
	return job{
		step: func(ops device.Queue) {
			SketchTail(ops, state, q, key, c.kv)
			WalkTop(ops, device.Walk{Dst: k.dst, Src: k.src, Pairs: state.Pairs, KV: c.kv, Rows: 1, Exponent: w.exponent}, l, p)
		},
		expect: append(append(expect, s.expect...), expectation{name: "pairs", got: state.Pairs, want: pairs, bound: 3e-5}, expectation{name: "rows", got: k.dst, want: want, bound: 3e-5}),
	}
}
