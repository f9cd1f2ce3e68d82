package vec

import (
	"unsafe"

	"github.com/gollm/gollm/cpu/kernel"
)

const (
	// Tile is the number of keys that attention takes at a time: a page.
	Tile = 64
	// TileRows is the number of rows that Multiply takes at a time.
	TileRows = 6
	// Multiple is what the length of rows must be a multiple of in the kernels
	// of attention.
	Multiple = 16
	// BetweenSlack is how much longer than its source the destination of Between is.
	BetweenSlack = 16
)

// Kernels is a set of kernels for one kind of machine. All slices of a call
// have the lengths that the first one implies; a dst may be an x.
type Kernels struct {
	ISA kernel.ISA

	// Add adds: dst[i] += x[i].
	Add func(dst, x []float32)
	// AddScaled adds with a factor: dst[i] += x[i]·scale, rounded once.
	AddScaled func(dst, x []float32, scale float32)
	// SumSquares is Σ x[i]², accumulated in float64.
	SumSquares func(x []float32) float64
	// ScaleMul scales: dst[i] = x[i] · scale · w[i].
	ScaleMul func(dst, x, w []float32, scale float32)
	// SwiGLU gates: dst[i] = g / (1 + exp(-g)) · up[i] with g = gate[i].
	SwiGLU func(dst, gate, up []float32)
	// RotateHalves turns the pairs (x[i], x[i+n]) by the angles whose cosines
	// and sines are given, n of them.
	RotateHalves func(x, cos, sin []float32)
	// RotatePairs turns the pairs (x[2i], x[2i+1]).
	RotatePairs func(x, cos, sin []float32)
	// ToHalf rounds to IEEE half precision, ties to even; what is too large
	// becomes an infinity.
	ToHalf func(dst []uint16, x []float32)
	// FromHalf widens half precision, which is exact.
	FromHalf func(dst []float32, x []uint16)

	// LogTop keeps the largest of logarithms: top[j] = max(top[j], x[j]·scale +
	// shift), for as many as x has.
	LogTop func(top, x []float32, scale, shift float32)
	// LogSum adds what they are the logarithms of, over the largest:
	// sum[j] += exp(x[j]·scale + shift - top[j]). x may be -Inf; top may not.
	LogSum func(sum, top, x []float32, scale, shift float32)

	// Exps writes exponentials and returns their sum: dst[i] = exp(x[i] - top). x may be -Inf
	// but not NaN.
	Exps func(dst, x []float32, top float32) float64

	// Softmax adds a tile of scores, in units of ln 2, to the running softmax of
	// each row: with M the larger of top and the tile's largest score,
	// scale = 2^(top-M), s = 2^(s-M), sum = sum·scale + Σ s, top = M.
	// s [rows, Tile]; top, sum, scale [rows]. A score may be -Inf; top may not.
	Softmax func(s, top, sum, scale []float32)
	// WeightedSoftmax is Softmax with a weight for each column, w [Tile], none of
	// them negative: s = w·2^(s-M).
	WeightedSoftmax func(s, w, top, sum, scale []float32)

	// Multiply multiplies TileRows rows: c[r] = scale[r]·c[r] + Σ_k a[r][k]·b[k],
	// or without the first term if scale is nil. The sum over k runs in order.
	// cols is a multiple of Multiple.
	Multiply func(c, a, b Matrix, scale []float32, n, cols int)
	// Columns turns n keys into columns: dst[i][j] = k[j][i], and zeros in
	// columns n to Tile-1. dst [dim, Tile], k [Tile, dim].
	Columns func(dst []float32, k Rows, n, dim int)

	// Scores multiplies heads with keys: dst[h][j] = Σ_i q[h][i]·k[j][i] for the
	// first n keys and perhaps those up to the next multiple of 16, with
	// dst [heads, Tile], q [heads, dim], k [Tile, dim]. It prefetches ahead,
	// which is as long as k or absent.
	Scores func(dst, q []float32, k, ahead Rows, heads, n, dim int)
	// WriteTile writes scores to rows that lie stride apart: dst[h·stride+j] = x[h][j]·scale,
	// x [heads, Tile], and fetches what comes after in each row into the cache.
	WriteTile func(dst []float32, stride int, x []float32, scale float32)
	// Gather adds weighted values: acc[h] = scale[h]·acc[h] + Σ_j p[h][j]·v[j] for
	// the first n values, with acc [heads, dim], p [heads, Tile], scale [heads],
	// v [Tile, dim].
	Gather func(acc, p, scale []float32, v, ahead Rows, heads, n, dim int)

	// ScoresAt is Scores of keys that lie apart: key j is the dim elements of k
	// from at[j] on, and next is where what comes after starts, which is fetched
	// into the cache meanwhile. at[n] and on may be read up to the next multiple
	// of 16. The caller sees to it that what at names lies inside k; next may be
	// anything.
	ScoresAt func(dst, q []float32, k Rows, at, next *[Tile]int, heads, n, dim int)
	// GatherAt is Gather of values that lie apart: value j is the dim elements of
	// v from at[j] on; at and next as in ScoresAt.
	GatherAt func(acc, p, scale []float32, v Rows, at, next *[Tile]int, heads, n, dim int)

	// MirrorScores multiplies heads with the low-bit keys of a page, see
	// device.KeyMirror: dst[h][j] = f32(Σ q·k)·scale of key j·q.Units[h], with an exact
	// sum of integers. dst [heads, Tile], k [words+1, Tile]. It prefetches ahead, which
	// is as long as k or absent.
	MirrorScores func(dst []float32, q MirrorQueries, k, ahead []int32)

	// AtLeast finds what is not below a bound: bit i of bits[w] is
	// x[64·w+i] >= bound, and 0 beyond the end of x. NaN is below every bound.
	AtLeast func(bits []uint64, x []float32, bound float32)
	// Largest is the largest of x, and at least -MaxFloat32; NaN counts as nothing.
	Largest func(x []float32) float32
	// LargestOfRows is the largest of rows that lie stride apart, element by element:
	// dst[j] = max(-Inf, x[r·stride+j]); NaN counts as -Inf.
	LargestOfRows func(dst, x []float32, stride, rows int)
	// Count is how many of x are at least bound.
	Count func(x []float32, bound float32) int
	// Between moves what lies between two bounds together: dst[:n] are the x with
	// low <= x <= high, in order, and above is how many are larger. dst, which is at
	// least BetweenSlack longer than x and may start where x does, may be overwritten
	// behind n.
	Between func(dst, x []float32, low, high float32) (n, above int)
	// Masses adds exponentials in float64: all is Σ e^(x[i]-top), above the same of
	// what is above high; within 1e-13 of it and e^-700 for each x. NaN counts as
	// nothing. top is finite.
	Masses func(x []float32, top, high float32) (all, above float64)

	// Labels multiplies a head with the channel labels of a page: dst[j] = Σ_i q[i]·k[i][j],
	// i in order, with dst [Tile], k [len(q)][Tile]. It prefetches ahead, which is as long
	// as k or absent.
	Labels func(dst, q []float32, k, ahead []uint16)
	// Signs is how the sign bits of a head agree with those of a page: dst[j] =
	// 32·len(q) - 2·|q xor k[j]|, with dst [Tile], k [Tile][len(q)].
	Signs func(dst []float32, q, k []int32)

	// Positions lists the bits of a set, ascending, and returns how many they
	// are: bit i of set[w] is 64·w+i. dst has room for all of them.
	Positions func(dst []int32, set []uint64) int
	// Places finds where the rows of Tile positions start. It reports false, and
	// at is undefined, if one of them is outside of [x.Lo, x.Hi) or in a page
	// that is not there.
	Places func(at *[Tile]int, positions []int32, x *Index) bool
}

