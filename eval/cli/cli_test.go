package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// How hard TestKill tries.
var (
	kills       = flag.Int("kills", 8, "how often a run is killed")
	killSamples = flag.Int("kill-samples", 40, "samples of the run that is killed")
)

// book is a text to hide needles in.
func book(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "book.txt")
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, "Line %d of a book is short. It ends here. ", i)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// answers are the files of answers in the folder of a run, by their paths.
func answers(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".jsonl" || strings.Contains(path, "prompts") {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(folder, path)
		files[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// same compares the answers of two runs, byte for byte.
func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if len(want) == 0 || len(got) != len(want) {
		t.Errorf("%s: %d files of answers, want %d", what, len(got), len(want))
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %s differs: %d bytes, want %d", what, name, len(got[name]), len(text))
		}
	}
}

// niah is the command line of a small needle run.
func niah(model, text, out string, samples int, more ...string) []string {
	return append([]string{
		"eval", "niah", "-m", model, "-o", out, "--lengths", "450", "--depths", "10", "--rounds", fmt.Sprint(samples / 10),
		"--haystack", text, "--max-new-tokens", "3", "-t", "1",
		"--attn", "dense", "--attn", "prefill=streaming(sink=1,window=32) decode=dense", "--attn", "prefill=dense decode=streaming(sink=1,window=32)",
	}, more...)
}

// TestKill kills a run at random moments: what it is in the end is what a run that
// is left alone writes.
func TestKill(t *testing.T) {
	model, text := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t)
	whole := filepath.Join(t.TempDir(), "whole")
	start := time.Now()
	ok(t, "", niah(model, text, whole, *killSamples)...)
	took := time.Since(start)
	r := rand.New(rand.NewPCG(4, 2))
	dir, died, most := filepath.Join(t.TempDir(), "killed"), 0, 0
	for range *kills {
		cmd := clitest.Process(niah(model, text, dir, *killSamples)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(r.Int64N(int64(100*time.Millisecond + 4*took/time.Duration(*kills)))))
		_ = cmd.Process.Kill()
		if cmd.Wait() != nil {
			died++
		}
		if most == 0 && !there(dir) { // it was killed before it made its folder
			continue
		}
		lines := 0
		for _, file := range answers(t, dir) {
			lines += strings.Count(file, "\n")
		}
		if lines < most {
			t.Fatalf("%d answers after a kill, %d before it", lines, most)
		}
		most = lines
	}
	t.Logf("%d of %d runs were killed, after which there were %d answers of %d", died, *kills, most, 3**killSamples)
	if died == 0 {
		t.Error("no run was killed")
	}
	ok(t, "", niah(model, text, dir, *killSamples)...)
	same(t, "killed", answers(t, dir), answers(t, whole))
}

// readings are the files of audits in the folder of a run, by their paths.
func readings(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(folder, "*", "audit.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(filepath.Dir(path))] = string(b)
	}
	return files
}

