package engine

import (
	"slices"

	"github.com/gollm/gollm/device"
)

// keyReads is a queue that records which stored keys the planning of a pass reads to
// select positions, for an audit or a meter.
type keyReads struct {
	device.Queue
	dev   device.Device
	scans *[]scan
	read  func(dev device.Device, kv device.KV, rows int, p device.Plan) Selection
}

// scan is the keys that a call read to select positions.
type scan struct {
	Selection
	skip []bool // [rows, heads]: these read none; nil is nobody
	pass bool   // of the whole pass, before its rows are planned tile by tile
}

// Do queues a call, and records the keys that it reads to select.
func (r *keyReads) Do(c device.Call) {
	r.Queue.Do(c)
	if read := keyReaders[device.Name(c)]; read != nil {
		read(r, c)
	}
}

// keyReaders are the calls that read stored keys to select positions, by name, and which
// keys each of them reads.
var keyReaders = map[string]func(r *keyReads, c device.Call){
	"Score(ExactScores)": func(r *keyReads, call device.Call) {
		c := call.(*device.Score)
		p := c.Plan
		if c.Region != device.Planned {
			// Sinks and recent window, which are not in SelectedRegion, are read anyway.
			p = device.Plan{Span: p.Span}
		}
		r.record(c.Q, c.KV, p, nil)
	},
	// Its rows are the last of the pass, which may be planned tile by tile.
	"Score(VerticalSlash)": func(r *keyReads, call device.Call) {
		c := call.(*device.Score)
		r.record(c.Q, c.KV, device.Plan{}, nil)
		(*r.scans)[len(*r.scans)-1].pass = true
	},
	"ReuseSelection": (*keyReads).reuseSelection,
	// The keys of the selected region are read once for all rows of a group.
	"Select(WithinMargin)": func(r *keyReads, call device.Call) {
		c := call.(*device.Select)
		r.add(scan{}, c.Q.Dim(1), c.KV, c.Rows*c.KV.Len.Dim(0), device.Plan{Span: c.Plan.Span})
	},
	"Sample(ValueSample)": func(r *keyReads, call device.Call) {
		c := call.(*device.Sample)
		r.record(c.Q, c.KV, c.Plan, nil)
	},
	// All keys, counted for the last row.
	"Summarize(MeanKeys)": func(r *keyReads, call device.Call) {
		r.add(scan{pass: true}, 1, call.(*device.Summarize).KV, 1, device.Plan{})
	},
	"Summarize(AttentionMass)": func(r *keyReads, call device.Call) {
		c := call.(*device.Summarize)
		r.record(c.X, c.KV, c.Plan, nil)
	},
}

// reuseSelection records the keys of the heads that missed the selection cache.
func (r *keyReads) reuseSelection(call device.Call) {
	c := call.(*device.ReuseSelection)
	if !c.Keys.Absent() {
		return // it ranks by an index of the keys
	}
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	found := make([]int32, c.Cache.Found.Len())
	_ = read(r.dev, found, c.Cache.Found) // a failure sticks to the device
	skip := make([]bool, rows*heads)
	for i := range skip {
		row, head, headGroups := i/heads, i%heads, len(found)/rows
		skip[i] = found[row*headGroups+head*headGroups/heads] >= 0
	}
	r.record(c.Q, c.KV, device.Plan{Span: c.Plan.Span}, skip)
}

// record adds the keys that rows of q read of a plan.
func (r *keyReads) record(q device.Tensor, kv device.KV, p device.Plan, skip []bool) {
	r.add(scan{skip: skip}, q.Dim(1), kv, q.Dim(0), p)
}

// add adds the keys that so many heads and rows read of a plan.
func (r *keyReads) add(n scan, heads int, kv device.KV, rows int, p device.Plan) {
	n.Selection = r.read(r.dev, kv, rows, p)
	n.Heads = heads
	*r.scans = append(*r.scans, n)
}

// of is the keys that a scan read for a row, the one at pos, and a query head of the
// model.
func (s *scan) of(row, pos, head int) []int32 {
	if row = s.row(row, pos, head); row < 0 {
		return nil
	}
	keys, _ := s.Keys(row, min(head, s.Heads-1))
	return keys
}

// row is the row of a scan that a row of a plan, the one at pos, is; -1 where a query head
// of it has read nothing.
func (s *scan) row(row, pos, head int) int {
	if s.pass {
		row = slices.Index(s.Pos, pos)
	}
	if row < 0 || row >= len(s.Pos) || s.Pos[row] != pos || s.skip != nil && s.skip[row*s.Heads+min(head, s.Heads-1)] {
		return -1
	}
	return row
}
