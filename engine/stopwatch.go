package engine

import (
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/sparse"
)

// Stopwatch times the attention of a policy, choosing apart from reading. It
// counts what a device has done when a call returns, which is all of it on the
// cpu.
type Stopwatch struct {
	Prefill, Decode Times

	last time.Time
}

// Times is how long a phase's attention took.
type Times struct {
	Select time.Duration // to observe and to plan
	Attend time.Duration // to read what was planned
}

// Time begins to time the attention.
func (p *passes) Time() *Stopwatch {
	s := &Stopwatch{}
	p.watch(s)
	return s
}

func (s *Stopwatch) times(p *sparse.Pass) *Times {
	if p.Decode {
		return &s.Decode
	}
	return &s.Prefill
}

// lap returns the time since the last call and starts again.
func (s *Stopwatch) lap() time.Duration {
	now := time.Now()
	d := now.Sub(s.last)
	s.last = now
	return d
}

// Begin starts a layer.
func (s *Stopwatch) Begin(*sparse.Pass, int) { s.lap() }

// Planned ends the choosing.
func (s *Stopwatch) Planned(p *sparse.Pass, _ int, _ device.Plan) { s.times(p).Select += s.lap() }

// Attended ends the reading.
func (s *Stopwatch) Attended(p *sparse.Pass, _ int, _, _ device.Tensor, _ device.Plan) {
	s.times(p).Attend += s.lap()
}
