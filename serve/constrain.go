package serve

import (
	"context"
	"time"

	"github.com/gollm/gollm/engine"
)

// Constraint restricts what a sequence may write: a matcher of package grammar. It belongs to
// one request. It is called by one goroutine at a time, which is never that of the scheduler: however long
// a mask takes, other requests go on.
type Constraint interface {
	// MaskContext is the tokens that may come next, token id as bit id%32 of word id/32; those that
	// end the generation where the text may end. It is given up once ctx is done, which is the error.
	MaskContext(ctx context.Context) ([]uint32, error)
	// AcceptToken is told of each token that was sampled and did not end the answer.
	AcceptToken(id int32) error
}

// nextMask is the mask over the next token of an answer.
type nextMask struct {
	done chan struct{} // closed once the others are there
	mask []uint32
	err  error
}

// follow tells the constraint of a token, of none at the start, and has the mask behind it made beside what
// the scheduler does meanwhile.
func (t *task) follow(tokens ...int32) {
	if t.Constraint == nil {
		return
	}
	m := &nextMask{done: make(chan struct{})}
	t.mask = m
	go func() {
		defer t.lane.s.wake()
		defer close(m.done)
		for _, id := range tokens {
			if m.err = t.Constraint.AcceptToken(id); m.err != nil {
				return
			}
		}
		m.mask, m.err = t.Constraint.MaskContext(t.ctx)
	}()
}

// ready reports whether the mask over the next token is there, or none is needed.
func (m *nextMask) ready() bool {
	if m == nil {
		return true
	}
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// maskPatience is how long a step waits for the masks of its sequences, in all. Nearly all are there when
// the step ends; a sequence whose mask is not waits without the others.
const maskPatience = 5 * time.Millisecond

// awaited is the requests whose masks are there, at the end of the patience at the latest. The others are parked, and those end whose mask failed.
func (s *Scheduler) awaited(tasks []*task) (in []*task) {
	var late <-chan time.Time
	for _, t := range tasks {
		if !t.mask.ready() {
			if late == nil {
				late = time.After(s.patience)
			}
			select {
			case <-t.mask.done:
			case <-late:
				late = closed
			}
		}
		switch {
		case !t.mask.ready():
			t.park()
		case t.mask != nil && t.mask.err != nil:
			t.refuse()
		default:
			in = append(in, t)
		}
	}
	return in
}

// closed is a timer that has rung.
var closed = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

// refuse ends an answer whose constraint has no mask: it was cancelled, or the constraint is wrong.
func (t *task) refuse() {
	if t.ctx.Err() != nil {
		t.finish(engine.StopCancelled, nil)
		return
	}
	t.finish("", t.mask.err)
}

// park keeps the logits of a sequence whose mask is not there, because others use their place on the
// device until it is.
func (t *task) park() {
	if t.logits == nil {
		t.logits = make([]float32, t.lane.s.vocab)
	}
	if err := t.seq.Logits(t.logits); err != nil {
		t.fail(err)
		return
	}
	t.parked = true
}

// resume samples the sequences that were parked and whose masks are there, and reports whether there were any.
func (l *lane) resume() (some bool) {
	for _, t := range l.tasks(func(t *task) bool { return t.parked && t.mask.ready() }) {
		some, t.parked = true, false
		if err := t.seq.SetLogits(t.logits); err != nil {
			t.fail(err)
			continue
		}
		l.sample(t)
	}
	return some
}

// maxRest is how long the loop waits for news while nothing but masks is made: requests that are cancelled
// meanwhile are no news.
const maxRest = 50 * time.Millisecond

// rest waits for news once no lane had anything to do.
func (s *Scheduler) rest(worked bool) {
	if s.idle++; worked {
		s.idle = 0
	}
	if s.idle < len(s.lanes) {
		return
	}
	s.idle = 0
	select {
	case <-s.news:
	case <-time.After(maxRest):
	}
}
