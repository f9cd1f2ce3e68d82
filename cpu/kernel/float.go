package kernel

import (
	"unsafe"

	"github.com/gollm/gollm/device"
)

// Products with float matrices. Their loops take 4 rows and 16 columns at a
// time; a matrix whose columns are not a multiple of 16 uses the definition.

const (
	floatTokens  = 128 // tokens that one conversion of the weights serves
	floatColumns = 512 // columns converted at a time: 4 rows are 8 KB
)

// floatLoops is the float product of an ISA. The loop of gemv for 2 tokens may
// be missing.
type floatLoops struct {
	tile    int // maximum number of tokens of gemm
	gemv    map[device.DType][2]func(out *float32, w *byte, stride uintptr, x *float32, xStride uintptr, steps int)
	convert map[device.DType]func(dst *float32, src *byte, steps int)
	gemm    [tileTokens + 1]func(acc *float32, w *byte, stride uintptr, x *float32, xStride uintptr, steps int)
	reduce  func(out, acc *float32)
}

// computeFloat computes rows lo to hi-1 of p.
func (l *floatLoops) computeFloat(p *Product, b *Batch, s *Scratch, lo, hi int) {
	if b.Cols%16 != 0 || b.Cols == 0 {
		computeGo(p, b, s, lo, hi)
		return
	}
	if b.Tokens <= gemvTokens {
		l.computeVector(p, b, s, lo, hi)
		return
	}
	for first := 0; first < b.Tokens; first += floatTokens {
		l.computeTiles(p, b, s, lo, hi, first, min(b.Tokens-first, floatTokens))
	}
}

// computeVector is the product for a few tokens.
func (l *floatLoops) computeVector(p *Product, b *Batch, s *Scratch, lo, hi int) {
	loops, size := l.gemv[p.W.DType], p.W.RowSize()
	streams(lo, hi, func(r, step, n int) {
		for t := 0; t < b.Tokens; {
			tokens := 1
			if t+1 < b.Tokens && loops[1] != nil {
				tokens = 2
			}
			loops[tokens-1](&s.out[0][0], &p.W.Data[r*size], uintptr(step*size), &b.X.Data[t*b.X.Stride], uintptr(4*b.X.Stride), b.Cols/16)
			s.store(p, r, step, n, t, tokens)
			t += tokens
		}
	})
}

// computeTiles is the product for tokens first to first+tokens-1. The sums of
// all rows stay in scratch while the columns pass, f32 [rows/4][tokens][4][16].
func (l *floatLoops) computeTiles(p *Product, b *Batch, s *Scratch, lo, hi, first, tokens int) {
	const group = gemvRows * 16 // sums of a token
	groups := 0
	for r := lo; r < hi; groups++ {
		rows, _ := rowsFrom(r, hi, 0)
		r += rows
	}
	all := s.floats(groups*tokens*group + gemvRows*floatColumns)
	weights, sums := all[:gemvRows*floatColumns], all[gemvRows*floatColumns:]
	clear(sums)
	for k := 0; k < b.Cols; k += floatColumns {
		cols := min(floatColumns, b.Cols-k)
		r := lo
		for g := range groups {
			rows, step := rowsFrom(r, hi, p.W.RowSize())
			w, step := l.weights(p.W, weights, r, rows, k, cols, step)
			acc := sums[g*tokens*group:]
			tiles := (tokens + l.tile - 1) / l.tile
			for n := range tiles {
				from, to := n*tokens/tiles, (n+1)*tokens/tiles
				x := &b.X.Data[(first+from)*b.X.Stride+k]
				l.gemm[to-from](&acc[from*group], w, step, x, uintptr(4*b.X.Stride), cols/16)
			}
			r += rows
		}
	}
	r := lo
	for g := range groups {
		rows, _ := rowsFrom(r, hi, 0)
		for t := range tokens {
			l.reduce(&s.out[0][0], &sums[(g*tokens+t)*group])
			copy(p.Dst.Data[(first+t)*p.Dst.Stride+r:][:rows], s.out[0][:])
		}
		r += rows
	}
}

// weights is columns k to k+cols-1 of rows r on as float32, and the distance
// of the rows: the matrix itself, or a conversion in scratch.
func (l *floatLoops) weights(w Matrix, scratch []float32, r, rows, k, cols int, step uintptr) (*byte, uintptr) {
	size := w.DType.BlockSize()
	src := w.Data[r*w.RowSize()+k*size:]
	convert := l.convert[w.DType]
	if convert == nil {
		return &src[0], step
	}
	for i := range rows {
		convert(&scratch[i*floatColumns], &src[i*w.RowSize()], cols/16)
	}
	if rows > 1 {
		step = 4 * floatColumns
	}
	return (*byte)(unsafe.Pointer(&scratch[0])), step
}
