package engine

import (
	"slices"

	"github.com/gollm/gollm/device"
)

// spy is a queue that notes which keys the planning of a pass reads to choose.
type spy struct {
	device.Queue
	audit *Audit
}

// scan is keys that were read to choose.
type scan struct {
	Selection
	skip []bool // [rows, heads]: these read none; nil is nobody
	pass bool   // by the pass, before its rows are planned in tiles
}

// Do queues a call, and notes what it reads to choose.
func (s *spy) Do(c device.Call) {
	s.Queue.Do(c)
	if note := notes[device.Name(c)]; note != nil {
		note(s, c)
	}
}

// notes are the calls that read keys to choose, by name, and what each of them reads.
var notes = map[string]func(s *spy, c device.Call){
	"Score(ExactScores)": func(s *spy, call device.Call) {
		c := call.(*device.Score)
		p := c.Plan
		if c.Region != device.Planned {
			// What SelectedRegion leaves out, sinks and recent window, is read anyway.
			p = device.Plan{Span: p.Span}
		}
		s.note(c.Q, c.KV, p, nil)
	},
	// Its rows are the last of the pass, which may be planned in tiles.
	"Score(VerticalSlash)": func(s *spy, call device.Call) {
		c := call.(*device.Score)
		s.note(c.Q, c.KV, device.Plan{}, nil)
		s.audit.scans[len(s.audit.scans)-1].pass = true
	},
	"ReuseSelection": (*spy).reuseSelection,
	// The keys of the middle are read once for all rows of the groups.
	"Select(WithinMargin)": func(s *spy, call device.Call) {
		c := call.(*device.Select)
		s.add(scan{}, c.Q.Dim(1), c.KV, c.Rows*c.KV.Len.Dim(0), device.Plan{Span: c.Plan.Span})
	},
	"Sample(ValueSample)": func(s *spy, call device.Call) {
		c := call.(*device.Sample)
		s.note(c.Q, c.KV, c.Plan, nil)
	},
	// All keys, for the last row.
	"Summarize(MeanKeys)": func(s *spy, call device.Call) {
		s.add(scan{pass: true}, 1, call.(*device.Summarize).KV, 1, device.Plan{})
	},
	"Summarize(AttentionMass)": func(s *spy, call device.Call) {
		c := call.(*device.Summarize)
		s.note(c.X, c.KV, c.Plan, nil)
	},
}

// reuseSelection notes the keys of heads that found nothing to use again.
func (s *spy) reuseSelection(call device.Call) {
	c := call.(*device.ReuseSelection)
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	found := make([]int32, c.Cache.Found.Len())
	_ = read(s.audit.dev, found, c.Cache.Found) // a failure sticks to the device
	skip := make([]bool, rows*heads)
	for i := range skip {
		row, head, sets := i/heads, i%heads, len(found)/rows
		skip[i] = found[row*sets+head*sets/heads] >= 0
	}
	s.note(c.Q, c.KV, device.Plan{Span: c.Plan.Span}, skip)
}

// note keeps what the heads of rows read of a plan.
func (s *spy) note(q device.Tensor, kv device.KV, p device.Plan, skip []bool) {
	s.add(scan{skip: skip}, q.Dim(1), kv, q.Dim(0), p)
}

// add keeps what so many heads and rows read of a plan.
func (s *spy) add(n scan, heads int, kv device.KV, rows int, p device.Plan) {
	n.Selection = readSelection(s.audit.dev, kv, rows, p)
	n.Heads = heads
	s.audit.scans = append(s.audit.scans, n)
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
