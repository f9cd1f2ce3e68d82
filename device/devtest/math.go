package devtest

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// mathHeadless are the rules here whose tensors have no head dimension, see complete.
var mathHeadless = []string{"Embed", "Gather", "Copy", "Add", "RMSNorm", "SwiGLU", "MatMul", "Mark"}

// mathCases are the operations besides products, sampling and attention.
func mathCases() []testCase {
	cases := []testCase{
		{"op=Embed/type=F32", func(b *bed) job { return embedPlain(b, device.F32) }},
		{"op=Embed/type=F16", func(b *bed) job { return embedPlain(b, device.F16) }},
		{"op=Embed/type=BF16", func(b *bed) job { return embedPlain(b, device.BF16) }},
		{"op=Gather", gatherRows},
		{"op=Mark", marks},
		{"op=Rope/twice", ropeTwice},
		{"op=Copy", copyAll},
	}
	cases = append(cases, testCase{"op=Add/row/rows=70/dim=3584", func(b *bed) job { return addRow(b, 70, 3584) }})
	for _, n := range []int{0, 1, 7, 8, 15, 16, 17, 31, 33, 64, 100, 2048} {
		for _, rows := range []int{0, 1, 3} {
			at := fmt.Sprintf("/rows=%d/dim=%d", rows, n)
			if n > 0 {
				cases = append(cases,
					testCase{"op=RMSNorm" + at, func(b *bed) job { return rmsNorm(b, rows, n, false) }},
					testCase{"op=RMSNorm/inplace" + at, func(b *bed) job { return rmsNorm(b, rows, n, true) }})
			}
			cases = append(cases,
				testCase{"op=Add" + at, func(b *bed) job { return addRows(b, rows, n) }},
				testCase{"op=Add/row" + at, func(b *bed) job { return addRow(b, rows, n) }},
				testCase{"op=SwiGLU" + at, func(b *bed) job { return swiGLU(b, rows, n, false) }},
				testCase{"op=SwiGLU/inplace" + at, func(b *bed) job { return swiGLU(b, rows, n, true) }})
		}
	}
	for _, pairs := range []int{1, 4, 8, 15, 16, 17, 20, 32, 40, 48, 64} {
		for _, interleaved := range []bool{false, true} {
			for _, rest := range []int{0, 6} {
				name := fmt.Sprintf("op=Rope/pairs=%d/rest=%d/interleaved=%v", pairs, rest, interleaved)
				cases = append(cases, testCase{name, func(b *bed) job { return rope(b, pairs, rest, interleaved) }})
			}
		}
	}
	return cases
}

// embedPlain looks up rows of a table of a plain type.
func embedPlain(b *bed, dt device.DType) job {
	const vocab, dim = 9, 33
	x := b.normal(vocab * dim)
	var table device.Tensor
	switch dt {
	case device.F32:
		table = b.tensor(dt, x, vocab, dim)
	case device.F16:
		bits, values := halves(x)
		x, table = values, b.tensor(dt, bits, vocab, dim)
	case device.BF16:
		bits := make([]uint16, len(x))
		for i, v := range x {
			bits[i] = uint16(math.Float32bits(v) >> 16)
			x[i] = math.Float32frombits(uint32(bits[i]) << 16)
		}
		table = b.tensor(dt, bits, vocab, dim)
	}
	ids := []int32{8, 0, 3, 3}
	dst, at := b.out(len(ids), dim), b.i32(ids, len(ids))
	return job{
		step:   func(ops device.Queue) { device.Do(ops, device.Embed{Dst: dst, Table: table, IDs: at}) },
		expect: []expectation{{name: "dst", got: dst, want: rowsOf(x, dim, ids)}},
	}
}

func rowsOf(x []float32, dim int, ids []int32) []float64 {
	var want []float64
	for _, id := range ids {
		want = append(want, widen(x[int(id)*dim:(int(id)+1)*dim])...)
	}
	return want
}

func gatherRows(b *bed) job {
	const n, dim = 5, 17
	x, rows := b.normal(n*dim), []int32{4, 4, 0, 2}
	src, dst, at := b.f32(x, n, dim), b.out(len(rows), dim), b.i32(rows, len(rows))
	return job{
		step:   func(ops device.Queue) { device.Do(ops, device.Gather{Dst: dst, Src: src, Rows: at}) },
		expect: []expectation{{name: "dst", got: dst, want: rowsOf(x, dim, rows)}},
	}
}

func copyAll(b *bed) job {
	x := b.normal(6 * 7)
	src, dst := b.f32(x, 6, 7), b.out(4, 7)
	return job{
		step:   func(ops device.Queue) { device.Do(ops, device.Copy{Dst: dst.Rows(1, 3), Src: src.Rows(3, 5)}) },
		expect: []expectation{{name: "dst", got: dst, want: append(append(widen(filled(7, before)), widen(x[21:35])...), widen(filled(7, before))...)}},
	}
}

func addRows(b *bed, rows, n int) job {
	x, y := b.normal(rows*n), b.normal(rows*n)
	dst, src := b.f32(x, rows, n), b.f32(y, rows, n)
	want := make([]float64, len(x))
	for i := range want {
		want[i] = float64(x[i] + y[i])
	}
	return job{
		step:   func(ops device.Queue) { device.Do(ops, device.Add{Dst: dst, X: src}) },
		expect: []expectation{{name: "dst", got: dst, want: want}},
	}
}

// addRow adds one row to each.
func addRow(b *bed, rows, n int) job {
	x, y := b.normal(rows*n), b.normal(n)
	dst, src := b.f32(x, rows, n), b.f32(y, n)
	want := make([]float64, len(x))
	for i := range want {
		want[i] = float64(x[i] + y[i%n])
	}
	return job{
		step:   func(ops device.Queue) { device.Do(ops, device.Add{Dst: dst, X: src}) },
		expect: []expectation{{name: "dst", got: dst, want: want}},
	}
}

