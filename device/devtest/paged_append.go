package devtest

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// appendCases store rows in caches of both types.
func appendCases() []testCase {
	var cases []testCase
	for _, full := range []bool{false, true} {
		for _, dim := range []int{8, 16, 20, 64, 80, 128} {
			for _, a := range []attention{
				{lens: []int{1}}, {lens: []int{65}}, {lens: []int{64, 0, 3}},
				{lens: []int{64}, rows: 64}, {lens: []int{131}, rows: 70}, {lens: []int{5}, rows: 2},
			} {
				a.heads, a.kvHeads, a.dim, a.full = 2, 2, dim, full
				name := fmt.Sprintf("op=Append/full=%v/dim=%d/lens=%v/rows=%d", full, dim, a.lens, a.rows)
				cases = append(cases, testCase{name, func(b *bed) job { return appendRows(b, a) }})
			}
		}
	}
	return cases
}

// hard are numbers that test the rounding to half precision: ties, the largest
// and the smallest, both sides of each border.
var hard = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 1.0004883, 1.0014648, 1.00048828125, 1.00146484375,
	65504, 65519.996, 65520, -65520, 1e30, 6.1035156e-05, 6.1e-05, 5.9604645e-08, 2.9802322e-08, 2.98023224e-08,
	2.9802325e-08, 1e-10, -1e-10, 8.940697e-08, 0.33333334, 2049, 2051, -2049, 6.103515625e-05,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
}

// appendRows stores rows whose first numbers are hard.
func appendRows(b *bed, a attention) job {
	rows := a.queryRows()
	c := b.cacheOf(&a)
	width := a.kvHeads * a.dim
	k, v := b.normal(rows*width), b.normal(rows*width)
	for i := range k {
		if i%2 == 0 {
			k[i] = hard[i/2%len(hard)]
		}
	}
	wantK, wantV := b.before(c.K), b.before(c.V)
	for r := range rows {
		slot, p := a.place(r)
		if a.lens[slot] == 0 {
			continue
		}
		pageNumber := int(decodeI32(b.raw(c.Pages))[slot*c.Pages.Dim(1)+p/page])
		for h := range a.kvHeads {
			to := ((pageNumber*a.kvHeads+h)*page + p%page) * a.dim
			for i := range a.dim {
				from := r*width + h*a.dim + i
				wantK[to+i], wantV[to+i] = keep(k[from], a.full), keep(v[from], a.full)
			}
		}
	}
	kt, vt := b.f32(k, rows, a.kvHeads, a.dim), b.f32(v, rows, a.kvHeads, a.dim)
	return job{
		step:   func(ops device.Queue) { device.Do(ops, device.Append{KV: c, K: kt, V: vt}) },
		expect: []expectation{{name: "k", got: c.K, want: wantK}, {name: "v", got: c.V, want: wantV}},
	}
}

// keep is what a cache makes of a number.
func keep(v float32, full bool) float64 {
	if full || v != v {
		return float64(v)
	}
	return halfValue(toHalf(float64(v)))
}

// cacheOf is a cache for the case, with keys and values of nobody in it.
func (b *bed) cacheOf(a *attention) device.KV {
	a.spread = 1
	a.random(b)
	return b.cache(a, b.shuffled(a))
}

// before is the contents of a tensor as numbers.
func (b *bed) before(x device.Tensor) []float64 {
	raw := b.raw(x)
	if x.DType == device.F16 {
		return widen(decodeF16(raw))
	}
	return widen(decodeF32(raw))
}
