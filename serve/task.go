package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gollm/gollm/engine"
)

// task is a request on its way: in the queue of its lane, or running with a sequence of
// the cache.
type task struct {
	Request
	ctx    context.Context // is done once the request has ended
	cancel func()
	lane   *lane
	order  uint64 // of arrival
	answer *Answer

	seq      *engine.Sequence // nil in the queue
	cached   []*cachedBlock   // blocks of the prefix cache that the sequence has
	reserved int              // blocks that the prompt will fill yet
	tokens   []int32          // of the answer
	stored   int              // of them, those that the sequence has
	echoed   int              // tokens of the prompt that were emitted
	text     *engine.TextStream
	logits   []float32 // f32 [vocab]: of the next token, where somebody asks for them
	biased   []float32 // f32 [vocab]: these with the bias
	endless  []uint32  // the tokens that end nothing, for MinTokens
	mask     *nextMask // of the constraint
	parked   bool      // the mask is not there yet; logits has what to sample then

	result                    Result
	came, began, decoded, new time.Time // submitted, first chunk, logits of the prompt, last token
}

func newTask(ctx context.Context, r Request, l *lane, order uint64) *task {
	t := &task{Request: r, lane: l, order: order, answer: newAnswer(), came: time.Now()}
	t.ctx, t.cancel = context.WithCancel(ctx)
	t.result.Prompt = len(r.Prompt)
	t.text = l.engine.Text(nil, r.Show...)
	t.mayEnd()
	return t
}

// total is the tokens that the sequence holds once it has caught up.
func (t *task) total() int { return len(t.Prompt) + len(t.tokens) }

// read reports whether the prompt is stored.
func (t *task) read() bool { return t.seq != nil && t.seq.Len() >= len(t.Prompt) }

// writes reports whether the sequence has a token to store.
func (t *task) writes() bool { return t.read() && t.stored < len(t.tokens) }

// open takes a slot.
func (t *task) open() (err error) {
	if t.seq, err = t.lane.runner.Open(); err == nil {
		t.seq.SetRequest(t.Draw)
	}
	return err
}

// start begins the prompt with what the prefix cache has of it.
func (t *task) start(cache *prefixCache) {
	if t.began.IsZero() {
		t.began = time.Now()
		t.result.Waited = t.began.Sub(t.came)
		t.follow()
	}
	if t.Echo && t.Logprobs {
		return // logits of every position are wanted
	}
	if n := cache.begin(t); t.result.Preempted == 0 {
		t.result.Cached = n
	}
	t.reserve()
}

// blocks is how many blocks it takes to catch up and to store one token more, unless that
// is the last one, which is not stored.
func (t *task) blocks() int {
	return blocksOf(min(t.total()+1, len(t.Prompt)+max(t.MaxTokens-1, 0)))
}

// reserve notes how many blocks the sequence will fill until it has caught up.
func (t *task) reserve() { t.reserved = max(0, t.blocks()-blocksOf(t.seq.Len())) }

// echo takes the logits of the prompt's positions, where they are asked for: those of a
// position say how likely the token behind it was.
func (t *task) echo() func(pos int, logits []float32) error {
	if !t.Echo || !t.Logprobs {
		return nil
	}
	return func(pos int, logits []float32) error {
		if pos == 0 && t.echoed == 0 {
			t.emitPrompt(nil)
		}
		if next := pos + 1; next < len(t.Prompt) && next == t.echoed { // not emitted before a preemption
			log := logprobOf(logits, t.Prompt[next], t.Top)
			if log.Value != log.Value {
				return notNumbers{pos}
			}
			t.emitPrompt(log)
		}
		return nil
	}
}

// emitPrompt emits the next token of the prompt.
func (t *task) emitPrompt(log *Logprob) {
	t.answer.emit(Piece{ID: t.Prompt[t.echoed], Token: true, Prompt: true, Log: log})
	t.echoed++
}

// prefilled ends the prompt: its logits are there.
func (t *task) prefilled() {
	t.reserve()
	if t.decoded.IsZero() {
		t.decoded = time.Now()
		t.result.Prefill = t.decoded.Sub(t.began)
		t.lane.s.prompted += len(t.Prompt)
	}
	for t.Echo && t.echoed < len(t.Prompt) {
		t.emitPrompt(nil)
	}
	if t.MaxTokens == 0 {
		t.finish(engine.StopLength, nil)
	} else if err := t.seq.CheckLogits(); err != nil {
		t.finish("", err)
	}
}

// prepare makes the logits ready to be sampled, and reports whether they are: if not, the
// answer has ended.
func (t *task) prepare(vocab int) bool {
	err := t.constrain(vocab)
	if err != nil {
		t.fail(err)
	}
	return err == nil
}

