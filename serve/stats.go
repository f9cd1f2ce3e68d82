package serve

import "time"

// Stats is the state of a scheduler after its last turn, or after an answer that ended
// since.
type Stats struct {
	Running, Waiting int // requests
	Blocks, Used     int // of the cache, and of them those that sequences have
	Cached           int // blocks that the prefix cache keeps and no sequence has
	Preempted        int // sequences that lost their pages, in all
	Prompt           int // tokens of prompts that were read or found, in all
	Generated        int // tokens that were sampled, in all
	Queried, Hit     int // tokens of prompts looked up in the prefix cache, and found, in all
}

// Stats is the state of the scheduler.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Waiting = s.waiting
	return stats
}

// publish makes the state known.
func (s *Scheduler) publish() {
	var now Stats
	for _, l := range s.lanes {
		now.Running += len(l.running)
	}
	_, free := s.lanes[0].runner.Blocks()
	now.Blocks, now.Cached = s.blocks, s.prefix.idle
	now.Used = now.Blocks - free - now.Cached
	now.Preempted, now.Prompt, now.Generated = s.preempted, s.prompted, s.generated
	now.Queried, now.Hit = s.prefix.queries, s.prefix.hits
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats = now
}

// Err is why no more requests are taken, nil while they are: [ErrClosed], or what has
// ended the loop.
func (s *Scheduler) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	if s.draining {
		return ErrClosed
	}
	return nil
}

// Done is closed when nothing runs any more and no more requests are taken.
func (s *Scheduler) Done() <-chan struct{} { return s.done }

// nobody observes nothing.
type nobody struct{}

func (nobody) First(time.Duration)             {}
func (nobody) Next(time.Duration)              {}
func (nobody) Done(int, time.Duration, Result) {}
func (nobody) Pass(int, Pass)                  {}
