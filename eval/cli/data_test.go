package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval/metric"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
)

// eras are the forms that official files of RULER have had: what becomes of the
// fields that the generator writes today.
var eras = []struct {
	name      string
	WriteFile func(fields map[string]any)
	says      string
}{
	{"E1", func(f map[string]any) {
		f["input"] = f["input"].(string) + f["answer_prefix"].(string)
		delete(f, "answer_prefix")
		delete(f, "length_w_model_temp")
		delete(f, "token_position_answer")
	}, "until May 2025 (era E1)"},
	{"E2", func(f map[string]any) { delete(f, "token_position_answer") }, "since May 2025 (era E2/E3)"},
	{"E3", func(map[string]any) {}, "since May 2025 (era E2/E3)"},
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
			rewrite(t, ruler.DataPath(made, 1024, ruler.Task{Name: name}), ruler.DataPath(data, 1024, ruler.Task{Name: name}), era.WriteFile)
		}
		var errs strings.Builder
		args := []string{"eval", "ruler", "-m", model, "-o", out, "--data", data, "--tasks", strings.Join(tasks, ","), "--lengths", "1k"}
		if code := testProgram(t.Context(), args, strings.NewReader(""), new(strings.Builder), &errs); code != console.ExitOK || !strings.Contains(errs.String(), era.says) {
			t.Fatalf("%s: exit code %d, stderr %s", era.name, code, errs.String())
		}
		s, err := summarize(t.Context(), out, nil)
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
	rewrite(t, ruler.DataPath(made, 1024, ruler.Task{Name: "vt"}), mixed, eras[0].WriteFile)
	fails(t, console.ExitFailure, []string{"of era E1", "before it are of E2/E3"}, "",
		"eval", "ruler", "-m", model, "-o", filepath.Join(root, "mixed"), "--data", filepath.Join(root, "E3"), "--tasks", "niah_multiquery,vt", "--lengths", "1k")
}

// testJieba answers a data set over whose words it is scored, with small tables in
// place of those of the package, and scores the answers again.
func testJieba(t *testing.T, args []string) {
	t.Helper()
	b, err := os.ReadFile("../../eval/longbench/testdata/splits.json")
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "jieba")
	for key, name := range map[string]string{"dictionary": "dict.txt", "start": "finalseg/prob_start.py", "trans": "finalseg/prob_trans.py", "emit": "finalseg/prob_emit.py"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(v[key].(string)), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	r := gollm("", append(args, "-o", out, "--tasks", "dureader", "--jieba", dir)...)
	if r.Code != console.ExitOK || !strings.Contains(r.Errs, "dureader.jsonl: 2 of 2, score") || !strings.Contains(r.Errs, "not those of jieba 0.42.1") {
		t.Fatalf("%d: %s", r.Code, r.Errs)
	}
	s, err := summarize(t.Context(), out, nil)
	if err != nil {
		t.Fatal(err)
	}
	report := clitest.Decode[scoreReport](t, ok(t, "", "eval", "score", "--suite", "longbench", "--json", "--jieba", dir, filepath.Join(out, "0-dense", "pred")))
	if u := s.Settings[0].Units[0]; u.Unscored || u.Score.N != 2 || report.Files[0].N != 2 || report.Files[0].Score != metric.Round(100*u.Score.Mean, 2) || report.Options["jieba_sha256"] == "" {
		t.Errorf("%+v, and scored again %+v", u, report)
	}
	const lacks = "the scores of dureader are those that the run stored: to compute them needs the words of jieba"
	if strings.Contains(r.Errs, lacks) || strings.Contains(gollm("", "eval", "show", "--jieba", dir, out).Errs, lacks) {
		t.Error("scores that can be computed were not")
	}
	noted(t, out, gollm("", "eval", "show", out), lacks)
	other := filepath.Join(t.TempDir(), "other")
	if err := errors.Join(os.CopyFS(other, os.DirFS(dir)), os.WriteFile(filepath.Join(other, "dict.txt"), []byte("一 3 m\n"), 0o666)); err != nil {
		t.Fatal(err)
	}
	fails(t, console.ExitFailure, []string{"--jieba names other tables than those of the run"}, "", "eval", "show", "--jieba", other, out)
	fails(t, console.ExitFailure, []string{"the answers of another run", "jieba_sha256"}, "", append(args, "-o", out, "--tasks", "dureader")...)
	fails(t, console.ExitFailure, []string{"--jieba", "is not the folder of the Python package jieba"}, "", append(args, "-o", out, "--tasks", "dureader", "--jieba", out)...)
}

