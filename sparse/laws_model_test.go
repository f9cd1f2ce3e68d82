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

// The dense limit on six random layers and 4,096 positions, two chunks.
func TestLawDenseLimitOfALongPrompt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "random.gguf")
	must(t, modeltest.Writer(modeltest.Shape{Layers: 6, Heads: 2, KVHeads: 1, Dim: 32, HeadDim: 16, Context: 4096}).WriteFile(path))
	denseModel(t, path, 4096, *long)
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
