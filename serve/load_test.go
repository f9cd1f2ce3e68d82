package serve

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
)

// mixed is request number i of a mix: lengths, specs, sampling, stop strings and
// log-probabilities.
func mixed(i int, text []int32) Request {
	rng := rand.New(rand.NewPCG(uint64(i), 3))
	from := 0
	if i%3 == 0 { // others share a beginning
		from = rng.IntN(len(text) / 2)
	}
	n := 50 + rng.IntN(14) + 64*(i%2) // so that most answers grow into another page
	if i%8 == 0 {
		n = 1 + rng.IntN(40)
	}
	r := Request{
		Attn: i % len(testSpecs), Prompt: text[from : from+n], MaxTokens: rng.IntN(30), Draw: uint32(i % 2),
		Logprobs: i%4 == 1, Top: i % 3, Echo: i%8 == 1,
	}
	if i%2 == 1 {
		r.Sampling = sampling.Params{Temperature: 1.2, TopP: 0.9, Seed: uint64(i), RepeatPenalty: 1.1, RepeatLastN: 20}
	}
	if i%5 == 2 {
		r.Stop = []string{" was", "ed"}
	}
	return r
}

// TestLoad runs 64 requests at once, mixed in length, spec and sampling, a few of them
// cancelled, over a cache so small that sequences are preempted: each answer is that of
// the request alone, bit for bit, and pages and goroutines are back in the end.
func TestLoad(t *testing.T) {
	e := testModel(t)
	text := story(t, 400)
	size := engine.Config{Context: 256, Slots: 6, Blocks: 5}
	runners := testRunners(t, e, size, testSpecs...)
	want := make([]answer, 64)
	if race {
		want = want[:16]
	}
	for i := range want {
		r := mixed(i, text)
		want[i] = alone(t, e, runners[r.Attn], r)
	}
	t.Run("small cache", func(t *testing.T) {
		if all := load(t, start(t, e, Config{MaxStall: time.Millisecond}, size, testSpecs...), text, want); all.Preempted == 0 && !race {
			t.Error("nothing was preempted: this shows nothing")
		}
	})
	if race {
		return
	}
	t.Run("large cache", func(t *testing.T) {
		size.Blocks = 60
		if all := load(t, start(t, e, Config{MaxStall: time.Millisecond}, size, testSpecs...), text, want); all.Cached == 0 {
			t.Error("nothing was cached: this shows nothing")
		}
	})
}

// load runs the mixed requests and wants an answer each. It returns the sums of results.
func load(t *testing.T, s *Scheduler, text []int32, want []answer) (sums Result) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range want {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		all, err := s.Submit(ctx, mixed(i, text))
		if err != nil {
			t.Fatal(err)
		}
		if i%7 == 6 {
			time.AfterFunc(time.Duration(i)*time.Millisecond, cancel)
		}
		wg.Go(func() {
			got, res, err := read(all[0])
			mu.Lock()
			defer mu.Unlock()
			sums.Preempted, sums.Cached = sums.Preempted+res.Preempted, sums.Cached+res.Cached
			switch {
			case err != nil:
				t.Errorf("request %d: %v", i, err)
			case res.Stop == engine.StopCancelled && i%7 == 6:
			case !got.same(want[i]):
				t.Errorf("request %d, %s:\n got %s %d tokens %.60q\nwant %s %d tokens %.60q", i, testSpecs[i%len(testSpecs)],
					got.stop, len(got.tokens), got.text, want[i].stop, len(want[i].tokens), want[i].text)
			}
		})
	}
	wg.Wait()
	t.Logf("%d preemptions, %d cached tokens", sums.Preempted, sums.Cached)
	return sums
}

// TestPreempted lets three answers grow into a second page where there are pages for two:
// the youngest loses its own, begins anew, and is what it would be alone. So it is for
// methods with state of a sequence and with random numbers, and for seeded sampling.
func TestPreempted(t *testing.T) {
	e := testModel(t)
	text := story(t, 100)
	size := engine.Config{Context: 256, Slots: 4, Blocks: 5}
	runners := testRunners(t, e, size, testSpecs...)
	requests, want := make([][]Request, len(testSpecs)), make([][]answer, len(testSpecs))
	for attn := range testSpecs {
		for i := range 3 {
			r := Request{Attn: attn, Prompt: text[i : i+60], MaxTokens: 12, Logprobs: true, Bias: map[int32]float32{2: 0}}
			r.Sampling = sampling.Params{Temperature: float32(i), Seed: 7}
			requests[attn], want[attn] = append(requests[attn], r), append(want[attn], alone(t, e, runners[attn], r))
		}
	}
	s := start(t, e, Config{}, size, testSpecs...)
	for attn, spec := range testSpecs {
		all, err := s.Submit(t.Context(), requests[attn]...)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range all {
			got, res, err := read(a)
			if want := want[attn][i]; err != nil || !got.same(want) || (res.Preempted > 0) != (i == 2) {
				t.Errorf("%s, request %d: preempted %d times, %v\n got %q\nwant %q", spec, i, res.Preempted, err, got.text, want.text)
			}
		}
	}
}
