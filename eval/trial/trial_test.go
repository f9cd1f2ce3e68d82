package trial

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// row is a suite's own fields.
type row struct {
	Index int    `json:"index"`
	Pred  string `json:"pred"`
}

// answerTo makes the answer to a sample: always the same.
func answerTo(line int) (row, Extra) {
	return row{line, fmt.Sprintf("<%d> &c", line)}, Extra{Line: line, Score: new(float64(line%3) / 2), Prompt: 100 + line, New: 5, Finish: "end", BOS: []int{0}}
}

// write appends the answers to some samples.
func write(t testing.TB, path string, lines ...int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLog(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		r, e := answerTo(line)
		if err := l.Append(r, e, Times{PrefillMs: 2, DecodeMs: 1, Prompt: e.Prompt, Steps: 4}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// logPath is the log of a unit under a setting, the first time.
func logPath(folder string, setting int, attn, unit string) string {
	return filepath.Join(folder, LogName(setting, attn, 0, unit))
}

// upTo is 0 to n-1.
func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestLogSurvivesCuts cuts a log anywhere and goes on: the end is the same.
func TestLogSurvivesCuts(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "a", "whole.jsonl")
	write(t, whole, upTo(20)...)
	want := read(t, whole)
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		path := filepath.Join(t.TempDir(), "cut.jsonl")
		for cut := 0; cut < len(want); cut += 1 + r.IntN(len(want)/4) {
			if old, err := os.ReadFile(path); err == nil && len(old) >= cut {
				continue
			}
			if err := os.WriteFile(path, []byte(want[:cut]), 0o666); err != nil {
				t.Fatal(err)
			}
			l, err := OpenLog(filepath.Dir(path), filepath.Base(path))
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			if n := strings.Count(want[:cut], "\n"); l.Len() != n {
				t.Fatalf("cut at %d: %d answers, want %d", cut, l.Len(), n)
			}
			for line := range 20 {
				if !l.Done(line) {
					a, e := answerTo(line)
					if err := l.Append(a, e, Times{}); err != nil {
						t.Fatal(err)
					}
					if r.IntN(3) == 0 {
						break
					}
				}
			}
			l.Close()
		}
		write(t, path, missing(t, path, 20)...)
		if got := read(t, path); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// missing is the samples of n without an answer.
func missing(t *testing.T, path string, n int) []int {
	t.Helper()
	done, err := ReadAnswers(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	for line := range n {
		if _, ok := done[line]; !ok {
			list = append(list, line)
		}
	}
	return list
}

func TestLogRefusesDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.jsonl")
	write(t, path, 0, 1, 2)
	good := read(t, path)
	lines := strings.SplitAfter(good, "\n")
	for text, want := range map[string]string{
		lines[0] + lines[1][:10] + "\n" + lines[2]: "log.jsonl:2:",
		lines[0] + lines[0]:                        "log.jsonl:2: sample 0 has an answer already",
		lines[0] + `{"index":1,"pred":"x"}` + "\n": "log.jsonl:2: no field gollm",
	} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenLog(filepath.Dir(path), filepath.Base(path)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
	if err := os.WriteFile(path, []byte(good), 0o666); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLog(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, e := answerTo(1)
	if l.Append(r, e, Times{}) == nil {
		t.Error("a second answer to a sample was taken")
	}
}

// identity is that of a small run.
func identity() Identity {
	return Identity{Suite: "test", Settings: []string{"dense", "window(size=8)"}, Data: map[string]string{"4/pred/a.jsonl": "x"}}
}

func manifest(s Shard) Manifest {
	return Manifest{Identity: identity(), Shard: s, Units: []Info{
		{Name: "4/pred/a.jsonl", Task: "a", Length: 4, Count: 11}, {Name: "8/pred/a.jsonl", Task: "a", Length: 8, Count: 3},
	}}
}

func TestFolderRefusesOtherRuns(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(dir, manifest(Shard{Of: 1}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, manifest(Shard{Of: 1})); err == nil || !strings.Contains(err.Error(), "under way") || strings.Contains(err.Error(), "unavailable") {
		t.Errorf("error %v, want one that says that a run is under way, and nothing of the system's", err)
	}
	f.Close()
	other := manifest(Shard{Of: 1})
	other.Identity.Settings = []string{"dense"}
	if _, err := Open(dir, other); err == nil || !strings.Contains(err.Error(), `settings was ["dense","window(size=8)"] and is ["dense"]`) {
		t.Errorf("error %v, want one that names the difference", err)
	}
	other = manifest(Shard{Of: 1})
	other.Identity.Options = map[string]string{"seed": "7"}
	other.Identity.Data = map[string]string{}
	for i := range 9 {
		other.Identity.Data[fmt.Sprint(i)] = "x"
	}
	if _, err := Open(dir, other); err == nil || !strings.Contains(err.Error(), `data_sha256 0 is "x" and was not there`) || !strings.Contains(err.Error(), "and 5 more") {
		t.Errorf("error %v, want one that names six differences of eleven", err)
	}
	other.Identity.Data = nil
	if _, err := Open(dir, other); err == nil || !strings.Contains(err.Error(), `options seed is "7"`) {
		t.Errorf("error %v, want one that names the option", err)
	}
	if _, err := Open(dir, manifest(Shard{Index: 1, Of: 2})); err == nil {
		t.Error("another shard was taken into the folder")
	}
	f, err = Open(dir, manifest(Shard{Of: 1}))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	name := filepath.Join(dir, manifestName)
	if err := os.WriteFile(name, []byte(strings.Replace(read(t, name), `"test"`, `"tost"`, 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadManifest(dir); err == nil || !strings.Contains(err.Error(), "changed by hand") {
		t.Errorf("error %v, want one that says that the manifest was changed", err)
	}
	if _, err := ReadManifest(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one of a file that is not there", err)
	}
}

// TestFolderSaysWhyItCannotBeWritten has a lock that cannot be opened: no other run
// is the cause.
func TestFolderSaysWhyItCannotBeWritten(t *testing.T) {
	refused := func(dir, want string) {
		t.Helper()
		_, err := Open(dir, manifest(Shard{Of: 1}))
		if err == nil || strings.Contains(err.Error(), "under way") || !strings.Contains(err.Error(), filepath.Join(dir, "lock")) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s and nothing of another run", err, want)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lock"), 0o777); err != nil {
		t.Fatal(err)
	}
	refused(dir, "is a directory")
	if os.Getuid() == 0 {
		t.Log("a superuser may write everywhere: what a folder without permission says is not tested")
		return
	}
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	refused(dir, "permission denied")
}

func TestParseShard(t *testing.T) {
	for _, bad := range []string{"1", "4/4", "-1/2", "0/0", "0/4x", "a/b"} {
		if _, err := ParseShard(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	s, err := ParseShard("2/3")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range 11 {
		if s.Has(line) {
			n++
		}
	}
	if n != s.Size(11) || n != 3 {
		t.Errorf("%d samples of 11, Size says %d, want 3", n, s.Size(11))
	}
}

// shards makes the folders of a run in parts.
func shards(t *testing.T, n int) []string {
	t.Helper()
	var folders []string
	for i := range n {
		dir := t.TempDir()
		f, err := Open(dir, manifest(Shard{Index: i, Of: n}))
		if err != nil {
			t.Fatal(err)
		}
		for set, attn := range f.Manifest.Identity.Settings {
			for _, u := range f.Manifest.Units {
				var lines []int
				for _, line := range upTo(u.Count) {
					if f.Manifest.Shard.Has(line) {
						lines = append(lines, line)
					}
				}
				write(t, logPath(dir, set, attn, u.Name), lines...)
			}
		}
		f.Close()
		folders = append(folders, dir)
	}
	return folders
}

func TestMergeIsTheWholeRun(t *testing.T) {
	whole := shards(t, 1)[0]
	for _, n := range []int{1, 2, 3, 12} {
		out := filepath.Join(t.TempDir(), "merged")
		if err := Merge(t.Context(), out, shards(t, n), false, nil); err != nil {
			t.Fatal(err)
		}
		for set, attn := range identity().Settings {
			for _, u := range manifest(Shard{}).Units {
				path := logPath("", set, attn, u.Name)
				if got, want := read(t, filepath.Join(out, path)), read(t, filepath.Join(whole, path)); got != want {
					t.Errorf("%d shards, %s: got %q, want %q", n, path, got, want)
				}
			}
		}
	}
	folders := shards(t, 3)
	twice := []string{folders[0], folders[1], folders[2], folders[1]}
	if err := Merge(t.Context(), filepath.Join(t.TempDir(), "m"), twice, false, nil); err == nil || !strings.Contains(err.Error(), "shard 1 of 3") {
		t.Errorf("error %v, want one that names the shard that is there twice", err)
	}
	if err := Merge(t.Context(), filepath.Join(t.TempDir(), "m"), folders[:2], false, nil); err == nil || !strings.Contains(err.Error(), "sample 2 has no answer") {
		t.Errorf("error %v, want one that names the missing sample", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	none := filepath.Join(t.TempDir(), "none")
	if err := Merge(stopped, none, folders, false, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v of a merge that was stopped", err)
	}
	if _, err := os.Stat(none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a merge that was stopped left a folder: %v", err)
	}
	part := filepath.Join(t.TempDir(), "m")
	if err := Merge(t.Context(), part, folders[:2], true, nil); err != nil {
		t.Fatal(err)
	}
	answers, err := ReadAnswers(part, LogName(1, identity().Settings[1], 0, "4/pred/a.jsonl"))
	if err != nil || len(answers) != 8 || answers[2].Row != nil || answers[3].Row == nil {
		t.Errorf("%d answers of 11 in two shards of three, %v", len(answers), err)
	}
}

// TestMergeHasPromptsAndCommands joins shards that made prompts: the folder has them, of
// a shard that still has what it made, and says what every shard was told.
func TestMergeHasPromptsAndCommands(t *testing.T) {
	const name, prompts = "prompts/4/data/a/validation.jsonl", "{}\n"
	folders := shards(t, 3)
	for i, dir := range folders {
		m := manifest(Shard{Index: i, Of: 3})
		m.Identity.Data = map[string]string{"4/pred/a.jsonl": "ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356"} // sha256sum
		m.Made = map[string]string{"4/pred/a.jsonl": name}
		m.About = About{Command: []string{"gollm", "--shard", fmt.Sprint(i)}, ModelPath: "m.gguf", Device: []string{"auto", "cuda", "auto"}[i], Devices: [][]string{{"cpu"}, {"gpu"}, {"cpu"}}[i]}
		m.Hash = m.Identity.Hash()
		if err := errors.Join(writeFile(dir, manifestName, m), WriteFile(dir, name, []byte(prompts))); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "merged")
	merge := func(partial bool, order ...int) error {
		var list []string
		for _, i := range order {
			list = append(list, folders[i])
		}
		return Merge(t.Context(), out, list, partial, []string{"gollm", "merge"})
	}
	if err := merge(true, 2); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(folders[2], name, []byte("{ }\n")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(out, name)); err != nil {
		t.Fatal(err)
	}
	if err := merge(false, 2, 0, 1); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(out, name)); got != prompts {
		t.Errorf("the prompts are %q, want %q", got, prompts)
	}
	m, err := ReadManifest(out)
	if err != nil {
		t.Fatal(err)
	}
	a := m.About
	if strings.Join(a.Command, " ") != "gollm merge" || len(a.Parts) != 3 || a.Parts[1].Shard != (Shard{1, 3}) || a.Parts[1].About.Command[2] != "1" || a.Device != "auto, cuda" || strings.Join(a.Devices, ", ") != "cpu, gpu" || a.ModelPath != "m.gguf" {
		t.Errorf("%+v", a)
	}
	for _, i := range []int{0, 1} {
		if err := WriteFile(folders[i], name, []byte("{ }\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := merge(true, 0, 1, 2); err == nil || !strings.Contains(err.Error(), name+" was changed since the run made it") {
		t.Errorf("error %v, want one that names prompts that were changed", err)
	}
	for _, dir := range folders {
		if err := os.RemoveAll(filepath.Join(dir, PromptsName)); err != nil {
			t.Fatal(err)
		}
	}
	if err := merge(false, 0, 1, 2); err == nil || !strings.Contains(err.Error(), "no shard has "+name) {
		t.Errorf("error %v, want one that names prompts that are gone", err)
	}
	if err := merge(true, 0, 1, 2); err != nil {
		t.Errorf("a merge of what there is: %v", err)
	}
}

func TestSummarize(t *testing.T) {
	dir := shards(t, 1)[0]
	s, err := Summarize(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Complete || len(s.Settings) != 2 {
		t.Fatalf("%+v", s)
	}
	u := s.Settings[1].Units[0]
	want := 0.0
	for line := range 11 {
		want += float64(line%3) / 2 / 11
	}
	if d := u.Score.Mean - want; d > 1e-9 || d < -1e-9 || u.Done != 11 || u.Prompt.Least != 100 || u.Prompt.Most != 110 {
		t.Errorf("%+v, want a mean of %v", u, want)
	}
	if u.Paired == nil || u.Paired.Tie != 11 || u.PrefillTokS < 52000 || u.DecodeTokS != 4000 {
		t.Errorf("%+v", u)
	}
	if n := len(s.Settings[1].Means); n != 2 {
		t.Errorf("%d means, want 2", n)
	}
	if err := s.Write(dir); err != nil {
		t.Fatal(err)
	}
	if text := read(t, filepath.Join(dir, "summary.csv")); strings.Count(text, "\n") != 1+2*(2+2) {
		t.Errorf("summary.csv: %s", text)
	}
	if list := Compare(&s.Settings[0], &s.Settings[1]); len(list) != 2 {
		t.Errorf("%d units are in both, want 2", len(list))
	}
}

// TestSummaryCSVLeavesOutWhatIsNotThere wants empty cells for what a row does not
// have, and what everybody knows of dense attention.
func TestSummaryCSVLeavesOutWhatIsNotThere(t *testing.T) {
	dir := shards(t, 1)[0]
	if err := os.Remove(timesPath(logPath(dir, 1, identity().Settings[1], "8/pred/a.jsonl"))); err != nil {
		t.Fatal(err)
	}
	s, err := Summarize(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(dir); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(read(t, filepath.Join(dir, "summary.csv")))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	const all = " 100.00 100.00 100.00 100.00 100.00 100.00 100.00"
	want := map[string]string{
		"dense a 4": "105.0 52500.0 4000.0" + all, "dense a 8": "101.0 50500.0 4000.0" + all, "dense mean 4": "  " + all, "dense mean 8": "  " + all,
		"window(size=8) a 4": "105.0 52500.0 4000.0       ", "window(size=8) a 8": "101.0         ",
		"window(size=8) mean 4": "         ", "window(size=8) mean 8": "         ",
	}
	for _, row := range rows[1:] {
		name := strings.Join(row[:3], " ")
		if got := strings.Join(row[14:24], " "); got != want[name] {
			t.Errorf("%s: %q, want %q", name, got, want[name])
		}
	}
	if len(rows) != 1+len(want) || rows[0][14] != "prompt_mean" {
		t.Errorf("%d rows, %q", len(rows), rows[0])
	}
}

// TestCompareIsOverTheSharedSamples has two settings of which each answered samples
// that the other did not: both scores are over what the difference is of.
func TestCompareIsOverTheSharedSamples(t *testing.T) {
	setting := func(scores map[int]float64) *Setting {
		r := Result{Info: Info{Name: "a.jsonl", Task: "a", Count: 9}, Done: len(scores), scores: scores}
		r.Score.Mean, r.Score.N = 0.25, len(scores)
		return &Setting{Units: []Result{r}}
	}
	list := Compare(setting(map[int]float64{0: 0, 1: 1, 7: 0}), setting(map[int]float64{0: 1, 1: 1, 2: 0, 3: 0, 4: 0}))
	if len(list) != 1 {
		t.Fatalf("%d units are in both, want 1", len(list))
	}
	c := list[0]
	if c.A.Mean != 0.5 || c.B.Mean != 1 || c.A.N != 2 || c.B.N != 2 || c.OnlyA != 1 || c.OnlyB != 3 || c.Paired.Difference.Mean != 0.5 {
		t.Errorf("%+v and %+v, want 0.5 and 1 over 2 samples, and 1 and 3 that only one has", c.A, c.B)
	}
	if c.Score.Mean != 0.25 || c.Score.N != 5 {
		t.Errorf("score %+v, want that of b over all of its samples", c.Score)
	}
}

// TestSummarizeRepeats averages the answers to a sample before anything else, and
// counts a sample once all of them are there.
func TestSummarizeRepeats(t *testing.T) {
	dir := t.TempDir()
	m := manifest(Shard{Of: 1})
	m.Identity.Repeats = []int{1, 3}
	m.Units = m.Units[:1]
	f, err := Open(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unit := m.Units[0].Name
	write(t, logPath(dir, 0, "dense", unit), upTo(11)...)
	for r := range 3 {
		l, err := OpenLog(dir, LogName(1, m.Identity.Settings[1], r, unit))
		if err != nil {
			t.Fatal(err)
		}
		for line := range 11 - r { // the last two are not there each time
			if err := l.Append(row{}, Extra{Line: line, Score: new(float64(r) / 2), Prompt: 10, New: 1, BOS: []int{0}}, Times{PrefillMs: 1, Prompt: 10}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Summarize(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	u := s.Settings[1].Units[0]
	if u.Done != 9 || u.Score.N != 9 || u.Score.Mean != 0.5 || u.Score.Low != 0.5 || u.Score.High != 0.5 || s.Complete {
		t.Errorf("%+v, want 9 samples that are all 0.5, and an unfinished run", u)
	}
	if u.Paired == nil || u.Paired.Win+u.Paired.Tie+u.Paired.Loss != 9 || u.PrefillTokS != 10000 {
		t.Errorf("%+v, %v tok/s", u.Paired, u.PrefillTokS)
	}
	merged := filepath.Join(t.TempDir(), "merged")
	if err := Merge(t.Context(), merged, []string{dir}, true, nil); err != nil {
		t.Fatal(err)
	}
	path := LogName(1, m.Identity.Settings[1], 2, unit)
	if got, want := read(t, filepath.Join(merged, path)), read(t, filepath.Join(dir, path)); got != want {
		t.Errorf("a merge changed the repeats: %q, want %q", got, want)
	}
}

// TestSummarizeNamesTheLine spoils the third line of some answers.
func TestSummarizeNamesTheLine(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"line":2,`, `"line":11,`, ":3: an answer to sample 11, but there are 11, from 0 on"},
		{`"line":2,`, `"line":1,`, ":3: sample 1 has an answer already"},
		{`"line":2,`, `"line":-2,`, ":3: sample -2, want 0 or more"},
		{`"line":2,`, `"Line":2,`, ":3: not a JSON object of the right form: field Line, want line"},
		{`"line":2,"score":1,`, `"line":2,`, ":3: no field gollm.score"},
		{`"line":2,"score":1,`, `"line":2,"score":100,`, ":3: the field gollm.score is 100, want 0 to 1"},
		{`"line":2,"score":1,`, `"line":2,"score":1.001,`, ":3: the field gollm.score is 1.001, want 0 to 1"},
		{`"line":2,"score":1,`, `"line":2,"score":-0.5,`, ":3: the field gollm.score is -0.5, want 0 to 1"},
		{`"line":2,"score":1,`, `"line":2,"score":"1",`, ":3: field gollm.score is of type string"},
		{`"line":2,"score":1,`, `"line":2,"score":1e999,`, ":3: field gollm.score is of type number 1e999, want a number of its range"},
		{`"line":2,"score":1,`, `"line":2,"score":NaN,`, ":3: "},
	} {
		dir := shards(t, 1)[0]
		path := logPath(dir, 0, "dense", "4/pred/a.jsonl")
		text := read(t, path)
		if !strings.Contains(text, c.old) {
			t.Fatalf("%s has no %s", text, c.old)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(text, c.old, c.new, 1)), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Summarize(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), path+c.want) {
			t.Errorf("%s: error %v, want %s", c.new, err, path+c.want)
		}
		out := filepath.Join(t.TempDir(), "merged")
		if err := Merge(t.Context(), out, []string{dir}, false, nil); err == nil || !strings.Contains(err.Error(), path+c.want) {
			t.Errorf("%s: error %v of a merge, want %s", c.new, err, path+c.want)
		}
	}
}

func TestSettingName(t *testing.T) {
	for attn, want := range map[string]string{
		"dense": "0-dense", "prefill=a decode=b(x=0.1)": "0-prefill_a_decode_b_x_0.1", "../..": "0-", strings.Repeat("x", 200): "0-" + strings.Repeat("x", 60),
	} {
		if got := SettingName(0, attn); got != want {
			t.Errorf("%s: %s, want %s", attn, got, want)
		}
	}
}

// TestFolderRefusesAnswersOfNobody takes the manifest away: whose the answers are
// is not known then.
func TestFolderRefusesAnswersOfNobody(t *testing.T) {
	dir := shards(t, 1)[0]
	name := filepath.Join(dir, manifestName)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	other := manifest(Shard{Of: 1})
	other.Identity.Model = "another"
	if _, err := Open(dir, other); err == nil || !strings.Contains(err.Error(), "4/pred/a.jsonl") || !strings.Contains(err.Error(), manifestName) {
		t.Errorf("error %v, want one that names the answers and the manifest that is not there", err)
	}
	if _, err := os.Stat(name); err == nil {
		t.Error("the answers were claimed all the same")
	}
	for set, attn := range identity().Settings {
		if err := os.RemoveAll(filepath.Join(dir, SettingName(set, attn))); err != nil {
			t.Fatal(err)
		}
	}
	prompts := filepath.Join(dir, "prompts", "validation.jsonl") // is no answer
	if err := errors.Join(os.MkdirAll(filepath.Dir(prompts), 0o777), os.WriteFile(prompts, []byte("{}\n"), 0o666)); err != nil {
		t.Fatal(err)
	}
	f, err := Open(dir, other)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestAbandon(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, manifestName)
	open := func() *Folder {
		t.Helper()
		f, err := Open(dir, manifest(Shard{Of: 1}))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := open()
	if err := errors.Join(f.Abandon(), f.Abandon(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an abandoned folder has its manifest: %v", err)
	}
	f = open()
	write(t, logPath(dir, 0, "dense", "4/pred/a.jsonl"), 0)
	if err := errors.Join(f.Abandon(), f.Close()); err != nil {
		t.Fatal(err)
	}
	f = open()
	if err := errors.Join(f.Abandon(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Errorf("answers lost their manifest: %v", err)
	}
}

func TestReadAuditNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	if err := WriteAudit(dir, 0, "dense", Audits{Units: map[string]*Audited{"a": {Samples: 1}}}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, SettingName(0, "dense"), AuditName)
	if err := os.WriteFile(path, []byte("{\n\"a\": {]}"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAudit(dir, 0, "dense"); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v, want one that names %s and line 2", err, path)
	}
}

// TestHashOutlivesTheManifest wants the hash of an identity from what was written of it, also
// where a text of the model is not UTF-8.
func TestHashOutlivesTheManifest(t *testing.T) {
	for _, text := range []string{"plain", "\x9b\xff", "\uFFFD", `\ufffd`, "\u2028"} {
		id := Identity{Options: map[string]string{"template": text}}
		b, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		var read Identity
		if err := json.Unmarshal(b, &read); err != nil || read.Hash() != id.Hash() {
			t.Errorf("%q: %v, hash %s, want %s", text, err, read.Hash(), id.Hash())
		}
	}
}
