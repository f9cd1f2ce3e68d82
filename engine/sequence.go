package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/kvcache"
)

// Sequence is one text in the cache of a runner.
type Sequence struct {
	runner *Runner
	kv     *kvcache.Seq
	tokens []int32 // what the cache holds
	next   int32   // what the next step stores
	row    int     // of runner.logits: logits after the last stored token; -1: overwritten
}

// Len is the number of tokens stored.
func (s *Sequence) Len() int { return s.kv.Len() }

// Tokens is what the cache holds. The caller must not change it.
func (s *Sequence) Tokens() []int32 { return s.tokens }

// SetRequest gives the sequence a number of its own, of which 24 bits are used.
// Attention methods that sample draw the same random numbers for a text with the same
// number and seed, alone or in a batch, and independent ones for another number. The
// default is 0; a fork has the number of the original.
func (s *Sequence) SetRequest(n uint32) { s.runner.setRequest(s.kv, n) }

// PrefillOptions says what a prefill reports while it runs.
type PrefillOptions struct {
	// Progress is called now and then with the fraction done, from 0 to 1.
	Progress func(done float64)
	// Logits, when set, gets the logits of every position, f32 [vocab], in
	// order; the slice is valid during the call. An error ends the prefill.
	Logits func(pos int, logits []float32) error
	// Prompt is the length of the whole prompt, tokens that are stored before and after
	// these included, where it does not end with these; 0: it does.
	Prompt int
}

// Prefill stores ids after the sequence's tokens. When it fails or ctx is done
// the sequence keeps the chunks that were finished, or less where Truncate does.
func (s *Sequence) Prefill(ctx context.Context, ids []int32, o PrefillOptions) error {
	if len(ids) == 0 {
		return errors.New("engine: the prompt has no tokens; add some text, or keep the beginning-of-text token")
	}
	if err := s.check(ids); err != nil {
		return err
	}
	from, total := s.Len(), max(o.Prompt, s.Len()+len(ids))
	if limit := s.runner.Context(); total > limit {
		return &kvcache.FullError{Asked: total, Fit: limit, Max: limit}
	}
	for done := 0; done < len(ids); {
		n := s.runner.chunkLen(from+done, len(ids)-done)
		layers := s.runner.model.Layers
		report := func(layer int) {
			if o.Progress != nil {
				o.Progress((float64(done) + float64(n)*float64(layer)/float64(layers)) / float64(len(ids)))
			}
		}
		if err := s.chunk(ctx, ids[done:done+n], total, report, o.Logits); err != nil {
			return err
		}
		done += n
	}
	if o.Progress != nil {
		o.Progress(1)
	}
	return nil
}

// chunk runs one pass and leaves the logits of its last row in row 0.
func (s *Sequence) chunk(ctx context.Context, ids []int32, total int, report func(int), logits func(int, []float32) error) error {
	r, first := s.runner, s.Len()
	x, err := r.chunk(ctx, s, ids, total, report)
	if err != nil {
		return err
	}
	s.tokens = append(s.tokens, ids...)
	n := len(ids)
	if logits != nil {
		if err := r.eachLogits(ctx, x, first, logits); err != nil {
			return err
		}
		s.row = (n - 1) % logitRows
		return nil
	}
	s.row = 0
	r.model.Logits(r.dev.Queue(), r.logits.Rows(0, 1), x.Rows(n-1, n))
	return r.dev.Sync()
}

// eachLogits computes the logits of all rows of x, a tile at a time.
func (r *Runner) eachLogits(ctx context.Context, x device.Tensor, first int, f func(int, []float32) error) error {
	vocab := r.model.Vocab
	host := make([]float32, min(x.Dim(0), logitRows)*vocab)
	for lo := 0; lo < x.Dim(0); lo += logitRows {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(logitRows, x.Dim(0)-lo)
		tile := r.logits.Rows(0, n)
		r.model.Logits(r.dev.Queue(), tile, x.Rows(lo, lo+n))
		if err := read(r.dev, host[:n*vocab], tile); err != nil {
			return err
		}
		for i := range n {
			if err := f(first+lo+i, host[i*vocab:(i+1)*vocab]); err != nil {
				return err
			}
		}
	}
	return nil
}

// check refuses ids that the model does not have.
func (s *Sequence) check(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= s.runner.model.Vocab {
			return fmt.Errorf("engine: token %d is id %d, want 0 to %d: these ids are of another vocabulary", i, id, s.runner.model.Vocab-1)
		}
	}
	return nil
}

// Push makes id the token that the next Step stores.
func (s *Sequence) Push(id int32) error {
	if err := s.check([]int32{id}); err != nil {
		return err
	}
	s.next = id
	return nil
}

// errNoLogits is the error of a sequence whose logits have been overwritten.
var errNoLogits = errors.New("engine: the logits after the last token are gone; a prefill or a step makes others")

// Sample samples the token that follows from the logits of the last prefill or step, and
// makes it the one that the next Step stores. A token whose logit is not finite is an
// error: no other was left.
func (s *Sequence) Sample(o sampling.Params) (int32, error) {
	if s.row < 0 {
		return 0, errNoLogits
	}
	if err := s.runner.checkSampling(&o); err != nil {
		return 0, err
	}
	return s.sample(o).wait()
}

// checkSampling refuses penalties over more tokens than the history on the device has.
func (r *Runner) checkSampling(o *sampling.Params) error {
	if n := len(r.newest); o.RepeatLastN > n && n < r.Context() {
		return fmt.Errorf("engine: penalties look at the last %d tokens, want at most the %d of Config.RepeatLastN", o.RepeatLastN, n)
	}
	return nil
}

// pendingToken is a token that the device samples for a sequence.
type pendingToken struct {
	*Sequence
	pos  int // that it follows
	read device.PendingRead
}

