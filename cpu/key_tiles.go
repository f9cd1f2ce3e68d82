package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// keyTiles computes q·k of some queries, for all heads of a kv head, with pages of keys: the
// first product of attention without the softmax. AnchorMax, WithinMargin and VerticalSlash
// embed it.
type keyTiles struct {
	o       *ops
	kernel  *vec.Kernels
	pages   pages
	mask    mask
	q       []float32 // [n, heads, dim]
	heads   int
	group   int // query heads of a kv head
	dim     int
	scale   float32 // 1/√dim
	maxRows int     // rows of a product, padded to vec.TileRows

	scratch []keyScratch
}

// keyScratch is what one worker needs.
type keyScratch struct {
	q       []float32 // [maxRows, dim]
	columns []float32 // [dim, vec.Tile]: keys, transposed
	scores  []float32 // [maxRows, vec.Tile]
	top     []float32 // [maxRows]
	nans    int       // scores that were NaN
}

// reset looks up the operands of a call and makes room for n queries in a product.
func (t *keyTiles) reset(o *ops, q device.Tensor, kv device.KV, p device.Plan, n int) {
	t.o, t.pages, t.mask = o, newPages(kv), mask{p}
	t.q, t.heads, t.dim = f32s(q), q.Dim(1), q.Dim(2)
	t.group, t.scale = t.heads/t.pages.heads, float32(1/math.Sqrt(float64(t.dim)))
	t.maxRows = (n*t.group + vec.TileRows - 1) / vec.TileRows * vec.TileRows
	t.kernel = o.vec
	if t.dim%vec.Multiple != 0 {
		t.kernel = vec.Go
	}
	t.scratch = perWorker(o.pool, t.scratch)
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.columns = grown(&s.q, t.maxRows*t.dim), grown(&s.columns, t.dim*vec.Tile)
		s.scores, s.top = grown(&s.scores, t.maxRows*vec.Tile), grown(&s.top, t.maxRows)
	}
}

// load copies queries at to at+n-1 for the heads of a kv head: row i·group + u is head u of
// query i. Padding rows are zero.
func (t *keyTiles) load(s *keyScratch, at, n, kvHead int) {
	clear(s.q)
	for i := range n {
		copy(s.q[i*t.group*t.dim:][:t.group*t.dim], t.q[((at+i)*t.heads+kvHead*t.group)*t.dim:])
	}
}

// multiply sets s.scores to q·k of n queries and the first keys of a page, unscaled.
func (t *keyTiles) multiply(s *keyScratch, page, kvHead, keys, n int) {
	t.kernel.Columns(s.columns, t.pages.rows(t.pages.k, page, kvHead, 0, device.PageLen), keys, t.dim)
	c, q, k := vec.Matrix{Data: s.scores, Stride: vec.Tile}, vec.Matrix{Data: s.q, Stride: t.dim}, vec.Matrix{Data: s.columns, Stride: vec.Tile}
	for r := 0; r < n*t.group; r += vec.TileRows {
		t.kernel.Multiply(c.From(r, 0), q.From(r, 0), k, nil, t.dim, vec.Tile)
	}
}
