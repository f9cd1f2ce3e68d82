package vec

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/kernel"
)

// Go is the definition of every kernel.
var Go = &Kernels{
	ISA:          kernel.Portable,
	Add:          add,
	AddScaled:    addScaled,
	SumSquares:   sumSquares,
	ScaleMul:     scaleMul,
	SwiGLU:       swiGLU,
	RotateHalves: rotateHalves,
	RotatePairs:  rotatePairs,
	ToHalf:       toHalf,
	FromHalf:     fromHalf,
	LogTop:       logTop,
	LogSum:       logSum,
	Exps:         exps,
	Softmax:      softmax,
	Multiply:     multiply,
	Columns:      columns,
	Scores:       scores,
	WriteTile:    writeTile,
	Gather:       gather,

	WeightedSoftmax: weightedSoftmax,
	ScoresAt:        scoresAt,
	GatherAt:        gatherAt,
	MirrorScores:    mirrorScores,
	AtLeast:         atLeast,
	Largest:         largestScore,
	LargestOfRows:   largestOfRows,
	Count:           count,
	Between:         between,
	Masses:          masses,
	Labels:          labels,
	Signs:           signs,
	Positions:       positions,
	Places:          places,
}

func add(dst, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += x[i]
	}
}

func addScaled(dst, x []float32, scale float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = float32(float64(x[i])*float64(scale) + float64(dst[i]))
	}
}

func sumSquares(x []float32) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

func scaleMul(dst, x, w []float32, scale float32) {
	x, w = x[:len(dst)], w[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * scale * w[i]
	}
}

func swiGLU(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	for i := range dst {
		g := float64(gate[i])
		dst[i] = float32(g / (1 + math.Exp(-g)) * float64(up[i]))
	}
}

// term is x·scale + shift, rounded once.
func term(x, scale, shift float32) float32 {
	return float32(float64(x)*float64(scale) + float64(shift))
}

func logTop(top, x []float32, scale, shift float32) {
	top = top[:len(x)]
	for j, v := range x {
		top[j] = max(top[j], term(v, scale, shift))
	}
}

func logSum(sum, top, x []float32, scale, shift float32) {
	sum, top = sum[:len(x)], top[:len(x)]
	for j, v := range x {
		sum[j] += float32(math.Exp(float64(term(v, scale, shift) - top[j])))
	}
}

func exps(dst, x []float32, top float32) (sum float64) {
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] = float32(math.Exp(float64(v - top)))
		sum += float64(dst[i])
	}
	return sum
}

func rotateHalves(x, cos, sin []float32) {
	n := len(cos)
	rotate(x[:n], x[n:2*n], cos, sin)
}

func rotate(x, y, cos, sin []float32) {
	for i, c := range cos {
		a, b, s := x[i], y[i], sin[i]
		x[i], y[i] = a*c-b*s, a*s+b*c
	}
}

func rotatePairs(x, cos, sin []float32) {
	for i, c := range cos {
		a, b, s := x[2*i], x[2*i+1], sin[i]
		x[2*i], x[2*i+1] = a*c-b*s, a*s+b*c
	}
}

func toHalf(dst []uint16, x []float32) {
	for i := range dst {
		dst[i] = kernel.Float16Bits(x[i])
	}
}

func fromHalf(dst []float32, x []uint16) {
	for i := range dst {
		dst[i] = kernel.Float16(x[i])
	}
}

func softmax(s, top, sum, scale []float32) {
	for r := range top {
		tile, most := s[r*Tile:(r+1)*Tile], top[r]
		for _, v := range tile {
			most = max(most, v)
		}
		scale[r] = exp2(top[r] - most)
		sum[r] *= scale[r]
		top[r] = most
		for j, v := range tile {
			tile[j] = exp2(v - most)
			sum[r] += tile[j]
		}
	}
}

func weightedSoftmax(s, w, top, sum, scale []float32) {
	for r := range top {
		before := sum[r]
		tile := s[r*Tile : (r+1)*Tile]
		softmax(tile, top[r:r+1], sum[r:r+1], scale[r:r+1])
		sum[r] = before * scale[r]
		for j := range tile {
			tile[j] *= w[j]
			sum[r] += tile[j]
		}
	}
}

func exp2(x float32) float32 { return float32(math.Exp2(float64(x))) }

func multiply(c, a, b Matrix, scale []float32, n, cols int) {
	for r := range TileRows {
		y := c.Data[r*c.Stride:][:cols]
		for i := range y {
			if scale == nil {
				y[i] = 0
			} else {
				y[i] *= scale[r]
			}
		}
		for k, x := range a.Data[r*a.Stride:][:n] {
			for i, v := range b.Data[k*b.Stride:][:cols] {
				y[i] += x * v
			}
		}
	}
}

func columns(dst []float32, k Rows, n, dim int) {
	clear(dst[:dim*Tile])
	for j := range n {
		for i := range dim {
			dst[i*Tile+j] = k.At(j*dim + i)
		}
	}
}

func scores(dst, q []float32, k, _ Rows, heads, n, dim int) {
	for j := range n {
		for h := range heads {
			var sum float64
			for i, v := range q[h*dim : (h+1)*dim] {
				sum += float64(v) * float64(k.At(j*dim+i))
			}
			dst[h*Tile+j] = float32(sum)
		}
	}
}

func gather(acc, p, scale []float32, v, _ Rows, heads, n, dim int) {
	for h := range heads {
		y := acc[h*dim : (h+1)*dim]
		for i := range y {
			y[i] *= scale[h]
			for j := range n {
				y[i] += p[h*Tile+j] * v.At(j*dim+i)
			}
		}
	}
}

func scoresAt(dst, q []float32, k Rows, at, _ *[Tile]int, heads, n, dim int) {
	for j := range n {
		for h := range heads {
			scores(dst[h*Tile+j:], q[h*dim:], k.Slice(at[j], at[j]+dim), Rows{}, 1, 1, dim)
		}
	}
}

func gatherAt(acc, p, scale []float32, v Rows, at, _ *[Tile]int, heads, n, dim int) {
	for h := range heads {
		y := acc[h*dim : (h+1)*dim]
		for i := range y {
			y[i] *= scale[h]
			for j := range n {
				y[i] += p[h*Tile+j] * v.At(at[j]+i)
			}
		}
	}
}

func atLeast(bits []uint64, x []float32, bound float32) {
	clear(bits)
	for i, v := range x {
		if v >= bound {
			bits[i/64] |= 1 << (i % 64)
		}
	}
}

func positions(dst []int32, set []uint64) (n int) {
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			dst[n] = int32(w*64 + bits.TrailingZeros64(word))
			n++
		}
	}
	return n
}

func places(at *[Tile]int, positions []int32, x *Index) bool {
	for i, p := range positions[:Tile] {
		j := int(p)
		if j < x.Lo || j >= x.Hi || x.Starts[j/Tile] < 0 {
			return false
		}
		at[i] = x.Starts[j/Tile] + x.Head + j%Tile*x.Dim
	}
	return true
}
