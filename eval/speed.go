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
	// Open makes a runner with room for so many sequences of so many tokens. The
	// measurement closes it.
	Open func(context, slots int) (*engine.Runner, error)
	// Count asks how much the attention read, by an untimed pass of each task.
	Count bool
}

// SpeedOptions says what is timed and how often.
type SpeedOptions struct {
	Tasks []Task
	Steps int // decode steps of a run
	Reps  int // runs of a task and side
	Batch int // sequences of a decode step; 0 is 1
	// Fill is the tokens that are computed before a decode step, rounded up to a
	// page; the rest of the cache is copies of them. 0 is a page.
	Fill int
	// Begin is called before each run, with the index of its side; it may be nil.
	Begin func(t Task, side int)
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
	TokS     float64 // the median of Runs, of all sequences together
	LimitS   float64 // tokens per second that the roofline allows; 0 is unknown
	Bound    string  // what bounds it: memory or compute
	Fraction float64 // TokS / LimitS
	// Work is that of a prefill or a step with what its attention reads, and
	// Attention the part of it that is the attention's own.
	Work, Attention Achieved
	// Select and Attend are how long the attention of one prefill or one step
	// took to decide what to read, and to read it: means over the runs.
	Select, Attend time.Duration
	// Read is what the attention kept and read of a prefill or a step; nil where
	// nobody asked.
	Read *engine.AuditCell
	// KVBytes is the memory of the cache at the end of a run, StateBytes what the
	// attention keeps besides.
	KVBytes, StateBytes int
}

// Achieved is work and how fast it was done. The shares are of what the device
// reaches at best, 0 where that is unknown.
type Achieved struct {
	Work
	Seconds      float64
	OfRead       float64 // of the rate of memory
	OfProduct    float64 // of the rate of products
	LimitSeconds float64
}

// achieved is work that took so long on a device with these peaks.
func achieved(w Work, seconds float64, p device.Roofline) Achieved {
	r := Achieved{Work: w, Seconds: seconds}
	if seconds <= 0 {
		return r
	}
	if r.LimitSeconds, _ = w.Limit(p); r.LimitSeconds > 0 {
		read, compute := w.Times(p)
		r.OfRead, r.OfProduct = read/seconds, compute/seconds
	}
	return r
}

// Rates are bytes and operations per second.
func (r Achieved) Rates() (bytes, ops float64) {
	if r.Seconds <= 0 {
		return 0, 0
	}
	return r.Bytes / r.Seconds, (r.IntOps + r.FloatOps) / r.Seconds
}

// MeasureSpeed times the tasks in order, each on all sides in turns: one order,
// then the other. It returns a row for each task and side. When ctx is done it
// returns the tasks that were finished and the error of ctx.
func MeasureSpeed(ctx context.Context, sides []Side, vocab int, b Budget, p device.Roofline, o SpeedOptions) ([]Speed, error) {
	m := &meter{sides: sides, SpeedOptions: o, rng: rand.New(rand.NewPCG(1, 2)), vocab: vocab}
	defer m.close()
	var all []Speed
	for _, t := range o.Tasks {
		rows, err := m.task(ctx, t)
		if err != nil {
			return all, err
		}
		for i := range rows {
			rows[i].compare(b, p, max(o.Batch, 1))
		}
		all = append(all, rows...)
	}
	return all, nil
}

