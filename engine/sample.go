package engine

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
)

// Token is a sampled token.
type Token struct {
	ID  int32
	Err error // no token with a finite logit was left; nil for a good token
}

// Sample samples the token that follows each of some sequences from the logits of the last
// [Runner.Step], with how[i] for active[i], and makes it the one that the next Step stores.
// The rows are sampled in one call; each token is that of [Sequence.Sample]. A single
// sequence may have its logits of a prefill, too.
func (r *Runner) Sample(active []*Sequence, how []sampling.Params) ([]Token, error) {
	if len(active) != len(how) {
		return nil, fmt.Errorf("engine: %d sampling parameters for %d sequences", len(how), len(active))
	}
	rows := 0
	for i, s := range active {
		if s.row != s.kv.Slot() && (s.row < 0 || len(active) > 1) {
			return nil, errNoLogits
		}
		if err := r.checkSampling(&how[i]); err != nil {
			return nil, err
		}
		rows = max(rows, s.kv.Slot()+1)
	}
	switch {
	case len(active) == 0:
		return nil, nil
	case len(active) == 1:
		id, err := active[0].Sample(how[0])
		if _, broken := err.(errNotNumbers); err != nil && !broken {
			return nil, err
		}
		return []Token{{id, err}}, nil
	}
	return r.sampleRows(active, how, rows)
}

// sampleRows samples the first rows of the logits, those of idle slots too, which costs
// less than a call for each sequence.
func (r *Runner) sampleRows(active []*Sequence, how []sampling.Params, rows int) ([]Token, error) {
	clear(r.how[:rows])
	clear(r.host[:rows])
	for i, s := range active {
		slot := s.kv.Slot()
		r.how[slot], r.host[slot] = how[i], int32(s.Len()-1)
		if how[i].RepeatLastN > 0 {
			s.writeHistory()
		}
	}
	pos, next, logits := r.pos.Rows(0, rows), r.next.Rows(0, rows), r.logits.Rows(0, rows)
	r.write(pos, r.host[:rows])
	q := r.dev.Queue()
	device.Do(q, device.SampleTokens{Next: next, Logits: logits, History: r.history.Rows(0, rows), Pos: pos, Params: r.how[:rows]})
	for _, s := range active {
		row := s.kv.Slot()
		device.Do(q, device.Gather{Dst: r.logit.Rows(row, row+1), Src: logits.Rows(row, row+1).Reshape(r.model.Vocab, 1), Rows: next.Rows(row, row+1)})
	}
	ids, of := make([]int32, rows), make([]float32, rows)
	if err := read(r.dev, ids, next); err != nil {
		return nil, err
	}
	if err := read(r.dev, of, r.logit.Rows(0, rows)); err != nil {
		return nil, err
	}
	out := make([]Token, len(active))
	for i, s := range active {
		row := s.kv.Slot()
		out[i].ID, s.next = ids[row], ids[row]
		if !finite(of[row]) {
			out[i].Err = errNotNumbers{s.Len() - 1}
		}
	}
	return out, nil
}

// SetLogits replaces the logits after the last stored token, f32 [vocab], from which the
// next one is sampled: a token whose logit is -Inf cannot follow.
func (s *Sequence) SetLogits(src []float32) error {
	if s.row < 0 {
		return errNoLogits
	}
	if len(src) != s.runner.model.Vocab {
		return fmt.Errorf("engine: %d logits, want %d", len(src), s.runner.model.Vocab)
	}
	write(s.runner.dev, s.runner.logits.Rows(s.row, s.row+1), src)
	return nil
}

// Allow makes the logits after the last stored token -Inf but for those of a mask, so that
// only these may be sampled: token id is bit id%32 of word id/32. Tokens beyond the mask
// are not allowed.
func (s *Sequence) Allow(mask []uint32) error {
	if s.row < 0 {
		return errNoLogits
	}
	r, slot := s.runner, s.kv.Slot()
	words := make([]int32, r.allowed.Dim(1))
	for i := range min(len(words), len(mask)) {
		words[i] = int32(mask[i])
	}
	allowed := r.allowed.Rows(slot, slot+1)
	write(r.dev, allowed, words)
	device.Do(r.dev.Queue(), device.MaskTokens{Logits: r.logits.Rows(s.row, s.row+1), Allowed: allowed})
	return nil
}

// LogSumExp is the logarithm of the sum of the exponentials of logits, which turns a logit
// into a log-probability by subtraction. It is computed in float64.
func LogSumExp(logits []float32) float64 {
	top := float32(math.Inf(-1))
	for _, x := range logits {
		top = max(top, x)
	}
	var sum float64
	for _, x := range logits {
		sum += math.Exp(float64(x - top))
	}
	return float64(top) + math.Log(sum)
}