// sample queues the sampling of a token, after its history and position.
func (s *Sequence) sample(o sampling.Params) pendingToken {
	s.writeHistory()
	s.runner.write(s.runner.pos, []int32{int32(s.Len() - 1)})
	return s.sampleAt(o, 0)
}

// sampleAt queues the sampling of the token that follows the position in a row of r.pos.
// The history on the device is up to date.
func (s *Sequence) sampleAt(o sampling.Params, row int) pendingToken {
	r, slot := s.runner, s.kv.Slot()
	next, logits, logit, ops := r.next.Rows(slot, slot+1), r.logits.Rows(s.row, s.row+1), r.logit.Rows(slot, slot+1), r.dev.Queue()
	r.how[0] = o
	device.Do(ops, device.SampleTokens{Next: next, Logits: logits, History: r.history.Rows(slot, slot+1), Pos: r.pos.Rows(row, row+1), Params: r.how[:1]})
	device.Do(ops, device.Gather{Dst: logit, Src: logits.Reshape(r.model.Vocab, 1), Rows: next})
	c := pendingToken{Sequence: s, pos: s.Len() - 1}
	if d, ok := r.dev.(device.AsyncReader); ok {
		c.read = d.ReadAsync(next, logit)
	}
	return c
}

// errNotNumbers is the error of sampling from logits that are not numbers.
type errNotNumbers struct{ pos int }

func (e errNotNumbers) Error() string {
	return fmt.Sprintf("engine: the logits of position %d are not numbers: %s", e.pos, whyNotNumbers)
}

// wait waits for the token and makes it the one that the next Step stores.
func (c pendingToken) wait() (int32, error) {
	var id, logit [4]byte
	var err error
	if c.read != nil {
		err = c.read.Wait(id[:], logit[:])
	} else if err = c.runner.dev.Read(id[:], c.runner.next.Rows(c.kv.Slot(), c.kv.Slot()+1)); err == nil {
		err = c.runner.dev.Read(logit[:], c.runner.logit.Rows(c.kv.Slot(), c.kv.Slot()+1))
	}
	if err != nil {
		return 0, err
	}
	if !finite(math.Float32frombits(binary.NativeEndian.Uint32(logit[:]))) {
		return 0, errNotNumbers{c.pos}
	}
	c.next = int32(binary.NativeEndian.Uint32(id[:]))
	return c.next, nil
}

// whyNotNumbers is the cause of logits that are not numbers.
const whyNotNumbers = "the model file is damaged or not for this architecture"

// finite reports whether x is a number and not infinite.
func finite(x float32) bool { return x-x == 0 }

// CheckLogits refuses logits after the last stored token of which any is not a number. It
// reads them all, once a prompt; Sample checks only the logit of its token.
func (s *Sequence) CheckLogits() error {
	logits := make([]float32, s.runner.model.Vocab)
	if err := s.Logits(logits); err != nil {
		return err
	}
	broken := 0
	for _, x := range logits {
		if !finite(x) {
			broken++
		}
	}
	if broken > 0 {
		return fmt.Errorf("engine: %d of %d logits of position %d are not numbers: %s", broken, len(logits), s.Len()-1, whyNotNumbers)
	}
	return nil
}

// writeHistory copies the newest tokens to the history on the device.
func (s *Sequence) writeHistory() {
	ring := s.runner.newest
	for i := range ring {
		ring[i] = -1
	}
	for p := max(0, len(s.tokens)-len(ring)); p < len(s.tokens); p++ {
		ring[p%len(ring)] = s.tokens[p]
	}
	slot := s.kv.Slot()
	s.runner.write(s.runner.history.Rows(slot, slot+1).Reshape(len(ring)), ring)
}

// Logits copies out the logits after the last stored token, f32 [vocab]. They
// are gone after the next prefill or step of any sequence of the runner, and may be
// after [Sequence.Generate].
func (s *Sequence) Logits(dst []float32) error {
	if s.row < 0 {
		return errNoLogits
	}
	return read(s.runner.dev, dst, s.runner.logits.Rows(s.row, s.row+1))
}

// Truncate drops the tokens from n on and returns how many stay: n, or the last page
// boundary before it where attention methods keep state per page, which is only valid for
// whole pages.
func (s *Sequence) Truncate(n int) int {
	n = s.runner.truncate(s.kv, n)
	s.tokens = s.tokens[:n]
	return n
}

// Repeat extends the sequence by n tokens without computing them: their keys and
// values are copies of its pages, cyclically. It is for benchmarks only, which need a
// cache of a length and not of a text: the cost of dense attention does not
// depend on the values. The sequence must be whole pages.
func (s *Sequence) Repeat(n int) error {
	if err := s.kv.Repeat(n); err != nil {
		return err
	}
	for i := range n {
		s.tokens = append(s.tokens, s.tokens[i])
	}
	return nil
}

// Fork opens a sequence with the same tokens, which shares their memory. It has a
// copy of the logits, which stays through the steps of sequences in lower slots:
// a fork takes the lowest slot that is free.
func (s *Sequence) Fork() (*Sequence, error) {
	r := s.runner
	kv, err := r.fork(s.kv)
	if err != nil {
		return nil, err
	}
	row := kv.Slot()
	if s.row < 0 {
		row = s.row
	} else if row != s.row {
		device.Do(r.dev.Queue(), device.Copy{Dst: r.logits.Rows(row, row+1), Src: r.logits.Rows(s.row, s.row+1)})
	}
	return &Sequence{runner: r, kv: kv, tokens: slices.Clone(s.tokens), next: s.next, row: row}, nil
}

// Close frees the slot and the pages.
func (s *Sequence) Close() { s.kv.Close() }
