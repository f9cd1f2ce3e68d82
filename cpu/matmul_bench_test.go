package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/device"
)

// benchTypes are the types of BenchmarkMatMul, the most used first.
var benchTypes = []device.DType{
	device.Q4_K, device.Q6_K, device.Q8_0, device.F16, device.F32, device.BF16,
	device.Q5_K, device.Q4_0, device.Q3_K, device.Q2_K, device.IQ4_XS,
	device.IQ4_NL, device.Q4_1, device.Q5_0, device.Q5_1,
}

// decodeBytes is how many bytes of weights a decode benchmark walks through:
// more than a last-level cache holds.
const decodeBytes = 384 << 20

// BenchmarkMatMul multiplies 1 to 512 tokens with matrices of two shapes. One
// to eight tokens read matrices from memory, in turn; GB/s counts weights. With
// more tokens GOPS counts two operations for each weight and token.
func BenchmarkMatMul(b *testing.B) {
	for _, dt := range benchTypes {
		for _, tokens := range []int{1, 2, 4, 8, 64, 512} {
			for _, shape := range [][2]int{{8192, 2048}, {4096, 14336}} {
				rows, cols := shape[0], shape[1]
				b.Run(fmt.Sprintf("type=%v/tokens=%d/k=%d/rows=%d", dt, tokens, cols, rows), func(b *testing.B) {
					benchMatMul(b, dt, tokens, rows, cols)
				})
			}
		}
	}
}

func benchMatMul(b *testing.B, dt device.DType, tokens, rows, cols int) {
	rng := rand.New(rand.NewPCG(1, 2))
	one := make([]byte, rows*dt.RowSize(cols))
	for i := range one {
		one[i] = byte(rng.Uint32()) & 0x37 // no infinities in the scales
	}
	matrices := []kernel.Matrix{kernel.NewMatrix(dt, rows, cols, one)}
	if tokens <= 8 {
		for size := len(one); size < decodeBytes; size += len(one) {
			matrices = append(matrices, kernel.NewMatrix(dt, rows, cols, append([]byte(nil), one...)))
		}
	}
	x := kernel.Floats{Data: make([]float32, tokens*cols), Stride: cols}
	for i := range x.Data {
		x.Data[i] = float32(rng.NormFloat64())
	}
	dst := kernel.Floats{Data: make([]float32, tokens*rows), Stride: rows}
	pool := NewPool(0)
	defer pool.Close()
	m := NewMatMul(pool)
	m.Run(x, tokens, kernel.Product{Dst: dst, W: matrices[0]})
	b.SetBytes(int64(len(one)))
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		m.Run(x, tokens, kernel.Product{Dst: dst, W: matrices[i%len(matrices)]})
	}
	ops := 2 * float64(tokens) * float64(rows) * float64(cols) * float64(b.N)
	b.ReportMetric(ops/b.Elapsed().Seconds()/1e9, "GOPS")
}
