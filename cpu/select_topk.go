package cpu

import "github.com/gollm/gollm/device"

// topK lists the k best positions of each row and head.
func (o *ops) topK(c *device.Select) { o.listTop("TopK", c) }

// topP lists the smallest set of best positions of each row and head that holds Mass of the
// row's softmax.
func (o *ops) topP(c *device.Select) { o.listTop("TopP", c) }

// listTop is TopK and TopP.
func (o *ops) listTop(op string, c *device.Select) {
	t := &o.tasks.top
	rows, heads := c.Scores.Dim(0), c.Scores.Dim(1)
	*t = topTask{
		outList: newOutList(c.List), o: o, op: op, byMass: c.Rule == device.TopP, k: c.K, mass: c.Mass,
		scores: f32s(c.Scores), heads: heads, width: c.Scores.Dim(2),
		pos: o.positions(op, c.KV, rows, t.pos[:0]), scratch: perWorker(o.pool, t.scratch),
	}
	o.pool.RunChunks(rows*heads, 1, t)
}

// topTask is TopK and TopP: item i is head i%heads of row i/heads.
type topTask struct {
	outList
	o      *ops
	op     string
	byMass bool // TopP
	k      device.Amount
	mass   float64 // of a row's softmax

	scores       []float32 // [rows, heads, width]
	heads, width int
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
		if p >= t.width {
			t.o.d.fail("%s: position %d in scores of %d", t.op, p, t.width)
			t.count[i] = 0
			continue
		}
		x := row(t.scores, i, t.width)[:p+1]
		nans := nans(t.o.vec, x)
		t.o.d.sawNaNs(&nans)
		selected, n := t.selectRow(s, x)
		if n > t.limit {
			t.o.d.fail("%s: %d entries for a list of %d", t.op, n, t.limit)
			t.count[i] = 0
			continue
		}
		t.count[i] = int32(t.o.vec.Positions(row(t.index, i, t.limit), selected))
	}
}

// selectRow is the set of selected positions of a row of scores, and how many they are.
func (t *topTask) selectRow(s *selector, x []float32) (selected []uint64, n int) {
	if t.byMass {
		return s.topP(t.o.vec, x, t.mass)
	}
	return s.topK(t.o.vec, x, t.k.Of(len(x)))
}
