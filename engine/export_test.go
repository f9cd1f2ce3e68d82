package engine

import "slices"

// SpoilQuery changes a query of the last pass.
func (rec *Recording) SpoilQuery() {
	q := rec.chunks[len(rec.chunks)-1].q[0]
	for i := range q[:rec.runner.shape.HeadDim] {
		q[i] = -q[i]
	}
}

// SpoilEntry makes another position of the last entry that is not next to the one before.
func (rec *Recording) SpoilEntry() {
	for at, s := range rec.taken.rows {
		if i := len(s.index) - 1; i > 0 && s.index[i]-1 > s.index[i-1] {
			s.index[i]--
			rec.taken.rows[at] = s
			return
		}
	}
}

// DropEntry takes an entry away.
func (rec *Recording) DropEntry() {
	for at, s := range rec.taken.rows {
		if len(s.index) > 1 {
			s.index = slices.Delete(s.index, 0, 1)
			rec.taken.rows[at] = s
			return
		}
	}
}
