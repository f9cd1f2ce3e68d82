package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"context"
)

func TestStates(t *testing.T) {
	for _, tt := range []struct {
		row  row
		want string
	}{
		{row{Unmeasured: "no GPU", Aim: none}, unmeasured},
		{row{Value: 3}, measured},
		{row{Value: 0, Aim: none}, met},
		{row{Value: 1, Aim: none}, missed},
		{row{Value: 1, Aim: none, Part: suite}, failed},
		{row{Value: 2, Aim: atLeast("value", 2)}, met},
		{row{Value: 1.99, Aim: atLeast("value", 2)}, missed},
		{row{Value: 100, Share: 0.5, Aim: atLeast(ofLimit, 0.6)}, missed},
		{row{Value: 100, Aim: atLeast("torch", 0.7)}, measured},
		{row{Value: 100, Torch: 0.8, Aim: atLeast("torch", 0.7)}, met},
		{row{Value: 0.02, Aim: atMost(1e-2), Part: agreement}, failed},
		{row{Value: math.NaN(), Aim: atMost(1), Part: agreement}, failed},
	} {
		if got := tt.row.state(); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.row, got, tt.want)
		}
	}
}

func TestDistance(t *testing.T) {
	if d := distance([]float32{3, 4.5}, []float32{3, 4}); math.Abs(d-0.1) > 1e-7 {
		t.Errorf("distance %v, want 0.1", d)
	}
	for _, a := range [][]float32{{float32(math.NaN()), 1}, {1}, {float32(math.Inf(1)), 0}} {
		if d := distance(a, []float32{1, 1}); d < 1e9 {
			t.Errorf("%v is %v from numbers", a, d)
		}
	}
}

// TestUnmeasured: a part that fails, one that takes too long and one after the end
// say why in every row that they did not fill.
func TestUnmeasured(t *testing.T) {
	r := &report{start: time.Now(), limit: time.Minute}
	rows := func() []*row { return []*row{{Unmeasured: "not reached"}, {Unmeasured: "not reached"}} }
	broken := part{"broken", time.Minute, rows(), func(_ context.Context, rows []*row) error {
		rows[0].set(1, "s")
		return errors.New("it broke")
	}}
	slow := part{"slow", time.Millisecond, rows(), func(ctx context.Context, _ []*row) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	late := part{"late", time.Minute, rows(), func(context.Context, []*row) error {
		t.Error("a part ran after the end")
		return nil
	}}
	r.runPart(t.Context(), broken)
	r.runPart(t.Context(), slow)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	r.runPart(over, late)
	if broken.rows[0].Unmeasured != "" || broken.rows[1].Unmeasured != "it broke" {
		t.Errorf("%+v, %+v", broken.rows[0], broken.rows[1])
	}
	if !strings.HasPrefix(slow.rows[1].Unmeasured, "it took longer") || !strings.HasPrefix(late.rows[0].Unmeasured, "no time was left") {
		t.Errorf("%+v, %+v", slow.rows[1], late.rows[0])
	}
}

// TestWithoutAnything: on a machine without any of the binaries every row is there,
// and unmeasured for a reason.
func TestWithoutAnything(t *testing.T) {
	dir := t.TempDir()
	r := &report{device: "cuda", folder: dir, limit: time.Minute}
	r.bin.gollm, r.bin.models, r.bin.cuda, r.bin.engine = dir+"/a", dir+"/b", dir+"/c", dir+"/d"
	r.bin.systems, r.bin.hashnets = dir+"/e", dir+"/f"
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkReport(t, r, dir)
	if n := r.count(unmeasured); n != len(r.rows) || n < 30 {
		t.Errorf("%d of %d rows are unmeasured: %s", n, len(r.rows), r.summary())
	}
}

func TestPutInto(t *testing.T) {
	dir := t.TempDir()
	page, table := filepath.Join(dir, "page.md"), filepath.Join(dir, "table.md")
	for path, text := range map[string]string{page: "a\n<!-- gpu-report -->\nold\n<!-- /gpu-report -->\nz\n", table: "new\n"} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := putInto(page, table); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := os.ReadFile(page); string(got) != "a\n<!-- gpu-report -->\nnew\n<!-- /gpu-report -->\nz\n" {
		t.Errorf("%q", got)
	}
	if err := putInto(table, page); err == nil {
		t.Error("a file without marks takes a table")
	}
}

// checkReport writes both forms and looks at every row of them.
func checkReport(t *testing.T, r *report, dir string) {
	t.Helper()
	paths := []string{filepath.Join(dir, "r.md"), filepath.Join(dir, "r.json")}
	for i, write := range []func(*os.File) error{r.writeMarkdown, r.writeJSON} {
		if err := writeTo(paths[i], write); err != nil {
			t.Fatal(err)
		}
	}
	checkFiles(t, paths[0], paths[1], len(r.rows))
}

// writtenRow is a row of the JSON.
type writtenRow struct {
	row
	Value *float64 `json:"value"`
	State string   `json:"state"`
}

// rowsOf reads the rows of a JSON.
func rowsOf(t *testing.T, figures string) []writtenRow {
	t.Helper()
	raw, err := os.ReadFile(figures)
	if err != nil {
		t.Fatal(err)
	}
	var j struct {
		Rows []writtenRow `json:"rows"`
	}
	if err := json.Unmarshal(raw, &j); err != nil {
		t.Fatal(err)
	}
	return j.Rows
}

// checkFiles holds a table and its JSON against each other: every row has a figure
// or a reason.
func checkFiles(t *testing.T, markdown, figures string, want int) (states map[string]int) {
	t.Helper()
	rows := rowsOf(t, figures)
	text, err := os.ReadFile(markdown)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(string(text), "\n| ") - 1 // less the head
	if len(rows) != want || lines != want {
		t.Errorf("%d rows and %d lines, want %d", len(rows), lines, want)
	}
	states = map[string]int{}
	for _, w := range rows {
		states[w.State]++
		if (w.Value == nil) != (w.State == unmeasured || w.Failed != "") {
			t.Errorf("%s: %s: %s with value %v", w.Part, w.What, w.State, w.Value)
		}
		if w.Part == "" || w.What == "" || w.State == "" || w.Unmeasured == "not reached" {
			t.Errorf("%+v", w)
		}
		if (w.State == unmeasured) != (w.Unmeasured != "") {
			t.Errorf("%s: %s, because %q", w.What, w.State, w.Unmeasured)
		}
	}
	return states
}

func TestSteered(t *testing.T) {
	var r report
	b := benchRow{SelectMS: 1, AttendMS: 6, Density: 0.15625}
	attention, selection := &row{}, &row{}
	r.steered(b, 7, 32, 32, attention, selection)
	if attention.Value != 6 || attention.Density != 0.1 || selection.Value != 0.2 {
		t.Errorf("30 of 32 layers in 5 of 30 ms, 1 of them to select, at 3.125 of 30: %+v, %+v", attention, selection)
	}
	r.small = true
	if r.steered(b, 32, 32, 32, attention, selection); attention.state() != unmeasured || selection.state() != unmeasured {
		t.Errorf("no steered layers: %+v, %+v", attention, selection)
	}
}

// TestBesideSteps: two sequences, 10 ms a step behind few tokens with 1 ms of
// attention, 19 with dense attention, 13 with the setting.
func TestBesideSteps(t *testing.T) {
	short := benchRow{TokS: 200, AttendMS: 1}
	dense := benchRow{TokS: 2e3 / 19, AttendMS: 12}
	b := benchRow{TokS: 2e3 / 13, SelectMS: 1.5, AttendMS: 4.5, LimitMS: 1, Density: 0.1, TimesDense: 19. / 13}
	attention, selection, whole := &row{}, &row{}, &row{}
	besideSteps(2, short, dense, b, attention, selection, whole)
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9 }
	if !near(attention.Value, 2.5) || !near(attention.Share, 0.25) || attention.Density != 0.1 {
		t.Errorf("10 ms beside 4, of which 1 is needed: %+v", attention)
	}
	if !near(selection.Value, 0.25) || whole.Value != 19./13 {
		t.Errorf("%+v, %+v", selection, whole)
	}
	b.TokS = 400
	if besideSteps(2, short, dense, b, attention, nil, nil); attention.state() != unmeasured {
		t.Errorf("a step shorter than without attention: %+v", attention)
	}
}