// officialTasks are the tasks of the files in testdata of the package ruler.
const officialTasks = "niah_multiquery,vt,fwe"

// officialData is where they are, of an era.
func officialData(era string) string { return filepath.Join("../../eval/ruler/testdata", era) }

// understood is the scores, from and to, that the model has where it gets the prompt
// that it was trained on: needles and variables it always finds, and of the frequent
// words it may miss some. A quarter of the needles is not there to be found.
var understood = map[string][2]float64{"niah_multiquery": {75, 75}, "vt": {100, 100}, "fwe": {60, 100}}

// contained is the score of 100 of answers by a slow and plain definition: how many
// of its references each has in it, capitals aside.
func contained(t *testing.T, path string) float64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum, n := 0.0, 0
	for line := range strings.Lines(string(b)) {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		found, all := 0, row["outputs"].([]any)
		for _, o := range all {
			if strings.Contains(strings.ToUpper(row["pred"].(string)), strings.ToUpper(o.(string))) {
				found++
			}
		}
		sum, n = sum+float64(found)/float64(len(all)), n+1
	}
	return 100 * sum / float64(n)
}

// TestOfficialFilesAreAnsweredAndScored reads files in the form of the official
// generator of each era (scripts/ruler-eras.py), answers them with a model that knows
// the tasks, and scores the answers in the run, as predictions that were made
// elsewhere, and by hand. In one file a reference is not in the prompt, so that no
// answer has it.
func TestOfficialFilesAreAnsweredAndScored(t *testing.T) {
	const model = "../../testdata/ruler.gguf"
	root := t.TempDir()
	for _, era := range eras {
		data, out := filepath.Join(root, era.name), filepath.Join(root, "run-"+era.name)
		if err := os.CopyFS(data, os.DirFS(officialData(era.name))); err != nil {
			t.Fatal(err)
		}
		missed := ruler.DataPath(data, 1024, ruler.Task{Name: "niah_multiquery"})
		rewrite(t, missed, missed, func(f map[string]any) { f["outputs"].([]any)[1] = "0000000" })
		r := gollm("", "eval", "ruler", "-m", model, "-o", out, "--data", data, "--tasks", officialTasks, "--lengths", "1k")
		if r.Code != console.ExitOK || !strings.Contains(r.Errs, era.says) {
			t.Fatalf("%s: exit code %d, stderr %s", era.name, r.Code, r.Errs)
		}
		s, err := summarize(t.Context(), out, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range s.Settings[0].Units {
			path := filepath.Join(out, "0-dense", filepath.FromSlash(u.Name))
			score := clitest.Decode[scoreReport](t, ok(t, "", "eval", "score", "--suite", "ruler", "--json", path)).Files[0]
			hand := contained(t, path)
			if u.Done != 2 || score.N != 2 || math.Abs(100*u.Score.Mean-hand) > 1e-9 || score.Score != metric.Round(hand, 2) {
				t.Errorf("%s %s: %d answers; %v in the run, %v scored, %v by hand", era.name, u.Task, u.Done, 100*u.Score.Mean, score.Score, hand)
			}
			if least := understood[u.Task]; hand < least[0] || hand > least[1] {
				t.Errorf("%s %s: a score of %v, want %v to %v of a prompt that was understood", era.name, u.Task, hand, least[0], least[1])
			}
		}
		testPredictionRows(t, filepath.Join(out, "0-dense", "1024", "pred", "vt.jsonl"), ruler.DataPath(data, 1024, ruler.Task{Name: "vt"}))
	}
}

// testPredictionRows checks the fields that the official scorer reads, and that
// prompts are what the data has: input and what the answer begins with.
func testPredictionRows(t *testing.T, path, data string) {
	t.Helper()
	rows, err := os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	preds, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(preds), "\n")
	for i, line := range strings.Split(strings.TrimSpace(string(rows)), "\n") {
		var row, pred map[string]any
		if err := errors.Join(json.Unmarshal([]byte(line), &row), json.Unmarshal([]byte(lines[i]), &pred)); err != nil {
			t.Fatal(err)
		}
		prefix, _ := row["answer_prefix"].(string)
		if pred["input"] != row["input"].(string)+prefix || fmt.Sprint(pred["outputs"]) != fmt.Sprint(row["outputs"]) || pred["index"] != row["index"] ||
			pred["length"] != row["length"] || pred["truncation"] != -1.0 || fmt.Sprint(pred["others"]) != "map[]" {
			t.Errorf("%s:%d: %.300s", path, i+1, lines[i])
		}
	}
}

