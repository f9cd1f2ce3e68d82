package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// testProgram is the command as tests run it.
var testProgram = clitest.Program(func(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	return console.Run(ctx, newRoot(), args, in, out, errs)
})

var gollm, ok, fails = testProgram.Run, testProgram.OK, testProgram.Fails

func TestMain(m *testing.M) {
	if os.Getenv(clitest.AsCommand) == "stubborn" {
		stubborn()
	}
	clitest.Main(m, main)
}

// stubborn is a process that notices the first Ctrl-C and goes on.
func stubborn() {
	ctx, release := console.Interruptible(context.Background())
	defer release()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("noticed")
	time.Sleep(time.Minute)
}

func TestSecondInterruptKills(t *testing.T) {
	cmd := clitest.Process()
	cmd.Env = append(os.Environ(), clitest.AsCommand+"=stubborn")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, want := range []string{"ready", "noticed"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
		time.Sleep(50 * time.Millisecond) // the handler is taken away beside the context
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	clitest.Wait(t, cmd)
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("%v, want killed by the second Ctrl-C", cmd.ProcessState)
	}
}

func TestUsageErrors(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	for _, tt := range []struct {
		args  []string
		words []string
	}{
		{[]string{"generat"}, []string{`unknown command "generat"`, "did you mean generate?"}},
		{[]string{"nonsense"}, []string{"gollm --help"}},
		{[]string{"generate", "--tmep", "0"}, []string{"--tmep", "did you mean --temp?"}},
		{[]string{"generate", "-m"}, []string{"flag needs an argument"}},
		{[]string{"help", "nosuch"}, []string{`unknown command "nosuch"`, "gollm --help"}},
		{[]string{"help", "generat"}, []string{`unknown command "generat"`, "did you mean generate?"}},
		{[]string{"help", "generate", "more"}, []string{`"more"`, "gollm generate --help"}},
		{[]string{"completion", "nosuch"}, []string{`unknown command "nosuch" of gollm completion`, "gollm completion --help"}},
		{[]string{"completion", "bahs"}, []string{`unknown command "bahs" of gollm completion`, "did you mean bash?"}},
		{[]string{"completion", "bash", "more"}, []string{`"more"`}},
		{[]string{"run", "-m", model}, []string{`unknown command "run"`, "did you mean chat or generate?"}},
		{[]string{"eval", "needle", "-m", model}, []string{`unknown command "needle" of gollm eval`, "did you mean niah?"}},
		{[]string{"eval", "nosuch", "--tasks", "vt"}, []string{`unknown command "nosuch" of gollm eval`, "gollm eval --help"}},
		{[]string{"eval", "compare", "a"}, []string{"1 folder, want two"}},
		{[]string{"inspect"}, []string{"0 files, want one"}},
		{[]string{"run", model, "hello"}, []string{`unknown command "run"`}},
		{[]string{"show", model}, []string{"did you mean inspect?"}},
		{[]string{"-m", model, "-p", "a"}, []string{"-m: name a command first", "gollm generate -m"}},
		{[]string{"--temp", "0"}, []string{"--temp: name a command first", "gollm generate --temp"}},
		{[]string{"--nonsense"}, []string{"unknown flag --nonsense", "gollm --help"}},
		{[]string{"generate", "-m", model, "-ngl", "99"}, []string{"-ngl: gollm picks the device with --device"}},
		{[]string{"generate", "-m", model, "--n-gpu-layers", "99"}, []string{"--n-gpu-layers: gollm picks the device with --device"}},
		{[]string{"generate", "-m", model, "-c", "4096"}, []string{"-c: the length of the context is --ctx"}},
		{[]string{"chat", "-m", model, "--ctx-size", "4096"}, []string{"--ctx-size: the length of the context is --ctx"}},
		{[]string{"tokenize", "-m", model, "-c", "4096"}, []string{"unknown flag -c", "gollm tokenize --help"}},
		{[]string{"generate", "-m", model, "-temp", "0"}, []string{"-temp: a flag of more than one letter takes two dashes: --temp"}},
		{[]string{"generate", "-m", model, "-seed=4"}, []string{"-seed: a flag of more than one letter takes two dashes: --seed"}},
		{[]string{"generate", "-m", model, "-prompt", "a"}, []string{"-prompt: a flag of more than one letter takes two dashes: --prompt"}},
		{[]string{"generate", "-m", model, "--temperature", "0"}, []string{"--temperature: the temperature is --temp"}},
		{[]string{"generate", "-m", model, "--max-tokens", "9"}, []string{"--max-tokens: the number of tokens to write is -n"}},
		{[]string{"generate", "-m", model, "-ctk", "f16"}, []string{"-ctk", "--kv"}},
		{[]string{"generate", "-m", model, "-cnv"}, []string{"-cnv", "gollm chat"}},
		{[]string{"chat", "-m", model, "-i"}, []string{"-i: a conversation is gollm chat"}},
		{[]string{"generate", "-m", model, "--no-mmap"}, []string{"--no-mmap: gollm always maps the file"}},
		{[]string{"generate", "-m", model, "-n", "many"}, []string{"--tokens \"many\", want a whole number"}},
		{[]string{"generate", "-m", model, "-p", "a", "--temp", "hot"}, []string{"--temp", "hot"}},
		{[]string{"generate", "-m", model, "-p", "a", "more"}, []string{`"more"`}},
		{[]string{"generate", "-p", "a"}, []string{"no model", "-m FILE"}},
		{[]string{"generate", "-m", model, "-p", "a", "-f", "b"}, []string{"both -p and -f"}},
		{[]string{"generate", "-m", model, "-p", "a", "--attn", "dence"}, []string{"--attn", "dence", "dense"}},
		{[]string{"generate", "-m", model, "-p", "a", "--kv", "q8"}, []string{"--kv q8", "f16 or f32"}},
		{[]string{"generate", "-m", model, "-p", "a", "--device", "gpu"}, []string{`--device "gpu"`, "cpu"}},
		{[]string{"generate", "-m", model, "-p", "a", "--device", ""}, []string{`--device ""`, "cpu"}},
		{[]string{"attend", "--q", "a", "--k", "a", "--v", "a", "-o", "b", "--device", ""}, []string{`--device ""`, "cpu"}},
		{[]string{"generate", "-m", model, "-p", "a", "--threads", "-1"}, []string{"--threads -1"}},
		{[]string{"generate", "-m", model, "-p", "a", "--ctx", "-1"}, []string{"--ctx -1"}},
		{[]string{"generate", "-m", model, "-p", "a", "--ctx", "9223372036854775807"}, []string{"--ctx 9223372036854775807", "1099511627776"}},
		{[]string{"generate", "-m", model, "-p", "a", "--temp", "-1"}, []string{"--temp -1", "0 to 100"}},
		{[]string{"generate", "-m", model, "-p", "a", "--temp", "NaN"}, []string{"--temp NaN"}},
		{[]string{"generate", "-m", model, "-p", "a", "--top-p", "1.5"}, []string{"--top-p 1.5", "0 to 1"}},
		{[]string{"generate", "-m", model, "-p", "a", "--top-k", "-4"}, []string{"--top-k -4"}},
		{[]string{"generate", "-m", model, "-p", "a", "--repeat-penalty", "0"}, []string{"--repeat-penalty 0", "1 is off"}},
		{[]string{"generate", "-m", model, "-p", "a", "--repeat-penalty", "1e-38"}, []string{"--repeat-penalty 1e-38", "0.01 to 100"}},
		{[]string{"generate", "-m", model, "-p", "a", "--top-p", "0"}, []string{"--top-p 0", "--top-k 1"}},
		{[]string{"generate", "-m", model, "-p", "a", "--frequency-penalty", "nan"}, []string{"--frequency-penalty", "-100 to 100"}},
		{[]string{"generate", "-m", model, "-p", "a", "--repeat-last-n", "-2"}, []string{"--repeat-last-n -2", "-1 for the whole context"}},
		{[]string{"generate", "-m", model, "-p", "a", "--sampler-order", "top_k;top_q"}, []string{"--sampler-order", `"top_q"`, "penalties;top_k;top_p;min_p;temperature"}},
		{[]string{"generate", "-m", model, "-p", "a", "--sampler-order", "top_k;;temp"}, []string{"--sampler-order", `""`}},
		{[]string{"generate", "-m", model, "-p", "a", "--sampler-order", "top_k;xtc"}, []string{"--sampler-order", "leave out xtc"}},
		{[]string{"generate", "-m", model, "-p", "a", "--sampler-order", "temp;top_k;temperature"}, []string{"--sampler-order", "temperature is there twice"}},
		{[]string{"chat", "-m", model, "--sampler-order", "temp", "--top-k", "3"}, []string{"--top-k does nothing", "top_k"}},
		{[]string{"generate", "-m", model, "-p", "a", "--samplers", "top_k"}, []string{"--sampler-order"}},
		{[]string{"generate", "-m", model, "-p", "a", "--stop", ""}, []string{"--stop"}},
		{[]string{"chat", "-m", model, "--stop", ""}, []string{"--stop"}},
		{[]string{"generate", "-m", model, "-p", "a", "--system", "b"}, []string{"--system", "--chat"}},
		{[]string{"chat"}, []string{"no model"}},
		{[]string{"inspect"}, []string{"0 files, want one"}},
		{[]string{"inspect", "a", "b"}, []string{"2 files, want one"}},
		{[]string{"inspect", model, "--json", "--template"}, []string{"--json", "chat_template"}},
		{[]string{"tokenize", "-p", "a"}, []string{"no model"}},
		{[]string{"logits", "-m", model}, []string{"--tokens"}},
		{[]string{"logits", "-m", model, "--tokens", "-"}, []string{"-o FILE"}},
		{[]string{"bench", "-m", model, "--json", "--csv"}, []string{"choose one"}},
		{[]string{"bench", "-m", model, "--reps", "0"}, []string{"gollm: --reps 0, want 1 or more runs, at most"}},
		{[]string{"bench", "-m", model, "--reps", "9223372036854775807"}, []string{"--reps 9223372036854775807"}},
		{[]string{"bench", "-m", model, "--steps", "9223372036854775807"}, []string{"--steps 9223372036854775807, want 1 or more decode steps, at most 549755813888"}},
		{[]string{"bench", "-m", model, "--prefill", "0", "--decode", "0"}, []string{"nothing to measure"}},
		{[]string{"bench", "-m", model, "--prefill", "-1"}, []string{"-1"}},
		{[]string{"bench", "-m", model, "--prefill", "100", "--ctx", "10"}, []string{"leave out --prefill, or --ctx"}},
		{[]string{"bench", "-m", model, "--decode", "100", "--ctx", "10"}, []string{"leave out --decode, or --ctx"}},
		{[]string{"bench", "-m", model, "--html", "page.html"}, []string{"--html page.html", "--ctx 4k,8k"}},
		{[]string{"bench", "-m", model, "--batch", "0"}, []string{"--batch 0, want 1 to 1024"}},
		{[]string{"generate", "-m", model, "-p", "a", "--threads", "1025"}, []string{"--threads 1025", "1024"}},
		{[]string{"bench", "-m", model, "--prefill", "-1"}, []string{`--prefill "-1", want numbers of tokens such as 512,8k`}},
		{[]string{"bench", "-m", model, "--prefill", "8q"}, []string{`--prefill "8q", want numbers of tokens`, "gollm bench --help"}},
		{[]string{"generate", "-m", model, "-p", "a", "--audit", "3"}, []string{`unexpected argument "3"; did you mean --audit=3?`}},
		{[]string{"generate", "-m", model, "-p", "a", "--audit", "all"}, []string{`unexpected argument "all"; see gollm generate --help`}},
		{[]string{"inspect", "-m", model, model}, []string{"2 files, want one"}},
		{[]string{"logits", "-m", model, "--tokens", "-", "--output", "x"}, []string{"--output: the file to write is -o, or --out"}},
		{[]string{"attend", "--q", "a", "--k", "a", "--v", "a", "-o", "x.txt"}, []string{"-o x.txt: the result is written as .npy"}},
		{[]string{"generate", "-m", model, "-p", "a", "--attn", "doublesparsity"}, []string{"gollm: --attn: doublesparsity: it needs a ranking", "file=CHANNELS.npy"}},
		{[]string{"attend", "--q", "a", "--k", "a", "--v", "a", "-o", "b", "--attn", "hashattention"}, []string{"gollm: --attn: hashattention: it needs networks", "dir=FOLDER"}},
		{[]string{"attn", "sketchwak"}, []string{`"sketchwak"; did you mean sketchwalk?`}},
		{[]string{"attn", "nosuch"}, []string{"nosuch", "there are: dense, "}},
		{[]string{"generate", "-m", model, "-p", "a", "--attn", "SketchWalk"}, []string{`--attn: attention "SketchWalk": no method is called "SketchWalk"; did you mean sketchwalk?`}},
		{[]string{"attn", "SKETCHWALK"}, []string{"did you mean sketchwalk?"}},
		{[]string{"generate", "-m", model, "-p", "a", "--attn", "sketchwalk", "--attn", "quest"}, []string{`--attn is given twice, "sketchwalk" and "quest"`, "--attn 'NAME + NAME'"}},
		{[]string{"generate", "-m", model, "-p", "a", "-p", "rompt"}, []string{`--prompt is given twice, "a" and "rompt": leave one of them out`}},
		{[]string{"chat", "-m", model, "--attn", "quest", "--attn=dense"}, []string{`--attn is given twice, "quest" and "dense"`}},
		{[]string{"tokenize", "-m", model, "-f", "a", "-f", "b"}, []string{`--file is given twice, "a" and "b": leave one of them out`}},
		{[]string{"attn", "dence"}, []string{"dence", "dense"}},
		{[]string{"version", "now"}, []string{`"now"`}},
	} {
		fails(t, console.ExitUsage, tt.words, "", tt.args...)
	}
}

