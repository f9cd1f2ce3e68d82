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

// computeGemv computes rows lo to hi-1 of p, four at a time with all tokens,
// so that a row comes from memory once. Left-over rows are passed four times.
func (l gemvLoops) computeGemv(p *Product, b *Batch, s *Scratch, lo, hi int) {
	loops, stride := l[p.W.DType], p.W.RowSize()
	form := scalingOf(p.W.DType)
	actStep := uintptr(b.Tokens * actSize)
	for r := lo; r < hi; {
		rows, step := rowsFrom(r, hi, stride)
		w := &p.W.Data[r*stride]
		for t := 0; t < b.Tokens; {
			n := 1
			if t+1 < b.Tokens && loops[1] != nil {
				n = 2
			}
			loops[n-1](&s.out[0][0], w, step, b.at(form, 0, t), actStep, b.supers)
			for i := range n {
				copy(p.Dst.Data[(t+i)*p.Dst.Stride+r:][:rows], s.out[i][:])
			}
			t += n
		}
		r += rows
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
