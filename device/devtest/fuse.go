package devtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// fuseCases are what package device computes around products, in one call where the
// backend can.
func fuseCases() []testCase {
	var cases []testCase
	for _, dt := range device.DTypes() {
		if dt == device.I32 {
			continue
		}
		for _, s := range [][2]int{{1, 256}, {3, 256}, {1, 2304}, {3, 2304}, {1, 2048}, {20, 2048}} {
			rows, k := s[0], s[1]
			at := fmt.Sprintf("/type=%v/rows=%d/k=%d", dt, rows, k)
			cases = append(cases,
				testCase{"op=NormProducts" + at, func(b *bed) job { return normMatMuls(b, rows, k, dt, dt, dt) }},
				testCase{"op=AddProduct" + at, func(b *bed) job { return addMatMul(b, dt, rows, k, 65) }},
				testCase{"op=NormSwiGLU" + at, func(b *bed) job { return normSwiGLU(b, rows, k, 70, dt, dt) }})
		}
	}
	cases = append(cases,
		testCase{"op=NormProducts/mixed", func(b *bed) job {
			return normMatMuls(b, 1, 512, device.Q4_K, device.Q6_K, device.Q4_K, device.F16, device.Q6_K)
		}},
		testCase{"op=NormProducts/mixed/rows=5", func(b *bed) job {
			return normMatMuls(b, 5, 2048, device.Q4_K, device.Q6_K, device.Q4_K, device.F16, device.Q6_K)
		}},
		testCase{"op=NormProducts/two types", func(b *bed) job {
			return normMatMuls(b, 1, 2304, device.Q4_K, device.Q4_K, device.Q6_K)
		}},
		testCase{"op=NormSwiGLU/mixed", func(b *bed) job { return normSwiGLU(b, 1, 512, 31, device.Q4_K, device.F16) }},
		testCase{"op=Feed/rows=3", func(b *bed) job { return feed(b, 3, 256, 256, device.Q4_K) }},
		testCase{"op=Feed/rows=65", func(b *bed) job { return feed(b, 65, 256, 128, device.Q8_0) }})
	return append(cases, headFuseCases()...)
}

// headFuseCases are what is computed between the products and the cache.
func headFuseCases() []testCase {
	var cases []testCase
	for _, full := range []bool{false, true} {
		for _, interleaved := range []bool{false, true} {
			for _, a := range []attention{
				{heads: 3, kvHeads: 3, dim: 20}, {heads: 8, kvHeads: 2, dim: 64}, {heads: 5, kvHeads: 1, dim: 128},
			} {
				a.full, a.lens = full, []int{64, 0, 70}
				for extra, h := range headExtras {
					if h != (headExtra{}) && full != interleaved { // these two have nothing to do with each other
						continue
					}
					at := fmt.Sprintf("/full=%v/interleaved=%v/dim=%d%s", full, interleaved, a.dim, extra)
					cases = append(cases, testCase{"op=RotateAppend" + at, func(b *bed) job { return ropeAppend(b, a, a.dim/2-2, interleaved, h) }})
					for _, types := range [][3]device.DType{
						{device.F16, device.F16, device.F16}, {device.Q4_K, device.Q4_K, device.Q6_K}, {device.F32, device.Q8_0, device.F32},
					} {
						one := a
						one.lens = []int{70}
						cases = append(cases, testCase{fmt.Sprintf("op=NormHeads%s/types=%v", at, types), func(b *bed) job { return normHeads(b, one, interleaved, types, h) }})
					}
				}
			}
		}
	}
	for _, a := range []attention{{heads: 6, kvHeads: 2, dim: 64}, {heads: 3, kvHeads: 1, dim: 128}} {
		a.lens, a.rows = []int{300}, 263
		for _, interleaved := range []bool{false, true} {
			for extra, h := range headExtras {
				name := fmt.Sprintf("op=RotateAppend/interleaved=%v/rows=%d/dim=%d%s", interleaved, a.rows, a.dim, extra)
				cases = append(cases, testCase{name, func(b *bed) job { return ropeAppend(b, a, a.dim/2, interleaved, h) }})
			}
		}
	}
	return cases
}

// headExtra says what happens to heads before they are rotated.
type headExtra struct{ bias, norm bool }

// headExtras are what families do, and both.
var headExtras = map[string]headExtra{"": {}, "/bias": {bias: true}, "/norm": {norm: true}, "/bias/norm": {true, true}}