// TestOnly: parts by how their names begin, what is not asked for in one line, and no
// part of a wrong name.
func TestOnly(t *testing.T) {
	r := &report{only: "Sparse, pytorch"}
	some, err := r.asked(r.parts())
	if got := strings.Join(names(some), ", "); err != nil || got != "devices, PyTorch, sparse decode, sparse steps, sparse batches, sparse prefill" {
		t.Errorf("%s, %v", got, err)
	}
	if got := strings.Join(r.about.NotAsked, ", "); got != "suite, sanitizer, agreement, decode and prefill, families, batched decode, interrupt, every method runs, prefix cache, serve" {
		t.Errorf("not asked for: %s", got)
	}
	for _, only := range []string{"nosuch", "suite,", "suite,decodes"} {
		r := &report{only: only}
		if _, err := r.asked(r.parts()); err == nil || !strings.Contains(err.Error(), "there are: devices, suite, ") {
			t.Errorf("--only %q: %v", only, err)
		}
	}
}

// TestUnmeasuredHead: what was not measured is not in the head as a zero.
func TestUnmeasuredHead(t *testing.T) {
	r := &report{rows: []*row{{Part: "interrupt", What: "Ctrl-C in a prefill", Unit: "ms", Aim: atMost(200), Unmeasured: "no GPU"}}}
	r.about.NotAsked = []string{"suite"}
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "r.md"), filepath.Join(dir, "r.json")}
	for i, write := range []func(*os.File) error{r.writeMarkdown, r.writeJSON} {
		if err := writeTo(paths[i], write); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); strings.Contains(got, "GB/s") || !strings.HasPrefix(got, "no GPU; driver unknown; ") || !strings.Contains(got, "Not asked for: suite.") || !strings.Contains(got, "| ≤ 200 ms |") {
		t.Error(got)
	}
	checkFiles(t, paths[0], paths[1], 1)
}
