package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
)

// TestRun runs a method on the CPU: it selects what it selects, and captured steps are
// eager ones. What cannot be run says why.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := modeltest.Writer(modeltest.Shape{Layers: 3}).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	run := func(attn, layers string) (*Result, error) {
		s := method{prompt: 200, steps: 3, threads: 1, conf: engine.RecordConfig{Rows: 4}}
		return s.run(t.Context(), path, "cpu", attn, layers)
	}
	got, err := run("topk(k=9,sink=2,window=5)", "1,2")
	if err != nil {
		t.Fatal(err)
	}
	if got.Wrong != 0 || got.Apart != 0 || got.Rows != 2*4*(4+3) || got.Dense != 0 || got.Entries != 9*got.Rows || got.Steps != 3 {
		t.Errorf("%+v", got)
	}
	for _, c := range [][3]string{
		{"nosuch", "1", "no method is called"}, {"dense", "2,1", "ascending"}, {"dense", "3", "the model has 3"}, {"dense", "x", "numbers"},
		{"hashattention", "1", "dir"},
	} {
		if _, err := run(c[0], c[1]); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s at layers %s: %v, want %q", c[0], c[1], err, c[2])
		}
	}
}