// adjusted does to all, rows of q, k and v, what h says. It returns the tensors that say it to a
// device, and the smallest root mean square of the heads of q and of k that were normalized.
func (b *bed) adjusted(a *attention, h headExtra, all [3][]float64) (tensors Heads, sizes [2]float64) {
	const eps = 1e-3
	tensors.Eps = eps
	for i, heads := range [3]int{a.heads, a.kvHeads, a.kvHeads} {
		width := heads * a.dim
		if h.bias {
			bias := b.normal(width)
			tensors.Bias[i] = b.f32(bias, width)
			for at := range all[i] {
				all[i][at] += float64(bias[at%width])
			}
		}
		if h.norm && i < 2 {
			w := b.normal(a.dim)
			for d := range w {
				w[d] = 1 + w[d]/4
			}
			tensors.Norm[i] = b.f32(w, a.dim)
			sizes[i] = math.Inf(1)
			for at := 0; at < len(all[i]); at += a.dim {
				head := all[i][at : at+a.dim]
				sizes[i] = min(sizes[i], math.Sqrt(meanSquare(head)))
				copy(head, normalizedRow(head, w, eps))
			}
		}
	}
	return tensors, sizes
}

// normalized is n.W times x over its root mean square.
func normalized(x, w []float32, rows int, eps float64) (y []float64) {
	for r := range rows {
		y = append(y, normalizedRow(widen(x[r*len(w):(r+1)*len(w)]), w, eps)...)
	}
	return y
}

// normalizedRow is normalized for one row.
func normalizedRow(x []float64, w []float32, eps float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(meanSquare(x)+eps) * float64(w[i])
	}
	return y
}

func meanSquare(x []float64) (mean float64) {
	for _, v := range x {
		mean += v * v / float64(len(x))
	}
	return mean
}

// normed is rows of x with the weights of a norm, which lie about 1, and what the norm
// makes of them.
func (b *bed) normed(rows, k int) (x device.Tensor, n Norm, y []float64) {
	const eps = 1e-5
	xs, w := b.normal(rows*k), b.normal(k)
	for i := range xs {
		xs[i] *= 3
	}
	for i := range w {
		w[i] = 1 + w[i]/4
	}
	return b.f32(xs, rows, k), Norm{b.f32(w, k), eps}, normalized(xs, w, rows, eps)
}

// normMatMuls multiplies a norm of x by matrices of several types.
func normMatMuls(b *bed, rows, k int, types ...device.DType) job {
	x, n, y := b.normed(rows, k)
	var j job
	var dst, w []device.Tensor
	for i, dt := range types {
		width := 50 - 21*(i%3)
		m, d := b.weights(dt, b.matrix(dt, width, k), width, k), b.out(rows, width)
		dst, w = append(dst, d), append(w, m)
		values := b.embedded(m)
		j.expect = append(j.expect, expectation{name: fmt.Sprintf("dst %d", i), got: d, want: multiply(y, values, rows, k, width),
			bound: productBound(dt), scale: productSize(y, values, rows, k, width)})
	}
	scratch := b.out(rows, k)
	j.step = func(ops device.Queue) { NormProducts(ops, dst, x, n, w, scratch) }
	return j
}

// addMatMul adds a product to what is there.
func addMatMul(b *bed, dt device.DType, rows, k, n int) job {
	xs, ys := b.normal(rows*k), b.normal(rows*n)
	x, dst, m := b.f32(xs, rows, k), b.f32(ys, rows, n), b.weights(dt, b.matrix(dt, n, k), n, k)
	values := b.embedded(m)
	want := multiply(widen(xs), values, rows, k, n)
	for i := range want {
		want[i] += float64(ys[i])
	}
	product := b.out(rows, n)
	return job{
		step:   func(ops device.Queue) { AddProduct(ops, dst, x, m, product) },
		expect: []expectation{{name: "dst", got: dst, want: want, bound: productBound(dt), scale: max(productSize(widen(xs), values, rows, k, n), 1)}},
	}
}

// gated is silu(y·w[0]ᵀ) · (y·w[1]ᵀ), and its size. An error of a product counts as far as the
// other one is large.
func (b *bed) gated(y []float64, w []device.Tensor, rows, k, n int) (z []float64, size float64) {
	gates, ups := b.embedded(w[0]), b.embedded(w[1])
	g, u := multiply(y, gates, rows, k, n), multiply(y, ups, rows, k, n)
	z = make([]float64, len(g))
	var topG, topU float64
	for i := range z {
		z[i] = g[i] / (1 + math.Exp(-g[i])) * u[i]
		topG, topU = max(topG, math.Abs(g[i])), max(topU, math.Abs(u[i]))
	}
	return z, 1.1*productSize(y, gates, rows, k, n)*topU + productSize(y, ups, rows, k, n)*topG
}

