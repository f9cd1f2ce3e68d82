package serve

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/weights"
)

// blockLen is the positions of a block of the cache.
const blockLen = device.PageLen

// Config is the limits of a scheduler.
type Config struct {
	// MaxStall is how long sequences that decode wait for a prefill chunk; 0 is no limit.
	MaxStall time.Duration
	// MaxQueue is how many requests may wait to be admitted; 0 is no limit.
	MaxQueue int
	// NoPrefix turns the prefix cache off.
	NoPrefix bool
	// Observe is told of every token and every answer; nil is nobody.
	Observe Observer
}

// Observer is told what happens, by the scheduler's goroutine, which it must not keep.
type Observer interface {
	First(sinceSubmit time.Duration)                   // the first token of an answer
	Next(sinceLast time.Duration)                      // another token
	Done(attn int, total time.Duration, result Result) // the end of an answer, however it ended
	Pass(attn int, p Pass)                             // a prefill chunk or a decode step
}

// Scheduler runs requests. Make it with [New], end it with [Scheduler.Close].
type Scheduler struct {
	conf   Config
	lanes  []*lane
	vocab  int
	blocks int // of the cache
	prefix *prefixCache
	pace   pace
	turn   int // the lane of the next turn
	idle   int // turns without anything to do

	patience time.Duration // maskPatience

	preempted, prompted, generated int // see [Stats]

	mu       sync.Mutex
	incoming []*task // submitted, not in a lane yet
	waiting  int     // requests that are incoming or in the queue of a lane
	arrived  uint64  // requests so far
	draining bool    // takes no more requests
	stopped  bool    // ends what runs
	broken   error   // what has ended the loop
	stats    Stats   // as of the last turn

	news chan struct{} // capacity 1: there is something new for the loop
	done chan struct{} // closed when the loop has ended
}

// New begins to run requests over runners of one engine that share their pages, one for
// each attention spec: see [engine.Engine.NewRunners]. The runners and the engine's
// device are the scheduler's until it is closed.
func New(e *engine.Engine, runners []*engine.Runner, c Config) *Scheduler {
	s := &Scheduler{conf: c, vocab: e.Model.Vocab, patience: maskPatience, news: make(chan struct{}, 1), done: make(chan struct{})}
	if c.Observe == nil {
		s.conf.Observe = nobody{}
	}
	s.prefix = newPrefixCache(runners[0])
	s.blocks, _ = runners[0].Blocks()
	for i, r := range runners {
		s.lanes = append(s.lanes, newLane(s, e, i, r))
	}
	s.publish()
	go s.loop()
	return s
}

// loop takes turns until the scheduler is closed and nothing runs.
func (s *Scheduler) loop() {
	defer close(s.done)
	err := weights.Guarded(func() error {
		for s.receive() {
			s.dismiss()
			l := s.nextLane()
			l.admit()
			sampled, read, wrote := l.resume(), l.read(), l.write()
			s.publish()
			s.rest(sampled || read || wrote)
		}
		return nil
	})
	if err != nil {
		s.abandon(err)
	}
	s.dismissAll()
	s.prefix.clear()
	s.publish()
}

// receive takes in what is new. It waits while there is nothing to do, and reports whether
// there will be more.
func (s *Scheduler) receive() bool {
	for {
		s.mu.Lock()
		for _, t := range s.incoming {
			t.lane.enqueue(t)
		}
		s.incoming = nil
		draining, stopped, broken := s.draining, s.stopped, s.broken != nil
		s.mu.Unlock()
		switch {
		case stopped || broken:
			return false
		case s.busy():
			return true
		case draining:
			return false
		}
		<-s.news
	}
}

// busy reports whether a lane has requests.
func (s *Scheduler) busy() bool { return slices.ContainsFunc(s.lanes, (*lane).busy) }

// nextLane is the lane of the next turn: lanes with requests take turns.
func (s *Scheduler) nextLane() *lane {
	for i := range s.lanes {
		if l := s.lanes[(s.turn+i)%len(s.lanes)]; l.busy() {
			s.turn = (s.turn + i + 1) % len(s.lanes)
			return l
		}
	}
	return s.lanes[0]
}

// dismiss ends the requests whose context is done.
func (s *Scheduler) dismiss() {
	for _, t := range s.tasks() {
		if t.ctx.Err() != nil {
			t.finish(engine.StopCancelled, nil)
		}
	}
}

