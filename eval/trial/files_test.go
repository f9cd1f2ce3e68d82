package trial

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/engine"
)

// TestManifestNamesNothingElsewhere has manifests that no run writes, with the hash of
// their contents: none of them is read, and none of their names becomes a path.
func TestManifestNamesNothingElsewhere(t *testing.T) {
	long := strings.Repeat("a", 5000) + ".jsonl"
	for name, m := range map[string]Manifest{
		`called "../../x.jsonl"`:                  {Units: []Info{{Name: "../../x.jsonl"}}},
		`called "/x.jsonl"`:                       {Units: []Info{{Name: "/x.jsonl"}}},
		`called "4/pred/../../../../x.jsonl"`:     {Units: []Info{{Name: "4/pred/../../../../x.jsonl"}}},
		`called "pred/.."`:                        {Units: []Info{{Name: "pred/.."}}},
		`called "4/other/a.jsonl"`:                {Units: []Info{{Name: "4/other/a.jsonl"}}},
		`called "a.json"`:                         {Units: []Info{{Name: "a.json"}}},
		`called ""`:                               {Units: []Info{{}}},
		`called "` + long[:60] + `…"`:             {Units: []Info{{Name: long}}},
		`called "a\x00.jsonl"`:                    {Units: []Info{{Name: "a\x00.jsonl"}}},
		`two units are called "4/a.jsonl"`:        {Units: []Info{{Name: "4/a.jsonl"}, {Name: "4/a.jsonl"}}},
		`10001 units, want at most 10000`:         {Units: make([]Info, 10_001)},
		`has -1 samples`:                          {Units: []Info{{Name: "a.jsonl", Count: -1}}},
		`repeated 1000000000 times, want 0 to 10`: {Identity: Identity{Repeats: []int{1, 1000000000}}},
		`"a.jsonl" are called "prompts/../../x"`:  {Made: map[string]string{"a.jsonl": "prompts/../../x"}},
		`"b.jsonl" are called "manifest.json"`:    {Made: map[string]string{"b.jsonl": "manifest.json"}},
	} {
		root := t.TempDir()
		shard, out := filepath.Join(root, "a", "b", "shard"), filepath.Join(root, "a", "b", "out")
		m.Identity.Settings = []string{"dense"}
		m.Hash = m.Identity.Hash()
		if err := errors.Join(os.MkdirAll(shard, 0o777), writeFile(shard, manifestName, m)); err != nil {
			t.Fatal(err)
		}
		before := tree(t, root)
		if _, err := Summarize(t.Context(), shard, nil); err == nil || !strings.Contains(err.Error(), manifestName) || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want %s", err, name)
		}
		if err := Merge(t.Context(), out, []string{shard}, true, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v of a merge, want %s", err, name)
		}
		if after := tree(t, root); after != before {
			t.Errorf("%s: there was %s and is %s", name, before, after)
		}
	}
	dir := t.TempDir()
	m := Manifest{}
	m.Hash = m.Identity.Hash()
	if err := writeFile(dir, manifestName, m); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadManifest(dir); err == nil || !strings.Contains(err.Error(), "no settings") {
		t.Errorf("error %v of a run without settings", err)
	}
}

// TestFilesTooLongToRead: what no run writes is refused before it takes all memory.
func TestFilesTooLongToRead(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{manifestName, "a.jsonl"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err == nil {
			err = errors.Join(f.Truncate(maxFile+1), f.Close()) // takes no room on the disk
		}
		if err != nil {
			t.Fatal(err)
		}
		if b, err := ReadFile(dir, name); err == nil || !strings.Contains(err.Error(), "want at most") {
			t.Errorf("%s: %d bytes and the error %v", name, len(b), err)
		}
	}
}

// TestSuitesNamesAreTaken has the names of units that the suites make.
func TestSuitesNamesAreTaken(t *testing.T) {
	m := Manifest{Identity: Identity{Settings: []string{"dense"}}}
	for _, name := range []string{"4096/pred/vt.jsonl", "450/niah.jsonl", "pred/qasper.jsonl", "pred_e/2wikimqa.jsonl", "results/My model..v2.gguf.jsonl", "results/...gguf.jsonl"} {
		m.Units = append(m.Units, Info{Name: name, Count: 1})
	}
	if err := m.check(); err != nil {
		t.Error(err)
	}
}

