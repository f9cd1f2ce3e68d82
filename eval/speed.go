package eval

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
)

// Phase is a kind of pass.
type Phase string

// The phases.
const (
	Prefill Phase = "prefill"
	Decode  Phase = "decode"
)

// Task is one thing to time.
type Task struct {
	Phase Phase
	Len   int // tokens of the prompt, or tokens before the first step
}

// Tasks makes the tasks of some prompt lengths and some depths.
func Tasks(prefill, decode []int) []Task {
	var all []Task
	for _, n := range prefill {
		all = append(all, Task{Prefill, n})
	}
	for _, n := range decode {
		all = append(all, Task{Decode, n})
	}
	return all
}

// SpeedOptions says what is timed and how often.
type SpeedOptions struct {
	Tasks []Task
	Steps int // decode steps of a run
	Reps  int // runs of a task
	// Progress is called after each run; it may be nil.
	Progress func(done, total int)
}

// Context is the tokens that a runner must have room for.
func (o SpeedOptions) Context() int {
	n := 2 * device.PageLen // the warm-up
	for _, t := range o.Tasks {
		n = max(n, t.Len+o.Steps)
	}
	return n
}

// Speed is the runs of a task, in tokens per second, and the limit beside them.
type Speed struct {
	Task
	Runs     []float64
	TokS     float64 // the median of Runs
	FloorS   float64 // tokens per second that the floor of the time allows; 0 is unknown
	Limit    string  // what sets it: memory or compute
	Fraction float64 // TokS / FloorS
	// Choose and Attend are how long the attention of one prefill or one step
	// took to decide what to read, and to read it: means over the runs.
	Choose, Attend time.Duration
}

// MeasureSpeed times the tasks in order. The runner needs room for
// [SpeedOptions.Context] tokens. When ctx is done it returns the tasks that were
// finished and the error of ctx.
func MeasureSpeed(ctx context.Context, r *engine.Runner, vocab int, b Budget, p device.Peaks, o SpeedOptions) ([]Speed, error) {
	seq, err := r.Open()
	if err != nil {
		return nil, err
	}
	defer seq.Close()
	m := &meter{runner: r, seq: seq, watch: r.Time(), steps: o.Steps, rng: rand.New(rand.NewPCG(1, 2)), vocab: vocab}
	if err := m.warmUp(ctx); err != nil {
		return nil, err
	}
	var all []Speed
	for i, t := range o.Tasks {
		s := Speed{Task: t}
		for rep := range o.Reps {
			rate, err := m.run(ctx, t)
			if err != nil {
				return all, err
			}
			s.Runs = append(s.Runs, rate)
			passes := time.Duration(o.Reps)
			if t.Phase == Decode {
				passes *= time.Duration(o.Steps)
			}
			s.Choose += m.took.Select / passes
			s.Attend += m.took.Attend / passes
			if o.Progress != nil {
				o.Progress(i*o.Reps+rep+1, len(o.Tasks)*o.Reps)
			}
		}
		s.compare(b, p)
		all = append(all, s)
	}
	return all, nil
}

// compare fills in the median and the floor.
func (s *Speed) compare(b Budget, p device.Peaks) {
	s.TokS = median(s.Runs)
	work, tokens := b.Decode(s.Len), 1.0
	if s.Phase == Prefill {
		work, tokens = b.Prefill(s.Len), float64(s.Len)
	}
	var seconds float64
	if seconds, s.Limit = work.Floor(p); seconds > 0 {
		s.FloorS = tokens / seconds
		s.Fraction = s.TokS / s.FloorS
	}
}

// median is the middle of numbers, the mean of two where their count is even.
func median(numbers []float64) float64 {
	n := len(numbers)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// meter runs tasks on one sequence.
type meter struct {
	runner *engine.Runner
	seq    *engine.Sequence
	watch  *engine.Stopwatch
	took   engine.Times // what attention took in the last run
	steps  int
	rng    *rand.Rand
	vocab  int
}

// tokens is n random ids: what they say does not matter.
func (m *meter) tokens(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(m.rng.IntN(m.vocab))
	}
	return ids
}

// warmUp brings the weights into memory and the threads to speed.
func (m *meter) warmUp(ctx context.Context) error {
	if err := m.seq.Prefill(ctx, m.tokens(device.PageLen), engine.PrefillOptions{}); err != nil {
		return err
	}
	return m.step(ctx, 2)
}

// run times a task once, in tokens per second.
func (m *meter) run(ctx context.Context, t Task) (float64, error) {
	m.seq.Truncate(0)
	if t.Phase == Decode {
		if err := m.fill(ctx, t.Len); err != nil {
			return 0, err
		}
		if err := m.step(ctx, 1); err != nil { // what a change of phase costs is not of the step
			return 0, err
		}
		m.seq.Truncate(t.Len)
		*m.watch = engine.Stopwatch{}
		start := time.Now()
		err := m.step(ctx, m.steps)
		rate := float64(m.steps) / time.Since(start).Seconds()
		m.took = m.watch.Decode
		return rate, err
	}
	ids := m.tokens(t.Len)
	*m.watch = engine.Stopwatch{}
	start := time.Now()
	err := m.seq.Prefill(ctx, ids, engine.PrefillOptions{})
	rate := float64(t.Len) / time.Since(start).Seconds()
	m.took = m.watch.Prefill
	return rate, err
}

// fill stores n tokens, no more than a page of them computed.
func (m *meter) fill(ctx context.Context, n int) error {
	first := min(n, device.PageLen)
	if first == 0 {
		return nil
	}
	if err := m.seq.Prefill(ctx, m.tokens(first), engine.PrefillOptions{}); err != nil {
		return err
	}
	if n == first {
		return nil
	}
	return m.seq.Repeat(n - first)
}

// step runs n decode steps.
func (m *meter) step(ctx context.Context, n int) error {
	for _, id := range m.tokens(n) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := m.seq.Push(id); err != nil {
			return err
		}
		if err := m.runner.Step(m.seq); err != nil {
			return err
		}
	}
	return nil
}