// TestWrongDataIsNamedAndNothingIsLost spoils a file of a run that has answers: the
// error names file and line, the answers stay as they are, and with the file as it
// was the run goes on to what an undisturbed one writes.
func TestWrongDataIsNamedAndNothingIsLost(t *testing.T) {
	const model = "../../testdata/ruler.gguf"
	root := t.TempDir()
	data, out := filepath.Join(root, "data"), filepath.Join(root, "run")
	if err := os.CopyFS(data, os.DirFS(officialData("E3"))); err != nil {
		t.Fatal(err)
	}
	args := func(out string, more ...string) []string {
		return append([]string{"eval", "ruler", "-m", model, "-o", out, "--data", data, "--tasks", officialTasks, "--lengths", "1k", "--max-new-tokens", "4"}, more...)
	}
	ok(t, "", args(filepath.Join(root, "whole"))...)
	ok(t, "", args(out)...)
	cut := filepath.Join(out, "0-dense/1024/pred/vt.jsonl") // as if killed before the second answer
	first, _, _ := strings.Cut(answers(t, out)["0-dense/1024/pred/vt.jsonl"], "\n")
	if err := os.WriteFile(cut, []byte(first+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	had := answers(t, out)
	path := ruler.DataPath(data, 1024, ruler.Task{Name: "vt"})
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	edit := func(old, new string) string {
		if !strings.Contains(lines[1], old) {
			t.Fatalf("the second line has no %s", old)
		}
		return lines[0] + strings.Replace(lines[1], old, new, 1)
	}
	at := path + ":2: "
	for _, c := range []struct {
		what, text string
		words      []string
	}{
		{"a longer row", edit(`"length": 1`, `"length": 41`), []string{at, "a row of 41012 tokens in a file of 1024", "several lengths"}},
		{"a shorter row", edit(`"length": 1012`, `"length": 200`), []string{at, "a row of 200 tokens in a file of 1024"}},
		{"another era", edit(`"answer_prefix"`, `"prefix"`), []string{at, "a row of era E1 in a file of era E2/E3"}},
		{"no input", edit(`"input"`, `"text"`), []string{at, "no field input", "text"}},
		{"a number that is none", edit(`"length": 1012`, `"length": "x"`), []string{at + "field length: found string, want a whole number"}},
		{"a prompt that is a number", lines[0] + `{"input": 5, "outputs": ["a"], "answer_prefix": ""}`, []string{at + "field input: found number, want string"}},
		{"nothing", "", []string{path + " has no rows"}},
		{"no references", edit(`"outputs"`, `"answers"`), []string{at, "no field outputs"}},
		{"other capitals", edit(`"outputs"`, `"Outputs"`), []string{at, "field Outputs: want outputs"}},
		{"a truncated line", lines[0] + lines[1][:len(lines[1])/2], []string{at, "the line ends after"}},
		{"no JSON", lines[0] + "\n" + "rows\n", []string{path + ":3: ", "not a JSON object"}},
		{"another row", edit(`blue`, `green`), []string{"the answers of another run", "1024/pred/vt.jsonl"}},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		r := gollm("", args(out)...)
		if r.Code != console.ExitFailure || r.Out != "" {
			t.Errorf("%s: exit code %d and stdout %q", c.what, r.Code, r.Out)
		}
		for _, w := range c.words {
			if !strings.Contains(r.Errs, w) {
				t.Errorf("%s: stderr %q, want %q in it", c.what, r.Errs, w)
			}
		}
		same(t, c.what, answers(t, out), had)
	}
	fails(t, console.ExitUsage, []string{"--tasks", "vtt", "niah_single_1"}, "", args(out, "--tasks", "vtt")...)
	fails(t, console.ExitFailure, []string{"cwe/validation.jsonl is not there"}, "", args(out, "--tasks", "cwe")...)
	same(t, "an unknown task", answers(t, out), had)
	if err := os.WriteFile(path, whole, 0o666); err != nil {
		t.Fatal(err)
	}
	ok(t, "", args(out)...)
	same(t, "in the end", answers(t, out), answers(t, filepath.Join(root, "whole")))
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
	fails(t, console.ExitUsage, []string{"--repeat 2", "draws"}, "", "eval", "ruler", "-m", "../../testdata/ruler.gguf", "-o", filepath.Join(root, "no"), "--repeat", "2", "--attn", "quest")
}

// TestGroups compares the groups with those of the definition: a setting goes into
// the first group of its seed that reads prompts as it does.
func TestGroups(t *testing.T) {
	for _, share := range []bool{true, false} {
		j := &job{flags: &runFlags{repeat: 3, share: share, attn: []string{"dense", "santa", "prefill=streaming decode=santa", "decode=quest", "streaming", "santa(samples=8)"}}}
		if err := j.parse(); err != nil {
			t.Fatal(err)
		}
		var want [][]leg
		for _, l := range j.legs() {
			at := slices.IndexFunc(want, func(g []leg) bool {
				return share && l.repeat == g[0].repeat && j.specs[l.setting].SamePrefill(j.specs[g[0].setting])
			})
			if at < 0 {
				at, want = len(want), append(want, nil)
			}
			want[at] = append(want[at], l)
		}
		if got := j.groups(); !slices.EqualFunc(got, want, slices.Equal[[]leg]) {
			t.Errorf("share %v: groups %v, want %v", share, got, want)
		}
	}
}

// noted wants a note of a run in its text, its summary and its report.
func noted(t *testing.T, out string, r clitest.Result, note string) {
	t.Helper()
	if r.Code != console.ExitOK || !strings.Contains(r.Errs, "note: "+note) {
		t.Errorf("exit code %d and stderr %s, want the note %q", r.Code, r.Errs, note)
	}
	for _, name := range []string{"summary.json", "report.html"} {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(b), note) {
			t.Errorf("%s: %v, want the note %q in it", name, err, note)
		}
	}
}

// TestPromptsOfAnotherTokenizerAreNoted answers prompts of which one is half as long as
// its folder says and one longer, as those are that were made for another tokenizer.
func TestPromptsOfAnotherTokenizerAreNoted(t *testing.T) {
	data, out := t.TempDir(), filepath.Join(t.TempDir(), "run")
	long := false
	vt := ruler.Task{Name: "vt"}
	rewrite(t, ruler.DataPath(officialData("E3"), 1024, vt), ruler.DataPath(data, 2048, vt), func(f map[string]any) {
		if long {
			f["input"] = strings.Repeat(f["input"].(string)+"\n", 3)
		}
		long = true
	})
	args := []string{"eval", "ruler", "-m", "../../testdata/ruler.gguf", "--data", data, "--tasks", "vt", "--lengths", "2k", "--max-new-tokens", "1", "-n", "3"}
	r := gollm("", append(args, "-o", out)...)
	u := clitest.Decode[trial.Summary](t, clitest.ReadFile(t, filepath.Join(out, "summary.json"))).Settings[0].Units[0]
	noted(t, out, r, fmt.Sprintf("length 2048: of 2 prompts 1 have more tokens and 1 less than half of them (%d to %d)", u.Prompt.Least, u.Prompt.Most))
	noted(t, out, r, "-n 3, but 1 of 1 files of prompts have fewer, the smallest 2")
	if r := gollm("", append(args, "--dry-run")...); r.Code != console.ExitOK || !strings.Contains(r.Errs, "note: length 2048: of 2 prompts") {
		t.Errorf("a dry run: %+v", r)
	}
}

func TestChanceText(t *testing.T) {
	for p, want := range map[float64]string{1: "1.000", 0.0625: "0.062", 0.001: "0.001", 0.00099: "< 0.001", 0: "< 0.001"} {
		if got := chanceText(p); got != want {
			t.Errorf("%v is %q, want %q", p, got, want)
		}
	}
}
