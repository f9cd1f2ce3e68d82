package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// expected is what llama.cpp wrote.
type expected struct {
	Cases []struct {
		Prompt string  `json:"prompt"`
		IDs    []int32 `json:"prompt_tokens"`
		Tokens []int32 `json:"greedy_tokens"`
		Text   string  `json:"greedy_text"`
	} `json:"cases"`
}

func TestGenerateWritesWhatLlamaCppWrites(t *testing.T) {
	model := clitest.Stories(t)
	raw, err := os.ReadFile(strings.TrimSuffix(model, "gguf") + "json")
	if err != nil {
		t.Fatal(err)
	}
	var want expected
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	for _, c := range want.Cases {
		n := len(c.Tokens)
		args := []string{"generate", "-m", model, "--temp", "0", "-n", countArg(n)}
		if got := ok(t, "", append(args, "-p", c.Prompt)...); got != c.Text {
			t.Errorf("-p %q: %q, want %q", c.Prompt, got, c.Text)
		}
		if got := ok(t, c.Prompt, args...); got != c.Text {
			t.Errorf("stdin %q: %q, want %q", c.Prompt, got, c.Text)
		}
		if got := ok(t, "", append(args, "-f", clitest.WriteFile(t, "prompt", c.Prompt))...); got != c.Text {
			t.Errorf("-f %q: %q, want %q", c.Prompt, got, c.Text)
		}
		j := clitest.Decode[generateReport](t, ok(t, "", append(args, "-p", c.Prompt, "--json")...))
		if j.Text != c.Text || !slices.Equal(j.Tokens, c.Tokens) || !slices.Equal(j.PromptTokens, c.IDs) {
			t.Errorf("--json: %+v, want text %q, tokens %v, prompt %v", j, c.Text, c.Tokens, c.IDs)
		}
	}
}

func countArg(n int) string {
	b, _ := json.Marshal(n) // a number
	return string(b)
}

func TestGenerateJSONHasEveryFigure(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	out := ok(t, "", "generate", "-m", model, "-p", "a<b>&c", "-n", "5", "--seed", "18446744073709551615", "--ignore-eos", "--json")
	j := clitest.Decode[generateReport](t, out)
	if len(j.Tokens) != 5 || j.StopReason != "length" || j.Attn != "dense" || j.Seed != 1<<64-1 {
		t.Errorf("%+v", j)
	}
	if j.PrefillTokS <= 0 || j.DecodeTokS <= 0 || j.TTFTMs <= 0 || j.Model != model || !strings.HasPrefix(j.Device, "cpu") || len(j.LogitsHash) != 16 {
		t.Errorf("%+v", j)
	}
	if want := 2 * 64 * 2 * 2 * 16 * 2; j.KVBytes != want { // k and v, positions of a page, layers, heads, width, bytes
		t.Errorf("kv_bytes %d, want %d", j.KVBytes, want)
	}
	empty := clitest.Decode[generateReport](t, ok(t, "", "generate", "-m", model, "-p", "", "-n", "1", "--json"))
	if len(empty.PromptTokens) != 1 || empty.PromptTokens[0] != 1 {
		t.Errorf("an empty prompt has the tokens %v, want BOS", empty.PromptTokens)
	}
}

