package devtest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// productBound is the error of a product that the element type allows, relative
// to the size that a sum of k products has when their signs are random. Exact
// types are summed in f32. Quantized ones meet activations of 8 bits: steps of
// 1/127 of the largest of a block, which is 2.5 to 3.5 standard deviations, leave
// a deviation of 0.7 % and 5 of those in the worst of thousands of results.
func productBound(dt device.DType) float64 {
	if dt.Quantized() {
		return 4e-2
	}
	return 2e-6
}

// productSize is the size of the sums, the largest of a call.
func productSize(x, w []float64, rows, k, n int) float64 {
	norm := func(v []float64) (sum float64) {
		for _, e := range v {
			sum += e * e
		}
		return math.Sqrt(sum)
	}
	var a, b float64
	for r := range rows {
		a = max(a, norm(x[r*k:(r+1)*k]))
	}
	for c := range n {
		b = max(b, norm(w[c*k:(c+1)*k]))
	}
	return a * b / math.Sqrt(float64(k))
}

// productCases are MatMul for every type, one and several.
func productCases() []testCase {
	var cases []testCase
	for _, dt := range device.DTypes() {
		if dt == device.I32 {
			continue
		}
		for _, k := range []int{256, 512, 2304} {
			for _, rows := range []int{0, 1, 2, 3, 4, 5, 8, 17, 33} {
				for _, n := range []int{1, 7, 64, 65} {
					name := fmt.Sprintf("op=MatMul/type=%v/rows=%d/n=%d/k=%d", dt, rows, n, k)
					cases = append(cases, testCase{name, func(b *bed) job { return product(b, dt, rows, k, n) }})
				}
			}
		}
		name := fmt.Sprintf("op=Products/type=%v", dt)
		cases = append(cases, testCase{name, func(b *bed) job { return product(b, dt, 3, 512, 48, 16, 7) }})
	}
	for _, dt := range []device.DType{device.F32, device.F16, device.BF16} { // more than the warps of a block have a chunk for
		name := fmt.Sprintf("op=MatMul/type=%v/rows=1/n=7/k=36864", dt)
		cases = append(cases, testCase{name, func(b *bed) job { return product(b, dt, 1, 36864, 7) }})
	}
	for _, k := range []int{1, 31, 33, 100} {
		for _, dt := range []device.DType{device.F32, device.F16, device.BF16} {
			name := fmt.Sprintf("op=MatMul/type=%v/rows=2/n=5/k=%d", dt, k)
			cases = append(cases, testCase{name, func(b *bed) job { return product(b, dt, 2, k, 5) }})
		}
	}
	return cases
}

// product multiplies by one or several matrices of the type. What a matrix
// holds is what Embed says it holds.
func product(b *bed, dt device.DType, rows, k int, ns ...int) job {
	xs := b.normal(rows * k)
	x := b.f32(xs, rows, k)
	var dst, w []device.Tensor
	var j job
	for i, n := range ns {
		m := b.tensor(dt, b.matrix(dt, n, k), n, k)
		d := b.out(rows, n)
		dst, w = append(dst, d), append(w, m)
		values := b.embedded(m)
		want := multiply(widen(xs), values, rows, k, n)
		j.expect = append(j.expect, expectation{name: fmt.Sprintf("dst %d", i), got: d, want: want, bound: productBound(dt), scale: productSize(widen(xs), values, rows, k, n)})
	}
	j.step = func(ops device.Queue) {
		for i := range dst {
			device.Do(ops, device.MatMul{Dst: dst[i], X: x, W: w[i]})
		}
	}
	return j
}

// multiply is x·wᵀ.
func multiply(x, w []float64, rows, k, n int) []float64 {
	y := make([]float64, rows*n)
	for r := range rows {
		for c := range n {
			for i := range k {
				y[r*n+c] += x[r*k+i] * w[c*k+i]
			}
		}
	}
	return y
}

// embedded is the contents of a matrix as Embed converts them.
func (b *bed) embedded(m device.Tensor) []float64 {
	b.t.Helper()
	ids := make([]int32, m.Dim(0))
	for i := range ids {
		ids[i] = int32(i)
	}
	dst := b.out(m.Dim(0), m.Dim(1))
	device.Do(b.d.Queue(), device.Embed{Dst: dst, Table: m, IDs: b.i32(ids, len(ids))})
	b.sync()
	return widen(decodeF32(b.raw(dst)))
}

// scales says where in a block of a quantized type its half precision scales
// are, in bytes. All other bytes may be anything.
var scales = map[device.DType][]int{
	device.Q4_0: {0}, device.Q4_1: {0, 2}, device.Q5_0: {0}, device.Q5_1: {0, 2}, device.Q8_0: {0},
	device.Q2_K: {80, 82}, device.Q3_K: {108}, device.Q4_K: {0, 2}, device.Q5_K: {0, 2}, device.Q6_K: {208},
	device.IQ4_NL: {0}, device.IQ4_XS: {0},
}

// matrix is the bytes of a random matrix.
func (b *bed) matrix(dt device.DType, n, k int) []byte {
	switch dt {
	case device.F32:
		return encode(b.normal(n * k))
	case device.F16:
		bits, _ := halves(b.normal(n * k))
		return encode(bits)
	case device.BF16:
		bits := make([]uint16, n*k)
		for i, v := range b.normal(n * k) {
			bits[i] = uint16(math.Float32bits(v) >> 16)
		}
		return encode(bits)
	}
	raw := make([]byte, n*dt.RowSize(k))
	for i := range raw {
		raw[i] = byte(b.rng.Uint32())
	}
	for at := 0; at < len(raw); at += dt.BlockSize() {
		for _, s := range scales[dt] {
			binary.LittleEndian.PutUint16(raw[at+s:], toHalf((0.2+b.rng.Float64())/64))
		}
	}
	return raw
}
