package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/eval/trial"
)

// eras are the forms that official files of RULER have had: what becomes of the
// fields that the generator writes today.
var eras = []struct {
	name  string
	write func(fields map[string]any)
	says  string
}{
	{"E1", func(f map[string]any) {
		f["input"] = f["input"].(string) + f["answer_prefix"].(string)
		delete(f, "answer_prefix")
		delete(f, "length_w_model_temp")
		delete(f, "token_position_answer")
	}, "rows of era E1"},
	{"E2", func(f map[string]any) { delete(f, "token_position_answer") }, "rows of era E2/E3"},
	{"E3", func(map[string]any) {}, "rows of era E2/E3"},
}

// TestEveryEraIsAnswered reads the same prompts in the form of every era, answers
// them with a model that knows the tasks, and scores the answers twice: in the run,
// and as predictions that were made elsewhere.
func TestEveryEraIsAnswered(t *testing.T) {
	const model = "../../testdata/ruler.gguf"
	root := t.TempDir()
	made := filepath.Join(root, "made")
	tasks := []string{"niah_multiquery", "vt"}
	ok(t, "", "eval", "ruler-data", "-m", model, "-o", made, "--tasks", strings.Join(tasks, ","), "--lengths", "1k", "-n", "2", "--haystack", "builtin", "--fit", "fine")
	pred := map[string]string{}
	for _, era := range eras {
		data, out := filepath.Join(root, era.name), filepath.Join(root, "run-"+era.name)
		for _, name := range tasks {
			rewrite(t, ruler.DataPath(made, 1024, ruler.Task{Name: name}), ruler.DataPath(data, 1024, ruler.Task{Name: name}), era.write)
		}
		var errs strings.Builder
		args := []string{"eval", "ruler", "-m", model, "-o", out, "--data", data, "--tasks", strings.Join(tasks, ","), "--lengths", "1k"}
		if code := run(t.Context(), args, strings.NewReader(""), new(strings.Builder), &errs); code != exitOK || !strings.Contains(errs.String(), era.says) {
			t.Fatalf("%s: exit code %d, stderr %s", era.name, code, errs.String())
		}
		s, err := trial.Summarize(t.Context(), out)
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range tasks {
			if u := s.Settings[0].Units[i]; u.Done != 2 || u.Score.Mean != 1 {
				t.Errorf("%s: %s has %d answers and a score of %v, want 2 and 1", era.name, name, u.Done, u.Score.Mean)
			}
			path := filepath.Join(out, "0-dense", "1024", "pred", name+".jsonl")
			if text := ok(t, "", "eval", "score", "--suite", "ruler", "--json", path); !strings.Contains(text, `"score":100,"n":2`) {
				t.Errorf("%s: %s is scored %s", era.name, name, text)
			}
			preds := strings.Join(predictions(t, path), "\n")
			if pred[name] == "" {
				pred[name] = preds
			}
			if preds != pred[name] {
				t.Errorf("%s: %s has other answers than in the era before: %q, want %q", era.name, name, preds, pred[name])
			}
		}
	}
	mixed := ruler.DataPath(filepath.Join(root, "E3"), 1024, ruler.Task{Name: "vt"})
	rewrite(t, ruler.DataPath(made, 1024, ruler.Task{Name: "vt"}), mixed, eras[0].write)
	fails(t, exitFailure, []string{"of era E1", "before it are of E2/E3"}, "",
		"eval", "ruler", "-m", model, "-o", filepath.Join(root, "mixed"), "--data", filepath.Join(root, "E3"), "--tasks", "niah_multiquery,vt", "--lengths", "1k")
}

// rewrite copies a file of rows, each changed, without the fields of our own.
func rewrite(t *testing.T, from, to string, change func(map[string]any)) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		delete(fields, "split_char")
		change(fields)
		row, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s\n", row)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(out.String()), 0o666); err != nil {
		t.Fatal(err)
	}
}

// predictions are the answers in a file.
func predictions(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(string(b)) {
		var row struct{ Pred string }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		list = append(list, row.Pred)
	}
	return list
}

// TestRepeat answers with several seeds where attention draws: each repeat is a run
// with its seed, and what does not draw answers once.
func TestRepeat(t *testing.T) {
	root := t.TempDir()
	args := func(name string, more ...string) []string {
		return append([]string{"eval", "ruler", "-m", "../../testdata/ruler.gguf", "-o", filepath.Join(root, name), "--tasks", "vt",
			"--lengths", "1k", "-n", "2", "--fit", "fine", "--audit-samples", "0", "--sparse-phase", "question+decode", "--attn", "dense", "--attn", "santa(samples=4)"}, more...)
	}
	ok(t, "", args("repeated", "--repeat", "2")...)
	ok(t, "", args("other", "--attn-seed", "1")...)
	ok(t, "", args("repeated", "--repeat", "2")...) // has nothing left to do
	all, other := answers(t, filepath.Join(root, "repeated")), answers(t, filepath.Join(root, "other"))
	const first, second = "1-prefill_dense_decode_santa_samples_4/1024/pred/vt.jsonl", "1-prefill_dense_decode_santa_samples_4/repeat-1/1024/pred/vt.jsonl"
	if len(all) != 3 || all[second] != other[first] || all[second] == all[first] || all[first] == "" {
		t.Errorf("%d files of answers, want 3, and the second repeat that of the next seed: %q and %q, with that seed %q", len(all), all[first], all[second], other[first])
	}
	fails(t, exitUsage, []string{"--repeat 2", "draws"}, "", "eval", "ruler", "-m", "../../testdata/ruler.gguf", "-o", filepath.Join(root, "no"), "--repeat", "2", "--attn", "quest")
}
