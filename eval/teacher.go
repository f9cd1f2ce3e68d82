package eval

import (
	"context"
	"fmt"
	"slices"

	"github.com/gollm/gollm/engine"
)

// TeacherOptions says which tokens of a text are predicted in decode steps, and
// after how many others. A prefill says nothing about attention that works in
// decode steps only; here the text is fed to it token by token.
type TeacherOptions struct {
	Context int   // tokens of a window, the predicted ones among them
	Steps   int   // tokens of a window that are predicted, its last
	Windows int   // at most so many windows; 0 is all
	BOS     int32 // first token of every window; -1 is the text's own
	// Policies is how many attention methods the runner has: each continues the same
	// prefill ([engine.Runner.SetDecodePolicy]). 0 is 1; more need a slot beside the first.
	Policies int
	// Progress is called after each window; it may be nil.
	Progress func(done, total int, soFar []Perplexity)
}

// check reports what cannot be measured.
func (o TeacherOptions) check(tokens int) error {
	if o.Steps < 1 || o.Context < o.Steps+1 {
		return fmt.Errorf("eval: %d predicted tokens in windows of %d, want 1 at least and a token before them", o.Steps, o.Context)
	}
	if tokens < o.Context {
		return fmt.Errorf("eval: the text has %d tokens, want %d at least, one window; use a longer text or shorter windows", tokens, o.Context)
	}
	return nil
}

// windows is how many windows a text has.
func (o TeacherOptions) windows(tokens int) int {
	n := tokens / o.Context
	if o.Windows > 0 {
		n = min(n, o.Windows)
	}
	return n
}

// MeasureTeacherForced reads windows of ids one after the other, each into an
// empty cache: all but its last tokens in a prefill, those in decode steps that
// are given the token which the text has. The first predicted token comes from the
// prefill's logits. There is a result for each attention method of the runner, of the
// same windows. When ctx is done it returns what was measured so far and the error of
// ctx.
func MeasureTeacherForced(ctx context.Context, r *engine.Runner, vocab int, ids []int32, o TeacherOptions) ([]Perplexity, error) {
	all := make([]Perplexity, max(1, o.Policies))
	if err := o.check(len(ids)); err != nil {
		return all, err
	}
	logits := make([]float32, vocab)
	total := o.windows(len(ids))
	for w := range total {
		scored := slices.Clone(all)
		if err := forceWindow(ctx, r, scored, ids[w*o.Context:(w+1)*o.Context], o, logits); err != nil {
			return all, err
		}
		all = scored
		for i := range all {
			all[i].Windows++
			all[i].complete = w == total-1
		}
		if o.Progress != nil {
			o.Progress(w+1, total, all)
		}
	}
	return all, nil
}

// forceWindow reads a window once and predicts its last tokens under each attention
// method.
func forceWindow(ctx context.Context, r *engine.Runner, all []Perplexity, ids []int32, o TeacherOptions, logits []float32) error {
	seq, err := r.Open()
	if err != nil {
		return err
	}
	defer func() { seq.Close() }() // the last of them
	text := slices.Clone(ids)
	if o.BOS >= 0 {
		text[0] = o.BOS
	}
	first := len(text) - o.Steps
	if err := seq.Prefill(ctx, text[:first], engine.PrefillOptions{}); err != nil {
		return err
	}
	if len(all) == 1 {
		return all[0].force(ctx, r, seq, text, first, logits)
	}
	kept, err := seq.Fork()
	if err != nil {
		return err
	}
	defer kept.Close()
	for i := range all {
		if i > 0 { // the one before has given its slot back: a step is of one row
			next, err := kept.Fork()
			if err != nil {
				return err
			}
			seq = next
		}
		r.SetDecodePolicy(i)
		if err := all[i].force(ctx, r, seq, text, first, logits); err != nil {
			return err
		}
		seq.Close()
	}
	return nil
}

// force predicts the tokens of a text from first on; the sequence has those before.
func (p *Perplexity) force(ctx context.Context, r *engine.Runner, seq *engine.Sequence, text []int32, first int, logits []float32) error {
	for i := first; i < len(text); i++ {
		if err := seq.Logits(logits); err != nil {
			return err
		}
		p.add(surprise(logits, text[i]))
		if i == len(text)-1 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := seq.Push(text[i]); err != nil {
			return err
		}
		if err := r.Step(seq); err != nil {
			return err
		}
	}
	return nil
}

// NLL is the mean negative log likelihood of the scored tokens, in nats.
func (p Perplexity) NLL() float64 {
	if p.Tokens == 0 {
		return 0
	}
	return p.sum / float64(p.Tokens)
}