// Index says where the rows of positions are, in elements of a cache: that of
// position j starts at Starts[j/Tile] + Head + j%Tile·Dim.
type Index struct {
	Starts    []int // of pages; below 0 where there is none
	Head, Dim int
	Lo, Hi    int // positions that may be looked up
}

// Matrix is f32 rows in memory, Stride elements apart.
type Matrix struct {
	Data   []float32
	Stride int
}

// From is the matrix that starts at row r and column c of m.
func (m Matrix) From(r, c int) Matrix { return Matrix{m.Data[r*m.Stride+c:], m.Stride} }

// Rows is rows of a cache: of Half if that is not nil, otherwise of Full.
type Rows struct {
	Half []uint16
	Full []float32
}

// Slice is elements lo to hi-1.
func (r Rows) Slice(lo, hi int) Rows {
	if r.Half != nil {
		return Rows{Half: r.Half[lo:hi]}
	}
	return Rows{Full: r.Full[lo:hi]}
}

// At is element i as f32.
func (r Rows) At(i int) float32 {
	if r.Half != nil {
		return kernel.Float16(r.Half[i])
	}
	return r.Full[i]
}

// Copy copies elements of rows of the same type.
func (r Rows) Copy(src Rows) {
	copy(r.Half, src.Half)
	copy(r.Full, src.Full)
}

// pointer is where r starts.
func (r Rows) pointer() unsafe.Pointer {
	if r.Half != nil {
		return unsafe.Pointer(unsafe.SliceData(r.Half))
	}
	return unsafe.Pointer(unsafe.SliceData(r.Full))
}

// Widen converts a cache's elements to f32.
func (k *Kernels) Widen(dst []float32, x Rows) {
	if x.Half != nil {
		k.FromHalf(dst, x.Half[:len(dst)])
		return
	}
	copy(dst, x.Full)
}

// All lists the sets that this machine runs, the definition first and the
// fastest last.
func All() []*Kernels { return append([]*Kernels{Go}, native()...) }

// Best is the fastest set that this machine runs.
func Best() *Kernels {
	all := All()
	return all[len(all)-1]
}
