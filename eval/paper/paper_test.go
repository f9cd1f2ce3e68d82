package paper

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/preset"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/sparse"
)

// TestTables checks that the data names what there is: rows are specs or holes, columns
// are tasks of their suite, and every figure is of a model, a row and a column.
func TestTables(t *testing.T) {
	if n := len(Papers()); n != len(order) {
		t.Fatalf("%d papers, want %d", n, len(order))
	}
	seen := map[string]bool{}
	for _, name := range Names() {
		if seen[name] || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || name == "list" {
			t.Errorf("name %q is there twice, or not a plain word", name)
		}
		seen[name] = true
	}
	for _, f := range All() {
		x := f.Table
		if f.Paper.Source == "" || f.Paper.Checked == "" || x.Where == "" || x.Title == "" || len(x.Models) == 0 || len(x.Columns) == 0 || (x.Suite == nil) == (x.Harness == nil) {
			t.Errorf("%s: no source, title, model or column, or not exactly one of suite and harness", x.Name)
		}
		checkRows(t, x)
		checkColumns(t, x)
		checkFigures(t, x)
	}
}

func checkRows(t *testing.T, x *Table) {
	t.Helper()
	if x.Rows[0].Attn != "dense" {
		t.Errorf("%s: the first row is %q, want dense", x.Name, x.Rows[0].Attn)
	}
	var names, specs []string
	for _, r := range x.Rows {
		if (r.Attn == "") == (r.Hole == "") || r.Hole != "" && r.Differs != "" || slices.Contains(names, r.Name) {
			t.Errorf("%s: row %q is there twice, or not exactly one of a method and a hole", x.Name, r.Name)
		}
		names = append(names, r.Name)
		if r.Attn == "" {
			continue
		}
		s, err := sparse.Parse(r.Attn)
		if err != nil {
			t.Errorf("%s, %s: %v", x.Name, r.Name, err)
		} else if slices.Contains(specs, s.String()) {
			t.Errorf("%s, %s: %s is another row's too", x.Name, r.Name, s)
		} else {
			specs = append(specs, s.String())
		}
	}
}

func checkColumns(t *testing.T, x *Table) {
	t.Helper()
	for _, c := range x.Columns {
		task, _, _ := strings.Cut(c.Metric, "/")
		if x.Harness != nil && !slices.Contains(x.Harness.Tasks, task) {
			t.Errorf("%s, %s: metric %q is of none of its tasks", x.Name, c.Name, c.Metric)
		}
		if x.Suite == nil {
			continue
		}
		for _, task := range slices.Concat(c.Tasks, c.Without) {
			if !slices.Contains(x.Suite.Tasks, task) {
				t.Errorf("%s, %s: no task %s", x.Name, c.Name, task)
			}
		}
		if c.Length > 0 && !slices.Contains(x.Suite.Lengths, c.Length) {
			t.Errorf("%s, %s: no length %d", x.Name, c.Name, c.Length)
		}
	}
	if x.Suite == nil {
		return
	}
	var err error
	switch tasks := strings.Join(x.Suite.Tasks, ","); x.Suite.Name {
	case "ruler":
		_, err = ruler.PickTasks(tasks)
	case "longbench":
		_, err = longbench.Pick(tasks)
	case "longbench2", "niah":
	default:
		t.Errorf("%s: suite %s", x.Name, x.Suite.Name)
	}
	if err != nil {
		t.Errorf("%s: %v", x.Name, err)
	}
}

func checkFigures(t *testing.T, x *Table) {
	t.Helper()
	for model, rows := range x.Figures {
		if _, err := x.FindModel(model); err != nil {
			t.Error(err)
		}
		for row, columns := range rows {
			if !slices.ContainsFunc(x.Rows, func(r Row) bool { return r.Name == row }) {
				t.Errorf("%s: figures of row %q, which it does not have", x.Name, row)
			}
			for column, v := range columns {
				if !slices.ContainsFunc(x.Columns, func(c Column) bool { return c.Name == column }) || v <= 0 || v > x.unit() || x.Fraction == (v > 1) {
					t.Errorf("%s, %s, %s: %v is of no column, or not of 0 to %v", x.Name, row, column, v, x.unit())
				}
			}
		}
	}
}

// TestFiguresAddUp holds published averages to the published figures that they are of,
// where all of those are there: a wrong digit in either shows.
func TestFiguresAddUp(t *testing.T) {
	sums := 0
	for _, f := range All() {
		if f.Table.Suite == nil {
			continue
		}
		for model, rows := range f.Table.Figures {
			for row := range rows {
				sums += addUp(t, f.Table, model, row)
			}
		}
	}
	if sums < 6 {
		t.Errorf("%d averages could be checked, want those of LongBench with and without passage_count, and four of RULER", sums)
	}
}

