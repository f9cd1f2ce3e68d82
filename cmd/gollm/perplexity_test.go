package main

import (
	"math"
	"strings"
	"testing"

	"github.com/gollm/gollm/model/modeltest"
)

func TestPerplexityCommand(t *testing.T) {
	model := stories(t)
	text := ok(t, "", "generate", "-m", model, "-p", "Once upon a time", "--temp", "0", "-n", "150")
	args := []string{"perplexity", "-m", model, "-p", "Once upon a time" + text, "--ctx", "32"}
	j := decode[perplexityReport](t, ok(t, "", append(args, "--json")...))
	if j.Windows != 4 || j.Tokens != 4*15 || !j.Complete || j.Context != 32 || j.Attn != "dense" || j.Model != model {
		t.Errorf("%+v", j)
	}
	if j.Perplexity < 1 || j.Perplexity > 20 || j.StdErr <= 0 {
		t.Errorf("the model's own greedy text has perplexity %v ± %v", j.Perplexity, j.StdErr)
	}
	if out := ok(t, "", args...); !strings.HasPrefix(out, "perplexity ") || !strings.Contains(out, "±") || strings.Count(out, "\n") != 1 {
		t.Errorf("%q", out)
	}
	s := decode[perplexityReport](t, ok(t, "", append(args, "--json", "--stride", "8")...))
	if s.Stride != 8 || s.Tokens != 8*s.Windows || s.Windows <= j.Windows {
		t.Errorf("--stride 8: %+v", s)
	}
}

// A text is data: what looks like a special token in it is scored as text.
func TestPerplexityReadsSpecialTokensAsText(t *testing.T) {
	model := randomModel(t, modeltest.Shape{})
	j := decode[perplexityReport](t, ok(t, "", "perplexity", "-m", model, "-p", strings.Repeat("</s>", 16), "--ctx", "32", "--json"))
	if j.Windows != 2 || math.IsNaN(j.Perplexity) { // 66 tokens: BOS, a space and 64 bytes
		t.Errorf("%+v, want 2 windows", j)
	}
}
