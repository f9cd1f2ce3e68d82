package kernel

import "github.com/gollm/gollm/device"

// The tiled product. Of each part of up to 128 rows it unpacks 256 columns at a
// time into panels, and multiplies them with tiles of up to six tokens. Sizes: a
// panel (14 KB) stays in the first cache, the tokens' 256 columns (512 · 384
// bytes) and sums (512 · 128 floats) in the second.

const (
	tileTokens  = 6   // maximum number of tokens of a tile
	blockTokens = 512 // tokens that one unpacking serves
	partPanels  = 4   // panels of a part
)

// tiledLoops is what the tiled product of each quantized type needs from an ISA.
type tiledLoops map[device.DType]tiledLoop

// tiledLoop is the loops of a type; gemm is for blocks of 256, gemmBlock for
// blocks of 32.
type tiledLoop struct {
	expand    func(dst *block, src *byte, stride uintptr, rows int)
	pack      func(dst *panel, rows *block) // 16 rows
	gemm      *gemmTable
	gemmBlock *gemmBlockTable
}

// The tables of gemm are by tokens of the tile.
type (
	gemmTable      [tileTokens + 1]func(acc *float32, p *panel, act *actBlock, tiles int)
	gemmBlockTable [tileTokens + 1]func(acc *float32, p *panel, act *actBlock, tiles, blocks int)
)

// tiled is one call of the tiled product.
type tiled struct {
	tiledLoop
	p    *Product
	b    *Batch
	s    *Scratch
	size int // bytes of 256 weights
}

// computeTiled computes rows lo to hi-1 of p.
func (l tiledLoops) computeTiled(p *Product, b *Batch, s *Scratch, lo, hi int) {
	dt := p.W.DType
	t := tiled{l[dt], p, b, s, superLen / dt.BlockLen() * dt.BlockSize()}
	for ; lo < hi; lo += partPanels * panelRows {
		rows := min(hi-lo, partPanels*panelRows)
		for first := 0; first < b.Tokens; first += blockTokens {
			t.computePart(lo, rows, first, min(b.Tokens-first, blockTokens))
		}
	}
}

// computePart computes up to 128 rows for up to 512 tokens.
func (t *tiled) computePart(row, rows, token, tokens int) {
	panels := (rows + panelRows - 1) / panelRows
	sums := t.s.floats(panels * tokens * panelRows) // f32 [panels, tokens, 32]
	clear(sums)
	for i := range t.b.supers {
		for n := range panels {
			r := row + n*panelRows
			t.unpack(r, min(rows-n*panelRows, panelRows), i)
			t.multiply(sums[n*tokens*panelRows:], token, tokens, i)
		}
	}
	for n := range panels {
		valid := min(rows-n*panelRows, panelRows)
		for i := range tokens {
			dst := t.p.Dst.Data[(token+i)*t.p.Dst.Stride+row+n*panelRows:]
			copy(dst[:valid], sums[(n*tokens+i)*panelRows:])
		}
	}
}

// unpack fills the panel with columns 256·i on of rows rows from row on. Lanes
// beyond them keep what they had: their sums are not used.
func (t *tiled) unpack(row, rows, i int) {
	stride := t.p.W.RowSize()
	src := t.p.W.Data[row*stride+i*t.size:]
	if t.whole(i) {
		t.expand(&t.s.rows[0], &src[0], uintptr(stride), rows)
	} else {
		for r := range rows {
			line := src[r*stride:]
			expandSuper(t.p.W.DType, &t.s.rows[r], line[:min(t.size, stride-i*t.size)])
		}
	}
	for h := range (rows + 15) / 16 {
		t.pack(t.s.panel.half(h), &t.s.rows[16*h])
	}
}

// whole reports whether the rows have all 256 columns of number i.
func (t *tiled) whole(i int) bool { return (i+1)*superLen <= t.b.Cols }

// multiply adds the panel's product with tokens to sums, f32 [tokens, 32]. The
// tokens are cut into tiles of two sizes that differ by one.
func (t *tiled) multiply(sums []float32, token, tokens, i int) {
	tiles := (tokens + tileTokens - 1) / tileTokens
	size := (tokens + tiles - 1) / tiles
	small := tiles*size - tokens
	large := tiles - small
	t.tiles(sums, token, size, large, i)
	if small > 0 {
		t.tiles(sums[large*size*panelRows:], token+large*size, size-1, small, i)
	}
}

// tiles multiplies n tiles of the given size.
func (t *tiled) tiles(sums []float32, token, size, n, i int) {
	act := t.b.at(scalingOf(t.p.W.DType), i, token)
	if t.gemm != nil {
		t.gemm[size](&sums[0], &t.s.panel, act, n)
		return
	}
	blocks := min(superLen/32, t.b.Cols/32-i*superLen/32)
	t.gemmBlock[size](&sums[0], &t.s.panel, act, n, blocks)
}
