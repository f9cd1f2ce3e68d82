package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// TestRunOfSomebodyElse has folders of runs that were made to write, or to be shown,
// elsewhere than in them: every command that reads one refuses what is wrong, and what
// lies beside the folder stays as it is.
func TestRunOfSomebodyElse(t *testing.T) {
	model, text, root := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), book(t), t.TempDir()
	out := filepath.Join(root, "runs", "run")
	ok(t, "", niah(model, text, out, 10)...)
	victim := filepath.Join(root, "victim.jsonl")
	const untouched = "not a line of answers"
	if err := os.WriteFile(victim, []byte(untouched), 0o666); err != nil {
		t.Fatal(err)
	}

	manifest := filepath.Join(out, "manifest.json")
	before, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(change func(m map[string]any)) {
		t.Helper()
		var m map[string]any
		if err := json.Unmarshal(before, &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		b, err := json.Marshal(m)
		if err := errors.Join(err, os.WriteFile(manifest, b, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	unit := func(m map[string]any) map[string]any { return m["units"].([]any)[0].(map[string]any) }
	for _, name := range []string{"../../../victim.jsonl", "../" + filepath.Base(out) + "x.jsonl", "/victim.jsonl", "450/../../x.jsonl"} {
		edit(func(m map[string]any) { unit(m)["name"] = name })
		words := []string{manifest, "a unit is called", name}
		for _, args := range [][]string{
			{"eval", "show", out}, {"eval", "compare", out, out}, {"eval", "merge", "--partial", "-o", filepath.Join(root, "merged"), out},
			niah(model, text, out, 10),
		} {
			fails(t, console.ExitFailure, words, "", args...)
		}
	}
	edit(func(m map[string]any) { unit(m)["count"] = 1 << 62 }) // was counted up to
	if r := gollm("", "eval", "show", out); r.Code != console.ExitOK || !strings.Contains(r.Errs, "some samples have no answer yet") {
		t.Errorf("%+v", r)
	}
	ok(t, "", "eval", "merge", "--partial", "-o", filepath.Join(root, "merged"), out)
	if err := os.WriteFile(manifest, before, 0o666); err != nil {
		t.Fatal(err)
	}

	// A picture that is not ours does not become part of the page.
	if err := os.WriteFile(filepath.Join(out, "0-dense", "heat.svg"), []byte("<script>alert(1)</script>"), 0o666); err != nil {
		t.Fatal(err)
	}
	want := ok(t, "", "eval", "show", out)
	if b, err := os.ReadFile(filepath.Join(out, "report.html")); err != nil || strings.Contains(string(b), "alert(1)") || strings.Count(string(b), "<rect") < 20 {
		t.Errorf("the report has a picture of somebody else, or none: %v", err)
	}

	away := filepath.Join(root, "away")
	if err := errors.Join(os.RemoveAll(filepath.Join(out, "figures")), os.Mkdir(away, 0o777), os.Symlink(away, filepath.Join(out, "figures"))); err != nil {
		t.Fatal(err)
	}
	if r := gollm("", "eval", "show", out); r.Code != console.ExitOK || r.Out != want || !strings.Contains(r.Errs, "figures is a link that leads out") {
		t.Errorf("exit code %d, stderr %s", r.Code, r.Errs)
	}
	log := filepath.Join(out, "0-dense", "450", "niah.jsonl")
	if err := errors.Join(os.Remove(log), os.Symlink(victim, log)); err != nil {
		t.Fatal(err)
	}
	fails(t, console.ExitFailure, []string{log + " is a link that leads out"}, "", "eval", "show", out)
	fails(t, console.ExitFailure, []string{log + " is a link that leads out"}, "", niah(model, text, out, 10)...)

	run := filepath.Join(root, "ruler")
	args := []string{"eval", "ruler", "-m", clitest.Need(t, "../../testdata/demo.gguf"), "--tasks", "niah_single_1",
		"--lengths", "400", "--fit", "fine", "-n", "1", "--max-new-tokens", "1", "-o", run}
	if err := errors.Join(os.Mkdir(run, 0o777), os.Symlink(away, filepath.Join(run, "prompts"))); err != nil {
		t.Fatal(err)
	}
	fails(t, console.ExitFailure, []string{"prompts is a link that leads out"}, "", args...)
	if err := os.Remove(filepath.Join(run, "prompts")); err != nil {
		t.Fatal(err)
	}
	ok(t, "", args...)
	prompts := filepath.Join(run, "prompts", "400", "data", "niah_single_1", "validation.jsonl")
	if err := errors.Join(os.Rename(prompts, filepath.Join(root, "elsewhere.jsonl")), os.Symlink(filepath.Join(root, "elsewhere.jsonl"), prompts)); err != nil {
		t.Fatal(err)
	}
	fails(t, console.ExitFailure, []string{prompts + " is a link that leads out"}, "", args...)

	if b, err := os.ReadFile(victim); err != nil || string(b) != untouched {
		t.Errorf("the file beside the runs is %q, %v", b, err)
	}
	if entries, err := os.ReadDir(away); err != nil || len(entries) > 0 {
		t.Errorf("%d files were written elsewhere, %v", len(entries), err)
	}
}
