package serve

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/sparse"
)

// testModel opens the model of the stories.
func testModel(t *testing.T) *engine.Engine {
	t.Helper()
	e, err := engine.Open("../testdata/stories260K.gguf", "cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// testSpecs are the specs of most tests: rows that are planned alone, state per page, state
// per sequence, random numbers.
var testSpecs = []string{"dense", "streaming(sink=2,window=40)", "prefill=dense decode=quest(budget=32)", "h2o(hh=20,recent=16)", "santa(samples=8)"}

// testRunners are runners of specs, closed with the test.
func testRunners(t *testing.T, e *engine.Engine, c engine.Config, specs ...string) []*engine.Runner {
	t.Helper()
	var parsed []*sparse.Spec
	for _, text := range specs {
		spec, err := sparse.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, spec)
	}
	all, err := e.NewRunners(c, parsed...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.CloseAll(all); err != nil {
			t.Error(err)
		}
	})
	return all
}

// start starts a scheduler whose runners are fresh; when the test ends it must leave no
// goroutine and no page behind.
func start(t *testing.T, e *engine.Engine, c Config, size engine.Config, specs ...string) *Scheduler {
	t.Helper()
	runners := testRunners(t, e, size, specs...)
	before := runtime.NumGoroutine()
	s := New(e, runners, c)
	t.Cleanup(func() {
		s.Close(t.Context()) // which is done by now: what runs is cancelled
		for range 100 {
			if runtime.NumGoroutine() <= before {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines, %d before", n, before)
		}
		if all, free := runners[0].Blocks(); all != free {
			t.Errorf("%d of %d blocks are free in the end", free, all)
		}
		if err := runners[0].CheckPages(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// story is the beginning of a text of the model, n tokens.
func story(t *testing.T, n int) []int32 {
	t.Helper()
	data, err := os.ReadFile("../testdata/stories260K.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			IDs    []int32 `json:"prompt_tokens"`
			Greedy []int32 `json:"greedy_tokens"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	var ids []int32
	for len(ids) < n {
		for _, c := range file.Cases {
			ids = append(append(ids, c.IDs...), c.Greedy...)
		}
	}
	return ids[:n]
}

// answer is what a request gives.
type answer struct {
	tokens []int32
	text   string
	logs   []Logprob
	stop   engine.StopReason
}

// read waits for an answer.
func read(a *Answer) (got answer, res Result, err error) {
	var text strings.Builder
	for p := range a.Pieces() {
		if p.Token && !p.Prompt {
			got.tokens = append(got.tokens, p.ID)
		}
		if p.Log != nil {
			got.logs = append(got.logs, *p.Log)
		}
		text.WriteString(p.Text)
	}
	res, err = a.Result()
	got.text, got.stop = text.String(), res.Stop
	return got, res, err
}

// same reports whether two answers are the same, bit for bit.
func (a answer) same(b answer) bool {
	equal := func(x, y Logprob) bool { return x.Value == y.Value && slices.Equal(x.Top, y.Top) }
	return slices.Equal(a.tokens, b.tokens) && a.text == b.text && slices.EqualFunc(a.logs, b.logs, equal) && a.stop == b.stop
}

// alone is the answer of a request by package engine, as the only sequence of a runner.
func alone(t *testing.T, e *engine.Engine, runner *engine.Runner, r Request) answer {
	t.Helper()
	seq, err := runner.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	seq.SetRequest(r.Draw)
	var got answer
	logits := make([]float32, e.Model.Vocab)
	prefill := engine.PrefillOptions{}
	if r.Echo && r.Logprobs {
		prefill.Logits = func(pos int, row []float32) error {
			if pos+1 < len(r.Prompt) {
				got.logs = append(got.logs, *logprobOf(row, r.Prompt[pos+1], r.Top))
			}
			return nil
		}
	}
	if err := seq.Prefill(t.Context(), r.Prompt, prefill); err != nil {
		t.Fatal(err)
	}
	text := e.Text(r.Stop)
	for got.stop = engine.StopLength; len(got.tokens) < r.MaxTokens; {
		if err := seq.Logits(logits); err != nil {
			t.Fatal(err)
		}
		id, err := seq.Sample(r.Sampling)
		if err != nil {
			t.Fatal(err)
		}
		got.tokens = append(got.tokens, id)
		if r.Logprobs {
			got.logs = append(got.logs, *logprobOf(logits, id, r.Top))
		}
		if e.Tokenizer.EndOfGeneration(id) {
			got.stop = engine.StopEnd
			break
		}
		piece, stopped := text.Push(id)
		if got.text += piece; stopped {
			got.stop = engine.StopString
			break
		}
		if err := runner.Step(seq); err != nil {
			t.Fatal(err)
		}
	}
	got.text += text.Flush()
	return got
}

// TestOneRequest is what a request that is alone asks for: the log-probabilities of its
// prompt and of its answer are those of package engine, and so is its text.
func TestOneRequest(t *testing.T) {
	e := testModel(t)
	r := Request{Prompt: story(t, 70), MaxTokens: 9, Logprobs: true, Top: 3, Echo: true}
	want := alone(t, e, testRunners(t, e, engine.Config{Context: 128}, "dense")[0], r)
	s := start(t, e, Config{}, engine.Config{Context: 128}, "dense")
	pieces, res, err := s.Do(t.Context(), r)
	if err != nil || res.Prompt != 70 || res.Generated != 9 || len(pieces) != 79 {
		t.Fatalf("%+v, %d pieces, %v", res, len(pieces), err)
	}
	for i, p := range pieces[:70] {
		if !p.Prompt || p.ID != r.Prompt[i] || (p.Log == nil) != (i == 0) {
			t.Fatalf("piece %d of the prompt is %+v", i, p)
		}
	}
	all, err := s.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := read(all[0]); err != nil || !got.same(want) {
		t.Errorf("%v: got %q, want %q", err, got.text, want.text)
	}
	r.Echo, r.Prompt = false, r.Prompt[:1]
	if pieces, res, err = s.Do(t.Context(), r); err != nil || res.Stop != engine.StopLength || len(pieces) != 9 {
		t.Errorf("a prompt of one token: %d pieces, %+v, %v", len(pieces), res, err)
	}
	r.MaxTokens = 0
	if pieces, res, err = s.Do(t.Context(), r); err != nil || res.Stop != engine.StopLength || len(pieces) != 0 {
		t.Errorf("no tokens asked for: %d pieces, %+v, %v", len(pieces), res, err)
	}
}

// TestRefused is requests that are refused at once, with numbers.
func TestRefused(t *testing.T) {
	e := testModel(t)
	s := start(t, e, Config{MaxQueue: 2}, engine.Config{Context: 256, Slots: 2, Blocks: 3}, "dense")
	text := story(t, 300)
	for _, c := range []struct {
		r    Request
		want string
	}{
		{Request{Prompt: text[:100], MaxTokens: 93}, "the prompt has 100 tokens and the answer up to 93, together 193; a sequence holds 256 tokens, the cache 192"},
		{Request{Prompt: text[:193]}, "together 193"},
		{Request{}, "no tokens"},
		{Request{Prompt: []int32{512}}, "token 0 of the prompt is id 512, want 0 to 511"},
		{Request{Prompt: text[:1], Bias: map[int32]float32{-1: 1}}, "a bias of id -1"},
		{Request{Prompt: text[:1], Attn: 1}, "attention spec 1 of 1"},
		{Request{Prompt: text[:1], MaxTokens: -1}, "-1 tokens"},
	} {
		if _, err := s.Submit(t.Context(), c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d tokens, %d more: %v, want %q", len(c.r.Prompt), c.r.MaxTokens, err, c.want)
		}
	}
	for _, r := range []Request{{Prompt: text[:192], MaxTokens: 1}, {Prompt: text[:100], MaxTokens: 92}} { // what just fits
		if n := s.Fits(len(r.Prompt)); n != r.MaxTokens {
			t.Errorf("%d tokens fit behind %d, want %d", n, len(r.Prompt), r.MaxTokens)
		}
		if _, res, err := s.Do(t.Context(), r); err != nil || res.Generated != r.MaxTokens {
			t.Errorf("%d tokens behind %d: %+v, %v", r.MaxTokens, len(r.Prompt), res, err)
		}
	}
	three := slices.Repeat([]Request{{Prompt: text[:1], MaxTokens: 1}}, 3)
	if _, err := s.Submit(t.Context(), three...); err == nil || err.Error() != "serve: 3 answers are asked for at once, and the queue holds 2: ask for fewer, or start gollm serve with a larger --queue" {
		t.Errorf("three requests for a queue of two: %v", err)
	}
	open := make(gate)
	if _, err := s.Submit(t.Context(), Request{Prompt: text[:100], MaxTokens: 92, Constraint: open}, Request{Prompt: text[:100], MaxTokens: 1}); err != nil {
		t.Fatal(err)
	}
	busy := new(BusyError)
	if _, err := s.Submit(t.Context(), three[:2]...); !errors.As(err, &busy) || busy.Limit != 2 || !strings.HasSuffix(err.Error(), "and the queue holds 2; try again later") {
		t.Errorf("two more requests for a queue of two, of which one may run: %v", err)
	}
	close(open)
}

// gate is a constraint that holds its request until it is closed.
type gate chan struct{}

func (g gate) MaskContext(ctx context.Context) ([]uint32, error) {
	select {
	case <-g:
	case <-ctx.Done():
	}
	return slices.Repeat([]uint32{1<<32 - 1}, 16), ctx.Err()
}

func (gate) AcceptToken(int32) error { return nil }

// TestCancelled cancels a request in the queue, one that prefills and one that decodes;
// the others go on.
func TestCancelled(t *testing.T) {
	e := testModel(t)
	s := start(t, e, Config{}, engine.Config{Context: 512, Slots: 2, Blocks: 12}, "dense")
	text := story(t, 300)
	ctx, cancel := context.WithCancel(t.Context())
	long := Request{Prompt: text[:4], MaxTokens: 400, Bias: map[int32]float32{}}
	for _, end := range e.Tokenizer.Ends() {
		long.Bias[end] = -100
	}
	first, err := s.Submit(ctx, long)
	if err != nil {
		t.Fatal(err)
	}
	for range first[0].Pieces() {
		break // it decodes
	}
	queued, err := s.Submit(ctx, Request{Prompt: text, MaxTokens: 9}, Request{Prompt: text, MaxTokens: 9})
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Submit(t.Context(), Request{Prompt: text[:9], MaxTokens: 9})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for _, a := range append(queued, first...) {
		if _, res, err := read(a); err != nil || res.Stop != engine.StopCancelled {
			t.Errorf("a cancelled request: %+v, %v", res, err)
		}
	}
	if got, res, err := read(other[0]); err != nil || len(got.tokens) != 9 {
		t.Errorf("another request: %+v, %v", res, err)
	}
	s.Close(t.Context())
	if _, err := s.Submit(t.Context(), long); err != ErrClosed {
		t.Errorf("after Close: %v", err)
	}
	if st := s.Stats(); st.Running != 0 || st.Waiting != 0 || st.Used != 0 {
		t.Errorf("in the end: %+v", st)
	}
}

// banned lets one token follow, and then another.
type banned struct{ say []int32 }

func (b *banned) MaskContext(context.Context) ([]uint32, error) {
	mask := make([]uint32, 16)
	mask[b.say[0]/32] = 1 << (b.say[0] % 32)
	return mask, nil
}

func (b *banned) AcceptToken(int32) error {
	b.say = b.say[1:]
	return nil
}

// TestConstraint lets a constraint and a bias say what is written. The log-probabilities
// are the model's own.
func TestConstraint(t *testing.T) {
	e := testModel(t)
	s := start(t, e, Config{}, engine.Config{Context: 128}, "dense")
	say := []int32{300, 7, 400}
	r := Request{Prompt: story(t, 20), MaxTokens: 3, Constraint: &banned{slices.Clone(say)}, Logprobs: true}
	pieces, _, err := s.Do(t.Context(), r)
	if err != nil || len(pieces) != 3 {
		t.Fatal(len(pieces), err)
	}
	for i, p := range pieces {
		if p.ID != say[i] || p.Log.Value > -0.5 {
			t.Errorf("token %d is %d with log-probability %g, want %d, which is not likely", i, p.ID, p.Log.Value, say[i])
		}
	}
	r.Constraint, r.Bias = nil, map[int32]float32{300: 100}
	if pieces, _, err = s.Do(t.Context(), r); err != nil || pieces[0].ID != 300 || pieces[2].ID != 300 {
		t.Errorf("%v: a bias of 100 gives %+v", err, pieces)
	}
}

// TestPrefix asks twice, with a beginning that was read before: the answers are bit for
// bit those without the cache, also where the rest would be one row, whose attention
// would be computed as that of a decode step.
func TestPrefix(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	text := make([]int32, 400)
	for i := range text {
		text[i] = rng.Int32N(2000) + 2
	}
	size := engine.Config{Context: 512, Slots: 2, Blocks: 40}
	specs := []string{"dense", "prefill=dense decode=quest(budget=32)", "h2o(hh=20,recent=16)"}
	var both [2]*Scheduler // without the cache, and with it
	for i := range both {
		e, err := engine.Open("../testdata/demo.gguf", "cpu", device.Config{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		both[i] = New(e, testRunners(t, e, size, specs...), Config{NoPrefix: i == 0})
		defer both[i].Close(t.Context())
	}
	for _, c := range []struct{ attn, len, hit int }{
		{0, 300, 0}, {0, 300, 256}, {0, 257, 192}, {0, 256, 192}, {0, 64, 0}, {0, 65, 0}, {0, 66, 64}, {0, 400, 256}, {0, 399, 384},
		{1, 300, 0}, {1, 301, 256}, {2, 300, 0}, {2, 300, 0},
	} {
		r := Request{Attn: c.attn, Prompt: text[:c.len], MaxTokens: 4, Logprobs: true, Top: 2}
		var got [2]answer
		var hit int
		for i, s := range both {
			all, err := s.Submit(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			var res Result
			if got[i], res, err = read(all[0]); err != nil {
				t.Fatal(err)
			}
			hit = res.Cached
		}
		if hit != c.hit || !got[0].same(got[1]) {
			t.Errorf("%s, %d tokens: %d of the cache, want %d; the answers are equal: %v", specs[c.attn], c.len, hit, c.hit, got[0].same(got[1]))
		}
	}
	if st := both[1].Stats(); st.Cached == 0 || st.Hit == 0 || st.Queried < st.Hit {
		t.Errorf("%+v", st)
	}
}

// TestStall cuts chunks by what was measured.
func TestStall(t *testing.T) {
	var p pace
	if n := p.rows(time.Second); n != firstRows {
		t.Errorf("%d rows before a chunk was measured", n)
	}
	p.add(1000, time.Second)
	p.add(3000, time.Second)
	if a, b, c := p.rows(time.Second), p.rows(100*time.Millisecond), p.rows(time.Millisecond); a != 2000 || b != 200 || c != blockLen {
		t.Errorf("%d, %d and %d rows", a, b, c)
	}
}

// TestBroken ends the scheduler, as a device that fails does: what waits and what comes
// later has the error.
func TestBroken(t *testing.T) {
	e := testModel(t)
	s := start(t, e, Config{}, engine.Config{Context: 512, Slots: 1, Blocks: 8}, "dense")
	r := Request{Prompt: story(t, 4), MaxTokens: 400, Bias: map[int32]float32{1: -100, 2: -100}}
	all, err := s.Submit(t.Context(), r, r)
	if err != nil {
		t.Fatal(err)
	}
	for range all[0].Pieces() {
		break // it decodes
	}
	failed := errors.New("the device has failed")
	s.abandon(failed)
	for _, a := range all {
		if _, _, err := read(a); err != failed {
			t.Errorf("a request ends with %v", err)
		}
	}
	<-s.Done()
	if _, err := s.Submit(t.Context(), r); err != failed || s.Err() != failed {
		t.Errorf("another one with %v, the scheduler with %v", err, s.Err())
	}
}

// TestNotNumbers refuses the answers of a model with a weight that is not a number, those
// that echo and those that write. The server goes on.
func TestNotNumbers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "damaged.gguf")
	if err := modeltest.Damaged(modeltest.Shape{}, "output.weight").WriteFile(path); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(path, "cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := New(e, testRunners(t, e, engine.Config{Context: 64}, "dense"), Config{})
	defer s.Close(t.Context())
	for _, r := range []Request{{MaxTokens: 3}, {MaxTokens: 3, Logprobs: true}, {Echo: true, Logprobs: true}, {MaxTokens: 3, Sampling: sampling.Params{Temperature: 1}}} {
		r.Prompt = []int32{1, 5, 9}
		if _, _, err := s.Do(t.Context(), r); err == nil || !strings.Contains(err.Error(), "are not numbers: the model file is damaged") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if err := s.Err(); err != nil {
		t.Errorf("the scheduler has ended: %v", err)
	}
}