func TestGenerateSeed(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	args := []string{"generate", "-m", model, "-p", "a", "-n", "40", "--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--ignore-eos"}
	one := gollm("", append(args, "--seed", "1")...)
	again := gollm("", append(args, "--seed", "1")...)
	two := gollm("", append(args, "--seed", "2")...)
	if one.Code != 0 || one.Out != again.Out {
		t.Errorf("the same seed gave %q and %q", one.Out, again.Out)
	}
	if one.Out == two.Out {
		t.Errorf("seeds 1 and 2 both gave %q", one.Out)
	}
	free := clitest.Decode[generateReport](t, ok(t, "", append(args, "--json")...))
	repeated := clitest.Decode[generateReport](t, ok(t, "", append(args, "--json", "--seed", jsonText(t, free.Seed))...))
	if free.Text != repeated.Text {
		t.Errorf("the printed seed %d does not repeat the text", free.Seed)
	}
	if r := gollm("", append(args, "--seed", "7")...); !strings.Contains(r.Errs, "seed 7") {
		t.Errorf("the statistics %q do not tell the seed", r.Errs)
	}
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestGenerateSamplingFlagsReachTheSampler(t *testing.T) {
	model := clitest.Stories(t)
	base := []string{"generate", "-m", model, "-p", "Once", "-n", "30", "--seed", "3"}
	greedy := ok(t, "", append(base, "--temp", "0")...)
	for _, one := range [][]string{{"--top-k", "1"}, {"--top-p", "0.0001"}, {"--min-p", "1"}} {
		if got := ok(t, "", append(base, append(one, "--temp", "1")...)...); got != greedy {
			t.Errorf("%v leaves one token, but wrote %q, want the greedy %q", one, got, greedy)
		}
	}
	if got := ok(t, "", append(base, "--temp", "0", "--repeat-penalty", "10")...); got == greedy {
		t.Error("--repeat-penalty changes nothing")
	}
	for _, one := range [][]string{{"--presence-penalty", "90"}, {"--frequency-penalty", "90", "--repeat-last-n", "200"}} {
		j := clitest.Decode[generateReport](t, ok(t, "", append(base, append(one, "--temp", "0", "--json")...)...))
		all := slices.Concat(j.PromptTokens, j.Tokens)
		if slices.Sort(all); len(slices.Compact(all)) != len(j.PromptTokens)+len(j.Tokens) {
			t.Errorf("%v: a token is there twice among %d and %d", one, j.PromptTokens, j.Tokens)
		}
		if off := ok(t, "", append(base, append(one, "--temp", "0", "--repeat-last-n", "0")...)...); off != greedy {
			t.Errorf("%v with --repeat-last-n 0 wrote %q, want the greedy %q", one, off, greedy)
		}
	}
}

// With --repeat-last-n -1 the penalties see every token of a text that is longer than
// the default of 64, and the report says how many that is.
func TestGenerateRepeatLastNOfTheContext(t *testing.T) {
	args := []string{"generate", "-m", clitest.Stories(t), "-p", "Once", "-n", "150", "--ctx", "200", "--ignore-eos", "--temp", "0", "--presence-penalty", "90", "--json", "--repeat-last-n"}
	j := clitest.Decode[generateReport](t, ok(t, "", append(args, "-1")...))
	all := slices.Concat(j.PromptTokens, j.Tokens)
	if n := len(all); n != len(j.PromptTokens)+150 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != n {
		t.Errorf("a token is there twice among %d and %d", j.PromptTokens, j.Tokens)
	}
	if j.Sampling.RepeatLastN != 200 {
		t.Errorf("the report says %d, want the 200 of the context", j.Sampling.RepeatLastN)
	}
	if of64 := clitest.Decode[generateReport](t, ok(t, "", append(args, "64")...)); slices.Equal(of64.Tokens, j.Tokens) {
		t.Error("64 and -1 write the same 150 tokens")
	}
}

// The order of the stages reaches the sampler: a temperature that comes first lets
// others through, and without one the temperature is 1.
func TestGenerateSamplerOrder(t *testing.T) {
	base := []string{"generate", "-m", clitest.Stories(t), "-p", "Once", "-n", "30", "--seed", "3"}
	write := func(args ...string) string { return ok(t, "", append(base, args...)...) }
	greedy := write("--temp", "0")
	if last := write("--temp", "100", "--min-p", "0.99"); last != greedy {
		t.Errorf("llama.cpp's order at --temp 100 --min-p 0.99 wrote %q, want the greedy %q", last, greedy)
	}
	if first := write("--temp", "100", "--min-p", "0.99", "--sampler-order", "temperature;min_p"); first == greedy {
		t.Error("--sampler-order changes nothing")
	}
	if none, one := write("--sampler-order", "min-p"), write("--sampler-order", "min_p;temp", "--temp", "1"); none != one {
		t.Errorf("without a temperature %q, with temperature 1 %q", none, one)
	}
	j := clitest.Decode[generateReport](t, write("--sampler-order", "Top_K;temp", "--top-k", "7", "--json"))
	if s := j.Sampling; s.Order != "top_k;temperature" || s.TopK != 7 || s.Temperature != 0.8 || s.RepeatLastN != 64 {
		t.Errorf("the report says %+v", s)
	}
}

func TestGenerateEnds(t *testing.T) {
	model := clitest.Stories(t)
	base := []string{"generate", "-m", model, "-p", "Once upon a time", "--temp", "0", "--json"}
	for _, tt := range []struct {
		args   []string
		reason string
		tokens int // 0 is any
	}{
		{[]string{"-n", "7"}, "length", 7},
		{[]string{"--stop", "Lily"}, "string", 0},
		{[]string{"--stop", "zzz", "--stop", " girl"}, "string", 0},
		{[]string{"-n", "-1", "--ignore-eos", "--ctx", "70"}, "context", 66}, // 5 of the prompt, and the last one is not stored
	} {
		j := clitest.Decode[generateReport](t, ok(t, "", append(base, tt.args...)...))
		if j.StopReason != tt.reason || (tt.tokens > 0 && len(j.Tokens) != tt.tokens) {
			t.Errorf("%v: %s after %d tokens, want %s after %d", tt.args, j.StopReason, len(j.Tokens), tt.reason, tt.tokens)
		}
		for _, stop := range []string{"Lily", " girl"} {
			if tt.reason == "string" && slices.Contains(tt.args, stop) && strings.Contains(j.Text, stop) {
				t.Errorf("%v: %q has the stop string in it", tt.args, j.Text)
			}
		}
	}
	full := gollm("", "generate", "-m", model, "-p", "Once", "--temp", "0", "-n", "-1", "--ignore-eos", "--ctx", "64")
	if full.Code != 0 || !strings.Contains(full.Errs, "the context is full") || !strings.Contains(full.Errs, "--ctx") {
		t.Errorf("a full context: code %d, %q", full.Code, full.Errs)
	}
}

// A model that ends its text at once, and is made to go on.
func TestGenerateIgnoresTheEnd(t *testing.T) {
	args := []string{"generate", "-p", "a", "--temp", "0", "-n", "9", "--json", "-m"}
	first := clitest.Decode[generateReport](t, ok(t, "", append(args, clitest.RandomModel(t, modeltest.Shape{}))...)).Tokens[0]
	model := clitest.RandomModel(t, modeltest.Shape{Keys: map[string]any{"tokenizer.ggml.eos_token_id": int(first)}})
	if j := clitest.Decode[generateReport](t, ok(t, "", append(args, model)...)); j.StopReason != "end" || len(j.Tokens) != 0 || j.Text != "" {
		t.Errorf("%+v, want the end at once", j)
	}
	if j := clitest.Decode[generateReport](t, ok(t, "", append(args, model, "--ignore-eos")...)); j.StopReason != "length" || len(j.Tokens) != 9 || j.Tokens[0] != first {
		t.Errorf("--ignore-eos: %+v, want 9 tokens from %d on", j, first)
	}
}

// The beginning of the text and special tokens, as flags ask for them.
func TestGeneratePromptTokens(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	b := func(s string) (ids []int32) { // bytes as the model's vocabulary has them
		for _, c := range []byte(s) {
			ids = append(ids, int32(c)+3)
		}
		return ids
	}
	space := b(" ") // begins every text of this kind of vocabulary
	for _, tt := range []struct {
		text string
		args []string
		want []int32
	}{
		{"a", nil, append([]int32{1}, append(slices.Clone(space), b("a")...)...)},
		{"a", []string{"--no-bos"}, append(slices.Clone(space), b("a")...)},
		{"<s>", nil, []int32{1}},
		{"</s>", nil, []int32{1, 2}},
		{"</s>", []string{"--no-special"}, append([]int32{1}, append(slices.Clone(space), b("</s>")...)...)},
		{"\n", []string{"--no-bos"}, append(slices.Clone(space), b("\n")...)},
		{"a\\n", []string{"--no-bos"}, append(slices.Clone(space), b(`a\n`)...)},
	} {
		args := append([]string{"generate", "-m", model, "-n", "1", "--json", "-f", clitest.WriteFile(t, "prompt", tt.text)}, tt.args...)
		j := clitest.Decode[generateReport](t, ok(t, "", args...))
		if !slices.Equal(j.PromptTokens, tt.want) {
			t.Errorf("%q %v: %v, want %v", tt.text, tt.args, j.PromptTokens, tt.want)
		}
	}
}

func TestGenerateChatAppliesTheTemplate(t *testing.T) {
	jinja := "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
	model := clitest.RandomModel(t, modeltest.Shape{Keys: map[string]any{"tokenizer.chat_template": jinja}})
	text := func(args ...string) string {
		t.Helper()
		all := append([]string{"generate", "-m", model, "-n", "1", "--json", "--chat", "-p", "Hi"}, args...)
		j := clitest.Decode[generateReport](t, ok(t, "", all...))
		if len(j.PromptTokens) < 2 || j.PromptTokens[0] != 1 || j.PromptTokens[1] == 1 {
			t.Errorf("%v: prompt %v, want one BOS", args, j.PromptTokens)
		}
		return ok(t, jsonText(t, j.PromptTokens), "tokenize", "-m", model, "--decode")
	}
	if got, want := text(), "[user]Hi[assistant]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := text("--system", "Be kind"), "[system]Be kind[user]Hi[assistant]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	other := clitest.WriteFile(t, "t.jinja", "Q: {{ messages[0].content }}\nA:")
	if got, want := text("--template", other), "Q: Hi\nA:"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := text("--template", "chatml"); !strings.Contains(got, "<|im_start|>user\nHi<|im_end|>") {
		t.Errorf("chatml: %q", got)
	}
}

// What is wrong with a file of --template is said of that file, whether it is found when
// it is parsed or when it runs.
func TestGenerateNamesTheTemplateThatFails(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	for source, want := range map[string]string{
		"{% for m in messages %}\n{{ m.content": "line 2", "{{ messages | nofilter }}": "nofilter", `{{ messages }}{{ raise_exception("no") }}`: "refuses: no",
	} {
		bad := clitest.WriteFile(t, "bad.jinja", source)
		fails(t, console.ExitFailure, []string{"gollm: --template " + bad + ": template: ", want}, "", "generate", "-m", model, "--chat", "-p", "Hi", "--template", bad)
	}
}

func TestGenerateChatWithoutTemplateSaysWhatItUses(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	r := gollm("", "generate", "-m", model, "-n", "1", "--chat", "-p", "Hi")
	if r.Code != 0 || !strings.Contains(r.Errs, "has no chat template") || !strings.Contains(r.Errs, "llama2") {
		t.Errorf("code %d, stderr %q", r.Code, r.Errs)
	}
}

// endless is a generation that only a signal ends.
func endless(model string, more ...string) *exec.Cmd {
	return clitest.Process(append([]string{"generate", "-m", model, "-p", "Once", "-n", "-1", "--temp", "0", "--ignore-eos", "--ctx", "200000"}, more...)...)
}

func TestGenerateInterrupted(t *testing.T) {
	cmd := endless(clitest.Stories(t))
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	first := make([]byte, 20)
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if code := clitest.Wait(t, cmd); code != console.ExitInterrupted {
		t.Errorf("exit code %d, want %d; stderr %q", code, console.ExitInterrupted, errs.String())
	}
	text := string(first) + string(rest)
	if want := ok(t, "", "generate", "-m", clitest.Stories(t), "-p", "Once", "--temp", "0", "-n", "5"); !strings.HasPrefix(text, want) {
		t.Errorf("what was written is lost: %q, want it to begin with %q", text, want)
	}
	if !strings.Contains(errs.String(), "interrupted") || !strings.Contains(errs.String(), "tok/s") || strings.Count(errs.String(), "\n") != 2 {
		t.Errorf("stderr %q, want a line about the context and one of statistics", errs.String())
	}
}

func TestGenerateInterruptedJSONIsWhole(t *testing.T) {
	cmd := endless(clitest.Stories(t), "--json", "-v")
	var out strings.Builder
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(errs)
	for lines.Scan() && !strings.Contains(lines.Text(), "KV cache") {
	}
	time.Sleep(200 * time.Millisecond) // into the generation
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, errs)
	if code := clitest.Wait(t, cmd); code != console.ExitInterrupted {
		t.Errorf("exit code %d, want %d", code, console.ExitInterrupted)
	}
	if j := clitest.Decode[generateReport](t, out.String()); j.StopReason != "cancelled" {
		t.Errorf("stop_reason %q", j.StopReason)
	}
}

