package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval/published"
	"github.com/gollm/gollm/eval/recite"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/tokenizer"
)

const (
	rulerModel = "../../testdata/ruler.gguf"
	samples    = "../published/testdata/"
)

// on is the command line of a suite on its sample data.
func on(model, suite, data, out string, more ...string) []string {
	return append([]string{"eval", suite, "-m", model, "--data", samples + data, "-o", out, "-t", "1", "--audit-samples", "0"}, more...)
}

// scoreOf is the score of a task under a setting of a run.
func scoreOf(t *testing.T, folder string, setting int, task string) float64 {
	t.Helper()
	s, err := summarize(t.Context(), folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range s.Settings[setting].Units {
		if u.Task == task {
			return u.Score.Mean
		}
	}
	t.Fatalf("%s has no task %s", folder, task)
	return 0
}

// TestSuitesAnswer runs every data set of every suite on a random model, and the needles of
// three suites on the model that knows them.
func TestSuitesAnswer(t *testing.T) {
	random, root := clitest.RandomModel(t, modeltest.Shape{Context: 2048}), t.TempDir()
	for _, c := range []struct {
		suite, data string
		more        []string
		units       int
	}{
		{"mrcr", "mrcr", nil, 3}, {"infinitebench", "infinitebench", nil, 12}, {"scbench", "scbench", nil, 14},
		{"kvpress-ruler", "kvpress/4096", []string{"--tasks", "niah_single_1,niah_multikey_2,qa_1"}, 3},
	} {
		out := filepath.Join(root, c.suite)
		args := on(random, c.suite, c.data, out, append(c.more, "--max-new-tokens", "2", "--ctx", "2048", "--max-length", "2000")...)
		ok(t, "", args...)
		if files := answers(t, out); len(files) != c.units {
			t.Errorf("%s has %d files of answers, want %d", c.suite, len(files), c.units)
		}
		before := answers(t, out)
		ok(t, "", args...) // goes on with nothing left to do
		same(t, c.suite, answers(t, out), before)
		if shown := ok(t, "", "eval", "show", out); !strings.Contains(shown, "mean") {
			t.Errorf("%s shows %q", c.suite, shown)
		}
	}

	fails(t, console.ExitUsage, []string{"scbench_repoqa is not scored"}, "", "eval", "score", "--suite", "scbench", filepath.Join(root, "scbench", "0-dense", "prediction_scbench_repoqa_multi_turn.jsonl"))
	fails(t, console.ExitUsage, []string{"no data set", "--task"}, "", "eval", "score", "--suite", "mrcr", "x.jsonl")

	few := []string{"--max-new-tokens", "12", "-n", "1"}
	ok(t, "", on(rulerModel, "infinitebench", "infinitebench", filepath.Join(root, "i"), append(few, "--tasks", "kv_retrieval")...)...)
	ok(t, "", on(rulerModel, "kvpress-ruler", "kvpress/4096", filepath.Join(root, "k"), append(few, "--tasks", "niah_single_1")...)...)
	ok(t, "", on(rulerModel, "scbench", "scbench-parquet", filepath.Join(root, "s"), append(few, "--tasks", "scbench_kv")...)...)
	for folder, task := range map[string]string{"i": "kv_retrieval", "k": "niah_single_1", "s": "scbench_kv"} {
		if score := scoreOf(t, filepath.Join(root, folder), 0, task); score != 1 {
			t.Errorf("%s has the score %v on a model that knows it, want 1", task, score)
		}
	}
	scored := ok(t, "", "eval", "score", "--suite", "infinitebench", "--json", filepath.Join(root, "i", "0-dense", "preds_kv_retrieval.jsonl"))
	if !strings.Contains(scored, `"task":"kv_retrieval","score":100,"n":1,"nulls":0`) {
		t.Errorf("eval score says %s", scored)
	}
}

// TestHiddenQuestion reads a text once for its questions, which are read as what is written:
// answers are those of shards, of which each reads a text for one question.
func TestHiddenQuestion(t *testing.T) {
	root := t.TempDir()
	args := func(name string, more ...string) []string {
		return on(rulerModel, "scbench", "scbench", filepath.Join(root, name), append([]string{"--tasks", "scbench_kv", "-n", "2", "--turns", "2", "--mode", "multi-request", "--max-new-tokens", "8",
			"--attn", "quest(budget=64)", "--attn", "prefill=sketchwalk(density=0.3) decode=dense", "--share-prefill=false"}, more...)...)
	}
	ok(t, "", args("whole")...)
	var shards []string
	for i := range 2 {
		name := fmt.Sprintf("shard-%d", i)
		ok(t, "", args(name, "--shard", fmt.Sprintf("%d/2", i))...)
		shards = append(shards, filepath.Join(root, name))
	}
	ok(t, "", append([]string{"eval", "merge", "-o", filepath.Join(root, "merged")}, shards...)...)
	want := answers(t, filepath.Join(root, "whole"))
	same(t, "merged", answers(t, filepath.Join(root, "merged")), want)
	times, err := filepath.Glob(filepath.Join(root, "whole", "*", "*.times"))
	if err != nil || len(times) != 2 {
		t.Fatalf("%q, %v", times, err)
	}
	for _, path := range times {
		if n := strings.Count(clitest.ReadFile(t, path), `"reused_tokens":26`); n != 2 {
			t.Errorf("%s: %d of two questions each to two texts did not read the text, want 2", path, n)
		}
	}
	for name, text := range want {
		if strings.Count(text, `"dense_queries":26`) != 4 {
			t.Errorf("%s: not every question was hidden from the text: %s", name, text)
		}
	}
	aware := filepath.Join(root, "aware")
	ok(t, "", on(rulerModel, "kvpress-ruler", "kvpress/4096", aware, "--tasks", "qa_1", "-n", "1", "--max-new-tokens", "2", "--query-aware")...)
	for _, text := range answers(t, aware) {
		if strings.Contains(text, "dense_queries") {
			t.Errorf("--query-aware hides the question: %s", text)
		}
	}
}

// alarmsOf is what a dry run says is wrong with its prompts.
func alarmsOf(t *testing.T, args ...string) string {
	t.Helper()
	r := gollm("", append(args, "--dry-run")...)
	if r.Code != console.ExitOK {
		t.Fatalf("%v: %+v", args, r)
	}
	var list []string
	for line := range strings.Lines(r.Errs) {
		if strings.HasPrefix(line, "alarm:") {
			list = append(list, line)
		}
	}
	return strings.Join(list, "")
}

// TestPromptAlarms makes each mistake: two tokens that begin a text, a template inside a
// message, and none where there is no mistake; and finds them in the report.
func TestPromptAlarms(t *testing.T) {
	kv := func(more ...string) []string {
		return on(rulerModel, "kvpress-ruler", "kvpress/4096", filepath.Join(t.TempDir(), "x"), append(more, "--tasks", "qa_1", "-n", "1", "--max-new-tokens", "1")...)
	}
	if got := alarmsOf(t, kv("--template", "chatml")...); got != "" {
		t.Errorf("a prompt as it should be has alarms: %s", got)
	}
	if got := alarmsOf(t, kv("--bos", "none")...); !strings.Contains(got, "1 of 1 prompts have not exactly one beginning-of-text token") || strings.Count(got, "alarm:") != 1 {
		t.Errorf("without BOS: %q", got)
	}

	twice := filepath.Join(t.TempDir(), "passkey.jsonl")
	row := `{"context":"<|im_start|>user\nThe key is 7.<|im_end|>\n<|im_start|>assistant\n","input":"Which key?","answer":"7"}`
	if err := os.WriteFile(twice, []byte(row), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"eval", "infinitebench", "-m", rulerModel, "--data", twice, "--tasks", "passkey", "-o", filepath.Join(t.TempDir(), "x")}
	if got := alarmsOf(t, append(args, "--chat", "--template", "chatml")...); !strings.Contains(got, "1 of 1 prompts have a chat template inside a message") {
		t.Errorf("a template inside a template: %q", got)
	}
	if got := alarmsOf(t, args...); got != "" {
		t.Errorf("a template once: %s", got)
	}
	if err := os.WriteFile(twice, []byte(`{"context":"The key is 7.<|end_of_text|>","input":"Which key?","answer":"7"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := alarmsOf(t, append(args, "--chat", "--template", "chatml")...); !strings.Contains(got, "1 of 1 prompts have a chat template inside a message") {
		t.Errorf("a special token inside a message: %q", got)
	}

	out := filepath.Join(t.TempDir(), "bos")
	official := on(rulerModel, "kvpress-ruler", "kvpress/4096", out, "--tasks", "qa_1", "-n", "1", "--max-new-tokens", "1", "--bos", "none")
	ok(t, "", official...)
	for _, name := range []string{"report.html", "summary.json"} {
		if text := clitest.ReadFile(t, filepath.Join(out, name)); !strings.Contains(text, "1 of 1 prompts have not exactly one") {
			t.Errorf("%s has no alarm", name)
		}
	}
}

// TestPrefixAlarm has an alarm where the last tokens of a prompt are not those that the answer
// begins with.
func TestPrefixAlarm(t *testing.T) {
	m, err := openForPrompts(modelFlags(rulerModel))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := &prompter{tok: m.tok, bos: "one"}
	for text, want := range map[string]int{"A text. Answer: the city is": 0, "A text. Answer: the city is ": 1, "A text. Answer: the city is<|end_of_text|>": 1, "is": 1} {
		s := p.sample(&wholePrompt{text: text, prefix: " Answer: the city is"})
		if len(s.Alarms) != want {
			t.Errorf("%q has the alarms %q, want %d", text, s.Alarms, want)
		}
	}
}

// TestWhatIsCut counts prompts that were cut, and those that were left out; what is behind a
// text that a question hides from stays.
func TestWhatIsCut(t *testing.T) {
	dry := func(suite, data string, more ...string) string {
		r := gollm("", on(rulerModel, suite, data, filepath.Join(t.TempDir(), "x"), append(more, "--max-new-tokens", "1", "--dry-run")...)...)
		return r.Out + r.Errs
	}
	if got := dry("kvpress-ruler", "kvpress/4096", "--tasks", "qa_1", "--max-length", "200"); !strings.Contains(got, "2 of 2 prompts were cut to 200 tokens at most, in the middle") || !strings.Contains(got, "prompts of 198 to 198 tokens") {
		t.Errorf("cut: %s", got)
	}
	out := filepath.Join(t.TempDir(), "cut")
	ok(t, "", on(rulerModel, "kvpress-ruler", "kvpress/4096", out, "--tasks", "qa_1", "--max-length", "200", "--max-new-tokens", "1", "-n", "1")...)
	if text := clitest.ReadFile(t, filepath.Join(out, "report.html")); !strings.Contains(text, "1 of 1 prompts were cut") {
		t.Error("the report does not say that prompts were cut")
	}
	if got := dry("mrcr", "mrcr", "--max-length", "200"); !strings.Contains(got, "pred/2needle.jsonl: 2 samples") || strings.Contains(got, "4needle.jsonl") {
		t.Errorf("left out: %s", got)
	}
	if got := dry("mrcr", "mrcr", "--max-length", "192"); !strings.Contains(got, "pred/2needle.jsonl: 1 samples, prompts of 192 to 192") {
		t.Errorf("one of two left out: %s", got)
	}
	for _, c := range []struct {
		code int
		word string
		args []string
	}{
		{console.ExitFailure, "2 of 2 questions were left out, whose prompts have more than 20 tokens", on(rulerModel, "mrcr", "mrcr", "x", "--tasks", "2needle", "--max-length", "20", "--dry-run")},
		{console.ExitFailure, "cannot be cut", on(rulerModel, "mrcr", "mrcr", "x", "--truncate", "middle", "--max-length", "20", "--dry-run")},
		{console.ExitUsage, "--tasks: MRCR has no data set", on(rulerModel, "mrcr", "mrcr", "x", "--tasks", "3needle")},
		{console.ExitUsage, "--mode x, want multi-turn or multi-request", on(rulerModel, "scbench", "scbench", "x", "--mode", "x")},
		{console.ExitUsage, "no data: --data", []string{"eval", "mrcr", "-m", rulerModel, "-o", "x"}},
		{console.ExitUsage, "--truncate skip", []string{"eval", "longbench", "-m", rulerModel, "-o", "x", "--longbench", "x", "--data", "x", "--truncate", "skip"}},
		{console.ExitFailure, "has no data set passkey", on(rulerModel, "infinitebench", "scbench", "x")},
		{console.ExitFailure, "no such file or directory", on(rulerModel, "infinitebench", "nowhere", "x")},
		{console.ExitFailure, "no field context", on(rulerModel, "infinitebench", "mrcr/2needle/2needle_0.parquet", "x", "--tasks", "passkey")},
		{console.ExitFailure, "has no scbench/eval_utils.py", on(rulerModel, "scbench", "scbench", "x", "--scbench", t.TempDir())},
	} {
		fails(t, c.code, []string{c.word}, "", c.args...)
	}
	if len(published.Names()) != 4 {
		t.Errorf("%q", published.Names())
	}
}

// modelFlags name a model.
func modelFlags(path string) *openmodel.Flags { return &openmodel.Flags{Path: path} }

// TestValuesOfTokens finds the tokens of each number in the right answer: a blank and the number.
func TestValuesOfTokens(t *testing.T) {
	m, err := openForPrompts(modelFlags(rulerModel))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := recite.List{Lines: 9, Seed: 1}.Make(0)
	for _, values := range []bool{true, false} {
		r := newRightAnswer(&c, m.tok, values)
		for i, p := range c.Right {
			want := " " + p.Value
			if !values {
				want = p.Text()
			}
			if got := m.tok.Decode(r.ids[r.steps[i]:r.ends[i]], tokenizer.DecodeOptions{Continued: true}); got != want {
				t.Errorf("line %d has the tokens %q, want %q", i, got, want)
			}
		}
	}
}

// TestRecite draws the curve of a list that is written down again, as a file for each setting
// and a figure; a guided answer counts each number by itself, and the model knows some.
func TestRecite(t *testing.T) {
	out := filepath.Join(t.TempDir(), "r")
	args := []string{"eval", "recite", "-m", rulerModel, "-o", out, "--lines", "6", "-n", "1", "--guided", "--audit-samples", "0", "-t", "1",
		"--attn", "dense", "--attn", "prefill=dense decode=streaming(sink=1,window=8)"}
	ok(t, "", args...)
	dense, sparse := scoreOf(t, out, 0, "6 lines"), scoreOf(t, out, 1, "6 lines")
	if dense < 0.5 || sparse > 0.2 {
		t.Errorf("dense attention has %v of the numbers, and a window that does not reach the list %v", dense, sparse)
	}
	for _, name := range []string{"0-dense/recite-6.csv", "figures/recite-6.svg", "report.html"} {
		if text := clitest.ReadFile(t, filepath.Join(out, name)); !strings.Contains(text, map[bool]string{true: "first_line", false: "decode step"}[filepath.Ext(name) == ".csv"]) {
			t.Errorf("%s has no curve: %.200s", name, text)
		}
	}
	free := filepath.Join(t.TempDir(), "f")
	ok(t, "", "eval", "recite", "-m", rulerModel, "-o", free, "--lines", "2,3", "-n", "1", "--sort", "-t", "1")
	if files := answers(t, free); len(files) != 2 {
		t.Errorf("%d files of answers to lists of two lengths", len(files))
	}
	for _, c := range [][2]string{{"--lines", "1"}, {"--lines", "x"}, {"--lines", "99999"}, {"-n", "0"}} {
		fails(t, console.ExitUsage, []string{c[0]}, "", append([]string{"eval", "recite", "-m", rulerModel, "-o", free}, c[:]...)...)
	}
}
