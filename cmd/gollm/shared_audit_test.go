package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

func TestAuditOfGenerate(t *testing.T) {
	model := clitest.Stories(t)
	out, page := filepath.Join(t.TempDir(), "a.json"), filepath.Join(t.TempDir(), "a.html")
	args := []string{"generate", "-m", model, "-p", strings.Repeat("Once upon a time there was a dog. ", 8), "--temp", "0", "-n", "20", "--attn", "streaming(sink=2,window=16)"}
	plain := ok(t, "", args...)
	r := gollm("", append(args, "--audit=4", "--audit-out", out, "--audit-out", page)...)
	if r.Code != console.ExitOK || r.Out != plain {
		t.Fatalf("exit code %d; with an audit it wrote %q, without %q", r.Code, r.Out, plain)
	}
	if !strings.Contains(r.Errs, "audit of streaming(sink=2,window=16)") {
		t.Errorf("stderr has no table: %q", r.Errs)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	a := clitest.Decode[eval.Audit](t, string(text))
	if a.Model != filepath.Base(model) || a.Every != 4 || len(a.Phases) != 2 || a.Phases[1].Rows != 5 || len(a.Phases[1].Cells) != a.Layers {
		t.Errorf("%+v", a)
	}
	for _, p := range a.Phases {
		if m := p.Mean; !(m.Error > 0 && m.Mass > 0 && m.Mass < 1 && m.Density < 1 && m.KRead > 0 && m.KRead < 1) {
			t.Errorf("%s: %+v", p.Phase, m)
		}
	}
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), filepath.Base(model)) {
		t.Errorf("the page: %v", err)
	}
}

func TestAuditOfOtherCommands(t *testing.T) {
	model := clitest.Stories(t)
	long := strings.Repeat("Once upon a time there was a dog. ", 20)
	demo := clitest.Need(t, "../../testdata/demo.gguf")
	for _, tt := range []struct {
		stdin string
		args  []string
		want  []string
	}{
		{"hello\n", []string{"chat", "-m", demo, "--template", "chatml", "-n", "4"}, []string{"prefill", "decode"}},
		{"", []string{"perplexity", "-m", model, "-p", long, "--ctx", "64"}, []string{"prefill"}},
		{"", []string{"bench", "-m", model, "--prefill", "70", "--decode", "70", "--steps", "2", "--reps", "1"}, []string{"prefill", "decode"}},
	} {
		r := gollm(tt.stdin, append(tt.args, "--attn", "streaming(sink=2,window=16)", "--audit")...)
		if r.Code != console.ExitOK {
			t.Fatalf("%v: %+v", tt.args, r)
		}
		for _, w := range append(tt.want, "audit of streaming", "K read %") {
			if !strings.Contains(r.Errs, w) {
				t.Errorf("%v: stderr has no %q: %q", tt.args, w, r.Errs)
			}
		}
	}
}

func TestAuditErrors(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	fails(t, console.ExitUsage, []string{"--audit=0"}, "", "generate", "-m", model, "-p", "x", "--audit=0")
	fails(t, console.ExitUsage, []string{"--audit=often"}, "", "generate", "-m", model, "-p", "x", "--audit=often")
	fails(t, console.ExitUsage, []string{"no/such/a.json", "no folder no/such"}, "", "generate", "-m", model, "-p", "x", "--audit-out", "no/such/a.json")
	fails(t, console.ExitUsage, []string{"/dev/zero", "larger than 1.00 MiB"}, "", "generate", "-m", model, "-p", "x", "--attn", "@/dev/zero")
	fails(t, console.ExitUsage, []string{"a.csv", ".json or .html"}, "", "generate", "-m", model, "-p", "x", "--audit-out", "a.csv")
}
