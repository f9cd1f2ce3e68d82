package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// lengthData is samples of LongBench-E of three lengths, and questions of LongBench 2 of
// several kinds.
func lengthData(t *testing.T) (checkoutDir, data string) {
	t.Helper()
	checkoutDir, data = checkout(t)
	for _, name := range []string{"qasper", "trec"} {
		var b strings.Builder
		for i, words := range []int{100, 3999, 4000, 9000, 20000} {
			row, _ := json.Marshal(longbench.Row{
				Input: fmt.Sprint("what is ", i), Context: "one two three", Answers: []string{"Food"}, Length: words, Dataset: name + "_e", AllClasses: []string{"City", "Food"},
			})
			fmt.Fprintf(&b, "%s\n", row)
		}
		if err := os.WriteFile(filepath.Join(data, name+"_e.jsonl"), []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var items []longbench.Item
	for i, kind := range [][2]string{{"easy", "short"}, {"hard", "long"}, {"hard", "short"}, {"easy", "medium"}} {
		items = append(items, longbench.Item{ID: fmt.Sprint(i), Difficulty: kind[0], Length: kind[1], Question: "q", A: "a", B: "b", C: "c", D: "d", Answer: "A", Context: "A document."})
	}
	b, _ := json.Marshal(items)
	if err := os.WriteFile(filepath.Join(data, "two.json"), b, 0o666); err != nil {
		t.Fatal(err)
	}
	return checkoutDir, data
}

// answer puts a text into a line, from 0, of a file of answers.
func answer(t *testing.T, path string, line int, old, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	changed := regexp.MustCompile(old).ReplaceAllLiteralString(lines[line], text)
	if changed == lines[line] {
		t.Fatalf("%s: no %s in %s", path, old, lines[line])
	}
	lines[line] = changed
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o666); err != nil {
		t.Fatal(err)
	}
}

// subsetScores is the scores of 100 of the subsets of a unit, as summary.json has them;
// what has no samples is left out.
func subsetScores(u trial.Result) map[string]string {
	scores := map[string]string{}
	for _, s := range u.Subsets {
		if s.Score.N > 0 {
			scores[s.Subset] = fmt.Sprintf("%.2f", 100*s.Score.Mean)
		}
	}
	return scores
}

// wantSubsets compares subsets with those that eval score prints.
func wantSubsets(t *testing.T, what string, got map[string]string, want map[string]*float64) {
	t.Helper()
	for name, score := range want {
		if score != nil && got[name] != fmt.Sprintf("%.2f", *score) || score == nil && got[name] != "" {
			t.Errorf("%s: %s is %q, eval score has %v", what, name, got[name], score)
		}
	}
	if len(got) == 0 {
		t.Errorf("%s has no subsets", what)
	}
}

// everywhere wants subsets in the table of a run, in its summary.csv, in its report and
// in a comparison.
func everywhere(t *testing.T, out, task string, subsets ...string) {
	t.Helper()
	r := gollm("", "eval", "show", out)
	report, err := os.ReadFile(filepath.Join(out, "report.html"))
	if err != nil || r.Code != console.ExitOK {
		t.Fatalf("%v, %+v", err, r)
	}
	file, err := os.Open(filepath.Join(out, "summary.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	compared := ok(t, "", "eval", "compare", out, out)
	for _, name := range subsets {
		line := regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(name) + ` +[0-9]`)
		if !line.MatchString(r.Out) || !line.MatchString(compared) {
			t.Errorf("no line of %s in %s or in %s", name, r.Out, compared)
		}
		if !strings.Contains(string(report), strings.ReplaceAll(">"+task+", "+name+"<", "+", "&#43;")) {
			t.Errorf("the report has no %s, %s", task, name)
		}
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[1] == task && row[len(row)-1] == name && row[4] != "" }) {
			t.Errorf("summary.csv has no %s of %s", name, task)
		}
	}
	if last := rows[0][len(rows[0])-1]; last != "subset" {
		t.Errorf("the last column is %s", last)
	}
}

