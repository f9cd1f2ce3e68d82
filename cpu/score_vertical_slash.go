package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
)

// verticalSlashTask is VerticalSlash: item i is head i.
type verticalSlashTask struct {
	keyTiles
	columns, diagonals []float32 // [heads, width]
	width              int
	rows, first        int // rows of the call, and the position of the first
	call               *device.Score

	weights [][]float32 // by worker: [rows, positions]: scores, then probabilities
	sums    [][]float64 // by worker: [2, positions]: of columns and diagonals
}

// verticalSlash sums attention probabilities along columns and diagonals (MInference).
func (o *ops) verticalSlash(c *device.Score) {
	const op = "VerticalSlash"
	t := &o.tasks.verticalSlash
	t.rows, t.call = c.Q.Dim(0), c
	t.reset(o, c.Q, c.KV, device.Plan{}, t.rows)
	t.group = 1 // a head at a time
	t.columns, t.diagonals, t.width = f32s(c.Dst), f32s(c.Diagonals), c.Dst.Dim(1)
	var ok bool
	if t.first, ok = o.first(op, &t.pages, 0, t.rows); !ok {
		return
	}
	n := t.first + t.rows
	if n > t.width {
		o.d.fail("%s: %d positions for columns and diagonals of %d", op, n, t.width)
		return
	}
	t.weights, t.sums = perWorker(o.pool, t.weights), perWorker(o.pool, t.sums)
	for i := range t.weights {
		grown(&t.weights[i], t.rows*n)
		grown(&t.sums[i], 2*n)
	}
	o.pool.RunChunks(t.heads, 1, t)
}

// Do sums the lines of heads lo to hi-1.
func (t *verticalSlashTask) Do(worker, lo, hi int) {
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
			softmaxMass(x)
			for j, w := range x {
				mass := float64(w)
				if w < 0 {
					mass = math.Exp(mass)
				}
				columns[j] += mass
				diagonals[p-j] += mass
			}
		}
		encodeLines(row(t.columns, h, t.width), columns, t.call.ForcedColumns)
		encodeLines(row(t.diagonals, h, t.width), diagonals, t.call.ForcedDiagonals)
	}
}

// score sets x, [rows, positions], to the scores of a head. It reports whether all pages are
// in the cache.
func (t *verticalSlashTask) score(s *keyScratch, x []float32, head int) bool {
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
				out[j] = v * t.scale
			}
		}
	}
	return true
}

// softmaxMass replaces scores by their softmax, and by its logarithm, which is negative, where
// the probability is below device.MinMass of the largest. The probability of NaN is 0.
func softmaxMass(x []float32) {
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

// encodeLines writes sums in the encoding of device.EncodeMass, and +Inf for the first ones,
// which are selected in any case.
func encodeLines(dst []float32, sums []float64, forced int) {
	for i, x := range sums {
		dst[i] = device.EncodeMass(x)
		if i < forced {
			dst[i] = float32(math.Inf(1))
		}
	}
}