// rmsNorm has one row with an outlier that a sum in half precision would lose,
// and one that is all but zero, where eps decides.
func rmsNorm(b *bed, rows, n int, inPlace bool) job {
	const eps = 1e-5
	x, w := b.normal(rows*n), b.normal(n)
	for i := range x {
		switch i / n {
		case 1:
			x[i] *= 1e-4
		case 2:
			x[i] += 3000 * float32(i%n/(n-n/8))
		}
	}
	src := b.f32(x, rows, n)
	dst := src
	if !inPlace {
		dst = b.out(rows, n)
	}
	weight := b.f32(w, n)
	want := make([]float64, len(x))
	for r := range rows {
		var sum float64
		for _, v := range x[r*n : (r+1)*n] {
			sum += float64(v) * float64(v)
		}
		scale := 1 / math.Sqrt(sum/float64(n)+eps)
		for i := range n {
			want[r*n+i] = float64(x[r*n+i]) * scale * float64(w[i])
		}
	}
	return job{
		step:   func(ops device.Queue) { device.Do(ops, device.RMSNorm{Dst: dst, X: src, W: weight, Eps: eps}) },
		expect: []expectation{{name: "dst", got: dst, want: want, bound: 3e-7}},
	}
}

// swiGLU reaches into both tails, where exp overflows and underflows.
func swiGLU(b *bed, rows, n int, inPlace bool) job {
	x, y := b.normal(rows*n), b.normal(rows*n)
	for i := range x {
		switch i % 5 {
		case 1:
			x[i] *= 10
		case 2:
			x[i] *= 60
		}
	}
	gate, up := b.f32(x, rows, n), b.f32(y, rows, n)
	dst := gate
	if !inPlace {
		dst = b.out(rows, n)
	}
	want := make([]float64, len(x))
	for i := range want {
		g := float64(x[i])
		want[i] = g / (1 + math.Exp(-g)) * float64(y[i])
	}
	return job{
		step:   func(ops device.Queue) { device.Do(ops, device.SwiGLU{Dst: dst, Gate: gate, Up: up}) },
		expect: []expectation{{name: "dst", got: dst, want: want, bound: 3e-7}},
	}
}

// rope rotates by angles of up to a million radians.
func rope(b *bed, pairs, rest int, interleaved bool) job {
	const heads = 3
	pos := []int32{0, 1, 2, 77, 8191, 131071, 1000000}
	dim := 2*pairs + rest
	freqs := make([]float32, pairs)
	for i := range freqs {
		freqs[i] = float32(math.Pow(500000, -float64(i)/float64(pairs)))
	}
	x := b.normal(len(pos) * heads * dim)
	want := widen(x)
	const scale = 1.25
	for r, p := range pos {
		for h := range heads {
			v := want[(r*heads+h)*dim:][:dim]
			for i, f := range freqs {
				lo, hi := i, i+pairs
				if interleaved {
					lo, hi = 2*i, 2*i+1
				}
				sin, cos := math.Sincos(float64(p) * float64(f))
				v[lo], v[hi] = scale*(v[lo]*cos-v[hi]*sin), scale*(v[lo]*sin+v[hi]*cos)
			}
		}
	}
	dst, at := b.f32(x, len(pos), heads, dim), b.i32(pos, len(pos))
	r := device.Rotation{Freqs: b.f32(freqs, pairs), Scale: scale, Interleaved: interleaved}
	return job{
		step:   func(ops device.Queue) { device.Do(ops, device.Rope{X: dst, Pos: at, Rotation: r}) },
		expect: []expectation{{name: "x", got: dst, want: want, bound: 2e-7}},
	}
}

// ropeTwice rotates by some positions and back by their opposites, and then by
// nothing: no call may use what an earlier one computed for other positions,
// frequencies or scales.
func ropeTwice(b *bed) job {
	const dim = 32
	x := b.normal(2 * dim)
	dst := b.f32(x, 2, 1, dim)
	turn := func(pos []int32, freq, scale float32) func(ops device.Queue) {
		at := b.i32(pos, len(pos))
		r := device.Rotation{Freqs: b.f32(filled(dim/2, freq), dim/2), Scale: scale}
		return func(ops device.Queue) { device.Do(ops, device.Rope{X: dst, Pos: at, Rotation: r}) }
	}
	calls := []func(ops device.Queue){
		turn([]int32{3, 70}, 0.5, 1), turn([]int32{0, 0}, 0.5, 1), // 3·0.5 and 70·0.5
		turn([]int32{3, 70}, -0.25, 1), turn([]int32{3, 70}, -0.25, 2), // back to where it was, twice as long
	}
	want := widen(x)
	for i := range want {
		want[i] *= 2
	}
	return job{
		step: func(ops device.Queue) {
			for _, call := range calls {
				call(ops)
			}
		},
		expect: []expectation{{name: "x", got: dst, want: want, bound: 5e-7}},
	}
}

// marks: what lies between two marks is computed as without them.
func marks(b *bed) job {
	x, y := b.normal(6), b.normal(6)
	want := widen(x)
	for i, v := range y {
		want[i] = float64(x[i] + v)
	}
	dst, more := b.f32(x, 2, 3), b.f32(y, 2, 3)
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Mark{I: 0})
			device.Do(ops, device.Add{Dst: dst, X: more})
			device.Do(ops, device.Mark{I: 1})
			device.Do(ops, device.Mark{I: 2})
		},
		expect: []expectation{{name: "dst", got: dst, want: want}},
	}
}