func TestFailures(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	missing := filepath.Join(t.TempDir(), "missing.gguf")
	text := clitest.WriteFile(t, "notes.txt", "this is no model")
	for _, tt := range []struct {
		args  []string
		words []string
	}{
		{[]string{"generate", "-m", missing, "-p", "a"}, []string{"gollm: -m " + missing + ": no such file or directory, want a GGUF file"}},
		{[]string{"generate", "-m", "https://example.org/a.gguf", "-p", "a"}, []string{"no such file", "want a GGUF file of this machine: gollm downloads nothing"}},
		{[]string{"inspect", "meta-llama/Llama-3.1-8B"}, []string{"no such file", "want a GGUF file of this machine: gollm downloads nothing"}},
		{[]string{"generate", "-m", "models/a.gguf", "-p", "a"}, []string{"gollm: -m models/a.gguf: no such file or directory, want a GGUF file"}},
		{[]string{"generate", "-m", text, "-p", "a"}, []string{text, "not a GGUF file"}},
		{[]string{"generate", "-m", t.TempDir(), "-p", "a"}, []string{"a directory"}},
		{[]string{"generate", "-m", model, "-f", missing}, []string{"gollm: -f " + missing + ": no such file or directory, want a text"}},
		{[]string{"logits", "-m", model, "--tokens", missing, "-o", missing}, []string{"gollm: --tokens " + missing + ": no such file or directory, want token ids"}},
		{[]string{"generate", "-m", model, "-p", "", "--no-bos"}, []string{"the prompt has no tokens"}},
		{[]string{"generate", "-m", model, "-p", strings.Repeat("a", 600)},
			[]string{"the prompt has 602 tokens", "was trained for 512", "--ctx 896"}},
		{[]string{"generate", "-m", model, "-p", strings.Repeat("a", 100), "--ctx", "64", "-n", "8"},
			[]string{"the prompt has 102 tokens", "--ctx is 64", "--ctx 128"}},
		{[]string{"generate", "-m", model, "-p", "a", "--chat", "--template", missing}, []string{missing, "llama3", "no such file"}},
		{[]string{"generate", "-m", model, "-p", "a</s>", "--chat", "--template", "mistral-v1", "--no-special"}, []string{"special token"}},
		{[]string{"generate", "-m", model, "-p", "a", "--device", "cpu:4"}, []string{"device 4, want 0"}},
		{[]string{"chat", "-m", missing}, []string{missing}},
		{[]string{"inspect", missing}, []string{"gollm: " + missing + ": no such file or directory, want a GGUF file"}},
		{[]string{"inspect", text}, []string{text, "not a GGUF file"}},
		{[]string{"inspect", model, "--template"}, []string{"no chat template"}},
		{[]string{"tokenize", "-m", text, "-p", "a"}, []string{"not a GGUF file"}},
		{[]string{"tokenize", "-m", model, "--decode", "-p", "1 2 x"}, []string{"token ids: number 3 is x, want a whole number from 0 to 319"}},
		{[]string{"tokenize", "-m", model, "--decode", "-p", "[1, \"2\"]"}, []string{"token ids: number 2 is \"2\", want a whole number"}},
		{[]string{"tokenize", "-m", model, "--decode", "-p", "[1, 2.0]"}, []string{"token ids: number 2 is 2.0, want a whole number"}},
		{[]string{"tokenize", "-m", model, "--decode", "-p", "[1, 2,, 3]"}, []string{"token ids", "[1, 2, 3]", "at byte 7"}},
		{[]string{"tokenize", "-m", model, "--decode", "-p", "1 99999999999999999999"}, []string{"number 2 is 99999999999999999999", "0 to 319"}},
		{[]string{"tokenize", "-m", model, "--decode", "-p", "[1, null]"}, []string{"token ids: number 2 is null"}},
		{[]string{"tokenize", "-m", model, "--decode", "-p", "1 99999"}, []string{"number 2 is 99999", "0 to 319"}},
		{[]string{"perplexity", "-m", model, "-p", "too short"}, []string{"tokens, want 512 at least"}},
		{[]string{"perplexity", "-m", model, "-p", "a", "--ctx", "2"}, []string{"windows of 2 tokens"}},
		{[]string{"perplexity", "-m", model, "-p", "a", "--ctx", "64", "--stride", "64"}, []string{"stride of 64"}},
	} {
		fails(t, console.ExitFailure, tt.words, "", tt.args...)
	}
}

