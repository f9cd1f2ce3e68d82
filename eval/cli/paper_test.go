package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/paper"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// paperData makes a folder of --data with a row or two of what the tables read.
func paperData(t *testing.T) string {
	t.Helper()
	dir, data := checkout(t)
	root := t.TempDir()
	for from, to := range map[string]string{dir: "LongBench", filepath.Join(data, "data.json"): "data.json"} {
		if err := os.Symlink(from, filepath.Join(root, to)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "data"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range longbench.Names() {
		b, err := json.Marshal(longbench.Row{
			Input: "what", Context: "one two three.", Answers: []string{"two"}, Length: 3, Dataset: name, Language: "en", AllClasses: []string{"City"}, ID: name,
		})
		if err == nil {
			err = os.WriteFile(filepath.Join(root, "data", name+".jsonl"), append(b, '\n'), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// smoke are the arguments that make a table of a suite small.
func smoke(suite string) []string {
	switch suite {
	case "ruler":
		return []string{"--lengths", "500", "--fit", "fine", "--tasks", "fwe", "--max-new-tokens", "2"}
	case "niah":
		return []string{"--lengths", "450", "--max-new-tokens", "1"}
	case "longbench":
		return []string{"--tasks", "qasper,trec", "--max-length", "200", "--max-new-tokens", "1"}
	}
	return []string{"--max-length", "200", "--max-new-tokens", "1"}
}

// TestEveryTableRuns runs each table of the papers on a small model: every row that is no
// hole has a figure, marked as reduced, and those of the harness have their commands.
func TestEveryTableRuns(t *testing.T) {
	random, data := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), paperData(t) // what reads many tokens
	models := map[string]string{
		"sketchwalk-ruler": "ruler", "santa-ruler-32k": "ruler", "santa-bernoulli-4k": "ruler",
		"sketchwalk-longbench": "stories260K", "anchor-longbench": "stories260K", "cpe-longbench": "stories260K", "santa-longbench2": "stories260K",
	}
	for _, f := range paper.All() {
		t.Run(f.Table.Name, func(t *testing.T) {
			t.Parallel()
			model := random
			if name := models[f.Table.Name]; name != "" {
				model = clitest.Need(t, "../../testdata/"+name+".gguf")
			}
			args := []string{"eval", "paper", f.Table.Name, "-m", model, "-o", t.TempDir(), "-n", "1", "-t", "1", "--json"}
			if f.Table.Suite != nil {
				args = append(append(args, "--audit-samples", "0"), smoke(f.Table.Suite.Name)...)
			}
			if f.Table.Suite != nil && f.Table.Suite.Name != "ruler" && f.Table.Suite.Name != "niah" {
				args = append(args, "--data", data)
			}
			reports := clitest.Decode[[]paper.Report](t, ok(t, "", args...))
			checkSmoke(t, f.Table, &reports[0])
		})
	}
}

// checkSmoke holds what a report says of a table that was run in a small part.
func checkSmoke(t *testing.T, x *paper.Table, r *paper.Report) {
	t.Helper()
	if r.Table != x.Name || len(r.Cells) != len(x.Rows)*len(x.Columns) || len(r.Reduced) == 0 || r.Same || r.Complete == (x.Harness != nil) {
		t.Fatalf("%+v", r)
	}
	for i, row := range x.Rows {
		ran := 0
		for _, c := range r.Cells[i*len(x.Columns) : (i+1)*len(x.Columns)] {
			if c.Row != row.Name || c.Source == "" || (c.Ours == nil) != slices.ContainsFunc(c.Holes, func(h string) bool { return strings.HasPrefix(h, "not run") }) {
				t.Errorf("%s, %s: %+v, want ours or why not", row.Name, c.Column, c)
			}
			if c.Ours != nil {
				ran++
				if !c.Reduced || c.OursDense == nil || i > 0 && c.Difference == nil {
					t.Errorf("%s, %s: %+v, want it reduced, and with dense", row.Name, c.Column, c)
				}
			}
		}
		if x.Suite != nil && (ran > 0) != (row.Hole == "") {
			t.Errorf("%s: %d columns have a figure", row.Name, ran)
		}
	}
	if x.Harness != nil && len(r.Servers) != len(slices.DeleteFunc(slices.Clone(x.Rows), func(row paper.Row) bool { return row.Hole != "" })) {
		t.Errorf("servers %+v", r.Servers)
	}
}

// TestDryRunCounts holds what a dry run says of prompts and tokens against the suite that reads them, and
// wants the lengths of the paper and of the run in the table, where they differ.
func TestDryRunCounts(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{Context: 1024})
	args := []string{"eval", "paper", "anchor-needle", "-m", model, "-o", "out", "-n", "2", "--lengths", "450,600", "--dry-run"}
	r := clitest.Decode[[]paper.Report](t, ok(t, "", append(args, "--json")...))[0]
	command := strings.Fields(r.Command)[1:]
	if strings.ContainsRune(r.Command, '\'') {
		t.Fatalf("%s has quotes", r.Command)
	}
	prompts, tokens := 0, 0
	for line := range strings.Lines(ok(t, "", append(command, "--dry-run")...)) {
		var n, least, most, mean, answer int
		_, rest, _ := strings.Cut(line, ": ")
		if _, err := fmt.Sscanf(rest, "%d samples, prompts of %d to %d tokens (mean %d), answers of up to %d,", &n, &least, &most, &mean, &answer); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		prompts, tokens = prompts+n, tokens+n*(most+answer)
	}
	if l := r.Load; l == nil || l.Rows != 2 || l.Prompts != prompts || prompts != 36 || l.Tokens < tokens || l.Tokens != 18*(450+600) || l.Longest != 600 {
		t.Errorf("%+v, the suite reads %d prompts of at most %d tokens", l, prompts, tokens)
	}
	if text := ok(t, "", args...); !strings.Contains(text, "load: each of 2 rows reads 36 prompts of up to 600 tokens, 18,900 tokens at most") {
		t.Errorf("%s", text)
	}
	var b strings.Builder
	if err := r.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "<br>paper 16,000 tokens<br>here none |") {
		t.Errorf("no lengths in %s", b.String())
	}
	r = clitest.Decode[[]paper.Report](t, ok(t, "", "eval", "paper", "santa-ruler-32k", "-m", model, "--lengths", "500", "--tasks", "fwe", "--dry-run", "--json"))[0]
	b.Reset()
	if err := r.Markdown(&b); err != nil || !strings.Contains(b.String(), "| FWE<br>paper 32,768 tokens<br>here 500 |") {
		t.Errorf("no lengths in %s, %v", b.String(), err)
	}
	b.Reset()
	if err := r.Page().Write(&b); err != nil || !strings.Contains(b.String(), ">32,768<") || !strings.Contains(b.String(), ">500<") {
		t.Errorf("no lengths in %s, %v", b.String(), err)
	}
}

// TestPaperGoesOn takes answers away from a table that ran: the same command answers what
// is missing, and the table is the one before.
func TestPaperGoesOn(t *testing.T) {
	model, out := clitest.RandomModel(t, modeltest.Shape{Context: 1024}), t.TempDir()
	args := append([]string{"eval", "paper", "santa-bernoulli-4k", "-m", model, "-o", out, "-n", "3", "-t", "1", "--audit-samples", "0"}, smoke("ruler")...)
	first := ok(t, "", args...)
	folder := filepath.Join(out, "santa-bernoulli-4k")
	want := answers(t, filepath.Join(folder, "run"))
	for name, text := range want { // what a kill leaves: a line less, and a torn one
		lines := strings.SplitAfter(text, "\n")
		if err := os.WriteFile(filepath.Join(folder, "run", name), []byte(lines[0]+lines[1][:5]), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if again := ok(t, "", args...); again != first || !strings.Contains(first, "here ") {
		t.Errorf("the table is %s, want %s", again, first)
	}
	same(t, "gone on", answers(t, filepath.Join(folder, "run")), want)
	for _, name := range []string{"table.md", "table.json", "table.html"} {
		if b, err := os.ReadFile(filepath.Join(folder, name)); err != nil || !strings.Contains(string(b), "Bernoulli, B=8") {
			t.Errorf("%s: %v: %s", name, err, b)
		}
	}
	r := gollm("", append(args, "--row", "SDPA")...)
	if r.Code != console.ExitFailure || !strings.Contains(r.Errs, "santa-bernoulli-4k") || !strings.Contains(r.Errs, "another run") {
		t.Errorf("%+v, want the folder refused for other rows", r)
	}
}

// TestPaperReadsTheHarness puts results where the commands write them.
func TestPaperReadsTheHarness(t *testing.T) {
	model, out := clitest.RandomModel(t, modeltest.Shape{}), t.TempDir()
	args := []string{"eval", "paper", "cpe-gsm8k-coqa", "-m", model, "-o", out, "--as", "mistral-7b", "--row", "CIS, s=8", "--json"}
	reports := clitest.Decode[[]paper.Report](t, ok(t, "", args...))
	if n := len(reports[0].Servers); n != 2 || reports[0].Published != "Mistral-7B" || !reports[0].Same {
		t.Fatalf("%d servers, %+v; want those of dense and of the row", n, reports[0])
	}
	folder := filepath.Join(filepath.FromSlash(reports[0].Servers[1].Results), "run-1", "random")
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, score := range map[string]string{"results_2026-11-23T01.json": "0.1", "results_2026-11-23T02.json": "0.25"} {
		text := `{"results": {"gsm8k": {"exact_match,flexible-extract": ` + score + `, "exact_match_stderr,flexible-extract": "N/A"}}}`
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cells := clitest.Decode[[]paper.Report](t, ok(t, "", args...))[0].Cells[3:6]
	if s := cells[0].Ours; s == nil || s.Mean != 0.25 || !s.Bare || *cells[0].Published != 0.3325 || *cells[0].PublishedDense != 0.3821 {
		t.Errorf("%+v, %+v; want the last results, without an interval", cells[0], s)
	}
	if h := cells[1].Holes; cells[1].Ours != nil || len(h) != 1 || !strings.Contains(h[0], "no exact_match,strict-match of gsm8k") {
		t.Errorf("%+v", cells[1])
	}
	if err := os.WriteFile(filepath.Join(folder, "results_2026-11-23T03.json"), []byte("[]"), 0o666); err != nil {
		t.Fatal(err)
	}
	fails(t, console.ExitFailure, []string{"results_2026-11-23T03.json", "lm-evaluation-harness"}, "", args...)
}

func TestPaperList(t *testing.T) {
	out := ok(t, "", "eval", "paper", "list")
	for _, name := range paper.Names() {
		if !strings.Contains(out, name) {
			t.Errorf("the list has no %s", name)
		}
	}
	if list := clitest.Decode[[]paper.Paper](t, ok(t, "", "eval", "paper", "list", "--json")); len(list) != 5 || len(list[0].Tables) == 0 {
		t.Errorf("%+v", list)
	}
}

// TestPaperUsage holds what is said about command lines, and data, that make no sense.
func TestPaperUsage(t *testing.T) {
	model, dir := clitest.RandomModel(t, modeltest.Shape{}), t.TempDir()
	of := func(name string, more ...string) []string {
		return append([]string{"eval", "paper", name, "-m", model, "-o", dir}, more...)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, words []string }{
		{[]string{"eval", "paper"}, []string{"no table", "paper list"}},
		{[]string{"eval", "paper", "list", "anchor"}, []string{"no other name"}},
		{of("quest"), []string{"quest", "sketchwalk-ruler", "cpe-gsm8k-coqa"}},
		{[]string{"eval", "paper", "anchor", "-m", model}, []string{"-o"}},
		{[]string{"eval", "paper", "anchor", "-o", dir}, []string{"-m FILE"}},
		{of("anchor-ruler", "--as", "gpt-2"), []string{"--as", "gpt-2", "Qwen2.5-7B-Instruct"}},
		{of("anchor-ruler", "--row", "Quest"), []string{"--row", "Quest", "Vertical_Slash"}},
		{of("cpe-longbench", "--row", "HShare"), []string{"HShare", "cannot be run"}},
		{of("anchor-ruler", "--tasks", "hotpotqa"), []string{"--tasks", "hotpotqa", "niah_single_1"}},
		{of("santa", "--tasks", "fwe"), []string{"--tasks fwe", "lm-evaluation-harness"}},
		{of("anchor-longbench", "--lengths", "1k"), []string{"--lengths 1k", "have none"}},
		{of("anchor-longbench", "--fit", "fine"), []string{"--fit", "none of these tables"}},
		{of("anchor-ruler", "-n", "-1"), []string{"-n -1"}},
		{of("anchor-ruler", "--port", "0"), []string{"--port 0"}},
		{of("anchor-ruler", "--data", file), []string{file, "is a file, want a folder"}},
		{of("anchor-longbench", "--data", dir), []string{dir, "LongBench (a checkout of THUDM/LongBench)", "data.zip"}},
		{of("vattention-aime", "--data", dir), []string{"read no data"}},
	} {
		fails(t, console.ExitUsage, c.words, "", c.args...)
	}
	fails(t, console.ExitFailure, []string{filepath.Join(dir, "none"), "no such file"}, "", of("anchor-ruler", "--data", filepath.Join(dir, "none"))...)
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o777); err != nil {
		t.Fatal(err)
	}
	reports := clitest.Decode[[]paper.Report](t, ok(t, "", of("anchor-longbench", "--data", dir, "--dry-run", "--json")...))
	if h := reports[0].Hole; !strings.Contains(h, "needs a checkout of THUDM/LongBench") || strings.Contains(h, "data.zip") {
		t.Errorf("hole %q, want what is missing beside what is there", h)
	}
}

// TestASuiteThatIsNotThereIsAHole plans a table of a suite that this gollm does not have.
func TestASuiteThatIsNotThereIsAHole(t *testing.T) {
	x := &paper.Table{Name: "x", Models: []paper.Model{{Name: "m"}}, Suite: &paper.Suite{Name: "nosuite", Tasks: []string{"two"}},
		Rows: []paper.Row{{Name: "dense", Attn: "dense"}}, Columns: []paper.Column{{Name: "two"}}}
	plan := &paper.Plan{Found: paper.Found{Paper: &paper.Paper{}, Table: x}, Model: &x.Models[0], Rows: []int{0}}
	if err := new(paperFlags).planSuite(newPaper(), plan); err != nil || !strings.Contains(plan.Hole, "no suite nosuite") {
		t.Fatalf("%v, hole %q", err, plan.Hole)
	}
	if h := plan.Report(nil).Cells[0].Holes; len(h) != 2 || !strings.Contains(h[1], "not run: this gollm has no suite nosuite") {
		t.Errorf("holes %q", h)
	}
}

// TestPaperDataIsTaken plans a table with and without the files that its tasks read, and
// as a model that it is not named after.
func TestPaperDataIsTaken(t *testing.T) {
	model, dir := clitest.RandomModel(t, modeltest.Shape{}), t.TempDir()
	plan := func(more ...string) paper.Report {
		args := append([]string{"eval", "paper", "santa-ruler-32k", "-m", model, "-o", "out", "--dry-run", "--json"}, more...)
		return clitest.Decode[[]paper.Report](t, ok(t, "", args...))[0]
	}
	without := plan()
	if len(without.Left) != 2 || !strings.HasPrefix(without.Left[0], "qa_1: needs SQuAD") || strings.Contains(without.Command, "qa_") || strings.Contains(without.Command, "meta-llama3") ||
		!strings.Contains(without.Command, "--haystack builtin") || len(without.Reduced) != 3 || !strings.Contains(without.Reduced[0], "--ruler-template meta-llama3") {
		t.Errorf("%+v", without)
	}
	for _, name := range []string{"dev-v2.0.json", "hotpotqa.json", "PaulGrahamEssays.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	with := plan("--data", dir, "--as", "Llama-3.1-8B-Instruct", "-t", "3")
	for _, want := range []string{
		"--tasks fwe,niah_multivalue,qa_1,qa_2", "--squad " + filepath.Join(dir, "dev-v2.0.json"), "--hotpotqa " + filepath.Join(dir, "hotpotqa.json"),
		"--haystack " + filepath.Join(dir, "PaulGrahamEssays.json"), "--ruler-template meta-llama3", "--samples 500", "--threads 3", "--grader santa",
	} {
		if !strings.Contains(with.Command, want) {
			t.Errorf("%s has no %s", with.Command, want)
		}
	}
	if len(with.Left) != 0 || !with.Same || len(with.Reduced) != 1 || !strings.Contains(with.Reduced[0], "wording") {
		t.Errorf("%+v, want it reduced by the wording alone", with)
	}
	if other := plan("--as", "Llama-3.1-8B-Instruct", "--ruler-template", "base"); strings.Contains(other.Command, "meta-llama3") || strings.Count(other.Command, "--ruler-template") != 1 {
		t.Errorf("%s, want the template that was said", other.Command)
	}
}