// abandon ends the loop: a pass has failed, and so will all others.
func (s *Scheduler) abandon(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	if s.broken == nil {
		s.broken = err
	}
}

// dismissAll ends every request: with what has ended the loop, or cancelled.
func (s *Scheduler) dismissAll() {
	s.mu.Lock()
	s.draining = true
	incoming, broken := s.incoming, s.broken
	s.incoming = nil
	s.mu.Unlock()
	for _, t := range slices.Concat(incoming, s.tasks()) {
		if broken != nil {
			t.finish("", broken)
		} else {
			t.finish(engine.StopCancelled, nil)
		}
	}
}

// tasks are the requests of all lanes.
func (s *Scheduler) tasks() (all []*task) {
	for _, l := range s.lanes {
		all = append(append(all, l.running...), l.queue...)
	}
	return all
}

// available is how many blocks could be given to a sequence: those that are free or idle
// in the prefix cache, less those that admitted prompts will fill.
func (s *Scheduler) available() int {
	_, free := s.lanes[0].runner.Blocks()
	free += s.prefix.idle
	for _, l := range s.lanes {
		for _, t := range l.running {
			free -= t.reserved
		}
	}
	return free
}

// claim reserves a block for a running sequence, if it must by preempting the youngest. It
// reports whether the sequence still runs.
func (s *Scheduler) claim(t *task) bool {
	for s.available() < 1 {
		youngest := s.youngest()
		youngest.preempt()
		if youngest == t {
			return false
		}
	}
	t.reserved = 1
	return true
}

// youngest is the running request that came last.
func (s *Scheduler) youngest() (youngest *task) {
	for _, l := range s.lanes {
		for _, t := range l.running {
			if youngest == nil || t.order > youngest.order {
				youngest = t
			}
		}
	}
	return youngest
}

// writing is the number of sequences that decode.
func (s *Scheduler) writing() (n int) {
	for _, l := range s.lanes {
		for _, t := range l.running {
			if t.read() {
				n++
			}
		}
	}
	return n
}

// Submit hands over requests, all or none. Each ends when its answer does, or within a
// step once ctx is done.
func (s *Scheduler) Submit(ctx context.Context, requests ...Request) ([]*Answer, error) {
	for i := range requests {
		if err := s.check(&requests[i]); err != nil {
			return nil, err
		}
	}
	if limit := s.conf.MaxQueue; limit > 0 && len(requests) > limit {
		return nil, wrong("%d answers are asked for at once, and the queue holds %d: ask for fewer, or start gollm serve with a larger --queue", len(requests), limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, s.broken
	}
	if s.draining {
		return nil, ErrClosed
	}
	if s.conf.MaxQueue > 0 && s.waiting+len(requests) > s.conf.MaxQueue {
		return nil, &BusyError{s.waiting, s.conf.MaxQueue}
	}
	answers := make([]*Answer, len(requests))
	for i, r := range requests {
		s.arrived++
		t := newTask(ctx, r, s.lanes[r.Attn], s.arrived)
		s.incoming, answers[i] = append(s.incoming, t), t.answer
	}
	s.waiting += len(requests)
	s.wake()
	return answers, nil
}

// wake tells the loop that there is something new.
func (s *Scheduler) wake() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// admitted counts requests that wait no longer, or again where n is negative.
func (s *Scheduler) admitted(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting -= n
}

// Close takes no more requests, waits for those that there are until ctx is done, and
// cancels what is left. The runners are the caller's again.
func (s *Scheduler) Close(ctx context.Context) {
	s.set(&s.draining)
	select {
	case <-s.done:
	case <-ctx.Done():
		s.set(&s.stopped)
		<-s.done
	}
}

// set sets a flag of the loop.
func (s *Scheduler) set(flag *bool) {
	s.mu.Lock()
	*flag = true
	s.mu.Unlock()
	s.wake()
}

// Context is the number of positions that a sequence may have.
func (s *Scheduler) Context() int { return s.lanes[0].runner.Context() }

// Specs are the attention specs, in the order of [Request.Attn].
func (s *Scheduler) Specs() (specs []*sparse.Spec) {
	for _, l := range s.lanes {
		specs = append(specs, l.runner.Policy().Spec())
	}
	return specs
}