// What is beyond the training runs, and is said.
func TestContextBeyondTheTrainingIsSaid(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	ids := clitest.WriteFile(t, "ids.json", "["+strings.Repeat("7,", 599)+"7]")
	for _, args := range [][]string{
		{"generate", "-m", model, "-p", "a", "-n", "2", "--ctx", "600"},
		{"perplexity", "-m", model, "-p", strings.Repeat("a", 700), "--ctx", "600"},
		{"logits", "-m", model, "--tokens", ids, "-o", "-"},
		{"bench", "-m", model, "--prefill", "600", "--decode", "0", "--reps", "1"},
	} {
		if r := gollm("", args...); r.Code != console.ExitOK || strings.Count(r.Errs, "was trained for 512") != 1 {
			t.Errorf("gollm %v: exit code %d, stderr %q, want one line about the training", args, r.Code, r.Errs)
		}
	}
	if r := gollm("", "bench", "-m", model, "--prefill", "512", "--decode", "0", "--reps", "1"); strings.Contains(r.Errs, "trained") {
		t.Errorf("512 tokens are within the training: %q", r.Errs)
	}
}

func TestMoreThreadsThanCoresIsSaid(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	n := runtime.NumCPU()
	if r := gollm("", "generate", "-m", model, "-p", "a", "-n", "1", "-t", fmt.Sprint(n+1)); r.Code != console.ExitOK || !strings.Contains(r.Errs, fmt.Sprintf("--threads %d, but", n+1)) {
		t.Errorf("%+v", r)
	}
	if r := gollm("", "generate", "-m", model, "-p", "a", "-n", "1", "-t", fmt.Sprint(n)); strings.Contains(r.Errs, "--threads") {
		t.Errorf("%+v", r)
	}
}

