package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
)

// Request is a prompt and how it is continued.
type Request struct {
	Attn      int     // which of the scheduler's attention specs
	Prompt    []int32 // at least one token
	MaxTokens int     // of the answer; 0 reads the prompt alone
	Stop      []string
	StopIDs   []int32 // tokens that end the answer, without their text
	IgnoreEnd bool    // the model's own end of generation ends nothing
	MinTokens int     // of the answer, before anything but MaxTokens may end it
	Show      []int32 // control tokens whose text is a part of the answer
	Sampling  sampling.Params

	// Draw is part of the address of the random numbers of attention methods that sample:
	// see [engine.Sequence.SetRequest].
	Draw uint32

	// Logprobs asks for the log-probability of every token, and of the Top likeliest beside
	// it. They are those of the model: of its logits before bias, penalties and temperature.
	Logprobs bool
	Top      int
	// Echo asks for the tokens of the prompt as pieces, too, with their log-probabilities
	// where Logprobs is set. The prefix cache is not used then.
	Echo bool

	Bias       map[int32]float32 // added to logits
	Constraint Constraint        // nil lets everything be written
}

// Piece is a token and the text that became final with it, none with a token that ends the
// generation. The last piece may be text alone.
type Piece struct {
	ID     int32
	Text   string   // final: whole characters, no part of a stop string; of a prompt's token none
	Token  bool     // ID is a token; else the piece is text alone
	Prompt bool     // a token of the prompt, for Echo
	Log    *Logprob // nil where not asked for, and for the first token of a prompt
}

// Logprob is the natural logarithm of a token's probability, and the likeliest tokens.
type Logprob struct {
	Value float64
	Top   []TopToken // descending, ties by the lower id
}

// TopToken is one of the likeliest tokens.
type TopToken struct {
	ID    int32
	Value float64 // log-probability
}

// Result is a finished answer.
type Result struct {
	Stop      engine.StopReason
	Prompt    int // tokens of the prompt
	Cached    int // of them, those whose pages were in the prefix cache
	Generated int // tokens of the answer, the one that ended it included
	Preempted int // times that the sequence lost its pages

	// What attention read, of preempted sequences again. Of a phase that is Unknown it is not counted,
	// though it ran.
	PrefillReads, DecodeReads     engine.Reads
	PrefillUnknown, DecodeUnknown bool

	Waited  time.Duration // until the first prefill chunk
	Prefill time.Duration // from there to the logits of the prompt, others' passes included
	Decode  time.Duration // from there to the end
}

// ErrClosed is the error of requests to a scheduler that drains or is closed.
var ErrClosed = errors.New("serve: the server is shutting down")

// BusyError is the error of a request when the queue is full.
type BusyError struct{ Waiting, Limit int }

// Error says how long the queue is.
func (e *BusyError) Error() string {
	return fmt.Sprintf("serve: %d requests are waiting, and the queue holds %d; try again later", e.Waiting, e.Limit)
}

// TooLongError is the error of a request that never fits.
type TooLongError struct {
	Prompt, MaxTokens int // what was asked for
	Context           int // tokens of a sequence
	Cache             int // tokens of the whole cache
}

// Error says what was asked for and what fits.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("serve: the prompt has %d tokens and the answer up to %d, together %d; a sequence holds %d tokens, the cache %d",
		e.Prompt, e.MaxTokens, e.Prompt+e.MaxTokens, e.Context, e.Cache)
}

// Fits is the most tokens that an answer to a prompt of so many tokens may have; below 0
// the prompt does not fit.
func (s *Scheduler) Fits(prompt int) int {
	limit := min(s.Context(), s.blocks*blockLen)
	if prompt == limit {
		return 1 // the last token is not stored
	}
	return limit - prompt
}

// RequestError is a request that makes no sense.
type RequestError struct{ text string }

// Error says why.
func (e *RequestError) Error() string { return "serve: " + e.text }

func wrong(format string, args ...any) error { return &RequestError{fmt.Sprintf(format, args...)} }

// check reports what is wrong with a request.
func (s *Scheduler) check(r *Request) error {
	fits := s.Fits(len(r.Prompt))
	switch {
	case r.Attn < 0 || r.Attn >= len(s.lanes):
		return wrong("attention spec %d of %d", r.Attn, len(s.lanes))
	case len(r.Prompt) == 0:
		return wrong("the prompt has no tokens")
	case r.MaxTokens < 0 || r.Top < 0:
		return wrong("%d tokens and %d likeliest beside each, want none or more", r.MaxTokens, r.Top)
	case r.MinTokens < 0 || r.MinTokens > r.MaxTokens:
		return wrong("at least %d tokens are asked for and at most %d", r.MinTokens, r.MaxTokens)
	case r.Constraint != nil && (r.IgnoreEnd || r.MinTokens > 0):
		return wrong("an answer of a form ends where that does: leave out ignore_eos and min_tokens, or the form")
	case fits < r.MaxTokens:
		return &TooLongError{len(r.Prompt), r.MaxTokens, s.Context(), s.blocks * blockLen}
	}
	for i, id := range r.Prompt {
		if id < 0 || int(id) >= s.vocab {
			return wrong("token %d of the prompt is id %d, want 0 to %d", i, id, s.vocab-1)
		}
	}
	for _, id := range r.StopIDs {
		if id < 0 || int(id) >= s.vocab {
			return wrong("the answer is to stop at the token of id %d, want 0 to %d", id, s.vocab-1)
		}
	}
	for id := range r.Bias {
		if id < 0 || int(id) >= s.vocab {
			return wrong("a bias of id %d, want 0 to %d", id, s.vocab-1)
		}
	}
	return nil
}

// Do runs one request and waits for its answer.
func (s *Scheduler) Do(ctx context.Context, r Request) ([]Piece, Result, error) {
	all, err := s.Submit(ctx, r)
	if err != nil {
		return nil, Result{}, err
	}
	var pieces []Piece
	for p := range all[0].Pieces() {
		pieces = append(pieces, p)
	}
	res, err := all[0].Result()
	return pieces, res, err
}
