package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

var negInf = float32(math.Inf(-1))

// eachRow calls f for every row that takes part, with its slot and position.
func (o *ops) eachRow(op string, kv device.KV, rows int, f func(r, slot, first, p int)) {
	perSlot := device.RowsPerSlot(op, rows, kv)
	g := newPages(kv)
	for r := range rows {
		slot := r / perSlot
		if first, ok := o.first(op, &g, slot, perSlot); ok {
			f(r, slot, first, first+r%perSlot)
		}
	}
}

// scoresByWeight is the definition of Scores for what the plan reads: every
// weight, every score.
func (o *ops) scoresByWeight(dst, q device.Tensor, kv device.KV, p device.Plan) {
	rows, heads, dim := q.Dim(0), q.Dim(1), q.Dim(2)
	g, v := newPages(kv), reach{p}
	k := make([]float32, dim)
	o.eachRow("Scores", kv, rows, func(r, slot, first, pos int) {
		for h := range heads {
			l := o.list(p.List, group(p.List, slot, first, pos), h, heads)
			out := row(f32s(dst), r*heads+h, dst.Dim(2))
			x := row(f32s(q), r*heads+h, dim)
			for j := range pos + 1 {
				out[j] = negInf
				w := v.weight(pos, j, l)
				page := o.page(&g, slot, j/device.PageLen)
				if w == 0 || page < 0 {
					continue
				}
				o.load(k, g.k, g.element(page, h*g.heads/heads, j%device.PageLen), g.half)
				out[j] = float32(dot(x, k)/math.Sqrt(float64(dim)) + math.Log(float64(w)))
			}
		}
	})
}

// Softmax normalizes rows of scores.
func (o *ops) Softmax(dst, x device.Tensor, kv device.KV) {
	o.Flush()
	const op = "Softmax"
	device.CheckLike(op, "dst", dst, x)
	heads, width := x.Dim(1), x.Dim(2)
	o.eachRow(op, kv, x.Dim(0), func(r, _, _, p int) {
		for h := range heads {
			out, in := row(f32s(dst), r*heads+h, width)[:p+1], row(f32s(x), r*heads+h, width)[:p+1]
			top := slices.Max(in)
			var sum float64
			for j, s := range in {
				e := 0.0
				if s > negInf {
					e = math.Exp(float64(s - top))
				}
				out[j] = float32(e)
				sum += e
			}
			for j := range out {
				if sum > 0 {
					out[j] = float32(float64(out[j]) / sum)
				}
			}
		}
	})
}

// SumHeads adds up the heads of each kv head.
func (o *ops) SumHeads(dst, x device.Tensor, kv device.KV) {
	o.Flush()
	const op = "SumHeads"
	rows, heads, width := x.Dim(0), x.Dim(1), x.Dim(2)
	device.CheckShape(op, "dst", dst, device.F32, rows, kv.K.Dim(1), width)
	groups := dst.Dim(1)
	o.eachRow(op, kv, rows, func(r, _, _, p int) {
		for g := range groups {
			out := row(f32s(dst), r*groups+g, width)[:p+1]
			clear(out)
			for h := g * heads / groups; h < (g+1)*heads/groups; h++ {
				for j, v := range row(f32s(x), r*heads+h, width)[:p+1] {
					out[j] += v
				}
			}
		}
	})
}

// TopK lists the k best positions of each row and head.
func (o *ops) TopK(l device.List, scores device.Tensor, kv device.KV, k device.Amount) {
	o.Flush()
	o.listBest(l, scores, kv, topTask{op: "TopK", k: k})
}

// TopP lists the best positions of each row and head until they hold a share of
// the row's mass.
func (o *ops) TopP(l device.List, scores device.Tensor, kv device.KV, share float64) {
	o.Flush()
	o.listBest(l, scores, kv, topTask{op: "TopP", byShare: true, share: share})
}

// listBest runs a task that says how many are listed.
func (o *ops) listBest(l device.List, scores device.Tensor, kv device.KV, task topTask) {
	t := &o.top
	rows, heads := scores.Dim(0), scores.Dim(1)
	device.CheckShape(task.op, "list", l.Index, device.I32, -1, heads, -1)
	task.o, task.scores, task.heads, task.width = o, f32s(scores), heads, scores.Dim(2)
	task.index, task.count, task.most = i32s(l.Index), i32s(l.Count), l.Index.Dim(2)
	task.pos, task.scratch = o.positions(task.op, kv, rows, t.pos[:0]), t.scratch
	*t = task
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, selector{})
	}
	o.pool.RunChunks(rows*heads, 1, t)
}

// topTask is TopK and TopP: item i is head i%heads of row i/heads.
type topTask struct {
	o       *ops
	op      string
	k       device.Amount
	byShare bool    // as many as hold share, and not k
	share   float64 // of the mass of a row

	scores       []float32 // [rows, heads, width]
	heads, width int
	index, count []int32 // of the list
	most         int
	pos          []int // of each row; below 0 is skipped

	scratch []selector // by worker
}

// Do lists items lo to hi-1.
func (t *topTask) Do(worker, lo, hi int) {
	s := &t.scratch[worker]
	for i := lo; i < hi; i++ {
		p := t.pos[i/t.heads]
		if p < 0 {
			continue
		}
		x := row(t.scores, i, t.width)[:p+1]
		nans := s.nans(t.o.vec, x)
		t.o.d.sawNaNs(&nans)
		set, n := t.choose(s, x)
		if n > t.most {
			t.o.d.fail("%s: %d entries for a list of %d", t.op, n, t.most)
			t.count[i] = 0
			continue
		}
		t.count[i] = int32(t.o.vec.Positions(row(t.index, i, t.most), set))
	}
}

// choose is what of a row's scores is listed, and how many they are.
func (t *topTask) choose(s *selector, x []float32) (set []uint64, n int) {
	if t.byShare {
		return s.pickShare(t.o.vec, x, t.share)
	}
	return s.pick(t.o.vec, x, t.k.Of(len(x)))
}
