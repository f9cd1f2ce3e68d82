package sparse_test

import (
	"context"
	"flag"
	"path/filepath"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/sparse"
)

// logitsOf is the logits after a prompt and after the steps that follow it.
func logitsOf(t *testing.T, e *engine.Engine, spec string, ids []int32, steps int) []float32 {
	t.Helper()
	s, err := sparse.Parse(spec)
	must(t, err)
	r, err := e.NewRunner(engine.Config{Context: len(ids), Attn: s, KV: device.F32, Seed: 1})
	must(t, err)
	seq, err := r.Open()
	must(t, err)
	must(t, seq.Prefill(context.Background(), ids[:len(ids)-steps], engine.PrefillOptions{}))
	all := make([]float32, 2*e.Model.Vocab)
	must(t, seq.Logits(all[:e.Model.Vocab]))
	for _, id := range ids[len(ids)-steps:] {
		must(t, seq.Push(id))
		must(t, r.Step(seq))
	}
	must(t, seq.Logits(all[e.Model.Vocab:]))
	return all
}

// denseModel holds the logits of every method that reads everything against
// those of dense attention; slow ones only where they are asked for.
func denseModel(t *testing.T, path string, n int, slow bool) {
	t.Helper()
	aboutNumbers(t)
	e, err := engine.Open(path, devtest.Device, device.Config{Threads: 2})
	must(t, err)
	defer e.Close()
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*i*7 + i*13) % e.Model.Vocab)
	}
	want := logitsOf(t, e, "dense", ids, lawSteps)
	for _, s := range subjects {
		if s.full == "" || s.mean || s.full == "dense" || s.slow && !slow {
			continue
		}
		t.Run(title(s.full), func(t *testing.T) {
			same(t, "logits", logitsOf(t, e, fitted(t, s.full, e), ids, lawSteps), want)
		})
	}
}

// The dense limit on a trained model.
func TestLawDenseLimitOfStories(t *testing.T) {
	denseModel(t, "../testdata/stories260K.gguf", 300, true)
}

// long makes the test below run the slow methods too.
var long = flag.Bool("long", false, "run the dense limit over 4,096 positions for slow methods too, minutes")

// The dense limit on six random layers of a Qwen3, whose heads are wider than its stream over
// their number, and 4,096 positions, two chunks.
func TestLawDenseLimitOfALongPrompt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "random.gguf")
	must(t, modeltest.Writer(modeltest.Shape{Arch: "qwen3", Layers: 6, Heads: 2, KVHeads: 1, Dim: 64, HeadDim: 16, Context: 4096}).WriteFile(path))
	denseModel(t, path, 4096, *long)
}

// TestLawsOfAQwen3: on a model of another family, with the rotation of halves, what runs of
// models promise holds for every method: a prompt in two parts is the prompt, a fork goes on as
// the original, and beside another sequence the logits are those of a sequence alone. What
// differs from Llama lies before the methods, so the other laws, on tensors, are its laws too.
func TestLawsOfAQwen3(t *testing.T) {
	aboutNumbers(t)
	path := filepath.Join(t.TempDir(), "random.gguf")
	must(t, modeltest.Writer(modeltest.Shape{Arch: "qwen3", Layers: 4, Heads: 4, KVHeads: 2, Dim: 32, HeadDim: 16}).WriteFile(path))
	e, err := engine.Open(path, devtest.Device, device.Config{Threads: 2})
	must(t, err)
	defer e.Close()
	eachSubject(t, func(t *testing.T, s subject) {
		if s.slow {
			return
		}
		ids := make([]int32, s.len)
		for i := range ids {
			ids[i] = int32((i*i*7 + i*13) % e.Model.Vocab)
		}
		spec, err := sparse.Parse(fitted(t, s.spec, e))
		must(t, err)
		runOnModel(t, e, spec, s, ids)
	})
}

// runOnModel holds runs of a spec on a model against each other.
func runOnModel(t *testing.T, e *engine.Engine, spec *sparse.Spec, s subject, ids []int32) {
	t.Helper()
	prompt := len(ids) - lawSteps
	r, err := e.NewRunner(engine.Config{Context: len(ids), Slots: 4, Attn: spec, KV: device.F32, Seed: 1})
	must(t, err)
	defer r.Close()
	read := func(parts ...[]int32) *engine.Sequence {
		seq, err := r.Open()
		must(t, err)
		for _, part := range parts {
			must(t, seq.Prefill(context.Background(), part, engine.PrefillOptions{}))
		}
		return seq
	}
	whole := read(ids[:prompt])
	fork, err := whole.Fork()
	must(t, err)
	want := steps(t, r, e, ids[prompt:], whole)
	same(t, "a fork", steps(t, r, e, ids[prompt:], fork), want)
	whole.Close()
	if cut := prompt / 2 / max(s.unit, 1) * max(s.unit, 1); !s.prompt && !s.future && cut > 0 {
		parts := read(ids[:cut], ids[cut:prompt])
		same(t, "a prompt in two parts", steps(t, r, e, ids[prompt:], parts), want)
		parts.Close()
	}
	fork.Close()
	beside := read(ids[3:70])
	again := read(ids[:prompt])
	near(t, "beside another", steps(t, r, e, ids[prompt:], again, beside), want)
}

// steps is the logits of the first sequence before and after each of some steps of all.
func steps(t *testing.T, r *engine.Runner, e *engine.Engine, ids []int32, seqs ...*engine.Sequence) []float32 {
	t.Helper()
	all := make([]float32, (len(ids)+1)*e.Model.Vocab)
	for i := range len(ids) + 1 {
		must(t, seqs[0].Logits(all[i*e.Model.Vocab:][:e.Model.Vocab]))
		if i == len(ids) {
			break
		}
		for _, s := range seqs {
			must(t, s.Push(ids[i]))
		}
		must(t, r.Step(seqs...))
	}
	return all
}

// FuzzParse: no panic, and what is read is written so that it reads the same.
func FuzzParse(f *testing.F) {
	for _, s := range subjects {
		f.Add(s.spec)
		f.Add("prefill=" + s.spec + " decode=dense")
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := sparse.Parse(text)
		if err != nil {
			return
		}
		again, err := sparse.Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q is %q, and that is %v, %v", text, s, again, err)
		}
	})
}