// task runs a task on all sides.
func (m *meter) task(ctx context.Context, t Task) ([]Speed, error) {
	rows := make([]Speed, len(m.sides))
	for rep := range m.Reps {
		for i := range m.sides {
			if rep%2 == 1 {
				i = len(m.sides) - 1 - i
			}
			if m.Begin != nil {
				m.Begin(t, i)
			}
			if err := m.use(ctx, i); err != nil {
				return nil, err
			}
			if rep == 0 {
				if err := m.firstPasses(ctx, t); err != nil {
					return nil, err
				}
			}
			rate, err := m.run(ctx, t)
			if err != nil {
				return nil, err
			}
			s := &rows[i]
			s.Task, s.Side, s.Runs, s.KVBytes, s.StateBytes = t, i, append(s.Runs, rate), m.runner.KVBytes(), m.runner.Policy().Size()
			s.Select += m.took.Select / time.Duration(m.Reps)
			s.Attend += m.took.Attend / time.Duration(m.Reps)
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

// compare fills in the median and the limit.
func (s *Speed) compare(b Budget, p device.Roofline, batch int) {
	s.TokS = median(s.Runs)
	share := Everything
	if s.Read != nil {
		share = Share{s.Read.Density, s.Read.KRead, s.Read.VRead}
	}
	work, attention := b.Decode(s.Len, batch, share)
	tokens := float64(batch)
	if s.Phase == Prefill {
		work, attention = b.Prefill(s.Len, share)
		tokens = float64(s.Len)
	}
	s.Work = achieved(work, tokens/s.TokS, p)
	s.Attention = achieved(attention, (s.Select + s.Attend).Seconds(), p)
	if _, s.Bound = work.Limit(p); s.Work.LimitSeconds > 0 {
		s.LimitS = tokens / s.Work.LimitSeconds
		s.Fraction = s.TokS / s.LimitS
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

// meter runs tasks on the sequences of one side: a prompt goes to the first of
// them, a step to all.
type meter struct {
	SpeedOptions
	sides  []Side
	side   int // whose runner is open
	runner *engine.Runner
	seqs   []*engine.Sequence
	watch  *engine.Stopwatch
	took   engine.Times // what attention took in a prefill or a step of the last run
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
	n := max(m.Batch, 1)
	r, err := m.sides[side].Open(m.Context(), n)
	if err != nil {
		return err
	}
	m.runner, m.side, m.watch, m.seqs = r, side, r.Time(), nil
	for range n {
		s, err := r.Open()
		if err != nil {
			return err
		}
		m.seqs = append(m.seqs, s)
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

// countedPasses is about how many passes of a long prompt are audited, spread
// evenly.
const countedPasses = 8

// count runs a task once more under an audit, which tells what was read, and
// closes the runner, which is slow from then on. It audits one row of some prefill
// passes, or one decode step: the second, if a run has two, since in the first one cis may
// select for a whole block.
func (m *meter) count(ctx context.Context, t Task) (*engine.AuditCell, error) {
	defer m.close()
	m.watch.Stop()
	m.truncate(0)
	ids := m.tokens(t.Len)
	if t.Phase == Decode {
		if err := m.fill(ctx, t.Len); err != nil {
			return nil, err
		}
		if m.Steps > 1 {
			if err := m.step(ctx, 1); err != nil {
				return nil, err
			}
		}
	}
	audit, err := m.runner.Audit(engine.AuditConfig{Rows: 1, Passes: t.Len / m.runner.PassRows() / countedPasses})
	if err != nil {
		return nil, err
	}
	if t.Phase == Decode {
		err = m.step(ctx, 1)
	} else {
		err = m.seqs[0].Prefill(ctx, ids, engine.PrefillOptions{})
	}
	if err != nil {
		return nil, err
	}
	for _, p := range audit.Report().Phases {
		if p.Phase == string(t.Phase) && !p.Mean.Unmeasured {
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

// truncate keeps the first n tokens of each sequence.
func (m *meter) truncate(n int) {
	for _, s := range m.seqs {
		s.Truncate(n)
	}
}

// warmUp brings the weights into memory and the threads to speed.
func (m *meter) warmUp(ctx context.Context) error {
	for _, s := range m.seqs {
		if err := s.Prefill(ctx, m.tokens(device.PageLen), engine.PrefillOptions{}); err != nil {
			return err
		}
	}
	return m.step(ctx, 2)
}

// firstPasses computes passes as long as those of a prompt, its last too: a GPU looks
// for a kernel for every new shape of a product, which takes longer than a short prompt.
func (m *meter) firstPasses(ctx context.Context, t Task) error {
	rows := m.runner.PassRows()
	if t.Phase != Prefill || rows == engine.ChunkLen {
		return nil
	}
	m.truncate(0)
	return m.seqs[0].Prefill(ctx, m.tokens(min(t.Len, rows+t.Len%rows)), engine.PrefillOptions{})
}

// run times a task once, in tokens per second.
func (m *meter) run(ctx context.Context, t Task) (float64, error) {
	m.truncate(0)
	if t.Phase == Decode {
		return m.runDecode(ctx, t.Len)
	}
	ids := m.tokens(t.Len)
	m.watch.Reset()
	start := time.Now()
	err := m.seqs[0].Prefill(ctx, ids, engine.PrefillOptions{})
	rate := float64(t.Len) / time.Since(start).Seconds()
	m.took = m.watch.Prefill
	return rate, err
}

// watchedSteps are the decode steps of a run that a stopwatch watches which makes
// them slower: others than those that are timed. A block of cis is as long, so that
// selecting once in a block counts once.
const watchedSteps = 16

// runDecode times steps behind n tokens.
func (m *meter) runDecode(ctx context.Context, n int) (float64, error) {
	if err := m.fill(ctx, n); err != nil {
		return 0, err
	}
	marks := m.watch.Marks()
	if marks {
		m.watch.Stop()
	}
	rate, err := m.timeSteps(ctx, n, m.Steps)
	watched := m.Steps
	if marks && err == nil {
		m.watch = m.runner.Time()
		watched = min(watchedSteps, m.Steps)
		_, err = m.timeSteps(ctx, n, watched)
	}
	m.took = m.watch.Decode
	m.took.Select /= time.Duration(watched)
	m.took.Attend /= time.Duration(watched)
	return rate, err
}

// timeSteps is the tokens per second of some decode steps behind n tokens.
func (m *meter) timeSteps(ctx context.Context, n, steps int) (float64, error) {
	if err := m.step(ctx, 1); err != nil { // what a change of phase costs is not of the step
		return 0, err
	}
	if err := m.back(ctx, n); err != nil {
		return 0, err
	}
	m.watch.Reset()
	start := time.Now()
	err := m.step(ctx, steps)
	rate := float64(steps*len(m.seqs)) / time.Since(start).Seconds()
	if err != nil {
		return 0, err
	}
	return rate, m.back(ctx, n)
}

// back drops what lies behind n tokens. Where the attention keeps whole pages only, it
// computes those of the last one again, the last of them in a step, so that those after
// it pay for no change of phase.
func (m *meter) back(ctx context.Context, n int) error {
	kept := n
	for _, s := range m.seqs {
		kept = s.Truncate(n)
	}
	if kept == n {
		return nil
	}
	if missing := n - 1 - kept; missing > 0 {
		for _, s := range m.seqs {
			if err := s.Prefill(ctx, m.tokens(missing), engine.PrefillOptions{}); err != nil {
				return err
			}
		}
	}
	return m.step(ctx, 1)
}

// fill stores n tokens in each sequence, the first of them computed and the others
// copies.
func (m *meter) fill(ctx context.Context, n int) error {
	first := max(m.Fill, 1) + device.PageLen - 1
	first = min(n, first-first%device.PageLen)
	if first == 0 {
		return nil
	}
	for _, s := range m.seqs {
		if err := s.Prefill(ctx, m.tokens(first), engine.PrefillOptions{}); err != nil {
			return err
		}
		if n > first {
			if err := s.Repeat(n - first); err != nil {
				return err
			}
		}
	}
	return nil
}

// step runs n decode steps, each queued while the one before is running.
func (m *meter) step(ctx context.Context, n int) (err error) {
	defer func() {
		if waited := m.runner.Wait(); err == nil {
			err = waited
		}
	}()
	for range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i, id := range m.tokens(len(m.seqs)) {
			if err := m.seqs[i].Push(id); err != nil {
				return err
			}
		}
		if err := m.runner.Queue(m.seqs...); err != nil {
			return err
		}
	}
	return nil
}
