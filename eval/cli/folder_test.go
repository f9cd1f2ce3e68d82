package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// TestAnotherNumberOfAuditSamples asks a finished run for another audit: it is taken
// again, as a run that was asked at once takes it, and what stays as it is is said.
func TestAnotherNumberOfAuditSamples(t *testing.T) {
	model, text, root := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t), t.TempDir()
	said := func(out, samples string, more ...string) string {
		r := gollm("", niah(model, text, filepath.Join(root, out), 10, append(more, "--audit-samples", samples)...)...)
		if r.Code != console.ExitOK {
			t.Fatalf("exit code %d: %s", r.Code, r.Errs)
		}
		return r.Errs
	}
	said("three", "3")
	said("changed", "1")
	one := readings(t, filepath.Join(root, "changed"))
	if text := said("changed", "3"); strings.Count(text, "the audit is taken again, of 3 samples") != 2 {
		t.Errorf("said %s", text)
	}
	three := readings(t, filepath.Join(root, "three"))
	same(t, "changed", readings(t, filepath.Join(root, "changed")), three)
	for name := range three {
		if three[name] == one[name] {
			t.Errorf("%s: the audits of 1 and of 3 samples are the same", name)
		}
	}
	if text := said("changed", "3"); strings.Contains(text, "audit") {
		t.Errorf("said about the same audit: %s", text)
	}
	if text := said("changed", "0"); !strings.Contains(text, "the audits that "+filepath.Join(root, "changed")+" has stay") {
		t.Errorf("said %s", text)
	}
	same(t, "without", readings(t, filepath.Join(root, "changed")), three)
	dense := []string{"eval", "niah", "-m", model, "-o", filepath.Join(root, "dense"), "--lengths", "450", "--depths", "2", "--haystack", text, "--max-new-tokens", "1", "--audit-samples", "2"}
	if r := gollm("", dense...); r.Code != console.ExitOK || !strings.Contains(r.Errs, "--audit-samples 2 changes nothing: dense attention reads everything") {
		t.Errorf("exit code %d, said %s", r.Code, r.Errs)
	}
}

// TestFilesOfARunAreReplacedInWhole holds every file of a report open while it is
// written again: who reads the one before keeps it in whole.
func TestFilesOfARunAreReplacedInWhole(t *testing.T) {
	model, text, out := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t), filepath.Join(t.TempDir(), "run")
	run := func() { ok(t, "", niah(model, text, out, 10)...) }
	run()
	preds := clitest.WriteFile(t, "vt.jsonl", `{"pred":"A","outputs":["A"],"others":{}}`+"\n")
	score := func() { ok(t, "", "eval", "score", "--suite", "ruler", "--summary", out, preds) }
	score()
	paths := []string{"survey.json", "summary.json", "summary.csv", "report.html", "0-dense/heat.csv", "0-dense/heat.svg", "summary-vt.csv", "submission.csv"}
	figures, err := filepath.Glob(filepath.Join(out, "figures", "*.svg"))
	if err != nil || len(figures) == 0 {
		t.Fatalf("%d figures, %v", len(figures), err)
	}
	for i, name := range paths {
		paths[i] = filepath.Join(out, name)
	}
	const before = "the one before"
	open := map[string]*os.File{}
	for _, path := range append(paths, figures...) {
		if err := os.WriteFile(path, []byte(before), 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		open[path] = f
	}
	run()
	score()
	for path, f := range open {
		old, err := io.ReadAll(f)
		if err != nil || string(old) != before {
			t.Errorf("%s was written in its place: who had it open reads %q, %v", path, old, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) == before {
			t.Errorf("%s was not written again: %v", path, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(out, ".part-*")); len(left) > 0 {
		t.Errorf("%s are left", left)
	}
}

// TestCompareSaysWhatIsLeftOut compares with a run that was stopped: A and B are over
// what both answered, and a note says how many samples only one has.
func TestCompareSaysWhatIsLeftOut(t *testing.T) {
	model, text, root := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t), t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	ok(t, "", niah(model, text, a, 10)...)
	ok(t, "", niah(model, text, b, 10)...)
	const name = "0-dense/450/niah.jsonl"
	lines := strings.SplitAfter(answers(t, b)[name], "\n")
	right := strings.SplitAfter(rightAnswers(strings.Join(lines, "")), "\n")
	if err := os.WriteFile(filepath.Join(b, name), []byte(right[0]+right[1]+lines[2]+lines[3]), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a, name), []byte(right[0]+strings.Join(lines[1:4], "")+strings.Join(right[4:], "")), 0o666); err != nil {
		t.Fatal(err)
	}
	const note = "note: 6 samples that only A has and 0 samples that only B has are left out"
	r := gollm("", "eval", "compare", a, b)
	if r.Code != console.ExitOK || !strings.Contains(r.Errs, note) || !strings.Contains(strings.Join(strings.Fields(r.Out), " "), "niah 450 4 25.0 50.0 +25.0 ") {
		t.Errorf("exit code %d, printed %q, said %s", r.Code, r.Out, r.Errs)
	}
	if want := fmt.Sprintf("A: dense in %s, B: dense in %s ", a, b); !strings.Contains(r.Out, want) {
		t.Errorf("printed %q, want %q", r.Out, want)
	}
	r = gollm("", "eval", "compare", "--json", b, a)
	if c := clitest.Decode[[]trial.Compared](t, r.Out); len(c) != 1 || c[0].A.Mean != 0.5 || c[0].B.Mean != 0.25 || c[0].B.N != 4 || c[0].OnlyB != 6 || c[0].Score.N != 10 {
		t.Errorf("printed %s", r.Out)
	}
	if r := gollm("", "eval", "compare", a, a); strings.Contains(r.Errs, "left out") || strings.Count(r.Errs, "note: ") != 1 {
		t.Errorf("said %s about the same samples", r.Errs)
	}
}

// TestShowPrintsWhatItCannotWrite puts a folder where the summary has to go, as a
// folder of somebody else takes no file: the table is printed all the same. A run
// that cannot write its summary has failed, after its table.
func TestShowPrintsWhatItCannotWrite(t *testing.T) {
	model, text, out := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t), filepath.Join(t.TempDir(), "run")
	ok(t, "", niah(model, text, out, 10)...)
	want := gollm("", "eval", "show", out)
	summary := filepath.Join(out, "summary.json")
	if err := errors.Join(os.Remove(summary), os.MkdirAll(filepath.Join(summary, "full"), 0o777)); err != nil {
		t.Fatal(err)
	}
	r := gollm("", "eval", "show", out)
	if r.Code != console.ExitOK || r.Out != want.Out || !strings.Contains(r.Out, "niah") || !strings.Contains(r.Errs, "note: the summary and the report in "+out+" are not new: ") {
		t.Errorf("exit code %d, %d bytes of %d, stderr %s", r.Code, len(r.Out), len(want.Out), r.Errs)
	}
	if r := gollm("", niah(model, text, out, 10)...); r.Code != console.ExitFailure || !strings.Contains(r.Out, "niah") || !strings.Contains(r.Errs, summary) {
		t.Errorf("a run: exit code %d, stderr %s", r.Code, r.Errs)
	}
}

