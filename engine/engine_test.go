package engine_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
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
	e, err := engine.Open(path, "cpu", device.Config{Threads: 2})
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
	e := open(t, need(t, shared+"models/stories260K.gguf"))
	data, err := os.ReadFile(need(t, shared+"models/stories260K.json"))
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
