package eval

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
)

// Trace is what a device ran in a decode step, or in the passes of a prompt.
type Trace struct {
	Task
	Side     int             // index
	Untraced time.Duration   // the same as it was measured: the median of its runs
	Captured bool            // as it was measured, a step was one launch
	Units    []engine.Unit   // in order
	Peaks    device.Roofline // that their costs are held against
}

// Sum is the time of all units.
func (t *Trace) Sum() (sum time.Duration) {
	for i := range t.Units {
		sum += t.Units[i].Time
	}
	return sum
}

// Span is the time from the beginning of the first unit to the end of the last.
func (t *Trace) Span() time.Duration { return spanOf(t.Units) }

func spanOf(units []engine.Unit) time.Duration {
	if len(units) == 0 {
		return 0
	}
	last := &units[len(units)-1]
	return last.Start + last.Time - units[0].Start
}

// Limit is the roofline of a cost: the seconds that its bytes or its operations need, and
// which of them it is, memory or compute; 0 where there are none or the peaks are unknown.
func (t *Trace) Limit(c device.Cost) (seconds float64, bound string) {
	if c == (device.Cost{}) {
		return 0, ""
	}
	return Work{Bytes: float64(c.Bytes), IntOps: float64(c.Int8), FloatOps: float64(c.Ops - c.Int8)}.Limit(t.Peaks)
}

// TraceGroup is all units of one name.
type TraceGroup struct {
	Name  string
	Count int
	Time  time.Duration
	Cost  device.Cost
	Limit float64 // seconds: the sum of those of the units
}

// Groups puts the units of one name together; those that took longest come first.
func (t *Trace) Groups() []TraceGroup {
	var all []TraceGroup
	at := map[string]int{}
	for i := range t.Units {
		u := &t.Units[i]
		n, ok := at[u.Name()]
		if !ok {
			n = len(all)
			at[u.Name()], all = n, append(all, TraceGroup{Name: u.Name()})
		}
		limit, _ := t.Limit(u.Cost)
		g := &all[n]
		g.Count++
		g.Time += u.Time
		g.Cost.Add(u.Cost)
		g.Limit += limit
	}
	slices.SortStableFunc(all, func(a, b TraceGroup) int { return cmp.Compare(b.Time, a.Time) })
	return all
}

// maxTimedTraces bounds the runs that are timed, all of which are kept until one is picked.
const maxTimedTraces = 15

// MeasureTrace runs what MeasureSpeed has measured once more, under the same options: once
// call by call, for what they cost, and Reps times, at most 15, to time them, of which the
// run of middle length is kept. All of these store the same tokens, so that what they select is the
// same. The last token before a step is that of a step too.
func MeasureTrace(ctx context.Context, sides []Side, vocab int, measured []Speed, p device.Roofline, o SpeedOptions) ([]Trace, error) {
	m := &meter{sides: sides, SpeedOptions: o, vocab: vocab}
	defer m.close()
	var all []Trace
	for i, s := range measured {
		m.rng = tokenSource()
		if err := m.use(ctx, s.Side); err != nil {
			return nil, err
		}
		m.watch.Stop() // it would be part of what is traced
		units, err := m.trace(ctx, s.Task)
		if err != nil {
			return nil, err
		}
		all = append(all, Trace{
			Task: s.Task, Side: s.Side, Units: units, Peaks: p,
			Untraced: s.passTime(max(o.Batch, 1)), Captured: s.Phase == Decode && m.runner.Replays(),
		})
		if o.Progress != nil {
			o.Progress(i+1, len(measured))
		}
	}
	return all, nil
}

// tokenSource is where a trace's tokens come from, always the same.
func tokenSource() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// passTime is how long a prefill or a step of a batch took.
func (s *Speed) passTime(batch int) time.Duration {
	if s.TokS <= 0 {
		return 0
	}
	tokens := float64(batch)
	if s.Phase == Prefill {
		tokens = float64(s.Len)
	}
	return time.Duration(math.Round(tokens / s.TokS * float64(time.Second)))
}

// trace is the units of a task: of several runs, those of the one in the middle.
func (m *meter) trace(ctx context.Context, t Task) ([]engine.Unit, error) {
	calls, err := watched(ctx, m, t, m.runner.TraceCalls)
	if err != nil {
		return nil, err
	}
	var runs [][]engine.Unit
	for range min(m.Reps, maxTimedTraces) {
		units, err := watched(ctx, m, t, func() (*engine.UnitTrace, error) { return m.runner.TraceUnits(calls) })
		if err != nil {
			return nil, err
		}
		runs = append(runs, units)
	}
	slices.SortFunc(runs, func(a, b []engine.Unit) int { return cmp.Compare(spanOf(a), spanOf(b)) })
	return runs[(len(runs)-1)/2], nil
}

// watched runs a task from an empty sequence on, and is what a trace of its last part saw: a
// step, or the whole prompt.
func watched[T any, Trace interface{ Stop() ([]T, error) }](ctx context.Context, m *meter, t Task, begin func() (Trace, error)) ([]T, error) {
	m.rng = tokenSource()
	m.truncate(0)
	if t.Phase == Decode {
		if err := m.fill(ctx, t.Len-1); err != nil {
			return nil, err
		}
		if err := m.step(ctx, 1); err != nil {
			return nil, err
		}
	}
	trace, err := begin()
	if err != nil {
		return nil, err
	}
	if t.Phase == Decode {
		err = m.step(ctx, 1)
	} else {
		err = m.seqs[0].Prefill(ctx, m.tokens(t.Len), engine.PrefillOptions{})
	}
	seen, stopped := trace.Stop()
	if err == nil {
		err = stopped
	}
	return seen, err
}
