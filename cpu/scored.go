package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
)

// scored is the exact scores of the selected region that the last call which made any left in
// memory. Attend and ResidualSample of the same queries and keys read them in place of the keys:
// a selection by exact scores then costs no second reading. They end with the first call or write
// that changes what they were made of, or where they are, and at a Sync.
type scored struct {
	known  bool
	scores device.Tensor // f32 [rows, heads, width], q·k/√dim
	q      device.Tensor // f32 [rows, heads, dim]
	kv     device.KV
	plan   device.Plan // of which the selected region counts
	heads  []bool      // [rows, heads]: whose scores these are; empty: all

	access device.Access // scratch
}

// made says that a call has made scores of its selected region.
func (s *scored) made(scores, q device.Tensor, kv device.KV, plan device.Plan) {
	s.known, s.scores, s.q, s.kv, s.plan, s.heads = true, scores, q, kv, plan, s.heads[:0]
}

// follow ends the scores where a call changes them.
func (s *scored) follow(c device.Call) {
	if !s.known {
		return
	}
	s.access.Reset()
	c.Access(&s.access)
	for _, t := range s.access.Writes {
		s.written(t)
	}
}

// written ends the scores where they depend on a tensor.
func (s *scored) written(t device.Tensor) {
	if s.known && (t.Overlaps(s.scores) || t.Overlaps(s.q) || t.Overlaps(s.kv.K) || t.Overlaps(s.kv.Pages) || t.Overlaps(s.kv.Len)) {
		s.known = false
	}
}

// knownScores is scores that a call may read; the zero value has none.
type knownScores struct {
	scores       []float32 // [rows, heads, width]
	heads, width int
	made         []bool // [rows, heads]; empty: all
}

// of is the scores of q and the selected region of plan, one row for each slot.
func (s *scored) of(q device.Tensor, kv device.KV, plan device.Plan) knownScores {
	if !s.known || s.q != q || s.kv.K != kv.K || s.kv.Pages != kv.Pages || s.kv.Len != kv.Len || kv.Len.Dim(0) != q.Dim(0) {
		return knownScores{}
	}
	was := s.plan
	if was.Span != plan.Span || was.Sink != plan.Sink || was.Recent != plan.Recent || was.Align != plan.Align {
		return knownScores{}
	}
	return knownScores{f32s(s.scores), q.Dim(1), s.scores.Dim(2), s.heads}
}

// has reports whether heads lo to hi-1 of a row have scores.
func (s *knownScores) has(r, lo, hi int) bool {
	if s.scores == nil {
		return false
	}
	if len(s.made) > 0 {
		for _, m := range s.made[r*s.heads+lo : r*s.heads+hi] {
			if !m {
				return false
			}
		}
	}
	return true
}

// read sets dst to the scores of a head at positions of the selected region, in units of ln 2.
func (s *knownScores) read(dst []float32, r, head int, positions []int32) {
	x := row(s.scores, r*s.heads+head, s.width)
	dst = dst[:len(positions)]
	for i, j := range positions {
		dst[i] = x[j] * math.Log2E
	}
}
