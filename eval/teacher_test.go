package eval

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
)

// TestTeacherForcedIsDense compares decode steps with one prefill of the same
// windows: dense attention sees the same text in both.
func TestTeacherForcedIsDense(t *testing.T) {
	e, _, seq := open(t, modeltest.Shape{}, 128)
	ids := text(250)
	for _, o := range []TeacherOptions{
		{Context: 80, Steps: 30, BOS: -1}, {Context: 80, Steps: 79, BOS: 1}, {Context: 125, Steps: 1, BOS: -1}, {Context: 64, Steps: 16, BOS: -1, Windows: 2},
	} {
		r, err := e.NewRunner(engine.Config{Context: 128})
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		n := 0
		for w := range o.windows(len(ids)) {
			window := append([]int32(nil), ids[w*o.Context:(w+1)*o.Context]...)
			if o.BOS >= 0 {
				window[0] = o.BOS
			}
			seq.Truncate(0)
			if err := seq.Prefill(context.Background(), window, engine.PrefillOptions{Logits: func(pos int, logits []float32) error {
				if pos+1 >= o.Context-o.Steps && pos+1 < o.Context {
					sum += surprise(logits, window[pos+1])
					n++
				}
				return nil
			}}); err != nil {
				t.Fatal(err)
			}
		}
		all, err := MeasureTeacherForced(context.Background(), r, e.Model.Vocab, ids, o)
		if err != nil {
			t.Fatal(err)
		}
		p := all[0]
		if p.Tokens != n || math.Abs(p.NLL()-sum/float64(n)) > 1e-4 || !p.Complete() || p.Windows != o.windows(len(ids)) {
			t.Errorf("%+v: %d tokens with %v, want %d with %v", o, p.Tokens, p.NLL(), n, sum/float64(n))
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTeacherForcedRefuses(t *testing.T) {
	e, r, _ := open(t, modeltest.Shape{}, 64)
	for _, o := range []TeacherOptions{{Context: 64}, {Context: 8, Steps: 8}, {Context: 500, Steps: 8}} {
		if _, err := MeasureTeacherForced(context.Background(), r, e.Model.Vocab, text(100), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, err := e.NewRunner(engine.Config{Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	o := TeacherOptions{Context: 32, Steps: 8, BOS: -1, Progress: func(done, total int, _ []Perplexity) { cancel() }}
	all, err := MeasureTeacherForced(ctx, r, e.Model.Vocab, text(100), o)
	p := all[0]
	if !errors.Is(err, context.Canceled) || p.Windows != 1 || p.Tokens != 8 || p.Complete() {
		t.Errorf("%+v, %v: want the window that was finished", p, err)
	}
}