// TestSharedPrefill reads prompts once for settings that read them alike: answers
// and audits are those of each by itself, also where only some settings have
// answered a sample before.
func TestSharedPrefill(t *testing.T) {
	root := t.TempDir()
	args := func(name string, more ...string) []string {
		list := []string{"eval", "ruler", "-m", "../../testdata/ruler.gguf", "-o", filepath.Join(root, name), "--tasks", "vt",
			"--lengths", "1k", "-n", "2", "--fit", "fine", "--sparse-phase", "question+decode"}
		for _, a := range []string{"dense", "santa(samples=16)", "quest(budget=64)", "h2o(hh=30,recent=30)", "cis(k=30,sink=4,local=16)", "sketchwalk(density=0.2)"} {
			list = append(list, "--attn", a)
		}
		return append(list, more...)
	}
	ok(t, "", args("alone", "--share-prefill=false")...)
	ok(t, "", args("shared")...)
	want := answers(t, filepath.Join(root, "alone"))
	same(t, "shared", answers(t, filepath.Join(root, "shared")), want)
	same(t, "audits", readings(t, filepath.Join(root, "shared")), readings(t, filepath.Join(root, "alone")))
	different := map[string]bool{}
	for _, text := range want {
		different[text] = true
	}
	if len(different) < 3 {
		t.Errorf("%d different files of answers: these settings show nothing", len(different))
	}

	summary := func(name string) *trial.Summary {
		s, err := summarize(t.Context(), filepath.Join(root, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := summary("shared"); len(s.Manifest.About.Shared) != 1 || len(s.Manifest.About.Shared[0]) != 6 || s.Settings[5].Units[0].Shared != 6 {
		t.Errorf("shared: %v, %+v", s.Manifest.About.Shared, s.Settings[5].Units[0])
	}
	if s := summary("alone"); len(s.Manifest.About.Shared) != 0 || s.Settings[5].Units[0].Shared != 0 {
		t.Errorf("alone: %v", s.Manifest.About.Shared)
	}

	// What a kill may leave: some settings are a sample ahead.
	for name := range want {
		path := filepath.Join(root, "shared", name)
		if first, _, ok := strings.Cut(want[name], "\n"); ok && !strings.Contains(name, "santa") {
			if err := os.WriteFile(path, []byte(first+"\n"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	ok(t, "", args("shared")...)
	same(t, "continued", answers(t, filepath.Join(root, "shared")), want)
}

func TestNiahDrawsMaps(t *testing.T) {
	model, text, out := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t), filepath.Join(t.TempDir(), "n")
	ok(t, "", niah(model, text, out, 10)...)
	if b, err := os.ReadFile(filepath.Join(out, "report.html")); err != nil || strings.Count(string(b), "<rect") < 20 || !strings.Contains(string(b), "random.gguf on cpu (1 thread, ") {
		t.Errorf("the report lacks the maps, or the device that auto found: %v", err)
	}
	for _, name := range []string{"heat.csv", "heat.svg"} {
		if b, err := os.ReadFile(filepath.Join(out, "0-dense", name)); err != nil || len(b) < 50 {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	dry := ok(t, "", niah(model, text, "", 10, "--dry-run")...)
	if !strings.Contains(dry, "450/niah.jsonl: 10 samples") {
		t.Errorf("a dry run printed %q", dry)
	}
}

// TestNiahRefusesWhatDoesNotFit checks the limits of a grid before any prompt is
// made, and that a refused run leaves its folder to the next.
func TestNiahRefusesWhatDoesNotFit(t *testing.T) {
	model, text, out := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t), filepath.Join(t.TempDir(), "n")
	for _, c := range []struct {
		code int
		args []string
		word string
	}{
		{console.ExitUsage, []string{"--depths", "0"}, "--depths 0"},
		{console.ExitUsage, []string{"--depths", "-1"}, "--depths -1"},
		{console.ExitUsage, []string{"--depths", "1000000000"}, "--depths 1000000000"},
		{console.ExitUsage, []string{"--rounds", "0"}, "--rounds 0"},
		{console.ExitUsage, []string{"--rounds", "1000000000"}, "--rounds 1000000000"},
		{console.ExitFailure, []string{"--lengths", "450,99999999"}, "was trained for 1024"},
		{console.ExitFailure, []string{"--lengths", "450,99999999", "--dry-run"}, "was trained for 1024"},
		{console.ExitFailure, []string{"--lengths", "450,99999999", "--ctx", "2000"}, "--ctx is 2000"},
		{console.ExitFailure, []string{"--ctx", "100"}, "--ctx is 100"},
		{console.ExitFailure, []string{"--ctx", "300"}, "--ctx is 300"},
		{console.ExitFailure, []string{"--lengths", "1100"}, "was trained for 1024"},
	} {
		start := time.Now()
		fails(t, c.code, []string{c.word}, "", niah(model, text, out, 10, c.args...)...)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: refused after %v", c.args, took)
		}
	}
	ok(t, "", niah(model, text, out, 10)...)
	fails(t, console.ExitFailure, []string{"another run", "options"}, "", niah(model, text, out, 10, "--lengths", "420")...)
	fails(t, console.ExitFailure, []string{"another run", "options rope"}, "", niah(model, text, out, 10, "--rope-scaling", "yarn", "--rope-scale", "2")...)
	fails(t, console.ExitUsage, []string{"--sparse-phase foo"}, "", "eval", "niah", "-m", model, "-o", out, "--sparse-phase", "foo")
}

// TestInterruptOfWhatReadsAnswers ends the commands that read runs before they have
// begun: they say so with their exit code, and write nothing.
func TestInterruptOfWhatReadsAnswers(t *testing.T) {
	model, text, root := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t), t.TempDir()
	whole, merged := filepath.Join(root, "whole"), filepath.Join(root, "merged")
	ok(t, "", niah(model, text, whole, 10)...)
	preds := filepath.Join(root, "vt.jsonl")
	if err := os.WriteFile(preds, []byte(`{"pred":"A","outputs":["A"],"others":{}}`+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(whole, "summary.json")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"eval", "show", whole}, {"eval", "compare", whole, whole}, {"eval", "merge", "-o", merged, whole},
		{"eval", "score", "--suite", "ruler", preds}, {"eval", "score", "--suite", "longbench", "--task", "qasper", preds}, {"eval", "score", "--suite", "longbench2", preds},
	} {
		stopped, stop := context.WithCancel(t.Context())
		stop()
		var errs strings.Builder
		if code := testProgram(stopped, args, strings.NewReader(""), io.Discard, &errs); code != console.ExitInterrupted || errs.String() != "gollm: stopped\n" {
			t.Errorf("%s: exit code %d and stderr %q", args, code, errs.String())
		}
	}
	if there(merged) || there(filepath.Join(whole, "summary.json")) {
		t.Error("a command that was stopped has written")
	}
	ok(t, "", "eval", "show", whole)
}

// TestInterruptWhilePromptsAreMade stops commands before there is an answer.
func TestInterruptWhilePromptsAreMade(t *testing.T) {
	model, text, root := clitest.RandomModel(t, modeltest.Shape{Context: 8192}), book(t), t.TempDir()
	run, data := filepath.Join(root, "run"), filepath.Join(root, "data")
	for _, c := range []struct {
		args  []string
		begun string // a file that is there when prompts are made
		gone  string // what must not be left
	}{
		{niah(model, text, run, 100000, "--lengths", "4000"), filepath.Join(run, "manifest.json"), filepath.Join(run, "manifest.json")},
		{[]string{"eval", "ruler-data", "-m", model, "--tasks", "niah_single_1", "--lengths", "4k", "-n", "100000", "--fit", "fine", "-o", data},
			ruler.DataPath(data, 4096, ruler.Task{Name: "niah_single_1"}) + ".part", ruler.DataPath(data, 4096, ruler.Task{Name: "niah_single_1"}) + ".part"},
	} {
		cmd := clitest.Process(c.args...)
		var errs strings.Builder
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); !there(c.begun) && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := clitest.Wait(t, cmd); code != console.ExitInterrupted || errs.String() != "gollm: stopped\n" {
			t.Errorf("%s: exit code %d and stderr %q, want %d and a line", c.args[1], code, errs.String(), console.ExitInterrupted)
		}
		if there(c.gone) {
			t.Errorf("%s: %s is left", c.args[1], c.gone)
		}
	}
}

// TestRulerData makes rows, answers them and scores the answers in three ways.
func TestRulerData(t *testing.T) {
	model, root := clitest.Need(t, "../../testdata/demo.gguf"), t.TempDir()
	data, out := filepath.Join(root, "data"), filepath.Join(root, "run")
	table := ok(t, "", "eval", "ruler-data", "-m", model, "--tasks", "niah_single_1,vt", "--lengths", "1k,1100", "-n", "2", "--fit", "fine", "-o", data)
	if strings.Count(table, "validation.jsonl") != 4 {
		t.Errorf("printed %q", table)
	}
	args := []string{"eval", "ruler", "-m", model, "--data", data, "--tasks", "niah_single_1,vt", "--lengths", "1k", "--max-new-tokens", "2",
		"-o", out, "--attn", "dense", "--attn", "streaming", "--sparse-phase", "question+decode"}
	ok(t, "", args...)
	var s trial.Summary
	b, err := os.ReadFile(filepath.Join(out, "summary.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil || !s.Complete || len(s.Settings) != 2 || s.Settings[1].Units[0].Audit == nil {
		t.Fatalf("%v: %+v", err, s)
	}
	for name, text := range answers(t, out) {
		if n := strings.Count(text, `"dense_queries":`); n != 2 || strings.Count(text, "\n") != 2 {
			t.Errorf("%s: %d of 2 rows have a question of its own", name, n)
		}
	}
	report := clitest.Decode[scoreReport](t, ok(t, "", "eval", "score", "--suite", "ruler", "--json", filepath.Join(out, "0-dense", "1024", "pred")))
	if len(report.Files) != 2 || report.Files[0].N != 2 || report.Files[0].Score != 100*s.Settings[0].Units[0].Score.Mean {
		t.Errorf("%+v, want the score of the run, %v", report, s.Settings[0].Units[0].Score)
	}
}

// TestALengthNamedTwiceIsOne holds lengths to what --tasks does: what is named twice
// is asked once, or every sample counts twice and the interval is too narrow.
func TestALengthNamedTwiceIsOne(t *testing.T) {
	if got, err := parseLengths("2k,1k, 2048,1024,2K"); err != nil || !slices.Equal(got, []int{2048, 1024}) {
		t.Errorf("lengths %v, %v, want 2048 and 1024", got, err)
	}
	model, text, root := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t), t.TempDir()
	ok(t, "", niah(model, text, filepath.Join(root, "n"), 10, "--lengths", "450,450")...)
	s, err := summarize(t.Context(), filepath.Join(root, "n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if set := s.Settings[0]; len(set.Units) != 1 || set.Means[0].Done != 10 || set.Means[0].Score.N != 10 {
		t.Errorf("%d units and a mean of %d samples, want 1 and 10", len(set.Units), set.Means[0].Score.N)
	}
	table := ok(t, "", "eval", "ruler-data", "-m", clitest.Need(t, "../../testdata/demo.gguf"), "--tasks", "vt,vt", "--lengths", "1k,1024", "-n", "1", "--fit", "fine", "-o", filepath.Join(root, "data"))
	if strings.Count(table, "validation.jsonl") != 1 {
		t.Errorf("printed %q, want one file", table)
	}
}

// TestRulerRemembersItsPrompts checks that prompts which were made are not taken
// for others.
func TestRulerRemembersItsPrompts(t *testing.T) {
	model, out := clitest.Need(t, "../../testdata/demo.gguf"), filepath.Join(t.TempDir(), "run")
	args := func(seed string) []string {
		return []string{"eval", "ruler", "-m", model, "--tasks", "niah_single_1", "--lengths", "400", "--fit", "fine", "-n", "2", "--max-new-tokens", "1", "--seed", seed, "-o", out}
	}
	ok(t, "", args("1")...)
	prompts := filepath.Join(out, "prompts/400/data/niah_single_1/validation.jsonl")
	first, err := os.ReadFile(prompts)
	if err != nil {
		t.Fatal(err)
	}
	ok(t, "", args("1")...)
	if r := gollm("", args("2")...); r.Code != console.ExitFailure || !strings.Contains(r.Errs, "another run") {
		t.Errorf("%d: %s", r.Code, r.Errs)
	}
	edited := strings.Replace(string(first), "grass", "brass", 1) // the haystack of this task
	if edited == string(first) {
		t.Fatal("the prompts have no grass")
	}
	if err := os.WriteFile(prompts, []byte(edited), 0o666); err != nil {
		t.Fatal(err)
	}
	if r := gollm("", args("1")...); r.Code != console.ExitFailure || !strings.Contains(r.Errs, prompts+" was changed since this run made it") || strings.Contains(r.Errs, "another run") {
		t.Errorf("edited prompts: %d: %s", r.Code, r.Errs)
	}
	if r := gollm("", args("2")...); r.Code != console.ExitFailure || !strings.Contains(r.Errs, "another run") || !strings.Contains(r.Errs, "options seed") {
		t.Errorf("edited prompts and another seed: %d: %s", r.Code, r.Errs)
	}
	if err := os.WriteFile(prompts, first, 0o666); err != nil {
		t.Fatal(err)
	}
	ok(t, "", args("1")...)
	if err := os.RemoveAll(filepath.Join(out, "manifest.json")); err != nil { // as if killed before the first answer
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(out, "0-dense")); err != nil {
		t.Fatal(err)
	}
	ok(t, "", args("2")...)
	if second, err := os.ReadFile(prompts); err != nil || string(second) == string(first) {
		t.Errorf("the prompts of another seed were taken: %v", err)
	}
}

// TestEvalUsage holds what is said about command lines that make no sense.
func TestEvalUsage(t *testing.T) {
	model, dir := clitest.RandomModel(t, modeltest.Shape{}), t.TempDir()
	ruler := func(more ...string) []string {
		return append([]string{"eval", "ruler", "-m", model, "-o", dir}, more...)
	}
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{ruler("--tasks", "niah_single_9"), []string{"--tasks", "niah_single_9", "niah_single_1"}},
		{ruler("--lengths", "4x"), []string{"--lengths", "4x", "4k"}},
		{ruler("--tasks", "niah_single_2"), []string{"--haystack"}},
		{ruler("--tasks", "qa_1"), []string{"qa_1", "--squad"}},
		{ruler("--fit", "loose"), []string{"--fit", "fine"}},
		{ruler("--nltk", "3.8"), []string{"--nltk: no rules of NLTK", "3.10.1"}},
		{ruler("--data", dir, "--nltk", "3.10.4"), []string{"--nltk with --data"}},
		{ruler("--data", dir, "--seed", "1"), []string{"--seed with --data"}},
		{ruler("--data", dir, "--fit", "fine"), []string{"--fit with --data"}},
		{ruler("--data", dir, "--haystack", "builtin"), []string{"--haystack with --data"}},
		{ruler("--max-new-tokens", "-5"), []string{"gollm: --max-new-tokens -5, want 0"}},
		{ruler("--audit-samples", "-5"), []string{"gollm: --audit-samples -5, want 0"}},
		{ruler("--ctx", "-5"), []string{"gollm: --ctx -5, want 0"}},
		{ruler("--truncate-input", "-9"), []string{"--truncate-input -9, want 0 bytes or more"}},
		{ruler("-n", "99999999999"), []string{"-n 99999999999, want 1 to 100000"}},
		{ruler("--data", dir, "-n", "0"), []string{"-n 0, want 1 to 100000"}},
		{ruler("--attn", "santa", "--repeat", "9999999"), []string{"--repeat 9999999, want 1 to 1000"}},
		{ruler("--shard", "3/3"), []string{"--shard", "3/3"}},
		{ruler("--bos", "two"), []string{"--bos", "official"}},
		{ruler("--sparse-phase", "middle", "--attn", "streaming"), []string{"--sparse-phase", "middle"}},
		{ruler("--sparse-phase", "decode", "--attn", "decode=streaming"), []string{"--sparse-phase", "decode"}},
		{ruler("--grader", "kind"), []string{"--grader", "santa"}},
		{ruler("--preset", "nope"), []string{"--preset", "nope", "sketchwalk-prefill"}},
		{ruler("--preset", "cpe"), []string{"--preset cpe", "ruler"}},
		{ruler("--preset", "santa"), []string{"niah_multivalue", "--haystack"}},
		{[]string{"eval", "ruler", "-m", model}, []string{"-o"}},
		{[]string{"eval", "score", "x"}, []string{"--suite"}},
		{[]string{"eval", "score", "--suite", "ruler"}, []string{"want one"}},
		{[]string{"eval", "nope"}, []string{"nope"}},
		{[]string{"eval", "compare", "x"}, []string{"want two"}},
		{[]string{"eval", "longbench", "-m", model, "-o", dir}, []string{"--longbench"}},
		{[]string{"eval", "longbench", "-m", model, "-o", dir, "--longbench", dir, "--data", dir, "--code-sim", "foo"}, []string{"--code-sim foo"}},
	} {
		fails(t, console.ExitUsage, c.words, "", c.args...)
	}
	fails(t, console.ExitFailure, []string{"validation.jsonl"}, "", ruler("--data", dir)...)
	fails(t, console.ExitFailure, []string{dir + " is not the folder of a run: " + filepath.Join(dir, "manifest.json") + ": no such file"}, "", "eval", "compare", dir, dir)
	fails(t, console.ExitFailure, []string{"nowhere is not the folder of a run", "no such file"}, "", "eval", "show", filepath.Join(dir, "nowhere"))
}

// checkout makes what of a checkout of LongBench and of its data a test needs.
func checkout(t *testing.T) (dir, data string) {
	dir, data = t.TempDir(), t.TempDir()
	prompts, lengths := map[string]string{}, map[string]int{}
	for _, name := range longbench.Names() {
		prompts[name], lengths[name] = "Read.\n\n{context}\n\nQuestion: {input}\nAnswer:", 4
	}
	row := func(set, answer string, i int) string {
		b, _ := json.Marshal(longbench.Row{
			Input: fmt.Sprint("what is ", i), Context: strings.Repeat("one two three. ", 10+40*i), Answers: []string{answer},
			Length: 3000 * i, Dataset: set, Language: "en", AllClasses: []string{"City", "Food"}, ID: fmt.Sprint(set, i),
		})
		return string(b) + "\n"
	}
	item := `{"_id": "%d", "difficulty": "easy", "length": "short", "question": "q", "choice_A": "a", "choice_B": "b", "choice_C": "c", "choice_D": "d", "answer": "A", "context": "A document {x}."}`
	for path, text := range map[string]any{
		filepath.Join(dir, "LongBench/config/dataset2prompt.json"): prompts,
		filepath.Join(dir, "LongBench/config/dataset2maxlen.json"): lengths,
		filepath.Join(dir, "prompts/0shot.txt"):                    "Read.\n\n<text>\n$DOC$\n</text>\n\nWhat: $Q$ $C_A$ $C_B$ $C_C$ $C_D$",
		filepath.Join(data, "trec.jsonl"):                          row("trec", "City", 0) + row("trec", "Food", 1) + row("trec", "Food", 2),
		filepath.Join(data, "samsum.jsonl"):                        row("samsum", "one two", 0),
		filepath.Join(data, "dureader.jsonl"):                      row("dureader", "two", 0) + row("dureader", "three", 1),
		filepath.Join(data, "qasper.jsonl"):                        row("qasper", "two", 0) + row("qasper", "three", 3),
		filepath.Join(data, "data.json"):                           fmt.Sprintf("["+item+","+item+"]", 1, 2),
	} {
		b, plain := text.(string)
		if !plain {
			raw, _ := json.Marshal(text)
			b = string(raw)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir, data
}

// testUnscored answers a data set that cannot be scored: it has no score, is in no
// mean, and a folder of nothing else is an error.
func testUnscored(t *testing.T, args []string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "zh")
	r := gollm("", append(args, "-o", out, "--tasks", "dureader,qasper", "--attn", "dense", "--attn", "streaming", "--audit-samples", "0")...)
	if r.Code != console.ExitOK || !strings.Contains(r.Errs, "dureader is answered and not scored") || !strings.Contains(r.Errs, "dureader.jsonl: 2 of 2, not scored") {
		t.Fatalf("%d: %s", r.Code, r.Errs)
	}
	s, err := summarize(t.Context(), out, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range s.Settings {
		zh, en := set.Units[0], set.Units[1]
		if zh.Done != 2 || zh.Score.N != 0 || zh.Paired != nil || len(set.Means) != 2 || set.Means[0].Score != en.Score || set.Means[0].Count != 2 || set.Means[1].Group != en.Group {
			t.Errorf("%s: dureader is %+v; means %+v, want that of qasper, %+v", set.Attn, zh, set.Means, en.Score)
		}
	}
	for name, text := range answers(t, out) {
		if scored := strings.Count(text, `"score":`); strings.Contains(name, "dureader") && scored != 0 || strings.Contains(name, "qasper") && scored != 2 {
			t.Errorf("%s has %d scores: %s", name, scored, text)
		}
	}
	csv, err := os.ReadFile(filepath.Join(out, "summary.csv"))
	if err != nil || !strings.Contains(string(csv), "dense,dureader,0,2,,,,") {
		t.Errorf("%v: %s", err, csv)
	}
	pred := filepath.Join(out, "0-dense", "pred")
	if err := os.Remove(filepath.Join(pred, "qasper.jsonl")); err != nil {
		t.Fatal(err)
	}
	fails(t, console.ExitUsage, []string{"dureader", "--jieba", "eval.py"}, "", "eval", "score", "--suite", "longbench", pred)
}

func TestLongbenchSaysWhereDataIsFrom(t *testing.T) {
	dir, data := checkout(t)
	fails(t, console.ExitFailure, []string{filepath.Join(data, "hotpotqa.jsonl") + ": no such file", "unzipped data.zip", "--tasks"}, "",
		"eval", "longbench", "-m", clitest.RandomModel(t, modeltest.Shape{}), "--longbench", dir, "--data", data, "--tasks", "hotpotqa", "-o", filepath.Join(t.TempDir(), "none"))
}

// TestLongbenchEWantsLengths gives --e files whose rows do not say how long they are.
func TestLongbenchEWantsLengths(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{Context: 2048})
	dir, data := checkout(t)
	row := `{"pred":"x","input":"q","context":"c","answers":["x"],"length":1}` + "\n"
	path := filepath.Join(data, "qasper_e.jsonl")
	if err := os.WriteFile(path, []byte(row+strings.Replace(row, `,"length":1`, "", 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	want := []string{path + ":2: no field length"}
	fails(t, console.ExitFailure, want, "", "eval", "longbench", "-m", model, "--longbench", dir, "--data", data, "--tasks", "qasper", "--e", "-o", filepath.Join(t.TempDir(), "e"))
	fails(t, console.ExitFailure, want, "", "eval", "score", "--suite", "longbench", "--task", "qasper", "--e", path)
	ok(t, "", "eval", "score", "--suite", "longbench", "--task", "qasper", path)
}

func TestLongbench(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{Context: 2048, Keys: map[string]any{
		"tokenizer.chat_template": "{% for m in messages %}<u>{{ m['content'] }}</u>{% endfor %}<a>",
	}})
	dir, data := checkout(t)
	out := filepath.Join(t.TempDir(), "run")
	args := []string{"eval", "longbench", "-m", model, "--longbench", dir, "--data", data, "--tasks", "trec,samsum,qasper", "--max-length", "401", "-t", "1"}
	r := gollm("", append(args, "-o", out, "--attn", "streaming", "--sparse-phase", "question+decode")...)
	if r.Code != console.ExitOK || !strings.Contains(r.Errs, "not that of commit 2e00731") {
		t.Fatalf("%d: %s", r.Code, r.Errs)
	}
	cut := 0
	for _, text := range answers(t, out) {
		cut += strings.Count(text, `"truncated_from":`)
	}
	noted(t, out, r, fmt.Sprintf("%d of 6 prompts were cut to 401 tokens at most, in the middle", cut))
	report := clitest.Decode[scoreReport](t, ok(t, "", "eval", "score", "--suite", "longbench", "--json", filepath.Join(out, trial.SettingName(0, setting(t, out, 0)), "pred")))
	if len(report.Files) != 3 || report.Files[1].N != 3 {
		t.Errorf("%+v", report)
	}
	for name, text := range answers(t, out) {
		for line := range strings.Lines(text) {
			var row struct{ Gollm trial.Extra }
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatal(err)
			}
			e := row.Gollm
			if e.Truncated > 0 && (e.Prompt < 390 || e.Prompt > 430) || e.Truncated == 0 && e.Prompt > 401+40 || e.Dense < e.Prompt/2 || e.Dense >= e.Prompt {
				t.Errorf("%s: %+v", name, e)
			}
			if strings.Contains(name, "samsum") && e.New == 0 {
				t.Errorf("%s: an answer without a token", name)
			}
		}
	}
	fails(t, console.ExitFailure, []string{"qasper.jsonl", "at most are allowed"}, "", append(args, "-o", filepath.Join(t.TempDir(), "e"), "--tasks", "qasper", "--truncate", "error")...)
	testUnscored(t, args)
	testJieba(t, args)
	two := filepath.Join(t.TempDir(), "two")
	ok(t, "", "eval", "longbench2", "-m", model, "--longbench", dir, "--data", filepath.Join(data, "data.json"), "-o", two, "--max-new-tokens", "3")
	judged := clitest.Decode[scoreReport](t, ok(t, "", "eval", "score", "--suite", "longbench2", "--json", filepath.Join(two, "0-dense", "results", "random.gguf.jsonl")))
	if judged.Two == nil || judged.Two.N != 2 || judged.Two.Nulls != 2 || judged.Two.Easy == nil || judged.Two.Hard != nil {
		t.Errorf("%+v", judged)
	}
	table := strings.Join(strings.Fields(ok(t, "", "eval", "score", "--suite", "longbench2", filepath.Join(two, "0-dense", "results", "random.gguf.jsonl"))), " ")
	if !strings.Contains(table, "easy 0.00 hard n/a short 0.00 medium n/a long n/a compensated 25.00") {
		t.Errorf("printed %q, want n/a for what has no samples", table)
	}
}

func TestEvalPpl(t *testing.T) {
	model, text := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t)
	for _, mode := range []string{"prefill", "decode"} {
		args := []string{"eval", "ppl", "-m", model, "-f", text, "--ctx", "128", "--mode", mode,
			"--attn", "dense", "--attn", "streaming(sink=1,window=8)", "--json", "-t", "1"}
		if mode == "decode" {
			args = append(args, "--steps", "32", "--windows", "5")
		}
		out := ok(t, "", args...)
		var reports []pplReport
		for line := range strings.Lines(out) {
			reports = append(reports, clitest.Decode[pplReport](t, line))
		}
		if reports[1].Shared != 1 {
			t.Errorf("%s: these methods read prompts in their own ways: %+v", mode, reports)
		}
		if len(reports) != 2 || reports[0].Tokens != reports[1].Tokens || reports[1].Difference == 0 || !reports[1].Complete {
			t.Errorf("%s: %+v", mode, reports)
		}
		if mode == "decode" && reports[0].Tokens != 5*32 {
			t.Errorf("%d tokens were scored, want 160", reports[0].Tokens)
		}
	}
	ppl := func(more ...string) []string {
		return append([]string{"eval", "ppl", "-m", model, "-f", text, "--ctx", "512", "-t", "1"}, more...)
	}
	for _, c := range []struct{ args, words []string }{
		{ppl("--mode", "both"), []string{"--mode", "prefill"}},
		{ppl("--windows", "2"), []string{"--windows is of --mode decode"}},
		{ppl("--mode", "prefill", "--steps", "2"), []string{"--steps is of --mode decode"}},
		{ppl("--mode", "decode", "--steps", "512"), []string{"--steps 512, want 1 to 511", "--ctx 512"}},
		{ppl("--mode", "decode", "--steps", "0"), []string{"--steps 0, want 1 to 511"}},
		{ppl("--mode", "decode", "--windows", "-1"), []string{"--windows -1"}},
	} {
		fails(t, console.ExitUsage, c.words, "", c.args...)
	}
	const idle = "has no effect in this mode"
	r := gollm("", ppl("--attn", "dense", "--attn", "quest", "--attn", "streaming", "--attn", "decode=streaming")...)
	if r.Code != console.ExitOK || strings.Count(r.Errs, idle) != 2 || !strings.Contains(r.Errs, "note: quest reads prompts densely: "+idle) || !strings.Contains(r.Out, "+0.0000") {
		t.Errorf("%+v", r)
	}
	if r := gollm("", ppl("--mode", "decode", "--steps", "1", "--windows", "1", "--attn", "quest")...); r.Code != console.ExitOK || strings.Contains(r.Errs, idle) {
		t.Errorf("%+v", r)
	}
}

func TestPreset(t *testing.T) {
	model, out := clitest.Need(t, "../../testdata/demo.gguf"), filepath.Join(t.TempDir(), "run")
	r := gollm("", "eval", "ruler", "-m", model, "--preset", "anchor", "--tasks", "niah_single_1", "--lengths", "600", "--fit", "fine", "-n", "1", "--max-new-tokens", "1", "-o", out)
	if r.Code != console.ExitOK || !strings.Contains(r.Errs, "88.70") {
		t.Fatalf("%d: %s", r.Code, r.Errs)
	}
	m, err := trial.ReadManifest(out)
	if err != nil {
		t.Fatal(err)
	}
	if id := m.Identity; len(id.Settings) != 2 || id.Phase != "prefill" || id.Samples != 1 || id.NewTokens != 1 || id.Options["template"] != "[INST] {t} [/INST]" {
		t.Errorf("%+v", id)
	}
}

// TestRulerModel checks that the model which was trained for the tasks answers
// them.
func TestRulerModel(t *testing.T) {
	if testing.Short() {
		t.Skip("a prompt of a thousand tokens for each task")
	}
	model, out := clitest.Need(t, "../../testdata/ruler.gguf"), filepath.Join(t.TempDir(), "run")
	tasks := "niah_single_1,niah_single_2,niah_single_3,niah_multikey_1,niah_multikey_2,niah_multikey_3,niah_multivalue,niah_multiquery,vt,cwe,fwe"
	ok(t, "", "eval", "ruler", "-m", model, "--tasks", tasks, "--haystack", "builtin", "--lengths", "1k", "--fit", "fine", "-n", "1",
		"--seed", "7", "--audit-samples", "0", "-o", out)
	var s trial.Summary
	b, err := os.ReadFile(filepath.Join(out, "summary.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil || len(s.Settings) != 1 || len(s.Settings[0].Units) != 11 {
		t.Fatalf("%v: %+v", err, s)
	}
	if o := s.Manifest.Identity.Options; o["sentences"] != "punkt of NLTK 3.10.1" || o["words"] != ruler.WordsVersion {
		t.Errorf("options %v name no rules for sentences or no word lists", o)
	}
	for _, note := range []string{"word lists of " + ruler.WordsVersion, "sentences of essays by punkt of NLTK 3.10.1"} {
		if !slices.Contains(s.Manifest.Notes, note) {
			t.Errorf("no note %q among %q", note, s.Manifest.Notes)
		}
	}
	for _, u := range s.Settings[0].Units {
		if u.Score.Mean < 0.8 { // eval/lab/demo/ruler.md has what 50 prompts of each score
			t.Errorf("%s: score %v", u.Name, u.Score.Mean)
		}
	}
}
