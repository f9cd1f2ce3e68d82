package main

import (
	"strings"
	"testing"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// TestRopeFlags: the flags make of a file what a file is that says the same, and of one that
// says it what one without it is; inspect shows what is in force.
func TestRopeFlags(t *testing.T) {
	plain := clitest.RandomModel(t, modeltest.Shape{Arch: "qwen3"})
	yarn := clitest.RandomModel(t, modeltest.Shape{Arch: "qwen3", Keys: map[string]any{
		"qwen3.rope.scaling.type": "yarn", "qwen3.rope.scaling.factor": float32(4), "qwen3.rope.scaling.original_context_length": 128,
		"qwen3.rope.freq_base": float32(5000), "qwen3.rope.scaling.yarn_beta_fast": float32(20), "qwen3.rope.scaling.attn_factor": float32(1.25),
	}})
	flags := []string{"--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-orig-ctx", "128", "--rope-freq-base", "5000", "--yarn-beta-fast", "20", "--yarn-attn-factor", "1.25"}
	logits := func(path string, flags ...string) string {
		return ok(t, "[1,40,41,42,43,44,45,46]", append([]string{"logits", "-m", path, "--tokens", "-", "-o", "-"}, flags...)...)
	}
	if logits(plain, flags...) != logits(yarn) {
		t.Error("the flags give other logits than a file that says the same")
	}
	if logits(yarn, "--rope-scaling", "none", "--rope-freq-base", "10000", "--yarn-attn-factor", "1") != logits(plain) {
		t.Error("the flags give other logits than a file without scaling")
	}
	if logits(plain) == logits(yarn) {
		t.Error("the files do not differ")
	}
	out := ok(t, "", append([]string{"inspect", plain}, flags...)...)
	for _, want := range []string{"512 tokens, extended from 128", "base 5000 over 16 dimensions, in halves, yarn scaling by 4, rotated values times 1.423"} {
		if !strings.Contains(out, want) {
			t.Errorf("inspect says\n%s, want %q in it", out, want)
		}
	}
	for _, c := range []struct {
		code  int
		flags []string
		words []string
	}{
		{console.ExitUsage, []string{"--rope-scaling", "ntk"}, []string{`--rope-scaling "ntk"`, "none, linear or yarn"}},
		{console.ExitUsage, []string{"--rope-scale", "-4"}, []string{"--rope-scale -4", "above 0"}},
		{console.ExitUsage, []string{"--rope-freq-base", "0.5"}, []string{"--rope-freq-base 0.5", "above 1"}},
		{console.ExitUsage, []string{"--yarn-orig-ctx", "-1"}, []string{"--yarn-orig-ctx -1"}},
		{console.ExitUsage, []string{"--yarn-beta-fast", "1", "--yarn-beta-slow", "2"}, []string{"--yarn-beta-fast 1 is below"}},
		{console.ExitUsage, []string{"--rope-factor", "4"}, []string{"--rope-scale"}},
		{console.ExitFailure, []string{"--rope-scaling", "yarn"}, []string{"scaling yarn without a factor"}},
		{console.ExitFailure, []string{"--rope-scaling", "none", "--rope-scale", "4"}, []string{"the rule is none"}},
	} {
		fails(t, c.code, c.words, "[1]", append([]string{"logits", "-m", plain, "--tokens", "-", "-o", "-"}, c.flags...)...)
	}
}
