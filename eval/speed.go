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

// Side is one of the settings that are compared.
type Side struct {
	// Open makes a runner with room for so many tokens. The measurement closes it.
	Open func(context int) (*engine.Runner, error)
	// Count asks how much the attention read, by an untimed pass of each task.
	Count bool
}

// SpeedOptions says what is timed and how often.
type SpeedOptions struct {
	Tasks []Task
	Steps int // decode steps of a run
	Reps  int // runs of a task and side
	// Fill is the tokens that are computed before a decode step, rounded up to a
	// page; the rest of the cache is copies of them. 0 is a page.
	Fill int
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

// Speed is the runs of a task on one side, in tokens per second, and the limit
// beside them.
type Speed struct {
	Task
	Side     int // index
	Runs     []float64
	TokS     float64 // the median of Runs
	FloorS   float64 // tokens per second that the floor of the time allows; 0 is unknown
	Limit    string  // what sets it: memory or compute
	Fraction float64 // TokS / FloorS
	// Choose and Attend are how long the attention of one prefill or one step
	// took to decide what to read, and to read it: means over the runs.
	Choose, Attend time.Duration
	// Read is what the attention kept and read of a prefill or a step; nil where
	// nobody asked.
	Read *engine.AuditCell
	// KVBytes is the memory of the cache at the end of a run.
	KVBytes int
}

// MeasureSpeed times the tasks in order, each on all sides in turns: one order,
// then the other. It returns a row for each task and side. When ctx is done it
// returns the tasks that were finished and the error of ctx.
func MeasureSpeed(ctx context.Context, sides []Side, vocab int, b Budget, p device.Peaks, o SpeedOptions) ([]Speed, error) {
	m := &meter{sides: sides, SpeedOptions: o, rng: rand.New(rand.NewPCG(1, 2)), vocab: vocab}
	defer m.close()
	var all []Speed
	for _, t := range o.Tasks {
		rows, err := m.task(ctx, t)
		if err != nil {
			return all, err
		}
		for i := range rows {
			rows[i].compare(b, p)
		}
		all = append(all, rows...)
	}
	return all, nil
}

// task runs a task on all sides.
func (m *meter) task(ctx context.Context, t Task) ([]Speed, error) {
	rows := make([]Speed, len(m.sides))
	passes := time.Duration(m.Reps)
	if t.Phase == Decode {
		passes *= time.Duration(m.Steps)
	}
	for rep := range m.Reps {
		for i := range m.sides {
			if rep%2 == 1 {
				i = len(m.sides) - 1 - i
			}
			if err := m.use(ctx, i); err != nil {
				return nil, err
			}
			rate, err := m.run(ctx, t)
			if err != nil {
				return nil, err
			}
			s := &rows[i]
			s.Task, s.Side, s.Runs, s.KVBytes = t, i, append(s.Runs, rate), m.runner.KVBytes()
			s.Choose += m.took.Select / passes
			s.Attend += m.took.Attend / passes
			if rep == m.Reps-1 && m.sides[i].Count {
				if s.Read, err = m.count(ctx, t); err != nil {
					return nil, err
				}
			}
			if m.done++; m.Progress != nil {
				m.Progress(m.done, len(m.Tasks)*m.Reps*len(m.sides))
			}
		}
	}
	return rows, nil
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

// meter runs tasks on one sequence of one side.
type meter struct {
	SpeedOptions
	sides  []Side
	side   int // whose runner is open
	runner *engine.Runner
	seq    *engine.Sequence
	watch  *engine.Stopwatch
	took   engine.Times // what attention took in the last run
	done   int          // runs
	rng    *rand.Rand
	vocab  int
}

// use opens the runner of a side, unless it is open, and closes the one before:
// the caches of all sides would not fit beside each other.
func (m *meter) use(ctx context.Context, side int) error {
	if m.runner != nil && m.side == side {
		return nil
	}
	if err := m.close(); err != nil {
		return err
	}
	r, err := m.sides[side].Open(m.Context())
	if err != nil {
		return err
	}
	m.runner, m.side, m.watch = r, side, r.Time()
	if m.seq, err = r.Open(); err != nil {
		return err
	}
	return m.warmUp(ctx)
}

// close closes the runner that is open.
func (m *meter) close() error {
	r := m.runner
	if m.runner = nil; r == nil {
		return nil
	}
	return r.Close()
}

// count runs a task once more under an audit, which tells what was read, and
// closes the runner, which is slow from then on. It audits one row of a prefill
// pass and one decode step.
func (m *meter) count(ctx context.Context, t Task) (*engine.AuditCell, error) {
	defer m.close()
	m.seq.Truncate(0)
	ids := m.tokens(t.Len)
	if t.Phase == Decode {
		if err := m.fill(ctx, t.Len); err != nil {
			return nil, err
		}
	}
	audit, err := m.runner.Audit(engine.AuditConfig{Rows: 1})
	if err != nil {
		return nil, err
	}
	if t.Phase == Decode {
		err = m.step(ctx, 1)
	} else {
		err = m.seq.Prefill(ctx, ids, engine.PrefillOptions{})
	}
	if err != nil {
		return nil, err
	}
	for _, p := range audit.Report().Phases {
		if p.Phase == string(t.Phase) {
			return &p.Mean, nil
		}
	}
	return nil, nil
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
		err := m.step(ctx, m.Steps)
		rate := float64(m.Steps) / time.Since(start).Seconds()
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

// fill stores n tokens, the first of them computed and the others copies.
func (m *meter) fill(ctx context.Context, n int) error {
	first := max(m.Fill, 1) + device.PageLen - 1
	first = min(n, first-first%device.PageLen)
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
