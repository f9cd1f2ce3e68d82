package kernel

import "github.com/gollm/gollm/device"

// gemvRows is how many rows the matrix-vector loops take at a time.
const gemvRows = 4

// gemvTokens is the largest batch that the matrix-vector loops do faster than
// the tiled ones.
const gemvTokens = 4

// gemvLoop multiplies 4 rows, stride bytes apart, with one or two tokens whose
// blocks are step bytes apart: out is f32 [tokens][4].
type gemvLoop func(out *float32, w *byte, stride uintptr, act *actBlock, step uintptr, supers int)

// gemvLoops are the loops for 1 and 2 tokens; the second may be missing.
type gemvLoops map[device.DType][2]gemvLoop

// computeGemv computes rows lo to hi-1 of p with all tokens, so that a row comes
// from memory once.
func (l gemvLoops) computeGemv(p *Product, b *Batch, s *Scratch, lo, hi int) {
	loops, size := l[p.W.DType], p.W.RowSize()
	form, actStep := scalingOf(p.W.DType), uintptr(b.Tokens*actSize)
	streams(lo, hi, func(r, step, n int) {
		for t := 0; t < b.Tokens; {
			tokens := 1
			if t+1 < b.Tokens && loops[1] != nil {
				tokens = 2
			}
			loops[tokens-1](&s.out[0][0], &p.W.Data[r*size], uintptr(step*size), b.at(form, 0, t), actStep, b.supers)
			s.store(p, r, step, n, t, tokens)
			t += tokens
		}
	})
}

// streams walks through rows lo to hi-1 by 4 that are step apart, so that each
// of the 4 reads its quarter on and on: streams are what processors prefetch
// best. Left-over rows come alone, n = 1 and step 0.
func streams(lo, hi int, f func(r, step, n int)) {
	quarter := (hi - lo) / gemvRows
	for r := lo; r < lo+quarter; r++ {
		f(r, quarter, gemvRows)
	}
	for r := lo + gemvRows*quarter; r < hi; r++ {
		f(r, 0, 1)
	}
}

// store copies what a loop computed of n rows, step apart from r on, to tokens
// t to t+tokens-1.
func (s *Scratch) store(p *Product, r, step, n, t, tokens int) {
	for i := range tokens {
		dst := p.Dst.Data[(t+i)*p.Dst.Stride+r:]
		for j := range n {
			dst[j*step] = s.out[i][j]
		}
	}
}

// rowsFrom is how many rows one call of a loop computes from row r on, and the
// distance of the rows it is given: left-over rows are passed four times.
func rowsFrom(r, hi, stride int) (rows int, step uintptr) {
	if hi-r < gemvRows {
		return 1, 0
	}
	return gemvRows, uintptr(stride)
}
