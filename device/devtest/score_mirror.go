package devtest

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// mirrorVector is a vector as KeyMirror keeps it: integers from -levels to levels, and a scale.
type mirrorVector struct {
	ints  []int
	scale float32
}

// mirrorOf rotates and rounds a vector, step by step in f32 as the rule says.
func mirrorOf(x []float32, levels int) mirrorVector {
	n := device.MirrorBlock(len(x))
	y := make([]float32, len(x))
	for i := range y { // element i of the transform adds those up to a sign, pair by pair
		y[i] = butterfly(x[i/n*n:][:n], i%n)
	}
	var m float32
	for _, v := range y {
		if v != v || math.IsInf(float64(v), 0) {
			return mirrorVector{make([]int, len(x)), float32(math.NaN())}
		}
		m = max(m, float32(math.Abs(float64(v))))
	}
	r := mirrorVector{ints: make([]int, len(x))}
	if m < 0x1p-100 {
		return r
	}
	factor := float32(levels) / m
	r.scale = m / float32(levels)
	for i, v := range y {
		r.ints[i] = int(math.RoundToEven(float64(float32(v * factor))))
	}
	return r
}

// butterfly is element i of the Walsh-Hadamard transform of x, by its recursion: the sums and the
// differences of neighbours first.
func butterfly(x []float32, i int) float32 {
	if len(x) == 1 {
		return x[0]
	}
	half := make([]float32, len(x)/2)
	for j := range half {
		half[j] = x[2*j] + x[2*j+1]
		if i%2 == 1 {
			half[j] = x[2*j] - x[2*j+1]
		}
	}
	return butterfly(half, i/2)
}

// score is the score of a query, of 127 levels, with a key.
func (q mirrorVector) score(k mirrorVector) float32 {
	sum, dim := 0, len(q.ints)
	for i, v := range q.ints {
		sum += v * k.ints[i]
	}
	unit := float32(1 / (float64(device.MirrorBlock(dim)) * math.Sqrt(float64(dim))))
	return float32(float32(sum)*k.scale) * float32(q.scale*unit)
}

// mirrorLevels is the largest integer of keys of some bits.
func mirrorLevels(bits int) int { return 1<<(bits-1) - 1 }

// mirrorCase is KeyMirror of the keys of slots, in two calls, and MirrorScores.
type mirrorCase struct {
	attention
	bits   int
	region device.Region
	odd    bool // keys and a query with NaN, Inf, zeros and tiny numbers
	pooled bool // scores are pooled over the heads of kv heads
}

// mirrorShapes are the head dimensions and the heads of a kv head that the cases have.
var mirrorShapes = []headShape{{2, 2, 8}, {6, 2, 16}, {9, 1, 24}, {8, 2, 32}}

func mirrorCases() []testCase {
	var cases []testCase
	for name, a := range codePlans {
		for i, bits := range []int{8, 4} {
			c := mirrorCase{attention: mirrorShapes[(len(name)+i)%len(mirrorShapes)].of(a), bits: bits, region: device.Region(1 - i)}
			cases = append(cases, testCase{fmt.Sprintf("op=MirrorScores/%s/bits=%d", name, bits), c.job})
		}
	}
	for _, bits := range []int{8, 4} {
		c := mirrorCase{attention: headShape{6, 2, 16}.of(codePlans["decode"]), bits: bits, odd: true}
		c.full = true
		cases = append(cases, testCase{fmt.Sprintf("op=MirrorScores/odd/bits=%d", bits), c.job})
		// Kernels on tensor cores, with more heads than one of their products takes.
		for i, shape := range []headShape{{8, 2, 64}, {9, 1, 64}, {7, 1, 128}} {
			c := mirrorCase{attention: shape.of(codePlans[[]string{"decode", "back", "drop"}[i]]), bits: bits, region: device.Region(i % 2), odd: i == 0}
			c.full = i == 1
			cases = append(cases, testCase{fmt.Sprintf("op=MirrorScores/%s/bits=%d", shape, bits), c.job})
			c.pooled = true
			cases = append(cases, testCase{fmt.Sprintf("op=MirrorScores/%s/bits=%d/pooled", shape, bits), c.job})
		}
	}
	return cases
}

