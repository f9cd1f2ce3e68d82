package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// halves are the offsets of the half-precision fields in a block.
var halves = map[device.DType][]int{
	device.Q4_0: {0}, device.Q4_1: {0, 2}, device.Q5_0: {0}, device.Q5_1: {0, 2},
	device.Q8_0: {0}, device.IQ4_NL: {0}, device.Q2_K: {80, 82}, device.Q3_K: {108},
	device.Q4_K: {0, 2}, device.Q5_K: {0, 2}, device.Q6_K: {208}, device.IQ4_XS: {0},
}

// randomMatrix has random bits in every field; the half-precision numbers are
// between -0.02 and 0.02.
func randomMatrix(rng *rand.Rand, dt device.DType, rows, cols int) Matrix {
	data := make([]byte, rows*dt.RowSize(cols))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	if !dt.Quantized() {
		for i := range rows * cols {
			putFloat(dt, data[i*dt.BlockSize():], rng.Float32()*2-1)
		}
	}
	for lo := 0; lo < len(data); lo += dt.BlockSize() {
		for _, at := range halves[dt] {
			putHalf(data[lo+at:], (rng.Float32()*2-1)*0.02)
		}
	}
	return NewMatrix(dt, rows, cols, data)
}

func putFloat(dt device.DType, p []byte, v float32) {
	switch b := math.Float32bits(v); dt {
	case device.F32:
		p[0], p[1], p[2], p[3] = byte(b), byte(b>>8), byte(b>>16), byte(b>>24)
	case device.F16:
		putHalf(p, v)
	case device.BF16:
		h := BFloat16Bits(v)
		p[0], p[1] = byte(h), byte(h>>8)
	}
}

func randomActs(rng *rand.Rand, tokens, cols int) Floats {
	x := Floats{make([]float32, tokens*cols), cols}
	for i := range x.Data {
		x.Data[i] = float32(rng.NormFloat64())
	}
	return x
}

// multiply computes a product on isa, rows in parts of the given size.
func multiply(t testing.TB, isa ISA, x Floats, tokens int, w Matrix, part int) Floats {
	t.Helper()
	before := Current()
	if err := Use(isa); err != nil {
		t.Fatal(err)
	}
	defer Use(before)
	var b Batch
	b.Reset(x, tokens, w.Cols)
	b.Need(w.DType)
	b.Prepare(0, tokens)
	p := Product{Floats{make([]float32, tokens*w.Rows), w.Rows}, w}
	p.Check(&b)
	var s Scratch
	for lo := 0; lo < w.Rows; lo += part {
		p.Compute(&b, &s, lo, min(lo+part, w.Rows))
	}
	return p.Dst
}

// types are the element types that have a product.
func types() []device.DType {
	var all []device.DType
	for _, dt := range device.DTypes() {
		if dt != device.I32 {
			all = append(all, dt)
		}
	}
	return all
}

// magnitudes is Σ |x·w| for each token and row, which bounds the rounding of a
// float32 sum.
func magnitudes(x Floats, tokens int, w Matrix) Floats {
	m := Floats{make([]float32, tokens*w.Rows), w.Rows}
	row := make([]float32, w.Cols)
	for r := range w.Rows {
		Dequantize(w.DType, row, w.Row(r))
		for i := range tokens {
			var sum float64
			for k, v := range x.Row(i, w.Cols) {
				sum += math.Abs(float64(v * row[k]))
			}
			m.Row(i, w.Rows)[r] = float32(sum)
		}
	}
	return m
}

// Every ISA computes what the definition computes, up to the rounding of
// float32 sums, at all edges of blocks, tiles and panels.
func TestProductISAs(t *testing.T) {
	for _, isa := range ISAs()[1:] {
		for _, dt := range types() {
			t.Run(fmt.Sprintf("%s/%v", isa, dt), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, uint64(dt)))
				for _, cols := range []int{32, 64, 256, 512, 768, 2048 + 256} {
					if cols%dt.BlockLen() != 0 {
						continue
					}
					w := randomMatrix(rng, dt, 33, cols)
					x := randomActs(rng, 65, cols)
					want, bound := multiply(t, Portable, x, 65, w, 33), magnitudes(x, 65, w)
					for _, tokens := range []int{1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 64, 65} {
						got := multiply(t, isa, x, tokens, w, 33)
						compare(t, got, want, bound, tokens, w)
					}
				}
			})
		}
	}
}

// compare allows got to differ from want by rounding.
func compare(t *testing.T, got, want, bound Floats, tokens int, w Matrix) {
	t.Helper()
	for i := range tokens {
		for r := range w.Rows {
			g, v := got.Row(i, w.Rows)[r], want.Row(i, w.Rows)[r]
			if !(math.Abs(float64(g-v)) <= 2e-6*float64(bound.Row(i, w.Rows)[r])) {
				t.Fatalf("%v [%d %d], token %d of %d, row %d: %v, want %v", w.DType, w.Rows, w.Cols, i, tokens, r, g, v)
			}
		}
	}
}