// addUp checks the averages of a row and counts those it could.
func addUp(t *testing.T, x *Table, model, row string) (sums int) {
	t.Helper()
	for i := range x.Columns {
		c := &x.Columns[i]
		want, ok := x.Published(model, row, c.Name)
		var parts []float64
		for j := range x.Columns {
			part := &x.Columns[j]
			lengths := len(c.Tasks) == 0 && c.Length == 0 && part.Length > 0
			tasks := len(c.Tasks) == 0 && len(part.Tasks) == 1 && slices.Contains(x.tasks(c), part.Tasks[0])
			v, there := x.Published(model, row, part.Name)
			if ok = ok && (there || !lengths && !tasks); lengths || tasks {
				parts = append(parts, v)
			}
		}
		if !ok || len(parts) < 2 {
			continue
		}
		sum := 0.0
		for _, v := range parts {
			sum += v
		}
		if got := sum / float64(len(parts)); math.Abs(got-want) > 0.0051+0.0001 {
			t.Errorf("%s, %s, %s: %s is %v, but its parts average to %.4f", x.Name, model, row, c.Name, want, got)
		}
		sums++
	}
	return sums
}

// TestPresetsHaveTheSameFigures holds the figures of --preset to those of the tables: each
// is there, as often as it is published.
func TestPresetsHaveTheSameFigures(t *testing.T) {
	raw := func(suite string) string {
		var b strings.Builder
		for _, f := range All() {
			if s := f.Table.Suite; s != nil && s.Name == suite {
				text, err := json.Marshal(f.Table.Figures)
				if err != nil {
					t.Fatal(err)
				}
				b.Write(text)
			}
		}
		return b.String()
	}
	for _, name := range preset.Names() {
		p, err := preset.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Published {
			for _, v := range []float64{f.Dense, f.Sparse} {
				if !hasFigure(raw(f.Suite), v) {
					t.Errorf("--preset %s has %v for %s, which no table of %s has", name, v, f.What, f.Suite)
				}
			}
		}
	}
}

// hasFigure reports whether a figure is among those of tables, which may have a digit more.
func hasFigure(text string, v float64) bool {
	for field := range strings.FieldsFuncSeq(text, func(c rune) bool { return !strings.ContainsRune("0123456789.", c) }) {
		var x float64
		if json.Unmarshal([]byte(field), &x) == nil && math.Abs(x-v) <= 0.005 {
			return true
		}
	}
	return false
}

func TestFind(t *testing.T) {
	if list, err := Find("santa"); err != nil || len(list) != 6 {
		t.Errorf("%d tables, %v; want the six of SANTA", len(list), err)
	}
	if list, err := Find("cpe-longbench"); err != nil || len(list) != 1 || list[0].Paper.Name != "cpe" {
		t.Errorf("%v, %v", list, err)
	}
	_, err := Find("quest-longbench")
	for _, name := range Names() {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v does not name %s", err, name)
		}
	}
}

func TestModelOf(t *testing.T) {
	list, err := Find("sketchwalk-ruler")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Meta Llama 3.1 8B Instruct": "Llama-3.1-8B-Instruct", "Llama-3.2-1B-Instruct-Q4_K_M.gguf": "Llama-3.2-1B-Instruct",
		"qwen2-7b-instruct-q8_0.gguf": "Qwen2-7B-Instruct", "Qwen2.5-7B-Instruct": "", "Llama-3.1-8B": "",
	} {
		m := list[0].Table.ModelOf("ruler", name)
		if m == nil && want != "" || m != nil && m.Name != want {
			t.Errorf("%s is %+v, want %s", name, m, want)
		}
	}
	two := Table{Models: []Model{{Name: "Mistral-7B"}, {Name: "Mistral-7B-Instruct"}, {Name: "Mistral"}}}
	if m := two.ModelOf("mistral-7b-instruct-v0.3"); m == nil || m.Name != "Mistral-7B-Instruct" {
		t.Errorf("%+v, want the longest name", m)
	}
	if _, err := list[0].Table.FindModel("gpt"); err == nil || !strings.Contains(err.Error(), "Qwen2-7B-Instruct") {
		t.Errorf("error %v", err)
	}
}