// tree is the names and sizes of what is under a folder.
func tree(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, _ := os.ReadFile(path) // of a link, what it leads to
			b.WriteString(path + ": " + string(text) + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestLinksLeadNowhere puts links to what is elsewhere into the folder of a run: nothing
// is read or written there, and the error names the link.
func TestLinksLeadNowhere(t *testing.T) {
	const victim = "do not touch" // without a line end: a log would cut it off
	for name, act := range map[string]func(dir string) error{
		"lock":                  func(dir string) error { _, err := Open(dir, manifest(Shard{Of: 1})); return err },
		manifestName:            func(dir string) error { _, err := ReadManifest(dir); return err },
		"0-dense":               func(dir string) error { _, err := OpenLog(dir, LogName(0, "dense", 0, "a.jsonl")); return err },
		"0-dense/a.jsonl":       func(dir string) error { _, err := OpenLog(dir, LogName(0, "dense", 0, "a.jsonl")); return err },
		"0-dense/a.jsonl.times": func(dir string) error { _, err := OpenLog(dir, LogName(0, "dense", 0, "a.jsonl")); return err },
		"0-dense/4":             func(dir string) error { _, err := ReadAnswers(dir, LogName(0, "dense", 0, "4/a.jsonl")); return err },
		"0-dense/audit.json":    func(dir string) error { _, err := ReadAudit(dir, 0, "dense"); return err },
		"figures":               func(dir string) error { return WriteFile(dir, "figures/victim", []byte("x")) },
	} {
		root := t.TempDir()
		dir, away := filepath.Join(root, "run"), filepath.Join(root, "away")
		link, target := filepath.Join(dir, name), filepath.Join(away, "victim")
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o777), os.MkdirAll(away, 0o777), os.WriteFile(target, []byte(victim), 0o666)); err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(name) == "" && name != "lock" {
			target = away
		}
		if err := os.Symlink(target, link); err != nil {
			t.Skip(err)
		}
		before := tree(t, away)
		if err := act(dir); err == nil || !strings.Contains(err.Error(), link+" is a link that leads out of the folder of the run") {
			t.Errorf("%s: error %v, want one that names the link", name, err)
		}
		if after := tree(t, away); after != before {
			t.Errorf("%s: elsewhere was %s and is %s", name, before, after)
		}
	}
	// What is replaced in whole takes the place of a link, and a link that stays in the
	// folder is followed.
	root := t.TempDir()
	dir, away := filepath.Join(root, "run"), filepath.Join(root, "victim")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "pictures"), 0o777), os.WriteFile(away, []byte(victim), 0o666),
		os.Symlink(away, filepath.Join(dir, "report.html")), os.Symlink("pictures", filepath.Join(dir, "figures"))); err != nil {
		t.Skip(err)
	}
	if err := errors.Join(WriteFile(dir, "report.html", []byte("x")), WriteFile(dir, "figures/a.svg", []byte("y"))); err != nil {
		t.Fatal(err)
	}
	if read(t, away) != victim || read(t, filepath.Join(dir, "report.html")) != "x" || read(t, filepath.Join(dir, "pictures", "a.svg")) != "y" {
		t.Errorf("elsewhere is %q, the report %q", read(t, away), read(t, filepath.Join(dir, "report.html")))
	}
}

// TestAuditOfAnotherShapeIsTaken adds to readings whose maps somebody has edited.
func TestAuditOfAnotherShapeIsTaken(t *testing.T) {
	for _, maps := range []*Maps{nil, {Prefill: &Map{Rows: 1, Mass: [][]*float64{{}}}}} {
		a := Audits{Units: map[string]*Audited{"a": nil}, Maps: maps}
		cells := [][]engine.AuditCell{make([]engine.AuditCell, 3), make([]engine.AuditCell, 3)}
		cells[1][2].Mass = 0.5
		a.Add("a", 1, engine.AuditReport{Phases: []engine.AuditPhase{{Phase: "prefill", Rows: 4, Cells: cells}}})
		if m := a.Maps.Prefill; len(m.Mass) != 2 || len(m.Mass[1]) != 3 || *m.Mass[1][2] != 0.5 {
			t.Errorf("%+v", m)
		}
	}
}
