package cpu

import "github.com/gollm/gollm/device"

// groupMax is the largest score of the heads of each kv head (GQA).
func (o *ops) groupMax(c *device.Score) {
	t, rows := &o.tasks.groupMax, c.Q.Dim(0)
	*t = groupMaxTask{
		o: o, out: f32s(c.Dst), in: f32s(c.Q), heads: c.Q.Dim(1), groups: c.Dst.Dim(1), width: c.Q.Dim(2),
		pos: o.positions("GroupMax", c.KV, rows, t.pos[:0]),
	}
	o.pool.RunChunks(rows*t.groups, 1, t)
}

// groupMaxTask is GroupMax: item i is kv head i%groups of row i/groups.
type groupMaxTask struct {
	o                    *ops
	out                  []float32 // [rows, groups, width]
	in                   []float32 // [rows, heads, width]
	heads, groups, width int
	pos                  []int // of each row; below 0 is skipped
}

// Do computes items lo to hi-1.
func (t *groupMaxTask) Do(_, lo, hi int) {
	for i := lo; i < hi; i++ {
		r, g := i/t.groups, i%t.groups
		if t.pos[r] < 0 {
			continue
		}
		if t.pos[r] >= t.width {
			t.o.d.fail("GroupMax: position %d in scores of %d", t.pos[r], t.width)
			continue
		}
		first, end := g*t.heads/t.groups, (g+1)*t.heads/t.groups
		t.o.vec.LargestOfRows(row(t.out, i, t.width)[:t.pos[r]+1], t.in[(r*t.heads+first)*t.width:], t.width, end-first)
	}
}