// rightAnswers is the lines of a needle run with the number that was hidden as every
// response, and the scores that they have.
func rightAnswers(lines string) string {
	return regexp.MustCompile(`"response":"[^"]*","answer":"([0-9]+)"`).ReplaceAllString(lines, `"response":"$1","answer":"$1"`)
}

// TestEditedAnswersAreScoredAgain changes answers and stored scores of a run: what is
// shown is what the answers are worth, and a note says what was changed.
func TestEditedAnswersAreScoredAgain(t *testing.T) {
	model, text, out := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t), filepath.Join(t.TempDir(), "run")
	ok(t, "", niah(model, text, out, 10)...)
	const name = "0-dense/450/niah.jsonl"
	was := answers(t, out)[name]
	lines, right := strings.SplitAfter(was, "\n"), strings.SplitAfter(rightAnswers(was), "\n")
	for what, c := range map[string]struct {
		text  string
		score float64
		note  string
	}{
		"two answers": {strings.Join(lines[:3], "") + right[3] + lines[4] + right[5] + strings.Join(lines[6:], ""), 0.2, "2 of 10 answers have another score than the run stored, the first is that to sample 3"},
		"a score":     {strings.Replace(was, `"score":0,`, `"score":1,`, 1), 0, "1 of 10 answers have another score than the run stored, the first is that to sample 0"},
		"nothing":     {was, 0, ""},
	} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		r := gollm("", "eval", "show", out)
		if c.note != "" {
			noted(t, out, r, name+": "+c.note)
		} else if r.Code != console.ExitOK || strings.Contains(r.Errs, "stored") {
			t.Errorf("%s: %+v", what, r)
		}
		var s trial.Summary
		if b, err := os.ReadFile(filepath.Join(out, "summary.json")); err != nil || json.Unmarshal(b, &s) != nil || s.Settings[0].Units[0].Score.Mean != c.score {
			t.Errorf("%s: score %+v, want %v", what, s.Settings[0].Units[0].Score, c.score)
		}
		if r := gollm("", "eval", "compare", out, out); r.Code != console.ExitOK || !strings.Contains(r.Errs, c.note) {
			t.Errorf("%s: compare: %+v", what, r)
		}
	}
	for old, c := range map[string][2]string{
		`"response"`: {`"answered"`, name + ":1: no field response"},
		`"answer"`:   {`"hidden"`, name + ":1: no field answer"},
	} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(strings.Replace(was, old, c[0], 1)), 0o666); err != nil {
			t.Fatal(err)
		}
		fails(t, console.ExitFailure, []string{c[1]}, "", "eval", "show", out)
	}
}

