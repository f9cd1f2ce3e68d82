package serve

import (
	"errors"
	"slices"
	"time"

	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
)

// lane is the requests of one attention spec.
type lane struct {
	s       *Scheduler
	engine  *engine.Engine
	attn    int
	runner  *engine.Runner
	reuse   int  // see [sparse.Spec.PrefixUnit]; 0: no prefix is reused
	draws   bool // attention depends on [Request.Draw]
	meter   meter
	queue   []*task // in the order of arrival
	running []*task // admitted: they have a slot; in the order of arrival

	active []*engine.Sequence // of a step
	how    []sampling.Params
}

func newLane(s *Scheduler, e *engine.Engine, attn int, r *engine.Runner) *lane {
	l := &lane{s: s, engine: e, attn: attn, runner: r, meter: newMeter(e, r)}
	if spec := r.Policy().Spec(); !s.conf.NoPrefix {
		l.reuse, _ = spec.PrefixUnit()
		l.draws = spec.Draws()
	}
	return l
}

// busy reports whether the lane has requests.
func (l *lane) busy() bool { return len(l.queue)+len(l.running) > 0 }

// enqueue puts a request into the queue, in the order of arrival.
func (l *lane) enqueue(t *task) { l.queue = inOrder(l.queue, t) }

// inOrder inserts a request into a list in the order of arrival.
func inOrder(list []*task, t *task) []*task {
	i, _ := slices.BinarySearchFunc(list, t.order, func(other *task, order uint64) int {
		if other.order < order {
			return -1
		}
		return 1
	})
	return slices.Insert(list, i, t)
}

// without removes a request from a list.
func without(list []*task, t *task) []*task {
	return slices.DeleteFunc(list, func(other *task) bool { return other == t })
}

// next is the request that gets the next slot, nil where there is none or no slot.
func (l *lane) next() *task {
	if len(l.queue) == 0 || len(l.running) >= l.runner.Slots() {
		return nil
	}
	return l.queue[0]
}

// fits reports whether the tokens of a request fit while every running sequence may still take
// another block.
func (s *Scheduler) fits(t *task) bool { return s.available()-t.blocks() >= s.writing() }

// overtakes reports whether a request would take blocks for which an older one of another spec
// waits, which could then wait for ever.
func (s *Scheduler) overtakes(t *task) bool {
	return slices.ContainsFunc(s.lanes, func(l *lane) bool {
		older := l.next()
		return older != nil && older.order < t.order && !s.fits(older)
	})
}

// admit gives slots to requests of the queue while the tokens of the next one fit.
func (l *lane) admit() {
	for t := l.next(); t != nil; t = l.next() {
		need := t.blocks()
		if !l.s.fits(t) || l.s.overtakes(t) {
			return
		}
		if err := t.open(); err != nil {
			t.finish("", err)
			return
		}
		l.queue = l.queue[1:]
		l.running = inOrder(l.running, t)
		l.s.admitted(1)
		t.reserved = need
	}
}

// blocksOf is the number of blocks that hold n positions.
func blocksOf(n int) int { return (n + blockLen - 1) / blockLen }

// read runs one prefill chunk of the first prompt that is not read yet, and reports whether there
// was one.
func (l *lane) read() bool {
	i := slices.IndexFunc(l.running, func(t *task) bool { return !t.read() })
	if i < 0 {
		return false
	}
	t := l.running[i]
	if t.seq.Len() == 0 {
		t.start(l.s.prefix)
	}
	rest := t.Prompt[t.seq.Len():]
	n := l.runner.NextChunk(t.seq.Len(), len(rest), l.s.chunkLimit(l))
	l.s.prefix.evict(blocksOf(t.seq.Len()+n) - blocksOf(t.seq.Len()))
	start := time.Now()
	err := t.seq.Prefill(t.ctx, rest[:n], engine.PrefillOptions{Prompt: len(t.Prompt), Logits: t.echo()})
	if err != nil {
		t.fail(err)
		return true
	}
	l.s.pace.add(n, time.Since(start))
	l.count(start, false, n, t)
	t.reserve()
	if t.read() {
		l.s.prefix.add(t)
		t.prefilled()
		l.sample(t)
	}
	return true
}

// chunkLimit is how many rows a prefill chunk may have.
func (s *Scheduler) chunkLimit(l *lane) int {
	if s.conf.MaxStall == 0 || s.writing() == 0 {
		return l.runner.PassRows()
	}
	return min(s.pace.rows(s.conf.MaxStall), l.runner.PassRows())
}

// tasks are the running requests of which something is true.
func (l *lane) tasks(is func(*task) bool) (some []*task) {
	for _, t := range l.running {
		if is(t) {
			some = append(some, t)
		}
	}
	return some
}

// write runs one decode step of all sequences that have a token to store, and reports whether there
// were any.
func (l *lane) write() bool {
	grow := 0 // blocks
	for _, t := range l.tasks((*task).writes) {
		if l.has(t) && t.seq.Len()%blockLen == 0 && (t.reserved > 0 || l.s.claim(t)) {
			grow++
		}
	}
	l.s.prefix.evict(grow)
	writing := l.tasks((*task).writes)
	if len(writing) == 0 {
		return false
	}
	start := time.Now()
	err := l.step(writing)
	if err != nil {
		for _, t := range writing {
			t.fail(err)
		}
		return true
	}
	l.count(start, true, 1, writing...)
	for _, t := range writing {
		t.stepped()
	}
	l.sample(writing...)
	return true
}

// has reports whether a request still runs.
func (l *lane) has(t *task) bool { return slices.Contains(l.running, t) }

// step stores the next token of each sequence, those with the highest slots in lower ones
// where they are free.
func (l *lane) step(writing []*task) (err error) {
	l.active = l.active[:0]
	for _, t := range writing {
		if t.seq.Slot() >= len(l.running) {
			err = errors.Join(err, t.seq.Lower())
		}
		err = errors.Join(err, t.seq.Push(t.tokens[t.stored]))
		l.active = append(l.active, t.seq)
	}
	if err != nil {
		return err
	}
	return l.runner.Step(l.active...)
}

// sample samples a token of each sequence whose stored tokens are all that it has.
func (l *lane) sample(tasks ...*task) {
	tasks = l.s.awaited(slices.DeleteFunc(tasks, func(t *task) bool { return !l.has(t) || t.stored < len(t.tokens) }))
	tasks = slices.DeleteFunc(tasks, func(t *task) bool { return !t.prepare(l.s.vocab) })
	l.active, l.how = l.active[:0], l.how[:0]
	for _, t := range tasks {
		l.active, l.how = append(l.active, t.seq), append(l.how, t.Sampling)
	}
	sampled, err := l.runner.Sample(l.active, l.how)
	for i, t := range tasks {
		switch {
		case err != nil:
			t.fail(err)
		case sampled[i].Err != nil:
			t.finish("", sampled[i].Err)
		default:
			t.take(sampled[i].ID)
		}
	}
}
