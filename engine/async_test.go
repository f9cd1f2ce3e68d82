package engine_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// asyncFaulty is a faulty device with asynchronous reads, so that generations queue steps
// before they know their tokens.
type asyncFaulty struct {
	*faulty
	after int // reads until one fails; 0 is never
	reads int
}

var _ device.AsyncReader = (*asyncFaulty)(nil)

type pendingCopy struct {
	bytes [][]byte
	err   error
}

// ReadAsync copies at once: later calls may write over src.
func (d *asyncFaulty) ReadAsync(src ...device.Tensor) device.PendingRead {
	v := &pendingCopy{}
	for _, t := range src {
		b := make([]byte, t.Size())
		v.err = errors.Join(v.err, d.Read(b, t))
		v.bytes = append(v.bytes, b)
	}
	if d.reads++; d.reads == d.after {
		v.err = errFault
	}
	return v
}

// Wait copies out what ReadAsync copied.
func (v *pendingCopy) Wait(dst ...[]byte) error {
	for i, b := range v.bytes {
		copy(dst[i], b)
	}
	return v.err
}

// untimed is a result without its times.
func untimed(r engine.Result) engine.Result {
	r.Prefill, r.Decode = 0, 0
	return r
}

// A generation that queues steps before it knows their tokens gives what one gives
// that does not, whatever ends it, leaves the sequence as that one does, and goes on
// the same.
func TestAsyncStepsChangeNothing(t *testing.T) {
	plain, d := openFaulty(t)
	reads := &asyncFaulty{faulty: d}
	async := openAsync(t, reads)
	_, story := stories(t)
	drawn := sampling.Params{Temperature: 1, TopK: 40, MinP: 0.01, RepeatPenalty: 1.1, FrequencyPenalty: 0.3, RepeatLastN: 20, Seed: 3}
	cases := map[string]struct {
		attn    string
		o       engine.Options
		context int
		stop    engine.StopReason
	}{
		"length":      {o: engine.Options{MaxTokens: 30}, stop: engine.StopLength},
		"one token":   {o: engine.Options{MaxTokens: 1}, stop: engine.StopLength},
		"drawn":       {o: engine.Options{MaxTokens: 90, Sampling: drawn}, stop: engine.StopLength},
		"stop string": {o: engine.Options{MaxTokens: 100, Stop: []string{"outside in"}}, stop: engine.StopString},
		"full":        {context: 70, stop: engine.StopContext},
		"end":         {o: engine.Options{Sampling: sampling.Params{Temperature: 100, Seed: 1}}, context: 500, stop: engine.StopEnd},
		"cancelled":   {o: engine.Options{MaxTokens: 40}, stop: engine.StopCancelled},
		"window":      {attn: "streaming(sink=2,window=20)", o: engine.Options{MaxTokens: 80}, stop: engine.StopLength},
		"sums":        {attn: "sketchwalk(tau=3)", o: engine.Options{MaxTokens: 100, Stop: []string{"outside in"}}, stop: engine.StopString},
		"sets":        {attn: "cis(k=8,sink=2,local=4,tau=-1)", o: engine.Options{MaxTokens: 40}, stop: engine.StopLength},
	}
	for name, c := range cases {
		type outcome struct {
			First, Second engine.Result
			Tokens        []int32
			Len, Bytes    int
			Logits        []float32
		}
		run := func(e *engine.Engine) outcome {
			conf := engine.Config{Context: c.context, Slots: 2}
			if c.attn != "" {
				spec, err := sparse.Parse(c.attn)
				if err != nil {
					t.Fatal(err)
				}
				conf.Attn = spec
			}
			r := runner(t, e, conf)
			s := sequence(t, r)
			o := c.o
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if c.stop == engine.StopCancelled {
				n := 0
				o.Emit = func(engine.Piece) {
					if n++; n == 7 {
						cancel()
					}
				}
			}
			var out outcome
			var err error
			if out.First, err = s.Generate(ctx, story.IDs, o); err != nil {
				t.Fatal(err)
			}
			out.Tokens, out.Len, out.Bytes = slices.Clone(s.Tokens()), s.Len(), r.KVBytes()
			if c.stop != engine.StopContext {
				if out.Second, err = s.Generate(context.Background(), story.IDs[1:], engine.Options{MaxTokens: 5}); err != nil {
					t.Fatal(err)
				}
				prefill(t, s, story.IDs[1:])
				out.Logits = logits(t, e, s)
			}
			out.First, out.Second = untimed(out.First), untimed(out.Second)
			return out
		}
		want, got := run(plain), run(async)
		if want.First.Stop != c.stop {
			t.Errorf("%s: it stops by %q, want %q", name, want.First.Stop, c.stop)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: asynchronously\n got %+v\nwant %+v", name, got, want)
		}
	}
	if reads.reads == 0 {
		t.Error("no token was read asynchronously: nothing was compared")
	}
}