func TestMemoryThatIsNotThereIsRefusedWithNumbers(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	ok(t, "", "generate", "-m", model, "-p", "a", "-n", "9223372036854775807")
	fails(t, console.ExitFailure, []string{"for its weights", "for the KV cache of 1000000000000 tokens", "available", "--ctx"}, "",
		"generate", "-m", model, "-p", "a", "--ctx", "1000000000000")
}

func TestHelpNamesEveryCommandAndExitCode(t *testing.T) {
	help := ok(t, "", "--help")
	for _, cmd := range newRoot().Commands() {
		if !strings.Contains(help, "  "+cmd.Name()+" ") {
			t.Errorf("the help does not list %s", cmd.Name())
		}
		if cmd.Short == "" || (cmd.RunE == nil && cmd.Name() != "help" && cmd.Name() != "completion") {
			t.Errorf("%s has no summary or does nothing", cmd.Name())
		}
	}
	for _, word := range []string{"GGUF file", "testdata/demo.gguf", "Exit codes", "130"} {
		if !strings.Contains(help, word) {
			t.Errorf("the help does not say %q", word)
		}
	}
	if out := ok(t, ""); out != help {
		t.Error("gollm alone does not print the help")
	}
}

// Every flag is explained, and the flags of the help are those that exist.
func TestEveryFlagIsExplained(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		help := ok(t, "", "help", cmd.Name())
		for _, line := range strings.Split(cmd.Flags().FlagUsages(), "\n") {
			if name := strings.Fields(line); len(name) > 0 && strings.HasPrefix(name[0], "-") && len(name) < 3 {
				t.Errorf("%s: no explanation in %q", cmd.Name(), line)
			}
		}
		if !strings.Contains(help, "Usage:") {
			t.Errorf("help %s: %q", cmd.Name(), help)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := ok(t, "", "completion", shell); !strings.Contains(out, "gollm") {
			t.Errorf("completion %s: %q", shell, out)
		}
	}
	out := ok(t, "", "__complete", "generate", "--attn", "")
	if got := strings.Split(out, "\n"); !slices.Contains(got, "dense") {
		t.Errorf("--attn completes to %q", out)
	}
	for typed, want := range map[string]string{
		"sketchwalk:p": "sketchwalk:paper-80", "prefill=sk": "prefill=sketchwalk", "prefill=anchor decode=ci": "prefill=anchor decode=cis",
		"cis + vat": "cis + vattention", "topk(k=": "",
	} {
		out := ok(t, "", "__complete", "generate", "--attn", typed)
		if got := strings.Split(out, "\n"); (want != "" && !slices.Contains(got, want)) || (want == "" && got[0] != ":4") {
			t.Errorf("--attn %q completes to %q, want %q", typed, out, want)
		}
	}
	if out := ok(t, "", "__complete", "chat", "--template", "ll"); !strings.Contains(out, "llama3\n") {
		t.Errorf("--template ll completes to %q", out)
	}
	if out := ok(t, "", "__complete", "inspect", ""); !strings.Contains(out, "gguf") {
		t.Errorf("inspect completes to %q", out)
	}
}

