package cpu

import "github.com/gollm/gollm/device"

// regionScores is a call that scores the positions of the selected region.
type regionScores struct {
	o          *ops
	pages      pages
	mask       mask
	dst        []float32 // [rows, heads, width]
	width      int
	q          []float32 // [rows, heads, dim]
	heads, dim int
	rows       []slotRow
}

// regionScores looks up the operands of a call; was is that of the last one, whose memory is
// reused.
func (o *ops) regionScores(op string, c *device.Score, was regionScores) regionScores {
	t := regionScores{o: o, pages: newPages(c.KV), mask: mask{c.Plan}, dst: f32s(c.Dst), width: c.Dst.Dim(2),
		q: f32s(c.Q), heads: c.Q.Dim(1), dim: c.Q.Dim(2), rows: was.rows[:0]}
	perSlot := device.RowsPerSlot(op, c.Q.Dim(0), c.KV)
	for r := range c.Q.Dim(0) {
		t.rows = append(t.rows, o.slotRow(op, &t.pages, r/perSlot, r%perSlot, perSlot, t.width))
	}
	return t
}

// writeRegion writes the scores of a page: x where region has a bit, -Inf elsewhere.
func writeRegion(dst, x []float32, region uint64) {
	if len(dst) == device.PageLen && region == ^uint64(0) {
		copy(dst, x)
		return
	}
	for i := range dst {
		dst[i] = negInf
		if region>>i&1 != 0 {
			dst[i] = x[i]
		}
	}
}
