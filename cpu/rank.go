package cpu

import (
	"math"

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

// topK lists the k best positions of each row and head.
func (o *ops) topK(l device.List, scores device.Tensor, kv device.KV, k device.Amount) {
	o.listBest(l, scores, kv, topTask{op: "TopK", k: k})
}

// topP lists the best positions of each row and head until they hold a share of
// the row's mass.
func (o *ops) topP(l device.List, scores device.Tensor, kv device.KV, share float64) {
	o.listBest(l, scores, kv, topTask{op: "TopP", byShare: true, share: share})
}

// listBest runs a task that says how many are listed.
func (o *ops) listBest(l device.List, scores device.Tensor, kv device.KV, task topTask) {
	t := &o.top
	rows, heads := scores.Dim(0), scores.Dim(1)
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
