package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

func TestPerplexityCommand(t *testing.T) {
	model := clitest.Stories(t)
	text := ok(t, "", "generate", "-m", model, "-p", "Once upon a time", "--temp", "0", "-n", "150")
	args := []string{"perplexity", "-m", model, "-p", "Once upon a time" + text, "--ctx", "32"}
	j := clitest.Decode[perplexityReport](t, ok(t, "", append(args, "--json")...))
	if j.Windows != 4 || j.Tokens != 4*15 || !j.Complete || j.Context != 32 || j.Attn != "dense" || j.Model != model {
		t.Errorf("%+v", j)
	}
	if j.Perplexity < 1 || j.Perplexity > 20 || j.StdErr <= 0 {
		t.Errorf("the model's own greedy text has perplexity %v ± %v", j.Perplexity, j.StdErr)
	}
	if out := ok(t, "", args...); !strings.HasPrefix(out, "perplexity ") || !strings.Contains(out, "±") || strings.Count(out, "\n") != 1 {
		t.Errorf("%q", out)
	}
	s := clitest.Decode[perplexityReport](t, ok(t, "", append(args, "--json", "--stride", "8")...))
	if s.Stride != 8 || s.Tokens != 8*s.Windows || s.Windows <= j.Windows {
		t.Errorf("--stride 8: %+v", s)
	}
}

// A text is data: what looks like a special token in it is scored as text.
func TestPerplexityReadsSpecialTokensAsText(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	j := clitest.Decode[perplexityReport](t, ok(t, "", "perplexity", "-m", model, "-p", strings.Repeat("</s>", 16), "--ctx", "32", "--json"))
	if j.Windows != 2 || !(j.Perplexity > 0) { // 66 tokens: BOS, a space and 64 bytes
		t.Errorf("%+v, want 2 windows", j)
	}
}

// What is not a number is no figure.
func TestPerplexityRefusesLogitsThatAreNotNumbers(t *testing.T) {
	model := filepath.Join(t.TempDir(), "damaged.gguf")
	if err := modeltest.Damaged(modeltest.Shape{}, "blk.0.attn_norm.weight").WriteFile(model); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("abcdefgh", 16)
	for _, args := range [][]string{
		{"perplexity", "-m", model, "-p", text, "--ctx", "64", "--json"},
		{"perplexity", "-m", model, "-p", text, "--ctx", "64"},
	} {
		fails(t, console.ExitFailure, []string{"the logits of position 32 of window 1 are not numbers", "damaged"}, "", args...)
	}
	fails(t, console.ExitFailure, []string{"320 of 320 logits of position 2 are not numbers", "damaged"}, "", "generate", "-m", model, "-p", "ab", "--no-bos", "--json")
	fails(t, console.ExitFailure, []string{"are not numbers", "damaged"}, "hello\n", "chat", "-m", model, "--template", "mistral-v1")
	r := gollm("[1,5]", "logits", "-m", model, "--tokens", "-", "-o", "-")
	if want := "640 of 640 logits are not numbers"; r.Code != console.ExitOK || len(r.Out) != 4*640 || !strings.Contains(r.Errs, want) {
		t.Errorf("logits: exit code %d, %d bytes, stderr %q, want %q", r.Code, len(r.Out), r.Errs, want)
	}
}