func TestVerboseSaysWhatHappensOnStderrOnly(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	args := []string{"generate", "-m", model, "-p", "a", "-n", "3", "--seed", "1"}
	quiet, loud := gollm("", args...), gollm("", append(args, "-v")...)
	if quiet.Out != loud.Out || quiet.Code != 0 || loud.Code != 0 {
		t.Errorf("stdout %q with -v, %q without", loud.Out, quiet.Out)
	}
	for _, word := range []string{model, "21 tensors", "cpu (", "memory available", "2 layers", "KV cache", "hash of the last logits"} {
		if !strings.Contains(loud.Errs, word) {
			t.Errorf("-v does not say %q in %q", word, loud.Errs)
		}
	}
	if n := strings.Count(quiet.Errs, "\n"); n != 1 {
		t.Errorf("without -v %d lines on stderr, want the statistics only: %q", n, quiet.Errs)
	}
}

// Help that cannot be written is a failure like other output.
func TestHelpThatCannotBeWrittenFails(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {}, {"help", "generate"}, {"bench", "-h"}, {"--version"}, {"completion", "bash"}} {
		var errs bytes.Buffer
		if code := testProgram(context.Background(), args, strings.NewReader(""), clitest.Full{}, &errs); code != console.ExitFailure || !strings.Contains(errs.String(), syscall.ENOSPC.Error()) {
			t.Errorf("%v: exit code %d, stderr %q", args, code, errs.String())
		}
	}
}

// Ctrl-C before a command is at work ends it with a line and the exit code that
// is documented.
func TestInterruptWhileReading(t *testing.T) {
	cmd := clitest.Process("generate", "-m", clitest.RandomModel(t, modeltest.Shape{}), "-f", "-")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than a pipe holds: once it is written the command is reading.
	if _, err := in.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	clitest.Wait(t, cmd)
	if code := cmd.ProcessState.ExitCode(); code != console.ExitInterrupted || errs.String() != "gollm: interrupted\n" {
		t.Errorf("exit code %d, stderr %q", code, errs.String())
	}
}