// The number for a token and a row depends on nothing else, to the last bit.
func TestProductSplits(t *testing.T) {
	for _, isa := range ISAs() {
		for _, dt := range types() {
			t.Run(fmt.Sprintf("%s/%v", isa, dt), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(2, uint64(dt)))
				w := randomMatrix(rng, dt, 37, 512)
				x := randomActs(rng, 19, 512)
				want := multiply(t, isa, x, 19, w, 37)
				for _, part := range []int{1, 3, 33} {
					sameBits(t, multiply(t, isa, x, 19, w, part), want, 19, w, 0)
				}
				for _, tokens := range []int{1, 2, 3, 4, 5, 7, 8, 13, 18} {
					sameBits(t, multiply(t, isa, x, tokens, w, 37), want, tokens, w, 0)
				}
				for first := 0; first < 19; first += 3 {
					one := Floats{x.Row(first, 512), 512}
					sameBits(t, multiply(t, isa, one, 1, w, 37), want, 1, w, first)
				}
			})
		}
	}
}

// sameBits compares tokens of got with those of want from first on.
func sameBits(t *testing.T, got, want Floats, tokens int, w Matrix, first int) {
	t.Helper()
	for i := range tokens {
		for r := range w.Rows {
			g, v := got.Row(i, w.Rows)[r], want.Row(first+i, w.Rows)[r]
			if math.Float32bits(g) != math.Float32bits(v) {
				t.Fatalf("token %d of %d, row %d: %v alone, %v in a batch", i, tokens, r, g, v)
			}
		}
	}
}

// extremeMatrix has every integer at the same end of its range, in all fields.
func extremeMatrix(dt device.DType, rows, cols int, fill byte) Matrix {
	data := make([]byte, rows*dt.RowSize(cols))
	for i := range data {
		data[i] = fill
	}
	for lo := 0; lo < len(data); lo += dt.BlockSize() {
		for _, at := range halves[dt] {
			putHalf(data[lo+at:], 0.01)
		}
	}
	return NewMatrix(dt, rows, cols, data)
}

// The largest sums that a block can have do not overflow or saturate.
func TestProductExtremes(t *testing.T) {
	for _, isa := range ISAs()[1:] {
		for dt := range schemes {
			for _, fill := range []byte{0xff, 0x00, 0x80, 0x7f} {
				w := extremeMatrix(dt, 5, 512, fill)
				for _, sign := range []float32{1, -1} {
					x := Floats{make([]float32, 9*512), 512}
					for i := range x.Data {
						x.Data[i] = sign
					}
					want, bound := multiply(t, Portable, x, 9, w, 5), magnitudes(x, 9, w)
					compare(t, multiply(t, isa, x, 9, w, 5), want, bound, 9, w)
					compare(t, multiply(t, isa, x, 1, w, 5), want, bound, 1, w)
				}
			}
		}
	}
}

// A row whose scale is NaN or infinite spoils its own results only.
func TestProductBadRow(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 0))
	for _, isa := range ISAs() {
		for dt, at := range halves {
			w := randomMatrix(rng, dt, 9, 512)
			x := randomActs(rng, 8, 512)
			want := multiply(t, isa, x, 8, w, 9)
			putHalf(w.Row(5)[at[0]:], float32(math.Inf(1)))
			for _, tokens := range []int{1, 8} {
				got := multiply(t, isa, x, tokens, w, 9)
				for i := range tokens {
					for r, v := range got.Row(i, 9) {
						if finite := !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0); finite != (r != 5) {
							t.Fatalf("%s, %v, token %d of %d, row %d: %v", isa, dt, i, tokens, r, v)
						}
						if r != 5 && v != want.Row(i, 9)[r] {
							t.Fatalf("%s, %v, token %d of %d, row %d: %v, want %v", isa, dt, i, tokens, r, v, want.Row(i, 9)[r])
						}
					}
				}
			}
		}
	}
}

// Zero weights or activations give zero.
func TestProductZeros(t *testing.T) {
	for _, isa := range ISAs() {
		for _, dt := range types() {
			w := randomMatrix(rand.New(rand.NewPCG(12, 0)), dt, 5, 512)
			x := Floats{make([]float32, 8*512), 512}
			for _, tokens := range []int{1, 8} {
				for i, v := range multiply(t, isa, x, tokens, w, 5).Data {
					if v != 0 {
						t.Fatalf("%s, %v, %d tokens: element %d is %v, want 0", isa, dt, tokens, i, v)
					}
				}
			}
		}
	}
}