// job stores the copies and scores them.
func (c mirrorCase) job(b *bed) job {
	c.random(b)
	if c.odd {
		c.makeOdd()
	}
	width := c.longest() + 2
	at := b.attend(&c.attention, b.shuffled(&c.attention))
	kv, words := at.kv, device.MirrorWords(c.dim, c.bits)
	mirror := b.i32(filledI32(kv.K.Dim(0)*c.kvHeads*words*page, 7), kv.K.Dim(0), c.kvHeads, words, page)
	dst := b.out(c.queryRows(), c.heads, width)
	early := kv // all but the newest rows
	before, rows := make([]int32, len(c.lens)), max(c.rows, 1)
	for s, n := range c.lens {
		before[s] = int32(max(n-rows, 0))
	}
	early.Len = b.i32(before, len(c.lens))
	j := job{
		step: func(ops device.Queue) {
			for s, n := range before { // a slot at a time: they have different lengths
				if n > 0 {
					one := early
					one.Pages, one.Len = early.Pages.Rows(s, s+1), early.Len.Rows(s, s+1)
					device.Do(ops, device.Summarize{Rule: device.KeyMirror, Dst: mirror, KV: one, Rows: int(n)})
				}
			}
			device.Do(ops, device.Summarize{Rule: device.KeyMirror, Dst: mirror, KV: kv, Rows: rows})
			device.Do(ops, device.Score{Rule: device.MirrorScores, Dst: dst, Q: at.q, Keys: mirror, KV: kv, Plan: at.plan, Region: c.region})
		},
		expect: []expectation{{name: "scores", got: dst, want: c.scores(width)}, {name: "mirror", got: mirror, ids: c.stored(b, kv, words)}},
	}
	if c.pooled {
		return poolJob(b, &c.attention, kv, j)
	}
	return j
}

// makeOdd plants what is not finite, and what is too small to be rounded.
func (c *mirrorCase) makeOdd() {
	for j, x := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		c.at(c.k, 0, 20+j, 0)[j] = x
	}
	clear(c.at(c.k, 0, 30, 0))
	for i := range c.at(c.k, 0, 31, 1) {
		c.at(c.k, 0, 31, 1)[i] *= 0x1p-120
	}
	copy(c.at(c.k, 0, 41, 1), c.at(c.k, 0, 40, 1)) // a tie
	clear(c.q[c.dim : 2*c.dim])
	c.q[2*c.dim] = float32(math.Inf(1))
}

// scores is what the rows of scores must be, to the bit.
func (c *mirrorCase) scores(width int) []float64 {
	all, ends := c.attention, c.attention
	all.selected, ends.selected = device.All, device.None
	want := widen(filled(c.queryRows()*c.heads*width, before))
	for r := range c.queryRows() {
		slot, p := c.place(r)
		for h := range c.heads {
			q := mirrorOf(c.q[(r*c.heads+h)*c.dim:][:c.dim], 127)
			for j := 0; j <= p; j++ {
				x := math.Inf(-1)
				if all.weight(p, j, nil) > 0 && (c.region == device.Visible || ends.weight(p, j, nil) == 0) {
					x = float64(q.score(mirrorOf(c.at(c.k, slot, j, h*c.kvHeads/c.heads), mirrorLevels(c.bits))))
				}
				want[(r*c.heads+h)*width+j] = x
			}
		}
	}
	return want
}

// stored is what the mirror must be; words of other positions stay.
func (c *mirrorCase) stored(b *bed, kv device.KV, words int) []int32 {
	all := filledI32(kv.K.Dim(0)*c.kvHeads*words*page, 7)
	table, each := decodeI32(b.raw(kv.Pages)), 32/c.bits
	for s, n := range c.lens {
		for j := range n {
			for h := range c.kvHeads {
				k := mirrorOf(c.at(c.k, s, j, h), mirrorLevels(c.bits))
				to := all[(int(table[s*kv.Pages.Dim(1)+j/page])*c.kvHeads+h)*words*page+j%page:]
				for w := range words - 1 {
					var word uint32
					for e, v := range k.ints[w*each : (w+1)*each] {
						word |= uint32(v+mirrorLevels(c.bits)+1) << (8*(e%4) + 4*(e/4))
					}
					to[w*page] = int32(word)
				}
				to[(words-1)*page] = int32(math.Float32bits(k.scale))
			}
		}
	}
	return all
}
