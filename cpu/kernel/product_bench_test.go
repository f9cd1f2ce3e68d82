package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// BenchmarkProduct multiplies 1, 4 and 512 tokens on one thread with every
// instruction set. Matrices for few tokens are read from memory; GB/s counts
// weights, GOPS two operations for each weight and token.
func BenchmarkProduct(b *testing.B) {
	for _, dt := range types() {
		for _, tokens := range []int{1, 4, 512} {
			for _, isa := range ISAs() {
				b.Run(fmt.Sprintf("type=%v/tokens=%d/isa=%s", dt, tokens, isa), func(b *testing.B) {
					benchProduct(b, isa, dt, tokens)
				})
			}
		}
	}
}

func benchProduct(b *testing.B, isa ISA, dt device.DType, tokens int) {
	before := Current()
	if err := Use(isa); err != nil {
		b.Fatal(err)
	}
	defer Use(before)
	const rows, cols, bytes = 512, 2048, 192 << 20
	rng := rand.New(rand.NewPCG(14, 0))
	matrices := []Matrix{randomMatrix(rng, dt, rows, cols)}
	if size := len(matrices[0].Data); tokens <= gemvTokens && isa != Portable {
		for n := size; n < bytes; n += size {
			matrices = append(matrices, NewMatrix(dt, rows, cols, append([]byte(nil), matrices[0].Data...)))
		}
	}
	var batch Batch
	var s Scratch
	batch.Reset(randomActs(rng, tokens, cols), tokens, cols)
	batch.Need(dt)
	batch.Prepare(0, tokens)
	dst := Floats{make([]float32, tokens*rows), rows}
	b.SetBytes(int64(len(matrices[0].Data)))
	for i := 0; b.Loop(); i++ {
		p := Product{dst, matrices[i%len(matrices)]}
		for lo := 0; lo < rows; lo += 128 {
			p.Compute(&batch, &s, lo, lo+128)
		}
	}
	b.ReportMetric(2*float64(tokens)*rows*cols*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOPS")
}
