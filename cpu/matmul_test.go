package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/device"
)

// quantized is a matrix of normal values in type dt.
func quantized(rng *rand.Rand, dt device.DType, rows, cols int) kernel.Matrix {
	w := make([]float32, rows*cols)
	for i := range w {
		w[i] = float32(rng.NormFloat64()) / 8
	}
	data := make([]byte, rows*dt.RowSize(cols))
	kernel.Quantize(dt, data, w)
	return kernel.NewMatrix(dt, rows, cols, data)
}

func normal(rng *rand.Rand, rows, cols int) kernel.Floats {
	f := kernel.Floats{Data: make([]float32, rows*cols), Stride: cols}
	for i := range f.Data {
		f.Data[i] = float32(rng.NormFloat64())
	}
	return f
}

// exact is the product in float64 of the values that the matrix stands for.
func exact(x []float32, w kernel.Matrix, r int) (sum, magnitude float64) {
	row := make([]float32, w.Cols)
	kernel.Dequantize(w.DType, row, w.Row(r))
	for k, v := range row {
		sum += float64(v) * float64(x[k])
		magnitude += float64(v) * float64(v) * float64(x[k]) * float64(x[k])
	}
	return sum, math.Sqrt(magnitude)
}

// allTypes are the types that a product takes.
func allTypes() []device.DType {
	var all []device.DType
	for _, dt := range device.DTypes() {
		if dt != device.I32 {
			all = append(all, dt)
		}
	}
	return all
}

// TestMatMulExact compares products with float64, up to the quantization of the activations
// to 8 bits, at worst a step of 1/127 of the largest of 256.
func TestMatMulExact(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	m := NewMatMul(pool)
	for _, dt := range allTypes() {
		rng := rand.New(rand.NewPCG(7, uint64(dt)))
		w := quantized(rng, dt, 96, 1024)
		for _, tokens := range []int{1, 2, 5, 40} {
			x, dst := normal(rng, tokens, 1024), normal(rng, tokens, 96)
			m.Run(x, tokens, kernel.Product{Dst: dst, W: w})
			var wrong, right float64
			for i := range tokens {
				for r, got := range dst.Row(i, 96) {
					want, _ := exact(x.Row(i, 1024), w, r)
					wrong += (float64(got) - want) * (float64(got) - want)
					right += want * want
				}
			}
			bound := 0.012 // relative; 8 bits over 3.5 standard deviations
			if !dt.Quantized() {
				bound = 1e-6
			}
			if e := math.Sqrt(wrong / right); !(e < bound) {
				t.Errorf("%v, %d tokens: relative error %.2g, want below %v", dt, tokens, e, bound)
			}
		}
	}
}

// TestMatMulShared multiplies matrices of several types with the same activations, dst rows
// with a stride above their length, with several numbers of workers.
func TestMatMulShared(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 0))
	const cols = 512
	w := []kernel.Matrix{
		quantized(rng, device.Q4_K, 130, cols), quantized(rng, device.Q6_K, 33, cols),
		quantized(rng, device.Q8_0, 64, cols), quantized(rng, device.F16, 1, cols),
	}
	for _, tokens := range []int{1, 3, 70} {
		x := normal(rng, tokens, cols+5)
		x.Stride = cols + 5
		var want [4]kernel.Floats
		for _, workers := range []int{1, 2, 5} {
			pool := NewPool(workers)
			m := NewMatMul(pool)
			var p []kernel.Product
			for i := range w {
				dst := kernel.Floats{Data: make([]float32, tokens*(w[i].Rows+3)), Stride: w[i].Rows + 3}
				p = append(p, kernel.Product{Dst: dst, W: w[i]})
			}
			m.Run(x, tokens, p...)
			pool.Close()
			for i := range p {
				if workers == 1 {
					want[i] = p[i].Dst
					alone := kernel.Floats{Data: make([]float32, len(p[i].Dst.Data)), Stride: p[i].Dst.Stride}
					one := NewPool(1)
					NewMatMul(one).Run(x, tokens, kernel.Product{Dst: alone, W: w[i]})
					same(t, fmt.Sprintf("matrix %d alone", i), alone, want[i])
				}
				same(t, fmt.Sprintf("%d tokens, %d workers, matrix %d", tokens, workers, i), p[i].Dst, want[i])
			}
		}
	}
}

func same(t *testing.T, what string, got, want kernel.Floats) {
	t.Helper()
	for i, v := range got.Data {
		if math.Float32bits(v) != math.Float32bits(want.Data[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, v, want.Data[i])
		}
	}
}

func TestMatMulAllocates(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 0))
	pool := NewPool(2)
	defer pool.Close()
	m := NewMatMul(pool)
	for _, dt := range []device.DType{device.Q4_K, device.Q8_0, device.F16} {
		for _, tokens := range []int{1, 20} {
			w, x := quantized(rng, dt, 64, 512), normal(rng, tokens, 512)
			first, second := normal(rng, tokens, 64), normal(rng, tokens, 64)
			n := testing.AllocsPerRun(50, func() {
				m.Run(x, tokens, kernel.Product{Dst: first, W: w}, kernel.Product{Dst: second, W: w})
			})
			if n != 0 {
				t.Errorf("%v, %d tokens: Run allocates %v times, want 0", dt, tokens, n)
			}
		}
	}
}

func TestMatMulMisuse(t *testing.T) {
	pool := NewPool(1)
	m := NewMatMul(pool)
	rng := rand.New(rand.NewPCG(10, 0))
	w, x, dst := quantized(rng, device.Q8_0, 4, 64), normal(rng, 2, 64), normal(rng, 2, 4)
	for name, run := range map[string]func(){
		"short dst": func() { m.Run(x, 2, kernel.Product{Dst: kernel.Floats{Data: dst.Data[:7], Stride: 4}, W: w}) },
		"short x":   func() { m.Run(kernel.Floats{Data: x.Data[:100], Stride: 64}, 2, kernel.Product{Dst: dst, W: w}) },
		"other columns": func() {
			m.Run(x, 2, kernel.Product{Dst: dst, W: w}, kernel.Product{Dst: dst, W: quantized(rng, device.Q8_0, 4, 32)})
		},
		"integer matrix": func() {
			m.Run(x, 2, kernel.Product{Dst: dst, W: kernel.NewMatrix(device.I32, 4, 64, make([]byte, 1024))})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			run()
		}()
	}
}
