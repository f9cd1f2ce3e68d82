package engine

import (
	"slices"

	"github.com/gollm/gollm/device"
)

// spy notes which keys the planning of a pass reads to choose. Each op of
// [device.Ops] that reads keys for that has a method here.
type spy struct {
	device.Ops
	audit *Audit
}

// scan is keys that were read to choose.
type scan struct {
	Selection
	skip []bool // [rows, heads]: these read none; nil is nobody
	pass bool   // by the pass, before its rows are planned in tiles
}

// Scores notes the keys that a part of a plan has.
func (s *spy) Scores(dst, q device.Tensor, kv device.KV, p device.Plan, part device.Part) {
	s.Ops.Scores(dst, q, kv, p, part)
	if part != device.Planned {
		// What Middles leaves out, sinks and recent window, is read anyway.
		p = device.Plan{Span: p.Span}
	}
	s.note(q, kv, p, nil)
}

// Reuse notes the keys of heads that found nothing to use again.
func (s *spy) Reuse(l device.List, m device.Memo, scores, asked, q device.Tensor, kv device.KV, p device.Plan, w device.Widen) {
	s.Ops.Reuse(l, m, scores, asked, q, kv, p, w)
	rows, heads := q.Dim(0), q.Dim(1)
	found := make([]int32, m.Found.Len())
	_ = read(s.audit.dev, found, m.Found) // a failure sticks to the device
	skip := make([]bool, rows*heads)
	for i := range skip {
		row, head, sets := i/heads, i%heads, len(found)/rows
		skip[i] = found[row*sets+head*sets/heads] >= 0
	}
	s.note(q, kv, device.Plan{Span: p.Span}, skip)
}

// ListNear notes the middle for every row of the groups: its keys are read once
// for all of them.
func (s *spy) ListNear(l device.List, q, top device.Tensor, kv device.KV, p device.Plan, n device.Near) {
	s.Ops.ListNear(l, q, top, kv, p, n)
	sel := readSelection(s.audit.dev, kv, n.Rows*kv.Len.Dim(0), device.Plan{Span: p.Span})
	sel.Heads = q.Dim(1)
	s.audit.scans = append(s.audit.scans, scan{Selection: sel})
}

// SampleValues notes the keys of the plan that is drawn from.
func (s *spy) SampleValues(l device.List, q device.Tensor, kv device.KV, p device.Plan, d device.Draws) {
	s.Ops.SampleValues(l, q, kv, p, d)
	s.note(q, kv, p, nil)
}

// LineSums notes what its rows see: they are the last of the pass, which may be
// planned in tiles.
func (s *spy) LineSums(columns, diagonals, q device.Tensor, kv device.KV, f device.First) {
	s.Ops.LineSums(columns, diagonals, q, kv, f)
	s.note(q, kv, device.Plan{}, nil)
	s.audit.scans[len(s.audit.scans)-1].pass = true
}

// MeanKeys notes all keys for the last row.
func (s *spy) MeanKeys(dst device.Tensor, kv device.KV, block int) {
	s.Ops.MeanKeys(dst, kv, block)
	sel := readSelection(s.audit.dev, kv, 1, device.Plan{})
	sel.Heads = 1
	s.audit.scans = append(s.audit.scans, scan{Selection: sel, pass: true})
}

// AddWeights notes the keys of the plan whose weights are added up.
func (s *spy) AddWeights(sum, q device.Tensor, kv device.KV, p device.Plan) {
	s.Ops.AddWeights(sum, q, kv, p)
	s.note(q, kv, p, nil)
}

// note keeps what the heads of rows read of a plan.
func (s *spy) note(q device.Tensor, kv device.KV, p device.Plan, skip []bool) {
	sel := readSelection(s.audit.dev, kv, q.Dim(0), p)
	sel.Heads = q.Dim(1)
	s.audit.scans = append(s.audit.scans, scan{Selection: sel, skip: skip})
}

// of is what a scan read for a row, the one at pos, and a query head of the model.
func (s *scan) of(row, pos, head int) []int32 {
	head = min(head, s.Heads-1)
	if s.pass {
		row = slices.Index(s.Pos, pos)
	}
	if row < 0 || row >= len(s.Pos) || s.Pos[row] != pos || s.skip != nil && s.skip[row*s.Heads+head] {
		return nil
	}
	keys, _ := s.Keys(row, head)
	return keys
}