// TestHarness makes the commands of a row and reads what the harness writes.
func TestHarness(t *testing.T) {
	list, err := Find("vattention-aime")
	if err != nil {
		t.Fatal(err)
	}
	p := &Plan{Found: list[0], Model: &list[0].Table.Models[0], Same: true, Here: "x", Rows: []int{0, 1}}
	p.Serve(Serving{Program: "gollm", File: "dir/R1 8B.gguf", Out: "out", Port: 9, Args: []string{"--threads", "2"}, Limit: 3})
	if got := strings.Join(p.Servers[1].Serve, " "); got != "gollm serve -m dir/R1 8B.gguf --attn vattention:aime --port 9 --threads 2" {
		t.Errorf("server %s", got)
	}
	if n := len(p.Servers[1].LMEval); n != 4 {
		t.Fatalf("%d runs, want 4", n)
	}
	for _, want := range []string{
		"lm_eval --model local-chat-completions --tasks aime24 --num_fewshot 0", "model=R1 8B,base_url=http://127.0.0.1:9/v1/chat/completions",
		"max_length=40960,seed=3", "--apply_chat_template", "--limit 3", "max_gen_toks=32768", "--output_path out/harness/1-vAttention--oracle-top-k/run-3",
	} {
		if got := strings.Join(p.Servers[1].LMEval[2], " "); !strings.Contains(got, want) {
			t.Errorf("%s has no %s", got, want)
		}
	}
	run := func(score string) Results {
		r, err := ReadResults("f", []byte(`{"results": {"aime24": {"alias": "aime24", "exact_match,none": `+score+`, "exact_match_stderr,none": 0.1}}, "n-samples": {"aime24": {"original": 30, "effective": 30}}}`))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := p.HarnessReport(map[int][]Results{0: {run("0.3"), run("0.4"), run("0.3"), run("0.4")}, 1: {run("0.5")}})
	dense, ours := r.Cells[0], r.Cells[1]
	if s := dense.Ours; s == nil || math.Abs(s.Mean-35) > 1e-9 || math.Abs(s.High-s.Mean-19.59964) > 1e-6 || s.N != 30 || dense.Reduced || *dense.Published != 36.66 {
		t.Errorf("%+v, %+v", dense, dense.Ours)
	}
	if !ours.Reduced || ours.OursDense == nil || ours.Ours.Mean != 50 || r.Complete {
		t.Errorf("one run of four is %+v, want a reduced cell of a report that is not complete", ours)
	}
	if hole := r.Cells[2].Holes; len(hole) != 2 || !strings.Contains(hole[1], "networks") {
		t.Errorf("holes %q", hole)
	}
	group, err := ReadResults("f", []byte(`{"results": {"g": {"alias": "g"}, "g_a": {"m,f": 0.5, "m_stderr,f": 0.1}, "g_b": {"m,f": 0.9, "m_stderr,f": 0.2}, "ga": {"m,f": 0}, "g_stem": {"m,f": 0}},
		"n-samples": {"g_a": {"effective": 30}, "g_b": {"effective": 10}, "ga": {"effective": 100}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if s, hole := meanOfRuns([]Results{group}, "g/m,f", 1); hole != "" || math.Abs(s.Mean-0.6) > 1e-12 || math.Abs(s.High-s.Mean-z95*math.Sqrt(13)/40) > 1e-12 || s.N != 40 || s.Bare {
		t.Errorf("a group is %+v, %s; want the mean of its two tasks by their samples", s, hole)
	}
	if _, err := ReadResults("f.json", []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "f.json") {
		t.Errorf("error %v", err)
	}
}

// TestMarkdownKeepsItsCells writes a report whose names have what Markdown and HTML read.
func TestMarkdownKeepsItsCells(t *testing.T) {
	list, err := Find("santa-longbench2")
	if err != nil {
		t.Fatal(err)
	}
	p := &Plan{Found: list[0], Model: &list[0].Table.Models[0], Here: "a|b\n<script>", Hole: "no data"}
	r := p.Report(nil)
	var b strings.Builder
	if err := r.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, "<script>") || !strings.Contains(text, `a\|b\n&lt;script>`) || strings.Count(text, "(1) not run: no data") != 1 {
		t.Errorf("%s", text)
	}
	b.Reset()
	if err := r.Page().Write(&b); err != nil || strings.Contains(b.String(), "b\n<script>") || strings.Count(b.String(), "<tr>") != 1+len(r.Rows) {
		t.Errorf("%v: %s", err, b.String())
	}
}

// TestDocumentNamesEveryHole holds docs/papers.md to the data: every table, and every
// reason why something is not run or not quite the paper's.
func TestDocumentNamesEveryHole(t *testing.T) {
	b, err := os.ReadFile("../../docs/papers.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(b)), " ")
	want := func(what string) {
		if what != "" && !strings.Contains(text, what) {
			t.Errorf("docs/papers.md does not say %q", what)
		}
	}
	for _, p := range Papers() {
		want(p.Source + ". Figures: " + p.Checked)
		for _, m := range p.Missing {
			want(m.What + ": " + m.Why)
		}
		for _, x := range p.Tables {
			want("`" + x.Name + "`: " + x.Title)
			want(x.Short)
			for _, r := range x.Rows {
				want(r.Hole)
				want(r.Differs)
			}
			for _, note := range x.Notes {
				want(note)
			}
		}
	}
}