// TestSubsetsAreShown has the scores of LongBench-E by length and those of LongBench 2
// by difficulty and length: a run shows what eval score does.
func TestSubsetsAreShown(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{Context: 2048})
	dir, data := lengthData(t)
	out := filepath.Join(t.TempDir(), "e")
	ok(t, "", "eval", "longbench", "-m", model, "--longbench", dir, "--data", data, "--tasks", "qasper,trec", "--e", "-o", out, "--audit-samples", "0",
		"--attn", "dense", "--attn", "streaming(sink=1,window=8)", "-t", "1")
	pred := filepath.Join(out, "0-dense", "pred_e")
	answer(t, filepath.Join(pred, "qasper.jsonl"), 1, `"pred":"[^"]*"`, `"pred":"Food"`)
	answer(t, filepath.Join(pred, "qasper.jsonl"), 3, `"pred":"[^"]*"`, `"pred":"Food and more"`)
	answer(t, filepath.Join(pred, "qasper.jsonl"), 4, `"pred":"[^"]*"`, `"pred":" "`)
	ok(t, "", "eval", "show", out)
	s := summaryOf(t, out)
	report := clitest.Decode[scoreReport](t, ok(t, "", "eval", "score", "--suite", "longbench", "--e", "--json", pred))
	for i, f := range report.Files {
		u := s.Settings[0].Units[i]
		wantSubsets(t, f.Task, subsetScores(u), f.Buckets)
		if u.Nulls != f.Nulls || f.Task == "qasper" && f.Nulls < 1 {
			t.Errorf("%s: %d nulls in the run, eval score has %d", f.Task, u.Nulls, f.Nulls)
		}
	}
	mean, q, tr := s.Settings[0].Means[0], s.Settings[0].Units[0].Subsets, s.Settings[0].Units[1].Subsets
	for i, sub := range mean.Subsets {
		if want := (q[i].Score.Mean + tr[i].Score.Mean) / 2; sub.Score.Mean != want || sub.Done != q[i].Done+tr[i].Done || sub.Subset != longbench.Buckets[i] {
			t.Errorf("mean of %s is %+v, want %v", sub.Subset, sub.Score, want)
		}
	}
	if p := s.Settings[1].Units[0].Subsets[0].Paired; len(mean.Subsets) != 3 || p == nil || p.Win+p.Tie+p.Loss != 2 || s.Settings[1].Means[0].Subsets[2].Paired == nil {
		t.Errorf("%d subsets of the mean, paired %+v", len(mean.Subsets), p)
	}
	everywhere(t, out, "qasper", longbench.Buckets...)

	out = filepath.Join(t.TempDir(), "two")
	ok(t, "", "eval", "longbench2", "-m", model, "--longbench", dir, "--data", filepath.Join(data, "two.json"), "-o", out, "--max-new-tokens", "3")
	path := filepath.Join(out, "0-dense", "results", "random.gguf.jsonl")
	answer(t, path, 1, `"response":"[^"]*","pred":null,"judge":false`, `"response":"The correct answer is (A)","pred":"A","judge":true`)
	ok(t, "", "eval", "show", out)
	two := clitest.Decode[scoreReport](t, ok(t, "", "eval", "score", "--suite", "longbench2", "--json", path)).Two
	u := summaryOf(t, out).Settings[0].Units[0]
	wantSubsets(t, "longbench2", subsetScores(u), map[string]*float64{"easy": two.Easy, "hard": two.Hard, "short": two.Short, "medium": two.Medium, "long": two.Long})
	if u.Nulls != 3 || two.Nulls != 3 || *two.Hard != 50 {
		t.Errorf("%d nulls in the run, eval score has %+v", u.Nulls, two)
	}
	everywhere(t, out, "longbench2", longbench.Groups()...)
	if b, err := os.ReadFile(filepath.Join(out, "summary.csv")); err != nil || !strings.Contains(string(b), "dense,longbench2,0,4,25.00,0.00,75.00,,,,,,,3,") {
		t.Errorf("%v: %s", err, b)
	}
}

// summaryOf is the summary.json of a run.
func summaryOf(t *testing.T, out string) (s trial.Summary) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, "summary.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}
