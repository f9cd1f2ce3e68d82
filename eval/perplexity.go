package eval

import (
	"context"
	"fmt"
	"math"

	"github.com/gollm/gollm/engine"
)

// PerplexityOptions says which tokens of a text are scored, and after how many
// others.
//
// The text is cut into windows of Context tokens. A window is read from an
// empty cache, its first token replaced by BOS where the model has one, and its
// last tokens are scored: the second half where Stride is 0, else Stride
// tokens. The next window begins Context tokens later, or Stride where that is
// set. With Stride 0 this is the measure that llama.cpp prints by default.
type PerplexityOptions struct {
	Context int   // tokens of a window
	Stride  int   // 0, or up to Context-1
	BOS     int32 // first token of every window; -1 is the text's own
	// Progress is called after each window; it may be nil.
	Progress func(done, total int, soFar Perplexity)
}

// Perplexity is exp of the mean negative log likelihood of the scored tokens.
type Perplexity struct {
	Value    float64
	StdErr   float64 // of Value, to first order, the tokens taken as independent
	Tokens   int     // scored
	Windows  int
	sum, sq  float64 // of the negative log likelihoods, in nats
	complete bool
}

// Complete reports whether every window was scored.
func (p Perplexity) Complete() bool { return p.complete }

// add counts a token with a negative log likelihood of nll.
func (p *Perplexity) add(nll float64) {
	p.Tokens++
	p.sum += nll
	p.sq += nll * nll
	n := float64(p.Tokens)
	mean := p.sum / n
	p.Value, p.StdErr = math.Exp(mean), 0
	if variance := p.sq/n - mean*mean; variance > 0 && p.Tokens > 1 {
		p.StdErr = p.Value * math.Sqrt(variance/(n-1))
	}
}

// step is how far apart windows begin, and scored how many of a window's last
// tokens count.
func (o PerplexityOptions) step() int {
	if o.Stride > 0 {
		return o.Stride
	}
	return o.Context
}

func (o PerplexityOptions) scored() int {
	if o.Stride > 0 {
		return o.Stride
	}
	return o.Context - o.Context/2 - 1
}

// check reports what cannot be measured.
func (o PerplexityOptions) check(tokens int) error {
	if o.Context < 4 {
		return fmt.Errorf("eval: windows of %d tokens, want 4 or more", o.Context)
	}
	if o.Stride < 0 || o.Stride >= o.Context {
		return fmt.Errorf("eval: a stride of %d, want 0 (none) or 1 to %d, below the window", o.Stride, o.Context-1)
	}
	if tokens < o.Context {
		return fmt.Errorf("eval: the text has %d tokens, want %d at least, one window; use a longer text or shorter windows", tokens, o.Context)
	}
	return nil
}

// MeasurePerplexity scores ids with seq, whose tokens are lost. When ctx is done
// it returns what was measured so far and the error of ctx.
func MeasurePerplexity(ctx context.Context, seq *engine.Sequence, ids []int32, o PerplexityOptions) (Perplexity, error) {
	var p Perplexity
	if err := o.check(len(ids)); err != nil {
		return p, err
	}
	total := (len(ids)-o.Context)/o.step() + 1
	for w := range total {
		at := w * o.step()
		if err := p.window(ctx, seq, ids[at:at+o.Context], o); err != nil {
			return p, err
		}
		p.Windows++
		if o.Progress != nil {
			o.Progress(p.Windows, total, p)
		}
	}
	p.complete = true
	return p, nil
}

// window scores the last tokens of one window. A window that is interrupted
// counts for nothing.
func (p *Perplexity) window(ctx context.Context, seq *engine.Sequence, ids []int32, o PerplexityOptions) error {
	text := append([]int32(nil), ids...)
	if o.BOS >= 0 {
		text[0] = o.BOS
	}
	seq.Truncate(0)
	first := len(ids) - o.scored() - 1 // its logits predict the first scored token
	if first > 0 {
		if err := seq.Prefill(ctx, text[:first], engine.PrefillOptions{}); err != nil {
			return err
		}
	}
	scored := *p
	err := seq.Prefill(ctx, text[first:len(text)-1], engine.PrefillOptions{
		Logits: func(pos int, logits []float32) error {
			nll := surprise(logits, ids[pos+1])
			if math.IsNaN(nll) || math.IsInf(nll, 0) {
				return fmt.Errorf("eval: the logits of position %d of window %d are not numbers: the model file is damaged or not for this architecture", pos, p.Windows+1)
			}
			scored.add(nll)
			return nil
		},
	})
	if err == nil {
		*p = scored
	}
	return err
}

// surprise is the negative log likelihood, in nats, of token id under logits.
func surprise(logits []float32, id int32) float64 {
	top := float32(math.Inf(-1))
	for _, l := range logits {
		top = max(top, l)
	}
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l - top))
	}
	return math.Log(sum) - float64(logits[id]-top)
}
