package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/kvcache"
	"github.com/gollm/gollm/tokenizer"
)

// StopReason says why a generation ended.
type StopReason string

// The reasons.
const (
	StopEnd       StopReason = "end"       // the model wrote an end-of-generation token
	StopLength    StopReason = "length"    // MaxTokens were written
	StopString    StopReason = "string"    // a stop string appeared
	StopContext   StopReason = "context"   // the cache is full
	StopCancelled StopReason = "cancelled" // ctx was done
)

// Options are the limits, the sampling and the callbacks of a generation.
type Options struct {
	MaxTokens int // 0 is no limit but the context
	Sampling  sampling.Params
	Stop      []string      // texts that end the generation and are not part of it
	IgnoreEnd bool          // go on after an end-of-generation token
	Emit      func(Piece)   // called with each piece of text as it is final; may be nil
	Progress  func(float64) // of the prefill, from 0 to 1; may be nil
}

// Piece is a token and the text that became final with it: whole characters,
// and nothing that may turn out to be part of a stop string.
type Piece struct {
	ID   int32
	Text string
}

// Result is a finished generation.
type Result struct {
	Text   string
	Tokens []int32 // generated ids; an end-of-generation token is not among them
	Stop   StopReason

	Prompt  int           // prompt tokens that were prefilled
	Prefill time.Duration // until the first logits
	Decode  time.Duration // all steps after them
	Steps   int           // decode steps in that time
}

// PrefillRate is prompt tokens a second, 0 where nothing was timed.
func (r *Result) PrefillRate() float64 { return rate(r.Prompt, r.Prefill) }

// DecodeRate is decode steps a second, 0 where nothing was timed.
func (r *Result) DecodeRate() float64 { return rate(r.Steps, r.Decode) }

func rate(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// pieceDecoder turns ids into text that never ends inside a character.
type pieceDecoder interface {
	Next(id int32) string
	Flush() string
}

// Generate stores prompt after the sequence's tokens and continues it. When ctx
// is done it returns what was written so far with StopCancelled and no error.
func (s *Sequence) Generate(ctx context.Context, prompt []int32, o Options) (Result, error) {
	res := Result{Prompt: len(prompt)}
	if err := s.runner.checkSampling(&o.Sampling); err != nil {
		return res, err
	}
	start := time.Now()
	if err := s.Prefill(ctx, prompt, PrefillOptions{Progress: o.Progress}); err != nil {
		if ctx.Err() != nil {
			res.Stop = StopCancelled
			return res, nil
		}
		return res, err
	}
	res.Prefill = time.Since(start)
	if err := s.CheckLogits(); err != nil {
		return res, err
	}
	g := generation{seq: s, opts: o, res: &res, text: TextStream{decode: s.runner.pieces(), stop: o.Stop}}
	err := g.run(ctx)
	res.Text = g.text.done.String()
	return res, err
}

// generation is the state of the decode loop of one Generate.
type generation struct {
	seq  *Sequence
	opts Options
	res  *Result
	text TextStream
}

// run samples and steps until something ends it. Where a step can be undone it is queued
// before its token has been copied to the host, so that the device never waits for the
// host; the step behind the last token is undone.
func (g *generation) run(ctx context.Context) error {
	start := time.Now()
	defer func() {
		g.res.Decode = time.Since(start)
		g.emit(-1, g.text.Flush())
	}()
	s, r, o := g.seq, g.seq.runner, g.opts.Sampling
	for next := s.sample(o); ; g.res.Steps++ {
		before := len(r.queued)
		queued := ctx.Err() == nil && g.queueNext()
		id, err := next.wait()
		if broken := new(errNotNumbers); err != nil && !errors.As(err, broken) { // the device has failed
			r.takeBack(0)
			g.res.Steps -= before
			return err
		}
		r.keep(before)
		if err == nil {
			g.res.Stop = g.take(id)
			if g.res.Stop == "" && ctx.Err() != nil {
				g.res.Stop = StopCancelled
			}
		}
		switch {
		case err != nil || g.res.Stop != "":
			r.takeBack(0)
			return err
		case queued:
			s.tokens[len(s.tokens)-1] = id
			next = s.sampleAt(o, s.kv.Slot())
		default:
			if err := r.Step(s); err != nil {
				if full := new(kvcache.FullError); errors.As(err, &full) {
					g.res.Stop = StopContext
					return nil
				}
				return err
			}
			next = s.sample(o)
		}
	}
}

// queueNext queues the step that stores the token which the device is sampling, if
// another token may follow and the step can be undone.
func (g *generation) queueNext() bool {
	r := g.seq.runner
	_, ok := r.dev.(device.AsyncReader)
	return ok && r.policy.Stateless() && len(g.res.Tokens)+1 != g.opts.MaxTokens && r.queue([]*Sequence{g.seq}, true) == nil
}

// take records a token and returns why it is the last one, or "".
func (g *generation) take(id int32) StopReason {
	if !g.opts.IgnoreEnd && g.seq.runner.stops(id) {
		return StopEnd
	}
	g.res.Tokens = append(g.res.Tokens, id)
	text, stopped := g.text.Push(id)
	g.emit(id, text)
	switch {
	case stopped:
		return StopString
	case len(g.res.Tokens) == g.opts.MaxTokens:
		return StopLength
	}
	return ""
}

func (g *generation) emit(id int32, text string) {
	if g.opts.Emit != nil && (id >= 0 || text != "") {
		g.opts.Emit(Piece{ID: id, Text: text})
	}
}

// TextStream turns ids into final text, holding back what may become a stop string. Make
// it with [Engine.Text].
type TextStream struct {
	decode pieceDecoder
	stop   []string
	done   strings.Builder // final text
	held   string          // decoded but not final
	ended  bool            // a stop string was found
}

// Text begins the text of a generation, which ends before any of some stop strings. Of the
// control tokens those to show are a part of it.
func (e *Engine) Text(stop []string, show ...int32) *TextStream {
	return &TextStream{decode: e.Tokenizer.Stream(tokenizer.DecodeOptions{Continued: true, Show: show}), stop: stop}
}

// StopAt makes the text end before any of some strings, from the next token on.
func (t *TextStream) StopAt(stop []string) { t.stop = stop }

// Push decodes a token and returns the text that became final, and whether a
// stop string was completed.
func (t *TextStream) Push(id int32) (string, bool) {
	t.held += t.decode.Next(id)
	first := -1
	for _, stop := range t.stop {
		if i := strings.Index(t.held, stop); stop != "" && i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	if first >= 0 {
		t.ended = true
		return t.release(first), true
	}
	return t.release(len(t.held) - t.undecided()), false
}

// undecided is the length of the longest end of held that begins a stop string.
func (t *TextStream) undecided() int {
	longest := 0
	for _, stop := range t.stop {
		for n := min(len(stop)-1, len(t.held)); n > longest; n-- {
			if strings.HasSuffix(t.held, stop[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// release makes the first n bytes of held final.
func (t *TextStream) release(n int) string {
	text := t.held[:n]
	t.held = t.held[n:]
	t.done.WriteString(text)
	return text
}

// Flush returns what is still held when the generation ends.
func (t *TextStream) Flush() string {
	if t.ended {
		return ""
	}
	t.held += t.decode.Flush()
	return t.release(len(t.held))
}
