package vec

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/kernel"
)

func largestScore(x []float32) float32 {
	top := float32(-math.MaxFloat32)
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	return top
}

func writeTile(dst []float32, stride int, x []float32, scale float32) {
	for h := range len(x) / Tile {
		for j, v := range x[h*Tile : (h+1)*Tile] {
			dst[h*stride+j] = v * scale
		}
	}
}

func largestOfRows(dst, x []float32, stride, rows int) {
	for j := range dst {
		dst[j] = float32(math.Inf(-1))
		for r := range rows {
			if v := x[r*stride+j]; v > dst[j] {
				dst[j] = v
			}
		}
	}
}

func count(x []float32, bound float32) (n int) {
	for _, v := range x {
		if v >= bound {
			n++
		}
	}
	return n
}

func between(dst, x []float32, low, high float32) (n, above int) {
	for _, v := range x {
		switch {
		case v > high:
			above++
		case v >= low:
			dst[n] = v
			n++
		}
	}
	return n, above
}

func masses(x []float32, top, high float32) (all, above float64) {
	for _, v := range x {
		d := float64(v) - float64(top)
		if !(d >= -700) {
			continue
		}
		m := math.Exp(d)
		all += m
		if v > high {
			above += m
		}
	}
	return all, above
}

func labels(dst, q []float32, k, _ []uint16) {
	dst = dst[:Tile]
	clear(dst)
	for i, x := range q {
		for j, v := range k[i*Tile : (i+1)*Tile] {
			dst[j] += x * kernel.Float16(v)
		}
	}
}

func signs(dst []float32, q, k []int32) {
	for j := range Tile {
		differ := 0
		for w, word := range k[j*len(q) : (j+1)*len(q)] {
			differ += bits.OnesCount32(uint32(word ^ q[w]))
		}
		dst[j] = float32(32*len(q) - 2*differ)
	}
}