func TestGenerateInterruptedInThePrompt(t *testing.T) {
	prompt := clitest.WriteFile(t, "long", strings.Repeat("word ", 60_000))
	cmd := clitest.Process("generate", "-m", clitest.Stories(t), "-f", prompt, "-v", "--ctx", "300000")
	var out strings.Builder
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(errs)
	for lines.Scan() && !strings.Contains(lines.Text(), "KV cache") {
	}
	time.Sleep(200 * time.Millisecond) // into the prefill
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	all, _ := io.ReadAll(errs)
	if code := clitest.Wait(t, cmd); code != console.ExitInterrupted || out.String() != "" {
		t.Errorf("exit code %d, stdout %q, want %d and nothing; stderr %q", code, out.String(), console.ExitInterrupted, all)
	}
}

func TestGenerateEndsQuietlyWhenNobodyReads(t *testing.T) {
	cmd := endless(clitest.Stories(t))
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	clitest.Wait(t, cmd)
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != syscall.SIGPIPE {
		t.Errorf("ended with %v, want SIGPIPE as other tools do", cmd.ProcessState)
	}
	if said := errs.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "was trained for 512") {
		t.Errorf("stderr %q, want nothing but the line about the context", said)
	}
}

// brokenPipe is a writer whose reader has gone.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestBrokenPipeIsQuiet(t *testing.T) {
	var errs strings.Builder
	code := testProgram(t.Context(), []string{"generate", "-m", clitest.RandomModel(t, modeltest.Shape{}), "-p", "a", "--ignore-eos", "-n", "400"}, strings.NewReader(""), brokenPipe{}, &errs)
	if code != console.ExitFailure || errs.String() != "" {
		t.Errorf("code %d, stderr %q, want %d and nothing", code, errs.String(), console.ExitFailure)
	}
}