// normSwiGLU gates one product of a norm with another.
func normSwiGLU(b *bed, rows, k, n int, gate, up device.DType) job {
	x, weight, y := b.normed(rows, k)
	w := []device.Tensor{b.weights(gate, b.matrix(gate, n, k), n, k), b.weights(up, b.matrix(up, n, k), n, k)}
	want, size := b.gated(y, w, rows, k, n)
	dst := []device.Tensor{b.out(rows, n), b.out(rows, n)}
	scratch := b.out(rows, k)
	return job{
		step:   func(ops device.Queue) { NormSwiGLU(ops, dst, x, weight, w, scratch) },
		expect: []expectation{{name: "dst", got: dst[0], want: want, bound: max(productBound(gate), productBound(up)), scale: size}},
	}
}

// feed adds to rows what a feed-forward layer of ff hidden elements makes of them. An error of
// a hidden element counts as far as its weight in the down projection is large.
func feed(b *bed, rows, dim, ff int, dt device.DType) job {
	x, weight, y := b.normed(rows, dim)
	matrix := func(n, k int) device.Tensor { return b.weights(dt, b.matrix(dt, n, k), n, k) }
	w := []device.Tensor{matrix(ff, dim), matrix(ff, dim), matrix(dim, ff)}
	hidden, size := b.gated(y, w, rows, dim, ff)
	downs := b.embedded(w[2])
	want := multiply(hidden, downs, rows, ff, dim)
	for i, v := range b.embedded(x) {
		want[i] += v
	}
	size = productSize(hidden, downs, rows, ff, dim) + productSize(slices.Repeat([]float64{size}, ff), downs, 1, ff, dim)
	wide, scratch := []device.Tensor{b.out(rows, ff), b.out(rows, ff)}, b.out(rows, dim)
	return job{
		step:   func(ops device.Queue) { Feed(ops, wide, x, weight, w, scratch) },
		expect: []expectation{{name: "x", got: x, want: want, bound: productBound(dt), scale: size}},
	}
}

// turning is a rotation at the positions of a decode step. Of each head the last
// dims stay as they are.
type turning struct {
	a           attention
	pos         []int32
	freqs       []float32
	interleaved bool
}

func newTurning(a attention, pairs int, interleaved bool) turning {
	rows := a.queryRows()
	t := turning{a, make([]int32, rows), make([]float32, pairs), interleaved}
	for r := range t.pos {
		_, p := a.place(r)
		t.pos[r] = int32(max(p, 0))
	}
	for i := range t.freqs {
		t.freqs[i] = float32(math.Pow(10000, -float64(i)/float64(pairs)))
	}
	return t
}

// tensors are the positions and the rotation on the device.
func (t *turning) tensors(b *bed) (pos device.Tensor, r device.Rotation) {
	return b.i32(t.pos, len(t.pos)), device.Rotation{Freqs: b.f32(t.freqs, len(t.freqs)), Scale: 1.25, Interleaved: t.interleaved}
}

// turned is rows of heads after it.
func (t *turning) turned(x []float64, heads int) []float64 {
	want := slices.Clone(x)
	for at := range len(t.pos) * heads {
		v := want[at*t.a.dim:][:t.a.dim]
		for i, f := range t.freqs {
			lo, hi := i, i+len(t.freqs)
			if t.interleaved {
				lo, hi = 2*i, 2*i+1
			}
			sin, cos := math.Sincos(float64(t.pos[at/heads]) * float64(f))
			v[lo], v[hi] = 1.25*(v[lo]*cos-v[hi]*sin), 1.25*(v[lo]*sin+v[hi]*cos)
		}
	}
	return want
}

// stored is a cache's keys and values, as they are before, with those of the rows.
func (t *turning) stored(b *bed, c device.KV, k, v []float64) (storedK, storedV []float64) {
	a := &t.a
	storedK, storedV = b.before(c.K), b.before(c.V)
	table := decodeI32(b.raw(c.Pages))
	for r := range t.pos {
		slot, p := a.place(r)
		if a.lens[slot] == 0 {
			continue
		}
		number := int(table[slot*c.Pages.Dim(1)+p/page])
		for h := range a.kvHeads {
			to, from := ((number*a.kvHeads+h)*page+p%page)*a.dim, (r*a.kvHeads+h)*a.dim
			copy(storedK[to:], k[from:from+a.dim])
			copy(storedV[to:], v[from:from+a.dim])
		}
	}
	return storedK, storedV
}

