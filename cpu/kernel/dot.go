package kernel

import (
	"encoding/binary"
	"math"

	"github.com/gollm/gollm/device"
)

// This file defines what a product computes for one token and one row. Every
// vector loop computes the same numbers in the same order.
//
// Quantized rows. Inside a block of weights everything is an integer, so its
// order does not matter; over blocks the float32 sum runs in order of k:
//
//	blocks of 256: acc = fma(S, d·dx, acc); acc = fma(−M, dmin·dx, acc)
//	               S = Σ scale[g]·Σ w·q,  M = Σ min[g]·Σ q
//	blocks of 32:  acc = fma(Σ w·q, d·dx, acc); acc = fma(m, dx·Σ q, acc)
//
// S is exact in int32 for every input. Tiled loops keep it in float32, where
// it is exact while the partial sums of a block stay below 2^24. The largest
// possible S (Q6_K: 1.3e8, Q4_K: 3.1e7) needs weights, scales and activations
// that are all extreme with equal signs; then the two ways round differently
// in the last bit.
//
// Float rows. Element k goes to partial sum k mod 16, by fma in order of k;
// the sixteen are added in halves: i and i+8, then i+4, i+2, i+1.

// dotBlock adds the product of one block with one token's activations to acc.
func dotBlock(acc float32, s scheme, b *block, a *actBlock) float32 {
	if s.group == 0 {
		for i, d := range b.blockD {
			acc = fma(float32(dotInts(b.w[i*32:][:32], a.q[i*32:])), d*a.scale[i], acc)
			if s.mins {
				acc = fma(b.blockM[i], a.dsum[i], acc)
			}
		}
		return acc
	}
	var sum, mins int32
	for g := range superLen / s.group {
		lo := g * s.group
		sum += int32(b.scale[g]) * dotInts(b.w[lo:][:s.group], a.q[lo:])
		if s.mins {
			mins += int32(b.min[g]) * groupSum(a, s.group, g)
		}
	}
	acc = fma(float32(sum), b.d*a.scale[0], acc)
	if s.mins {
		acc = fma(-float32(mins), b.dmin*a.scale[0], acc)
	}
	return acc
}

// dotInts is Σ w·(q−128).
func dotInts(w []int8, q []uint8) (sum int32) {
	for k, v := range w {
		sum += int32(v) * (int32(q[k]) - 128)
	}
	return sum
}

// groupSum is the sum of the activations of group g.
func groupSum(a *actBlock, group, g int) int32 {
	if group == 16 {
		return int32(a.sum16[g])
	}
	return int32(a.sum32[g])
}

// fma is x·y+z, rounded once but for rare double rounding on the way from
// float64.
func fma(x, y, z float32) float32 { return float32(float64(x)*float64(y) + float64(z)) }

// dotFloats is the product of a row of float type dt with activations x.
func dotFloats(dt device.DType, row []byte, x []float32) float32 {
	var acc [16]float32
	for k, v := range x {
		acc[k%16] = fma(v, floatAt(dt, row, k), acc[k%16])
	}
	for n := 8; n > 0; n /= 2 {
		for i := range n {
			acc[i] += acc[i+n]
		}
	}
	return acc[0]
}

// floatAt is element k of a row of float type dt.
func floatAt(dt device.DType, row []byte, k int) float32 {
	switch dt {
	case device.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(row[4*k:]))
	case device.F16:
		return half(row[2*k:])
	}
	return BFloat16(binary.LittleEndian.Uint16(row[2*k:]))
}
