package engine

import (
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/sparse"
)

// Stopwatch times the attention of a policy, selection apart from attention proper: by
// the device's clock where it has one, and otherwise by the host's, which is exact where
// calls return when they are done, as on the CPU.
type Stopwatch struct {
	Prefill, Decode Times

	passes *passes
	clock  device.Clock // nil without one
	laps   []lap        // of this pass, between marks of clock
	marks  int          // number of marks of this pass
	last   time.Time    // without a clock
}

// Times is how long a phase's attention took.
type Times struct {
	Select time.Duration // observing and planning
	Attend time.Duration // attention over the plan
	Sparse int           // plans that are not dense, or that skip rows
}

// lap is the interval between two marks of a pass.
type lap struct {
	from   int // the mark that begins it; the next one ends it
	decode bool
	attend bool // attention, or selection
}

// Time begins to time the attention.
func (p *passes) Time() *Stopwatch {
	s := &Stopwatch{passes: p}
	s.clock, _ = p.dev.(device.Clock)
	p.watch(s)
	return s
}

// Stop ends the timing. The times stay.
func (s *Stopwatch) Stop() { s.passes.unwatch(s) }

// Reset zeroes the times.
func (s *Stopwatch) Reset() { s.Prefill, s.Decode = Times{}, Times{} }

// Marks reports whether the times are marks in the device's queue, which make a
// step a little slower. Without them a stopwatch costs next to nothing.
func (s *Stopwatch) Marks() bool { return s.clock != nil }

func (s *Stopwatch) times(decode bool) *Times {
	if decode {
		return &s.Decode
	}
	return &s.Prefill
}

// count adds a lap to the times of its phase.
func (s *Stopwatch) count(l lap, d time.Duration) {
	if t := s.times(l.decode); l.attend {
		t.Attend += d
	} else {
		t.Select += d
	}
}

// lapped ends a lap and begins the next.
func (s *Stopwatch) lapped(p *sparse.Pass, attend bool) {
	l := lap{from: s.marks - 1, decode: p.Decode, attend: attend}
	if s.clock != nil {
		s.laps = append(s.laps, l)
		s.mark()
		return
	}
	now := time.Now()
	s.count(l, now.Sub(s.last))
	s.last = now
}

// mark sets the next mark of the pass.
func (s *Stopwatch) mark() {
	device.Do(s.passes.dev.Queue(), device.Mark{I: s.marks})
	s.marks++
}

// collect adds the laps of a pass that is done, or of several launches of which this is
// the last.
func (s *Stopwatch) collect(laps []lap) error {
	for _, l := range laps {
		d, err := s.clock.Between(l.from, l.from+1)
		if err != nil {
			return err
		}
		s.count(l, d)
	}
	s.laps, s.marks = s.laps[:0], 0
	return nil
}

// Begin starts a layer.
func (s *Stopwatch) Begin(*sparse.Pass, int, device.Tensor, device.Tensor) {
	if s.clock != nil {
		s.mark()
		return
	}
	s.last = time.Now()
}

// Planned ends selection.
func (s *Stopwatch) Planned(p *sparse.Pass, layer int, plan device.Plan) {
	s.lapped(p, false)
	if !plan.Dense() || !s.passes.policy.Frozen(p, layer).Rows.Empty() {
		s.times(p.Decode).Sparse++
	}
}

// Attended ends attention.
func (s *Stopwatch) Attended(p *sparse.Pass, _ int, _, _ device.Tensor, _ device.Plan) {
	s.lapped(p, true)
}