// ropeAppend rotates queries and keys and stores the keys with their values, behind what h says.
func ropeAppend(b *bed, a attention, pairs int, interleaved bool, h headExtra) job {
	rows := a.queryRows()
	c := b.cacheOf(&a)
	t := newTurning(a, pairs, interleaved)
	q, k, v := b.normal(rows*a.heads*a.dim), b.normal(rows*a.kvHeads*a.dim), b.normal(rows*a.kvHeads*a.dim)
	all := [3][]float64{widen(q), widen(k), widen(v)}
	extra, _ := b.adjusted(&a, h, all)
	wantQ, wantK := t.turned(all[0], a.heads), t.turned(all[1], a.kvHeads)
	kept := make([]float64, len(v))
	for i, x := range all[2] {
		kept[i] = keep(float32(x), a.full)
	}
	storedK, storedV := t.stored(b, c, wantK, kept)
	exact, bound, values := 3e-7, 3e-7, 0.
	if h.norm {
		exact, bound = 1e-6, 1e-6
	}
	if h.bias { // a sum may be the other neighbour in f32, and so in f16
		values = 0x1p-11
	}
	if !a.full {
		bound = 0x1p-11
	}
	tq, tk, tv := b.f32(q, rows, a.heads, a.dim), b.f32(k, rows, a.kvHeads, a.dim), b.f32(v, rows, a.kvHeads, a.dim)
	at, r := t.tensors(b)
	return job{
		step: func(ops device.Queue) {
			extra.Adjust(ops, tq, tk, tv)
			RotateAppend(ops, c, tq, tk, tv, at, r)
		},
		expect: []expectation{
			{name: "q", got: tq, want: wantQ, bound: exact}, {name: "k", got: tk, want: wantK, bound: exact}, {name: "v", got: tv, want: all[2], bound: 3e-7},
			{name: "stored k", got: c.K, want: storedK, bound: bound}, {name: "stored v", got: c.V, want: storedV, bound: values},
		},
	}
}

// normHeads makes queries, keys and values of weights of three types, does what h says,
// rotates them and stores them. An error of a product counts as far as a norm enlarges it.
func normHeads(b *bed, a attention, interleaved bool, types [3]device.DType, h headExtra) job {
	const k = 512
	rows := a.queryRows()
	c := b.cacheOf(&a)
	t := newTurning(a, a.dim/2-2, interleaved)
	x, n, y := b.normed(rows, k)
	var dst, w []device.Tensor
	var want [3][]float64
	var bound, scale [3]float64
	for i, heads := range [3]int{a.heads, a.kvHeads, a.kvHeads} {
		width := heads * a.dim
		m := b.weights(types[i], b.matrix(types[i], width, k), width, k)
		dst, w = append(dst, b.out(rows, width)), append(w, m)
		values := b.embedded(m)
		want[i] = multiply(y, values, rows, k, width)
		bound[i], scale[i] = productBound(types[i]), productSize(y, values, rows, k, width)
	}
	extra, sizes := b.adjusted(&a, h, want)
	for i, heads := range [2]int{a.heads, a.kvHeads} {
		if h.norm {
			scale[i] *= 4 / sizes[i]
		}
		want[i] = t.turned(want[i], heads)
		scale[i] *= 1.25 * math.Sqrt2 // both of a pair may be off
	}
	storedK, storedV := t.stored(b, c, want[1], want[2])
	inCache := func(i int) float64 { // the bound there
		top := 0.0
		for _, v := range want[i] {
			top = max(top, math.Abs(v))
		}
		if a.full {
			return bound[i]
		}
		return bound[i] + 0x1p-11*top/scale[i]
	}
	scratch := b.out(rows, k)
	at, r := t.tensors(b)
	j := job{step: func(ops device.Queue) {
		NormProducts(ops, dst, x, n, w, scratch)
		extra.Adjust(ops, dst[0], dst[1], dst[2])
		of := func(t device.Tensor) device.Tensor { return t.Reshape(rows, t.Dim(1)/a.dim, a.dim) }
		RotateAppend(ops, c, of(dst[0]), of(dst[1]), of(dst[2]), at, r)
	}}
	for i, name := range []string{"q", "k", "v"} {
		j.expect = append(j.expect, expectation{name: name, got: dst[i], want: want[i], bound: bound[i], scale: scale[i]})
	}
	j.expect = append(j.expect, expectation{name: "stored k", got: c.K, want: storedK, bound: inCache(1), scale: scale[1]},
		expectation{name: "stored v", got: c.V, want: storedV, bound: inCache(2), scale: scale[2]})
	return j
}
