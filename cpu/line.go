package cpu

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/gollm/gollm/device"
)

// lineTask is VerticalSlash: item i is head i.
type lineTask struct {
	keyTiles
	columns, diagonals []float32 // [heads, width]
	width              int
	rows, first        int // of the call, and the position of the first one
	call               *device.Score

	weights [][]float32 // by worker: [rows, positions]
	sums    [][]float64 // by worker: [2, positions]
}

// verticalSlash adds up attention weights along columns and diagonals.
func (o *ops) verticalSlash(c *device.Score) {
	const op = "VerticalSlash"
	t := &o.lines
	t.rows, t.call = c.Q.Dim(0), c
	t.reset(o, c.Q, c.KV, device.Plan{}, t.rows)
	t.run = 1 // a head at a time
	t.columns, t.diagonals, t.width = f32s(c.Dst), f32s(c.Diagonals), c.Dst.Dim(1)
	var ok bool
	if t.first, ok = o.first(op, &t.pages, 0, t.rows); !ok {
		return
	}
	n := t.first + t.rows
	if n > t.width {
		o.d.fail("%s: %d positions for lines of %d", op, n, t.width)
		return
	}
	for len(t.weights) < o.pool.Workers() {
		t.weights, t.sums = append(t.weights, nil), append(t.sums, nil)
	}
	for i := range t.weights {
		grown(&t.weights[i], t.rows*n)
		grown(&t.sums[i], 2*n)
	}
	o.pool.RunChunks(t.heads, 1, t)
}

// Do adds up for heads lo to hi-1.
func (t *lineTask) Do(worker, lo, hi int) {
	n := t.first + t.rows
	for h := lo; h < hi; h++ {
		s, weights := &t.scratch[worker], t.weights[worker][:t.rows*n]
		if !t.score(s, weights, h) {
			return
		}
		columns, diagonals := t.sums[worker][:n], t.sums[worker][n:2*n]
		clear(columns)
		clear(diagonals)
		for i := range t.rows {
			p := t.first + i
			x := row(weights, i, n)[:p+1]
			normalize(x)
			for j, w := range x {
				share := float64(w)
				if w < 0 {
					share = math.Exp(share)
				}
				columns[j] += share
				diagonals[p-j] += share
			}
		}
		narrow(row(t.columns, h, t.width), columns, t.call.ForcedColumns)
		narrow(row(t.diagonals, h, t.width), diagonals, t.call.ForcedDiagonals)
	}
}

// score sets x, [rows, positions], to the scores of a head.
func (t *lineTask) score(s *keyScratch, x []float32, head int) bool {
	n := t.first + t.rows
	clear(s.q)
	for i := range t.rows {
		copy(row(s.q, i, t.dim), row(t.q, i*t.heads+head, t.dim))
	}
	for b := range pagesOf(n) {
		page := t.o.page(&t.pages, 0, b)
		if page < 0 {
			return false
		}
		keys := min(n-b*device.PageLen, device.PageLen)
		t.multiply(s, page, head*t.pages.heads/t.heads, keys, t.rows)
		for i := range t.rows {
			out := row(x, i, n)[b*device.PageLen:]
			for j, v := range row(s.scores, i, device.PageLen)[:keys] {
				out[j] = v * t.unit
			}
		}
	}
	return true
}

// normalize replaces scores by their softmax, and by its logarithm where it is
// less than device.MinMass of the largest; what is NaN counts nothing.
func normalize(x []float32) {
	top := negInf
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	var sum float64
	for i, v := range x {
		x[i] = 0
		if v > negInf {
			e := math.Exp(float64(v - top))
			if x[i] = float32(e); e < device.MinMass {
				x[i] = v - top
			}
			sum += e
		}
	}
	if !(sum > 0) {
		return
	}
	log := float32(math.Log(sum))
	for i, e := range x {
		if e < 0 {
			x[i] = e - log
			continue
		}
		x[i] = float32(float64(e) / sum)
	}
}

// narrow writes sums as f32 holds them, and +Inf for the first ones.
func narrow(dst []float32, sums []float64, first int) {
	for i, x := range sums {
		dst[i] = device.EncodeMass(x)
		if i < first {
			dst[i] = float32(math.Inf(1))
		}
	}
}

// tilesTask is ExpandLines: item i is head i%heads of group i/heads of the rows.
type tilesTask struct {
	o                  *ops
	columns, diagonals device.List
	group, heads       int
	first, rows        int
	index, count       []int32 // of the list made
	limit              int
	short              atomic.Bool // a list was too short

	sets [][]uint64 // by worker: positions, as words
}

