package trial

import (
	"context"
	"slices"
	"time"

	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
)

// Request is a prompt in tokens and when its answer ends.
type Request struct {
	Prompt []int32
	// Split, above 0, is where the question begins: the tokens before it are read
	// in one go, those from it on one by one, with the attention of decode steps.
	Split int
	Most  int // tokens of the answer
	// StopIDs end the answer besides the model's own, and are part of it as in the
	// official code.
	StopIDs []int32
	// One makes the answer have one token at least.
	One bool
	// Forced, where it is not nil, is the right answer, which is read instead of what is
	// answered: each token of the answer is the likeliest behind the right ones before it.
	Forced []int32
	// Shares says that the samples that follow may begin with what is before Split: it is
	// kept for them where the [Answerer] keeps texts.
	Shares bool
}

// Reply is the tokens of an answer.
type Reply struct {
	Tokens []int32
	Finish engine.StopReason
	Times
}

// Answerer answers with one runner, greedily.
type Answerer struct {
	Runner *engine.Runner // of two slots where it has several attention methods or Keeps
	Keeps  bool           // texts that the samples which follow may begin with are kept
	Vocab  int
	Ends   func(id int32) bool
	Read   func() // called when a prompt was read, before it is answered; may be nil

	kept   *engine.Sequence // a text that was read, nil for none
	logits []float32
}

// Close gives back what is kept.
func (a *Answerer) Close() {
	if a.kept != nil {
		a.kept.Close()
		a.kept = nil
	}
}

// read opens a sequence that has read the text of a request, a fork of what is kept where
// that is the same text.
func (a *Answerer) read(ctx context.Context, q *Request) (*engine.Sequence, Times, error) {
	if a.kept != nil && slices.Equal(a.kept.Tokens(), q.text()) {
		seq, err := a.kept.Fork()
		return seq, Times{Prompt: len(q.Prompt) - len(q.text()), Reused: len(q.text())}, err
	}
	a.Close()
	seq, err := a.Runner.Open()
	if err != nil {
		return nil, Times{}, err
	}
	start := time.Now()
	if err := seq.Prefill(ctx, q.text(), engine.PrefillOptions{}); err != nil {
		seq.Close()
		return nil, Times{}, err
	}
	times := Times{Prompt: len(q.Prompt), PrefillMs: milliseconds(time.Since(start))}
	if a.Read != nil {
		a.Read()
	}
	if a.Keeps && q.Shares {
		if a.kept, err = seq.Fork(); err != nil {
			seq.Close()
		}
	}
	return seq, times, err
}

// Answer reads the prompt into an empty sequence and continues it under each of
// the runner's attention methods that turns names ([engine.Runner.SetDecodePolicy]); done gets
// the replies in that order. It is always the same for the same runner, and for
// each method what it is for that method alone: the likeliest token is taken.
func (a *Answerer) Answer(ctx context.Context, q Request, turns []int, done func(turn int, r Reply) error) error {
	seq, times, err := a.read(ctx, &q)
	if err != nil {
		return err
	}
	defer func() { seq.Close() }() // the last of them
	kept := a.kept
	if len(turns) > 1 {
		times.Shared = len(turns)
		if kept == nil {
			if kept, err = seq.Fork(); err != nil {
				return err
			}
			defer kept.Close()
		}
	}
	for i, turn := range turns {
		if i > 0 { // the one before has given the first slot back: a step is of one row
			next, err := kept.Fork()
			if err != nil {
				return err
			}
			seq = next
		}
		a.Runner.SetDecodePolicy(turn)
		r := Reply{Times: times}
		if err := a.continued(ctx, seq, q, &r); err != nil {
			return err
		}
		seq.Close()
		if err := done(turn, r); err != nil {
			return err
		}
	}
	return nil
}

// text is what is read in one go.
func (q *Request) text() []int32 {
	if q.Split > 0 && q.Split < len(q.Prompt) {
		return q.Prompt[:q.Split]
	}
	return q.Prompt
}

// continued reads the question, where it is apart, and writes the answer.
func (a *Answerer) continued(ctx context.Context, seq *engine.Sequence, q Request, r *Reply) error {
	start := time.Now()
	for _, id := range q.Prompt[len(q.text()):] {
		if err := a.step(ctx, seq, id); err != nil {
			return err
		}
	}
	r.PrefillMs += milliseconds(time.Since(start))
	start = time.Now()
	write := a.write
	if q.Forced != nil {
		write = a.follow
	}
	err := write(ctx, seq, q, r)
	r.DecodeMs = milliseconds(time.Since(start))
	return err
}

// milliseconds keeps three decimals.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// step stores one token.
func (a *Answerer) step(ctx context.Context, seq *engine.Sequence, id int32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := seq.Push(id); err != nil {
		return err
	}
	return a.Runner.Step(seq)
}

// write continues the text until it ends.
func (a *Answerer) write(ctx context.Context, seq *engine.Sequence, q Request, r *Reply) error {
	for {
		id, err := a.choose(seq, q.One && len(r.Tokens) == 0)
		if err != nil {
			return err
		}
		if a.Ends(id) {
			r.Finish = engine.StopEnd
			return nil
		}
		r.Tokens = append(r.Tokens, id)
		if slices.Contains(q.StopIDs, id) {
			r.Finish = engine.StopString
			return nil
		}
		if len(r.Tokens) >= q.Most {
			r.Finish = engine.StopLength
			return nil
		}
		if seq.Len() >= a.Runner.Context() {
			r.Finish = engine.StopContext
			return nil
		}
		if err := a.step(ctx, seq, id); err != nil {
			return err
		}
		r.Steps++
	}
}

// follow reads the right answer and notes what would have been written for each of its tokens.
func (a *Answerer) follow(ctx context.Context, seq *engine.Sequence, q Request, r *Reply) error {
	for i, right := range q.Forced {
		id, err := a.choose(seq, false)
		if err != nil {
			return err
		}
		r.Tokens = append(r.Tokens, id)
		if i+1 == len(q.Forced) {
			break
		}
		if err := a.step(ctx, seq, right); err != nil {
			return err
		}
		r.Steps++
	}
	r.Finish = engine.StopLength
	return nil
}

// choose takes the likeliest token, the lowest among equals; more leaves out
// those that end a text.
func (a *Answerer) choose(seq *engine.Sequence, more bool) (int32, error) {
	if !more {
		return seq.Sample(sampling.Params{})
	}
	if a.logits == nil {
		a.logits = make([]float32, a.Vocab)
	}
	if err := seq.Logits(a.logits); err != nil {
		return 0, err
	}
	best := int32(-1)
	for id, l := range a.logits {
		if !a.Ends(int32(id)) && (best < 0 || l > a.logits[best]) {
			best = int32(id)
		}
	}
	return best, nil
}
