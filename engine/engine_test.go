package engine_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/tokenizer"
)

// shared is where the larger reference files lie, beside a checkout.
const shared = "../../shared/data/"

// need skips the test where a reference file is missing, and fails it in CI.
func need(t *testing.T, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("reference file is missing: %v", err)
	}
	return path
}

func open(t *testing.T, path string) *engine.Engine {
	t.Helper()
	e, err := engine.Open(path, devtest.Device, device.Config{Threads: 2})
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

func runner(t *testing.T, e *engine.Engine, c engine.Config) *engine.Runner {
	t.Helper()
	r, err := e.NewRunner(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sequence(t *testing.T, r *engine.Runner) *engine.Sequence {
	t.Helper()
	s, err := r.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// story is a prompt and what llama.cpp continues it with, greedily.
type story struct {
	Prompt string  `json:"prompt"`
	IDs    []int32 `json:"prompt_tokens"`
	Greedy []int32 `json:"greedy_tokens"`
	Text   string  `json:"greedy_text"`
}

func stories(t *testing.T) (*engine.Engine, story) {
	t.Helper()
	e := open(t, "../testdata/stories260K.gguf")
	data, err := os.ReadFile("../testdata/stories260K.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []story `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return e, file.Cases[0]
}

func TestGreedyTextIsLlamaCppsWordForWord(t *testing.T) {
	e, want := stories(t)
	ids := e.Tokenizer.Encode(want.Prompt, tokenizer.EncodeOptions{AddSpecial: true})
	if !slices.Equal(ids, want.IDs) {
		t.Fatalf("prompt ids %v, want %v", ids, want.IDs)
	}
	r := runner(t, e, engine.Config{Slots: 2})
	whole := sequence(t, r)
	res, err := whole.Generate(context.Background(), ids, engine.Options{MaxTokens: len(want.Greedy)})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(res.Tokens, want.Greedy) || res.Text != want.Text || res.Stop != engine.StopLength {
		t.Errorf("stop %s\n got %v %q\nwant %v %q", res.Stop, res.Tokens, res.Text, want.Greedy, want.Text)
	}
}

// logits is the logits after the last token, as the model gave them.
func logits(t *testing.T, e *engine.Engine, s *engine.Sequence) []float32 {
	t.Helper()
	v := make([]float32, e.Model.Vocab)
	if err := s.Logits(v); err != nil {
		t.Fatal(err)
	}
	return v
}

func prefill(t *testing.T, s *engine.Sequence, ids []int32) {
	t.Helper()
	if len(ids) == 0 {
		return
	}
	if err := s.Prefill(context.Background(), ids, engine.PrefillOptions{}); err != nil {
		t.Fatal(err)
	}
}

// stepEach stores ids one decode step at a time.
func stepEach(t *testing.T, r *engine.Runner, s *engine.Sequence, ids []int32) {
	t.Helper()
	for _, id := range ids {
		if err := s.Push(id); err != nil {
			t.Fatal(err)
		}
		if err := r.Step(s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPrefillSplitAtEveryOffset(t *testing.T) {
	e, story := stories(t)
	ids := append(slices.Clone(story.IDs), story.Greedy...)
	r := runner(t, e, engine.Config{Slots: 2, KV: stepCache})
	whole := sequence(t, r)
	prefill(t, whole, ids)
	want := logits(t, e, whole)
	for cut := 1; cut < len(ids); cut += stride(1) {
		s := sequence(t, r)
		prefill(t, s, ids[:cut])
		prefill(t, s, ids[cut:])
		if d := distance(logits(t, e, s), want); !(d <= batchDistance) { // a part may be one row
			t.Fatalf("prefill cut at %d: logits differ by %g of the whole prompt's", cut, d)
		}
		s.Close()
	}
}

// stride thins out a loop over cuts under the race detector, which has nothing
// new to find at each of them; make test runs without it too.
func stride(n int) int {
	if race {
		return 16*n + 1
	}
	return n
}

// TestTokenByTokenAgreesWithPrefill compares decode steps with a prefill: the
// kernels differ in the order of additions, so the last bits may.
func TestTokenByTokenAgreesWithPrefill(t *testing.T) {
	e, story := stories(t)
	ids := append(slices.Clone(story.IDs), story.Greedy...)
	r := runner(t, e, engine.Config{Slots: 2, KV: stepCache})
	whole, single := sequence(t, r), sequence(t, r)
	for n := range ids {
		prefill(t, whole, ids[n:n+1])
		want := logits(t, e, whole)
		stepEach(t, r, single, ids[n:n+1])
		if d := distance(logits(t, e, single), want); !(d <= stepDistance) {
			t.Fatalf("position %d: a step's logits differ by %g", n, d)
		}
	}
}

func TestGreedyFromEveryOffset(t *testing.T) {
	e, story := stories(t)
	all := append(slices.Clone(story.IDs), story.Greedy...)
	r := runner(t, e, engine.Config{})
	for cut := 1; cut < len(all)-1; cut += stride(7) {
		s := sequence(t, r)
		prefill(t, s, all[:min(cut, len(story.IDs))])
		stepEach(t, r, s, all[s.Len():max(cut, s.Len())])
		got := slices.Clone(all[:s.Len()])
		for len(got) < len(all) {
			id, err := s.Sample(sampling.Params{})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) < len(story.IDs) { // still inside the prompt
				id = all[len(got)]
				if err := s.Push(id); err != nil {
					t.Fatal(err)
				}
			}
			got = append(got, id)
			if err := r.Step(s); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, all) {
			t.Fatalf("prefill of %d, then steps: %v, want %v", cut, got, all)
		}
		s.Close()
	}
}

// TestBatchEqualsAlone decodes sequences of different lengths together, with an
// idle slot among them, and each alone.
func TestBatchEqualsAlone(t *testing.T) {
	e, story := stories(t)
	all := append(slices.Clone(story.IDs), story.Greedy...)
	prompts := [][]int32{all[:3], all[:40], all[:64], all[:65]}
	const steps = 12

	alone := make([][]float32, len(prompts))
	for i, p := range prompts {
		r := runner(t, e, engine.Config{Context: 128, KV: stepCache})
		s := sequence(t, r)
		prefill(t, s, p)
		stepEach(t, r, s, all[len(p):len(p)+steps])
		alone[i] = logits(t, e, s)
	}

	r := runner(t, e, engine.Config{Context: 128, Slots: 6, KV: stepCache})
	idle := sequence(t, r)
	prefill(t, idle, all[:5])
	var seqs []*engine.Sequence
	for _, p := range prompts {
		s := sequence(t, r)
		prefill(t, s, p)
		seqs = append(seqs, s)
	}
	for n := range steps {
		for i, s := range seqs {
			if err := s.Push(all[len(prompts[i])+n]); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Step(seqs...); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range seqs {
		if d := distance(logits(t, e, s), alone[i]); !(d <= batchDistance) {
			t.Errorf("sequence %d: logits in a batch differ by %g from those alone", i, d)
		}
	}
	if idle.Len() != 5 {
		t.Errorf("the idle sequence has %d tokens, want 5", idle.Len())
	}
}

func TestForkAndTruncate(t *testing.T) {
	e, story := stories(t)
	all := append(slices.Clone(story.IDs), story.Greedy...)
	r := runner(t, e, engine.Config{Slots: 3})
	s := sequence(t, r)
	prefill(t, s, all[:90])
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	prefill(t, s, all[1:30]) // the two go different ways
	prefill(t, f, all[90:120])
	got := logits(t, e, f)

	plain := sequence(t, r)
	prefill(t, plain, all[:120])
	if want := logits(t, e, plain); !slices.Equal(got, want) {
		t.Errorf("after a fork the logits differ by %g", distance(got, want))
	}
	s.Truncate(70)
	prefill(t, s, all[70:120])
	if got := logits(t, e, s); !slices.Equal(got, logits(t, e, s)) || distance(got, want120(t, e, plain, all)) != 0 {
		t.Error("after a truncation the logits differ")
	}
}

// want120 is the logits after the first 120 tokens, computed again.
func want120(t *testing.T, e *engine.Engine, s *engine.Sequence, all []int32) []float32 {
	t.Helper()
	s.Truncate(0)
	prefill(t, s, all[:120])
	return logits(t, e, s)
}

func TestAllLogitsEqualLastLogits(t *testing.T) {
	e, story := stories(t)
	ids := append(slices.Clone(story.IDs), story.Greedy[:65]...)
	r := runner(t, e, engine.Config{Slots: 2, KV: stepCache})
	s := sequence(t, r)
	rows := 0
	check := sequence(t, r)
	var kept [][]float32
	err := s.Prefill(context.Background(), ids, engine.PrefillOptions{Logits: func(pos int, l []float32) error {
		if pos != rows {
			t.Errorf("logits of position %d, want %d", pos, rows)
		}
		rows++
		kept = append(kept, slices.Clone(l))
		return nil
	}})
	if err != nil || rows != len(ids) {
		t.Fatalf("%d rows of %d: %v", rows, len(ids), err)
	}
	if got := logits(t, e, s); !slices.Equal(got, kept[len(kept)-1]) {
		t.Error("the last logits are not those of the last position")
	}
	for n := range ids {
		prefill(t, check, ids[n:n+1])
		if d := distance(logits(t, e, check), kept[n]); !(d <= batchDistance) {
			t.Fatalf("position %d: logits differ by %g", n, d)
		}
	}
}

func TestCancelKeepsTheSequenceWhole(t *testing.T) {
	e, story := stories(t)
	r := runner(t, e, engine.Config{Context: 4500})
	s := sequence(t, r)
	ids := make([]int32, 4200)
	for i := range ids {
		ids[i] = story.Greedy[i%len(story.Greedy)]
	}
	ctx, cancel := context.WithCancel(context.Background())
	var seen float64
	res, err := s.Generate(ctx, ids, engine.Options{Progress: func(done float64) {
		if seen = done; done > 0.6 {
			cancel()
		}
	}})
	if err != nil || res.Stop != engine.StopCancelled || seen < 0.6 || seen == 1 {
		t.Fatalf("stop %q at %v, err %v", res.Stop, seen, err)
	}
	if want := 2500 / r.PassRows() * r.PassRows(); s.Len() != want || len(s.Tokens()) != want {
		t.Errorf("%d positions and %d tokens stay, want the finished chunks' %d", s.Len(), len(s.Tokens()), want)
	}
}

// A prefill that was cancelled leaves nothing behind in what the attention keeps
// beside a page: what follows is what it would have been without it.
func TestCancelLeavesNothingBesideAPage(t *testing.T) {
	e, story := stories(t)
	ids := slices.Concat(story.IDs, story.Greedy)
	ids = slices.Concat(ids, ids, ids)[:330]
	spec, err := sparse.Parse("sketchwalk(tau=3)")
	if err != nil {
		t.Fatal(err)
	}
	r := runner(t, e, engine.Config{Context: 512, Slots: 2, Attn: spec})
	alone, s := sequence(t, r), sequence(t, r)
	prefill(t, alone, ids[:100])
	prefill(t, alone, ids[100:])
	want := logits(t, e, alone)

	prefill(t, s, ids[:100])
	ctx, cancel := context.WithCancel(context.Background())
	err = s.Prefill(ctx, ids[50:250], engine.PrefillOptions{Progress: func(done float64) {
		if done > 0.7 {
			cancel()
		}
	}})
	if err == nil || s.Len() > 100 || len(s.Tokens()) != s.Len() {
		t.Fatalf("err %v, %d positions and %d tokens stay, want at most 100", err, s.Len(), len(s.Tokens()))
	}
	prefill(t, s, ids[s.Len():])
	if got := logits(t, e, s); !slices.Equal(got, want) {
		t.Errorf("after a cancelled prefill the logits differ by %g", distance(got, want))
	}
}

func TestFullContext(t *testing.T) {
	e, story := stories(t)
	r := runner(t, e, engine.Config{Context: 20})
	s := sequence(t, r)
	if _, err := s.Generate(context.Background(), make([]int32, 21), engine.Options{}); err == nil || !strings.Contains(err.Error(), "21 tokens asked for, 20 fit") {
		t.Errorf("prompt too long: %v", err)
	}
	res, err := s.Generate(context.Background(), story.IDs, engine.Options{})
	if err != nil || res.Stop != engine.StopContext {
		t.Fatalf("stop %q, err %v", res.Stop, err)
	}
	if want := story.Greedy[:16]; !slices.Equal(res.Tokens, want) {
		t.Errorf("tokens %v, want %v: 20 positions hold 5 of the prompt and 15 more, and one follows", res.Tokens, want)
	}
}

func TestStopStringIsNotInTheText(t *testing.T) {
	e, story := stories(t)
	r := runner(t, e, engine.Config{})
	s := sequence(t, r)
	var pieces strings.Builder
	res, err := s.Generate(context.Background(), story.IDs, engine.Options{
		MaxTokens: 100, Stop: []string{"outside in", "zzz"},
		Emit: func(p engine.Piece) { pieces.WriteString(p.Text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := strings.Cut(story.Text, "outside in")
	if res.Stop != engine.StopString || res.Text != want || pieces.String() != want {
		t.Errorf("stop %q\ntext   %q\npieces %q\nwant   %q", res.Stop, res.Text, pieces.String(), want)
	}
}

func TestSameSeedSameText(t *testing.T) {
	e, story := stories(t)
	write := func(seed uint64) string {
		r := runner(t, e, engine.Config{})
		res, err := sequence(t, r).Generate(context.Background(), story.IDs, engine.Options{
			MaxTokens: 60, Sampling: sampling.Params{Temperature: 1, TopK: 40, TopP: 0.95, MinP: 0.01, RepeatPenalty: 1.1, RepeatLastN: 64, Seed: seed},
		})
		if err != nil {
			t.Fatal(err)
		}
		return res.Text
	}
	a, b, c := write(1), write(1), write(2)
	if a != b {
		t.Errorf("seed 1 wrote %q and %q", a, b)
	}
	if a == c {
		t.Errorf("seeds 1 and 2 both wrote %q", a)
	}
}

// A runner keeps as many of the newest tokens as penalties may look at, and refuses more.
func TestPenaltiesLookBack(t *testing.T) {
	e, story := stories(t)
	s := sequence(t, runner(t, e, engine.Config{Context: 300, RepeatLastN: 100}))
	o := engine.Options{MaxTokens: 80, IgnoreEnd: true, Sampling: sampling.Params{PresencePenalty: 90, RepeatLastN: 100}}
	res, err := s.Generate(context.Background(), story.IDs[:4], o)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(story.IDs[:4], res.Tokens)
	if slices.Sort(all); len(slices.Compact(all)) != 84 {
		t.Errorf("a token is there twice among %d", res.Tokens)
	}
	o.Sampling.RepeatLastN = 101
	if _, err := s.Generate(context.Background(), story.IDs[:4], o); err == nil || !strings.Contains(err.Error(), "at most the 100") {
		t.Errorf("101 tokens: %v", err)
	}
	if _, err := s.Sample(o.Sampling); err == nil || !strings.Contains(err.Error(), "at most the 100") {
		t.Errorf("101 tokens: %v", err)
	}
}

func TestForeignIDsAreRefused(t *testing.T) {
	e, _ := stories(t)
	s := sequence(t, runner(t, e, engine.Config{Context: 8}))
	for _, ids := range [][]int32{{1, 512}, {-1}, nil} {
		if err := s.Prefill(context.Background(), ids, engine.PrefillOptions{}); err == nil {
			t.Errorf("Prefill(%v): no error", ids)
		}
	}
}

// distance is ‖a-b‖/‖b‖.
func distance(a, b []float32) float64 {
	var diff, norm float64
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		diff += d * d
		norm += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(diff / norm)
}

// TestStepsHardlyAllocate bounds what a decode step allocates on the host: a few
// small values of the pass, whatever the number of layers.
func TestStepsHardlyAllocate(t *testing.T) {
	e := open(t, "../testdata/demo.gguf")
	r := runner(t, e, engine.Config{Context: 256})
	s := sequence(t, r)
	prefill(t, s, []int32{0, 5, 6, 7})
	n := testing.AllocsPerRun(50, func() {
		if err := s.Push(9); err != nil {
			t.Fatal(err)
		}
		if err := r.Step(s); err != nil {
			t.Fatal(err)
		}
	})
	if n > 8 {
		t.Errorf("a step allocates %v times, want at most 8", n)
	}
}
