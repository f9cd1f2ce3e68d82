package engine_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/weights"
)

// damaged opens a random model with one weight of a tensor that is not a number.
func damaged(t *testing.T, tensor string) *engine.Engine {
	t.Helper()
	path := filepath.Join(t.TempDir(), "damaged.gguf")
	if err := modeltest.Damaged(modeltest.Shape{}, tensor).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := device.Open("cpu", device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Load(f, dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// Logits that are not numbers end a generation, whether the text is chosen or
// drawn, and whether they all are or one of them.
func TestLogitsThatAreNotNumbersEndAGeneration(t *testing.T) {
	for tensor, want := range map[string]string{
		"blk.0.attn_norm.weight": "320 of 320 logits of position 2 are not numbers: the model file is damaged or not for this architecture",
		"output.weight":          "1 of 320 logits of position 2 are not numbers",
	} {
		e := damaged(t, tensor)
		for _, temperature := range []float32{0, 0.8} {
			s := sequence(t, runner(t, e, engine.Config{Context: 64}))
			res, err := s.Generate(context.Background(), []int32{1, 5, 9}, engine.Options{MaxTokens: 4, Sampling: device.Sampling{Temperature: temperature}})
			if err == nil || !strings.Contains(err.Error(), want) || len(res.Tokens) > 0 {
				t.Errorf("%s at temperature %v: %v and %v, want %q", tensor, temperature, res.Tokens, err, want)
			}
		}
	}
}

// Logits that break in a step do the same.
func TestAStepWithoutLogitsIsNotSampled(t *testing.T) {
	e := damaged(t, "token_embd.weight") // the row of token 0
	r := runner(t, e, engine.Config{Context: 64})
	s := sequence(t, r)
	if err := s.Prefill(context.Background(), []int32{1, 5, 9}, engine.PrefillOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sample(device.Sampling{}); err != nil {
		t.Fatalf("token 0 is not in the text yet: %v", err)
	}
	if err := s.Push(0); err != nil {
		t.Fatal(err)
	}
	if err := r.Step(s); err != nil {
		t.Fatal(err)
	}
	for _, temperature := range []float32{0, 0.8} {
		if id, err := s.Sample(device.Sampling{Temperature: temperature}); err == nil || !strings.Contains(err.Error(), "the logits of position 3 are not numbers") {
			t.Errorf("at temperature %v: token %d, %v", temperature, id, err)
		}
	}
}