func TestShardsMerge(t *testing.T) {
	model, text := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t)
	root := t.TempDir()
	whole := filepath.Join(root, "whole")
	ok(t, "", niah(model, text, whole, 20)...)
	var parts []string
	for i := range 3 {
		part := filepath.Join(root, fmt.Sprint("part-", i))
		ok(t, "", niah(model, text, part, 20, "--shard", fmt.Sprintf("%d/3", i))...)
		parts = append(parts, part)
	}
	merged := filepath.Join(root, "merged")
	fails(t, console.ExitFailure, []string{"has no answer"}, "", append([]string{"eval", "merge", "-o", filepath.Join(root, "no")}, parts[1:]...)...)
	ok(t, "", append([]string{"eval", "merge", "-o", merged}, parts...)...)
	same(t, "merged", answers(t, merged), answers(t, whole))
	out := ok(t, "", "eval", "compare", filepath.Join(merged, "0-dense"), filepath.Join(whole, trial.SettingName(1, setting(t, whole, 1))))
	if !strings.Contains(out, "niah") || !strings.Contains(out, "A: dense, B: ") {
		t.Errorf("compare printed %q", out)
	}
	fails(t, console.ExitFailure, []string{"the answers of another run", "seed"}, "", niah(model, text, whole, 20, "--attn-seed", "7")...)
}

// TestMergedRunHasItsPrompts merges the shards of a run that made its prompts: the same
// command without --shard goes on in the folder, and refuses prompts that were changed.
func TestMergedRunHasItsPrompts(t *testing.T) {
	model, root := clitest.Need(t, "../../testdata/demo.gguf"), t.TempDir()
	args := func(out string, more ...string) []string {
		return append([]string{"eval", "ruler", "-m", model, "--tasks", "niah_single_1", "--lengths", "400", "--fit", "fine", "-n", "2", "--max-new-tokens", "1", "-o", filepath.Join(root, out)}, more...)
	}
	ok(t, "", args("a", "--shard", "0/2")...)
	ok(t, "", args("b", "--shard", "1/2")...)
	merged := filepath.Join(root, "merged")
	ok(t, "", "eval", "merge", "-o", merged, filepath.Join(root, "a"), filepath.Join(root, "b"))
	const name = "prompts/400/data/niah_single_1/validation.jsonl"
	prompts, err := os.ReadFile(filepath.Join(merged, name))
	if made, _ := os.ReadFile(filepath.Join(root, "b", name)); err != nil || string(made) != string(prompts) {
		t.Fatalf("%d bytes of prompts, a shard has %d: %v", len(prompts), len(made), err)
	}
	if b, err := os.ReadFile(filepath.Join(merged, "report.html")); err != nil || !strings.Contains(string(b), "(shard 0 of 2; the others are in the manifest)") {
		t.Errorf("the report does not tell the commands of the shards apart from that of the merge: %v", err)
	}
	before := answers(t, merged)
	ok(t, "", args("merged")...)
	same(t, "gone on", answers(t, merged), before)
	if err := os.WriteFile(filepath.Join(merged, name), append(prompts, '\n'), 0o666); err != nil {
		t.Fatal(err)
	}
	fails(t, console.ExitFailure, []string{filepath.Join(merged, name) + " was changed since this run made it"}, "", args("merged")...)
}

// setting is the attention of setting number i of a run.
func setting(t *testing.T, folder string, i int) string {
	t.Helper()
	m, err := trial.ReadManifest(folder)
	if err != nil {
		t.Fatal(err)
	}
	return m.Identity.Settings[i]
}

// TestPplSharesPrefills measures methods that read prompts alike together: each has the
// figures that it has alone, to the last digit.
func TestPplSharesPrefills(t *testing.T) {
	model, text := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t)
	mode := "decode"
	measure := func(attn ...string) []pplReport {
		args := []string{"eval", "ppl", "-m", model, "-f", text, "--ctx", "128", "--mode", mode, "--json", "-t", "1"}
		if mode == "decode" {
			args = append(args, "--steps", "32", "--windows", "3")
		}
		for _, a := range attn {
			args = append(args, "--attn", a)
		}
		var reports []pplReport
		for line := range strings.Lines(ok(t, "", args...)) {
			reports = append(reports, clitest.Decode[pplReport](t, line))
		}
		return reports
	}
	all := []string{"dense", "santa(samples=16)", "prefill=streaming(sink=1,window=8) decode=dense", "prefill=dense decode=streaming(sink=1,window=8)"}
	together, different := measure(all...), map[float64]bool{}
	for i, attn := range all {
		alone := measure(attn)[0]
		got, shared := together[i], 3
		if i == 2 {
			shared = 1
		}
		if got.NLL != alone.NLL || got.StdErr != alone.StdErr || got.Tokens != 96 || !got.Complete || got.Shared != shared || alone.Shared != 1 || got.Attn != alone.Attn {
			t.Errorf("%s: %+v, alone %+v", attn, got, alone)
		}
		if want := alone.NLL - together[0].NLL; got.Difference != want {
			t.Errorf("%s: difference %v, want %v", attn, got.Difference, want)
		}
		different[float64(got.NLL)] = true
	}
	if len(different) != 4 {
		t.Errorf("%d different figures: these methods show nothing", len(different))
	}
	mode = "prefill"
	if got := measure("dense", "santa(samples=16)"); len(got) != 2 || got[0].NLL != got[1].NLL || got[1].Shared != 1 {
		t.Errorf("in a prefill: %+v", got)
	}
}