// constrain reads the logits where somebody asks for them, writes them back with the bias,
// and masks what the constraint does not allow.
func (t *task) constrain(vocab int) error {
	if t.Logprobs || len(t.Bias) > 0 {
		if t.logits == nil {
			t.logits = make([]float32, vocab)
		}
		if err := t.seq.Logits(t.logits); err != nil {
			return err
		}
	}
	if len(t.Bias) > 0 {
		t.biased = append(t.biased[:0], t.logits...)
		for id, bias := range t.Bias {
			t.biased[id] += bias
		}
		if err := t.seq.SetLogits(t.biased); err != nil {
			return err
		}
	}
	switch {
	case t.Constraint != nil:
		return t.seq.Allow(t.mask.mask)
	case len(t.tokens) < t.MinTokens:
		return t.seq.Allow(t.goesOn(vocab))
	}
	return nil
}

// goesOn is the mask of the tokens that do not end the answer.
func (t *task) goesOn(vocab int) []uint32 {
	if t.endless == nil {
		t.endless = make([]uint32, (vocab+31)/32)
		for id := range int32(vocab) {
			if !t.ends(id) {
				t.endless[id/32] |= 1 << (id % 32)
			}
		}
	}
	return t.endless
}

// ends reports whether a token ends the answer.
func (t *task) ends(id int32) bool {
	return slices.Contains(t.StopIDs, id) || !t.IgnoreEnd && t.lane.engine.Tokenizer.EndOfGeneration(id)
}

// mayEnd has stop strings end the answer once it has its least tokens.
func (t *task) mayEnd() {
	if len(t.tokens) == t.MinTokens {
		t.text.StopAt(t.Stop)
	}
}

// take records a sampled token, emits what became final with it, and ends the answer where
// it is the last one.
func (t *task) take(id int32) {
	t.observe()
	t.lane.s.generated++
	t.tokens = append(t.tokens, id)
	p, ends, stopped := Piece{ID: id, Token: true}, t.ends(id), false
	if !ends {
		p.Text, stopped = t.text.Push(id)
		t.mayEnd()
	}
	if t.Logprobs {
		if p.Log = logprobOf(t.logits, id, t.Top); p.Log.Value != p.Log.Value {
			t.finish("", notNumbers{t.total() - 2})
			return
		}
	}
	t.answer.emit(p)
	switch {
	case ends:
		t.finish(engine.StopEnd, nil)
	case stopped:
		t.finish(engine.StopString, nil)
	case len(t.tokens) == t.MaxTokens:
		t.finish(engine.StopLength, nil)
	default:
		t.follow(id)
	}
}

// stepped counts a token that a decode step has stored.
func (t *task) stepped() {
	t.stored++
	if t.seq.Len()%blockLen == 1 && t.reserved > 0 { // in a new block
		t.reserved--
	}
}

// observe tells of a new token.
func (t *task) observe() {
	now := time.Now()
	if t.new.IsZero() {
		t.lane.s.conf.Observe.First(now.Sub(t.came))
	} else {
		t.lane.s.conf.Observe.Next(now.Sub(t.new))
	}
	t.new = now
}

// preempt takes slot and pages away; the request waits to compute them again.
func (t *task) preempt() {
	t.close()
	t.result.Preempted++
	t.lane.s.preempted++
	t.lane.enqueue(t)
	t.lane.s.admitted(-1)
}

// close gives slot and pages back.
func (t *task) close() {
	t.seq.Close()
	t.lane.s.prefix.leave(t)
	t.seq, t.stored, t.reserved, t.parked = nil, 0, 0, false
	t.lane.running = without(t.lane.running, t)
}

// notNumbers is the error of logits of a position of which one is not a number.
type notNumbers struct{ pos int }

func (e notNumbers) Error() string {
	return fmt.Sprintf("serve: the logits of position %d are not numbers: the model file is damaged or not for this architecture", e.pos)
}

// fail ends the answer where a pass did not end well: because the request was cancelled
// meanwhile, or because the device has failed, which it does for good.
func (t *task) fail(err error) {
	if t.ctx.Err() != nil && errors.Is(err, t.ctx.Err()) {
		t.finish(engine.StopCancelled, nil)
		return
	}
	if !errors.As(err, new(notNumbers)) {
		t.lane.s.abandon(err)
	}
	t.finish("", err)
}

// finish ends the answer and leaves the lane.
func (t *task) finish(why engine.StopReason, err error) {
	t.cancel()
	if t.seq != nil {
		t.close()
	} else {
		t.lane.queue = without(t.lane.queue, t)
		t.lane.s.admitted(1)
	}
	if text := t.text.Flush(); text != "" {
		t.answer.emit(Piece{Text: text})
	}
	now := time.Now()
	t.result.Stop, t.result.Generated = why, len(t.tokens)
	if !t.decoded.IsZero() {
		t.result.Decode = now.Sub(t.decoded)
	}
	t.lane.s.conf.Observe.Done(t.lane.attn, now.Sub(t.came), t.result)
	t.lane.s.publish() // before the client knows
	t.answer.end(t.result, err)
}
