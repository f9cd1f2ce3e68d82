package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// TestHostileFiles runs every subcommand on files whose names and contents are made to
// fool a terminal. Only what asks for data gets their bytes.
func TestHostileFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x"+clitest.Evil)
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	runs, strange := hostile(t, dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"text": strings.Repeat(clitest.Evil+"word ", 100), "ids.json": "[1, 270, 300]", "broken.json": `["` + clitest.Evil + `"]`, "niah_single_1.jsonl": clitest.Evil + "\n",
		"bad.gguf": "GGUF" + clitest.Evil, "template": "{{ messages }}{{ nothing." + "\u202e" + " }}",
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(at("evil"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"passkey.jsonl", "scbench_kv.jsonl", "2needle.parquet"} {
		if err := os.WriteFile(filepath.Join(at("evil"), name), []byte(clitest.Evil+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	npyFile := save(t, randomArray(1, 2, 8, 4))
	run := func(more ...string) []string {
		return append([]string{"eval", "niah", "-m", runs, "--lengths", "900", "--depths", "1", "--haystack", at("text"), "--max-new-tokens", "2"}, more...)
	}
	none := at("none")
	seen := map[string]bool{}
	for _, tt := range []struct {
		stdin string
		code  int
		data  bool // stdout is data
		args  []string
	}{
		{args: []string{"inspect", runs, "--tensors", "--metadata"}},
		{args: []string{"inspect", strange, "--tensors", "--metadata"}},
		{args: []string{"inspect", runs, "--tensors", "--metadata", "--json"}},
		{args: []string{"inspect", runs, "--template"}, data: true},
		{args: []string{"inspect", none}, code: console.ExitFailure},
		{args: []string{"inspect", at("bad.gguf")}, code: console.ExitFailure},
		{args: []string{"generate", "-v", "-m", runs, "-p", clitest.Evil, "-n", "4"}, data: true},
		{args: []string{"generate", "-v", "-m", runs, "-p", clitest.Evil, "-n", "4", "--chat", "--json"}},
		{args: []string{"generate", "-m", runs, "-p", "a", "--chat", "--template", none}, code: console.ExitFailure},
		{args: []string{"generate", "-m", runs, "-p", "a", "--chat", "--template", "llama3", "-n", "1"}, data: true},
		{args: []string{"generate", "-m", strange, "-p", "a"}, code: console.ExitFailure},
		{args: []string{"generate", "-m", runs, "-p", "a", "--attn", clitest.Evil}, code: console.ExitUsage},
		{args: []string{"generate", "-m", runs, "-p", "a", "--attn", "@" + at("text")}, code: console.ExitUsage},
		{stdin: "Hi\n/system " + clitest.Evil + "\n/system\n/stats\n", args: []string{"chat", "-v", "-m", runs, "-n", "2"}, data: true},
		{stdin: "/" + clitest.Evil, args: []string{"chat", "-m", runs, "-n", "2"}, code: console.ExitFailure, data: true},
		{args: []string{"serve", "-v", "-m", runs, "--ctx", "64", "--slots", "1", "--no-auth", "--host", clitest.Evil}, code: console.ExitFailure},
		{args: []string{"serve", "-m", strange, "--attn", clitest.Evil}, code: console.ExitUsage},
		{args: []string{"tokenize", "-m", runs, "-p", clitest.Evil, "--pieces"}},
		{args: []string{"tokenize", "-m", runs, "-f", at("ids.json"), "--decode"}, data: true},
		{args: []string{"tokenize", "-m", runs, "-f", at("broken.json"), "--decode"}, code: console.ExitFailure},
		{args: []string{"logits", "-v", "-m", runs, "--tokens", at("ids.json"), "-o", at("logits")}},
		{args: []string{"logits", "-m", runs, "--tokens", none, "-o", at("logits")}, code: console.ExitFailure},
		{args: []string{"perplexity", "-v", "-m", runs, "-f", at("text"), "--ctx", "64"}},
		{args: []string{"perplexity", "-m", runs, "-f", at("text"), "--ctx", "64", "--json"}},
		{args: []string{"bench", "-v", "-m", strange}, code: console.ExitFailure}, // measuring the machine takes seconds; the report is below
		{args: []string{"channels", "-v", "-m", runs, "-f", at("text"), "-o", at("channels.npy"), "--limit", "32"}},
		{args: []string{"attend", "-v", "--q", npyFile, "--k", npyFile, "--v", npyFile, "-o", at("out.npy"), "--audit", at("audit.json")}},
		{args: []string{"attend", "--q", at("text"), "--k", npyFile, "--v", npyFile, "-o", at("out.npy")}, code: console.ExitFailure},
		{args: run("-v", "-o", at("run"), "--attn", "dense", "--attn", "streaming(sink=1,window=32)")},
		{args: []string{"eval", "show", at("run")}},
		{args: []string{"eval", "show", none}, code: console.ExitFailure},
		{args: []string{"eval", "compare", at("run"), at("run")}},
		{args: []string{"eval", "merge", "-o", at("merged"), at("run")}},
		{args: []string{"eval", "merge", "-o", at("merged"), none}, code: console.ExitFailure},
		{args: []string{"eval", "ppl", "-v", "-m", runs, "-f", at("text"), "--ctx", "128"}},
		{args: []string{"eval", "score", "--suite", "ruler", at("niah_single_1.jsonl")}, code: console.ExitFailure},
		{args: []string{"eval", "ruler", "-m", runs, "-o", at("ruler"), "--data", none}, code: console.ExitFailure},
		{args: []string{"eval", "longbench", "-m", runs, "-o", at("lb"), "--longbench", none, "--data", none}, code: console.ExitFailure},
		{args: []string{"eval", "longbench2", "-m", runs, "-o", at("lb2"), "--longbench", none, "--data", none}, code: console.ExitFailure},
		{args: []string{"eval", "infinitebench", "-m", runs, "-o", at("ib"), "--data", none, "--tasks", clitest.Evil}, code: console.ExitUsage},
		{args: []string{"eval", "infinitebench", "-m", runs, "-o", at("ib"), "--data", at("evil"), "--tasks", "passkey"}, code: console.ExitFailure},
		{args: []string{"eval", "kvpress-ruler", "-m", runs, "-o", at("kv"), "--data", at("text")}, code: console.ExitFailure},
		{args: []string{"eval", "mrcr", "-m", runs, "-o", at("mrcr"), "--data", at("evil")}, code: console.ExitFailure},
		{args: []string{"eval", "scbench", "-m", runs, "-o", at("sc"), "--data", at("evil"), "--tasks", "scbench_kv"}, code: console.ExitFailure},
		{args: []string{"eval", "recite", "-m", runs, "-o", at("recite"), "--lines", clitest.Evil}, code: console.ExitUsage},
		{args: []string{"eval", "recite", "-v", "-m", runs, "-o", at("recite"), "--lines", "2", "-n", "1"}},
		{args: []string{"eval", "paper", clitest.Evil, "-m", runs, "-o", at("paper")}, code: console.ExitUsage},
		{args: []string{"eval", "paper", "sketchwalk-ruler", "-m", runs, "-o", at("paper"), "--dry-run"}},
		{args: []string{"eval", "ruler-data", "-m", runs, "-o", at("data"), "--lengths", "1024", "--samples", "1", "--tasks", "niah_single_1"}},
		{args: []string{"attn", clitest.Evil}, code: console.ExitUsage},
		{args: []string{"devices"}},
		{args: []string{"version"}},
		{args: []string{"help", clitest.Evil}, code: console.ExitUsage},
		{args: []string{"completion", clitest.Evil}, code: console.ExitUsage},
		{args: []string{clitest.Evil}, code: console.ExitUsage},
	} {
		r := gollm(tt.stdin, tt.args...)
		if r.Code != tt.code {
			t.Errorf("gollm %.80q: exit code %d, want %d: %s", tt.args, r.Code, tt.code, r.Errs)
		}
		what := strings.Join(tt.args[:min(2, len(tt.args))], " ")
		clitest.Harmless(t, what+": stderr", r.Errs)
		if !tt.data {
			clitest.Harmless(t, what+": stdout", r.Out)
		} else if tt.code == console.ExitOK && strings.Contains(r.Out, `\x1b`) {
			t.Errorf("%s: the bytes of data are not as they are: %q", what, r.Out)
		}
		seen[tt.args[0]], seen[what] = true, true
	}
	var bench strings.Builder
	if err := (&benchFlags{}).print(console.NewScreen(&bench), benchReport{Model: runs, Machine: machineReport{CPU: clitest.Evil}}); err != nil {
		t.Fatal(err)
	}
	clitest.Harmless(t, "bench", bench.String())
	for _, name := range leaves(newRoot()) {
		if !seen[name] {
			t.Errorf("gollm %s is not tried", name)
		}
	}
}

// hostile writes models with evil in every text that they have: one that runs and one
// of an unknown architecture.
func hostile(t *testing.T, dir string) (runs, strange string) {
	t.Helper()
	tokens := plainTokens(320)
	for i := 259; i < 320; i++ {
		tokens[i] = clitest.Evil + tokens[i]
	}
	types := make([]int32, 320)
	for i := range types {
		types[i] = 1
	}
	types[0], types[1], types[2], types[300] = 2, 3, 3, 3
	keys := map[string]any{
		"general.name": clitest.Evil, "general." + clitest.Evil: clitest.Evil, clitest.Evil: []string{clitest.Evil, clitest.Evil}, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
		"tokenizer.chat_template": clitest.Evil + "{{ bos_token }}{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}\n" + clitest.Evil,
	}
	make := func(name string, tensors ...string) string {
		w := modeltest.Writer(modeltest.Shape{Context: 1024, Keys: keys})
		for _, tensor := range tensors {
			w.AddF32(tensor, []float32{1}, 1)
		}
		path := filepath.Join(dir, clitest.Evil+name)
		if err := w.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	runs = make("runs.gguf")
	keys["general.architecture"], keys[clitest.Evil+".block_count"], keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"] = clitest.Evil, 3, clitest.Evil, clitest.Evil
	return runs, make("strange.gguf", clitest.Evil)
}

// leaves are the commands without subcommands, by their paths without the root.
func leaves(cmd *cobra.Command) []string {
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.HasSubCommands() {
			all = append(all, leaves(sub)...)
		} else {
			_, path, _ := strings.Cut(sub.CommandPath(), " ")
			all = append(all, path)
		}
	}
	return all
}