// openAsync opens the story model on a device with asynchronous reads.
func openAsync(t *testing.T, d *asyncFaulty) *engine.Engine {
	t.Helper()
	f := storyFile(t)
	e, err := engine.Load(f, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return e
}

// When the device fails while steps are queued, no sequence keeps the position of a
// step that may have failed, and what follows is what it would have been.
func TestAFailureOfAQueuedStep(t *testing.T) {
	_, f := openFaulty(t)
	d := &asyncFaulty{faulty: f}
	e := openAsync(t, d)
	_, story := stories(t)
	r := runner(t, e, engine.Config{Context: 256, Slots: 2})
	whole, s := sequence(t, r), sequence(t, r)
	want, err := whole.Generate(context.Background(), story.IDs, engine.Options{MaxTokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	d.reads, d.after = 0, 8 // the token after step 7
	res, err := s.Generate(context.Background(), story.IDs, engine.Options{MaxTokens: 20})
	if !errors.Is(err, errFault) || !slices.Equal(res.Tokens, want.Tokens[:7]) {
		t.Fatalf("tokens %v, err %v", res.Tokens, err)
	}
	if kept := append(slices.Clone(story.IDs), want.Tokens[:6]...); !slices.Equal(s.Tokens(), kept) || s.Len() != len(kept) || res.Steps != 6 {
		t.Errorf("%d steps, tokens %v stay, want %v", res.Steps, s.Tokens(), kept)
	}
	if err := s.Logits(make([]float32, e.Model.Vocab)); err == nil {
		t.Error("there are logits after a failure")
	}
	if _, err := s.Sample(sampling.Params{}); err == nil {
		t.Error("a token is sampled after a failure")
	}
	if res, err = s.Generate(context.Background(), want.Tokens[6:7], engine.Options{MaxTokens: 13}); err != nil || !slices.Equal(res.Tokens, want.Tokens[7:]) {
		t.Errorf("tokens %v, err %v, want %v", res.Tokens, err, want.Tokens[7:])
	}
}

// Queued steps are those that Step takes, also where a stopwatch looks on, and none of
// them stays when the device fails.
func TestQueuedSteps(t *testing.T) {
	e, d := openFaulty(t)
	_, story := stories(t)
	for _, attn := range []string{"dense", "sketchwalk(tau=3)"} {
		spec, err := sparse.Parse(attn)
		if err != nil {
			t.Fatal(err)
		}
		r := runner(t, e, engine.Config{Context: 256, Slots: 3, Attn: spec})
		a, b, c := sequence(t, r), sequence(t, r), sequence(t, r)
		for _, s := range []*engine.Sequence{a, b, c} {
			prefill(t, s, story.IDs)
		}
		stepEach(t, r, a, story.Greedy[:70])
		want := logits(t, e, a)
		queue := func(ids []int32, seqs ...*engine.Sequence) {
			for _, id := range ids {
				for _, s := range seqs {
					if err := s.Push(id); err != nil {
						t.Fatal(err)
					}
				}
				if err := r.Queue(seqs...); err != nil {
					t.Fatal(err)
				}
			}
		}
		queue(story.Greedy[:40], b)
		if err := r.Wait(); err != nil {
			t.Fatal(err)
		}
		watch := r.Time()
		queue(story.Greedy[40:70], b)
		watch.Stop()
		if err := r.Wait(); err != nil || watch.Decode.Attend <= 0 || watch.Decode.Attend > time.Hour {
			t.Errorf("%s: %v, %+v", attn, err, watch.Decode)
		}
		if got := logits(t, e, b); !slices.Equal(got, want) || !slices.Equal(b.Tokens(), a.Tokens()) {
			t.Errorf("%s: queued steps differ by %g", attn, distance(got, want))
		}
		queue(story.Greedy[:62], c)
		if err := r.Wait(); err != nil {
			t.Fatal(err)
		}
		n := c.Len()
		queue(story.Greedy[62:65], b, c)
		d.fail = true
		if err := r.Wait(); !errors.Is(err, errFault) {
			t.Fatalf("%s: err %v", attn, err)
		}
		d.fail = false
		if attn != "dense" { // it keeps sums beside each page
			n -= n % device.PageLen
		}
		if c.Len() != n || len(c.Tokens()) != n {
			t.Errorf("%s: %d positions and %d tokens stay, want %d", attn, c.Len(), len(c.Tokens()), n)
		}
		if err := r.Wait(); err != nil {
			t.Errorf("%s: a second Wait: %v", attn, err)
		}
	}
}