// expandLines lists what columns and diagonals reach.
func (o *ops) expandLines(l, columns, diagonals device.List, kv device.KV, rows int) {
	const op = "ExpandLines"
	g, t := newPages(kv), &o.tiles
	first, ok := o.first(op, &g, 0, rows)
	if !ok {
		return
	}
	t.o, t.columns, t.diagonals, t.group, t.heads = o, columns, diagonals, l.Group, l.Index.Dim(1)
	t.first, t.rows = first, rows
	t.index, t.count, t.limit = i32s(l.Index), i32s(l.Count), l.Index.Dim(2)
	t.short.Store(false)
	groups := device.BlocksOf(first, rows, t.group)
	if groups > l.Index.Dim(0) {
		o.d.fail("%s: %d groups of rows, want at most %d", op, groups, l.Index.Dim(0))
		return
	}
	for len(t.sets) < o.pool.Workers() {
		t.sets = append(t.sets, nil)
	}
	for i := range t.sets {
		grown(&t.sets[i], g.width)
	}
	o.pool.RunChunks(groups*t.heads, 1, t)
	if t.short.Load() {
		o.d.fail("%s: more entries than a list of %d takes", op, t.limit)
	}
}

// Do lists for items lo to hi-1.
func (t *tilesTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		start := (t.first/t.group + i/t.heads) * t.group
		end := min(start+t.group, t.first+t.rows)
		set := t.sets[worker][:pagesOf(end)]
		clear(set)
		t.lay(set, t.o.list(t.diagonals, 0, i%t.heads, t.heads).index, start, end)
		for _, j := range t.o.list(t.columns, 0, i%t.heads, t.heads).index {
			if j >= 0 && int(j) < end {
				set[j/device.PageLen] |= 1 << (j % device.PageLen)
			}
		}
		out, n := row(t.index, i, t.limit), 0
		for b, w := range set {
			for ; w != 0 && n < len(out); w &= w - 1 {
				out[n] = int32(b*device.PageLen + bits.TrailingZeros64(w))
				n++
			}
			if w != 0 {
				t.short.Store(true)
			}
		}
		t.count[i] = int32(n)
	}
}

// lay adds the tiles over diagonals, which ascend, for the group at start to
// end-1 to a set.
func (t *tilesTask) lay(set []uint64, diagonals []int32, start, end int) {
	lo, hi := 0, 0 // of the tiles that are not added yet
	flush := func() {
		for b := lo / device.PageLen; b*device.PageLen < min(hi, end); b++ {
			set[b] |= between(b, lo, min(hi, end))
		}
	}
	for _, o := range slices.Backward(diagonals) {
		from := max(start-int(o), 0)
		switch {
		case o < 0 || int(o) >= start+t.group:
		case hi == 0 || from > hi:
			flush()
			lo, hi = from, from+t.group
		case from+t.group > hi:
			hi += t.group
		}
	}
	flush()
}

// meanKeys averages the stored keys of each block of positions.
func (o *ops) meanKeys(dst device.Tensor, kv device.KV, block int) {
	const op = "MeanKeys"
	t := &o.means
	t.o, t.pages, t.block, t.dst = o, newPages(kv), block, f32s(dst)
	t.len = o.slotLen(op, kv, min(t.pages.width*device.PageLen, dst.Dim(0)*block))
	n := (t.len + block - 1) / block
	for len(t.keys) < o.pool.Workers() {
		t.keys = append(t.keys, nil)
	}
	for i := range t.keys {
		grown(&t.keys[i], t.pages.dim)
	}
	o.pool.Run(n*t.pages.heads, t)
}

// meanTask is MeanKeys: item i is kv head i%kvheads of block i/kvheads.
type meanTask struct {
	o          *ops
	pages      pages
	dst        []float32 // [blocks, kvheads, dim]
	block, len int
	keys       [][]float32 // by worker: [dim]
}

// Do averages items lo to hi-1.
func (t *meanTask) Do(worker, lo, hi int) {
	k := t.keys[worker][:t.pages.dim]
	for i := lo; i < hi; i++ {
		mean, from := row(t.dst, i, t.pages.dim), i/t.pages.heads*t.block
		to := min(from+t.block, t.len)
		clear(mean)
		for j := from; j < to; j++ {
			page := t.o.page(&t.pages, 0, j/device.PageLen)
			if page < 0 {
				return
			}
			t.o.load(k, t.pages.k, t.pages.element(page, i%t.pages.heads, j%device.PageLen), t.pages.half)
			t.o.vec.Add(mean, k)
		}
		for e := range mean {
			mean[e] /= float32(to - from)
		}
	}
}
