package kernel

import "github.com/gollm/gollm/device"

// The product by rows, for vectors without room for a tile: 4 rows are unpacked
// 256 columns at a time, and multiplied with one token after the other. The
// tokens' 256 columns (512 · 384 bytes) stay in the second cache.

// rowLoops is what the product by rows of a quantized type needs from an ISA.
type rowLoops struct {
	expand map[device.DType]func(dst *block, src *byte, stride uintptr, rows int)
	dot    map[scheme]func(acc *float32, rows *block, act *actBlock) // f32 [4]
}

// computeRows computes rows lo to hi-1 of p, four at a time with up to 512
// tokens. Left-over rows are passed four times.
func (l *rowLoops) computeRows(p *Product, b *Batch, s *Scratch, lo, hi int) {
	for r := lo; r < hi; {
		rows, step := rowsFrom(r, hi, p.W.RowSize())
		for first := 0; first < b.Tokens; first += blockTokens {
			l.computeFour(p, b, s, r, rows, step, first, min(b.Tokens-first, blockTokens))
		}
		r += rows
	}
}

// computeFour computes 4 rows, step bytes apart, for up to 512 tokens, and
// keeps the first rows of them.
func (l *rowLoops) computeFour(p *Product, b *Batch, s *Scratch, r, rows int, step uintptr, token, tokens int) {
	dt := p.W.DType
	form, dot := scalingOf(dt), l.dot[schemes[dt]]
	expand, size := l.expand[dt], superLen/dt.BlockLen()*dt.BlockSize()
	sums := s.floats(tokens * gemvRows) // f32 [tokens, 4]
	clear(sums)
	for i := range b.supers {
		if (i+1)*superLen <= b.Cols {
			expand(&s.rows[0], &p.W.Row(r)[i*size], step, gemvRows)
		} else {
			for n := range gemvRows {
				expandSuper(dt, &s.rows[n], p.W.Row(min(r+n, r+rows-1))[i*size:])
			}
		}
		for t := range tokens {
			dot(&sums[t*gemvRows], &s.rows[0], b.at(form, i, token+t))
		}
	}
	for t := range tokens {
		copy(p.Dst.Data[(token+t)*p.Dst.Stride+r:][:rows], sums[t*gemvRows:])
	}
}
