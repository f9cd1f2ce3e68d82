package cpu

import (
	"math"
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// A tile is up to vec.Tile positions that are added to the online softmax in one step: what
// is stored of a page, or successive entries of a list of positions. What a row reads of them
// is two words: always (sinks, window) and listed.

// worker is the scratch of one thread: the current tile, and the rows (a query row times a
// head) that it is added to.
type worker struct {
	keys, values vec.Rows // [vec.Tile, dim]
	n            int      // positions of the tile
	mask         *mask    // of the current rows
	page         int      // block number of the tile, -1 for entries of a list
	listed       bool     // the page is on the list
	positions    []int32  // [n]: the entries
	weighted     bool
	weight       [vec.Tile]float32 // of listed positions
	bias         [vec.Tile]float32 // log2 of weight

	gathered, gatheredV vec.Rows  // [vec.Tile, dim]: keys and values of entries
	columns             []float32 // [dim, vec.Tile]: keys of the tile, transposed
	wide                []float32 // [vec.Tile, dim]: values of the tile, in f32

	q, acc          []float32 // [rows, dim]
	scores          []float32 // [rows, vec.Tile]
	top, sum, scale []float32 // [rows]

	row     queryRow       // the current row, where rows are computed one by one
	lists   []positionList // of a row of a prefill, by run of heads
	covered []bool         // of each: see mask.covered
	entries [2]entries     // of its lists: the current tile and the next
}

// grow makes room for rows, and resets them.
func (w *worker) grow(rows, dim int, half bool) {
	size := func(s []float32, n int) []float32 {
		if cap(s) < n {
			return make([]float32, n)
		}
		return s[:n]
	}
	w.q, w.acc = size(w.q, rows*dim), size(w.acc, rows*dim)
	w.scores = size(w.scores, rows*vec.Tile)
	w.top, w.sum, w.scale = size(w.top, rows), size(w.sum, rows), size(w.scale, rows)
	w.columns, w.wide = size(w.columns, vec.Tile*dim), size(w.wide, vec.Tile*dim)
	switch n := vec.Tile * dim; {
	case half && len(w.gathered.Half) != n:
		w.gathered, w.gatheredV = vec.Rows{Half: make([]uint16, n)}, vec.Rows{Half: make([]uint16, n)}
	case !half && len(w.gathered.Full) != n:
		w.gathered, w.gatheredV = vec.Rows{Full: make([]float32, n)}, vec.Rows{Full: make([]float32, n)}
	}
	w.reset(rows)
}

// reset starts the online softmax of the rows: nothing read yet.
func (w *worker) reset(rows int) {
	clear(w.acc)
	for r := range rows {
		w.top[r], w.sum[r], w.scale[r] = -math.MaxFloat32, 0, 1
	}
}

// takePage makes block b of a slot the current tile, for rows up to position last. It
// reports whether it has any position.
func (a *attention) takePage(w *worker, slot, kvHead, b, last int, listed bool) bool {
	page := a.o.page(&a.pages, slot, b)
	if page < 0 {
		return false
	}
	w.page, w.listed = b, listed
	w.n = min(last+1-b*device.PageLen, device.PageLen)
	w.keys = a.pages.rows(a.pages.k, page, kvHead, 0, device.PageLen)
	w.values = a.pages.rows(a.pages.v, page, kvHead, 0, device.PageLen)
	return w.n > 0
}

// setPageWeight sets the weight of the positions of a listed page: that of its block.
func (w *worker) setPageWeight(l positionList, b int) {
	w.weighted = l.weights != nil && w.listed
	if !w.weighted {
		return
	}
	x := l.weight(b)
	bias := log2(x)
	for i := range w.weight {
		w.weight[i], w.bias[i] = x, bias
	}
}

// log2 is the bias of a score that stands for a weight; -Inf where it is not above zero.
func log2(w float32) float32 {
	if w > 0 {
		return float32(math.Log2(float64(w)))
	}
	return negInf
}

// takeEntries gathers the entries of a list of positions from lo on, none above position
// last, into the current tile.
func (a *attention) takeEntries(w *worker, slot, kvHead int, l positionList, lo, last int) bool {
	w.page, w.listed, w.n = -1, true, 0
	w.weighted = l.weights != nil
	w.positions = l.index[lo:min(lo+vec.Tile, len(l.index))]
	for i, j := range w.positions {
		if int(j) > last {
			break
		}
		page := -1
		if j >= 0 {
			page = a.o.page(&a.pages, slot, int(j)/device.PageLen)
		}
		if page < 0 {
			break
		}
		to, dim := i*a.dim, a.dim
		w.gathered.Slice(to, to+dim).Copy(a.pages.rows(a.pages.k, page, kvHead, int(j)%device.PageLen, 1))
		w.gatheredV.Slice(to, to+dim).Copy(a.pages.rows(a.pages.v, page, kvHead, int(j)%device.PageLen, 1))
		if w.weighted {
			w.weight[i], w.bias[i] = l.weights[lo+i], log2(l.weights[lo+i])
		}
		w.n++
	}
	w.keys, w.values = w.gathered, w.gatheredV
	return w.n > 0
}

// seen is which positions of the tile the row at p reads, always and because they are
// listed.
func (w *worker) seen(v *mask, p int) (always, listed uint64) {
	if w.page >= 0 {
		spanned := v.spannedBits(p, w.page)
		always = spanned & v.alwaysBits(p, w.page)
		if w.listed {
			listed = spanned &^ always
		}
		return always, listed
	}
	for i, j := range w.positions[:w.n] {
		if v.spanned(p, int(j)) && !v.always(p, int(j)) {
			listed |= 1 << i
		}
	}
	return 0, listed
}

// hide masks the scores of what a row does not read, and adds the biases of weights.
func (w *worker) hide(s []float32, always, listed uint64) {
	s = s[:vec.Tile]
	hidden := ^(always | listed)
	end := bits.LeadingZeros64(^hidden) // the causal mask hides a tail
	copy(s[vec.Tile-end:], unseen[:])
	for hidden &= ^uint64(0) >> end; hidden != 0; hidden &= hidden - 1 {
		s[bits.TrailingZeros64(hidden)] = negInf
	}
	if !w.weighted {
		return
	}
	for ; listed != 0; listed &= listed - 1 {
		i := bits.TrailingZeros64(listed)
		if s[i] += w.bias[i]; w.bias[i] == negInf {
			s[i] = negInf
		}
	}
}

// unseen is a tile of masked scores.
var unseen = func() (s [vec.Tile]float32) {
	for i := range s {
		s[i] = negInf
	}
	return s
}()

// mixture sets the probabilities of a row of a mixture: the weights themselves.
func (w *worker) mixture(s []float32, always, listed uint64) {
	for i := range s[:vec.Tile] {
		switch {
		case always>>i&1 == 1:
			s[i] = 1
		case listed>>i&1 == 0:
			s[i] = 0
		case w.weighted:
			s[i] = w.weight[i]
		default:
			s[i] = 1
		}
	}
}

// finish writes the output of a row: acc / sum, or acc itself for a mixture.
func finish(dst, acc []float32, sum float32, mixture bool) {
	scale := float32(1)
	if !mixture {
		if scale = 0; sum != 0 {
			scale = 1 / sum
		}
	}
	for i, v := range acc[:len(dst)] {
		dst[i] = v * scale
	}
}

// scoreScale is log2(e)/√dim: queries times it give scores whose exponentials have base 2.
func scoreScale(dim int) float32 { return float32(math.Log2E / math.Sqrt(float64(dim))) }
