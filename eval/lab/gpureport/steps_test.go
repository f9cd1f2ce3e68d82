package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSparseSteps: figures of gollm bench go to the rows of their setting and length, and a
// group that fails costs its own rows.
func TestSparseSteps(t *testing.T) {
	dir := t.TempDir()
	r := &report{device: "cuda", folder: dir, small: true, made: map[string]*making{}}
	r.bin.gollm = filepath.Join(dir, "gollm")
	// Dense and a setting behind few tokens, behind 32k and behind 128k.
	script := `#!/bin/sh
case "$*" in
*magicpig*) echo "gollm: no room" >&2; exit 1 ;;
*--density=false*) ;;
*) echo '{"rows": [{"tok_s": 500}, {"tok_s": 600, "density": 0.3}]}'; exit ;;
esac
echo '{"rows": [{"tok_s": 1000, "attend_ms": 0.5}, {"tok_s": 900},
 {"tok_s": 500, "attend_ms": 1}, {"tok_s": 600, "select_ms": 0.5, "attend_ms": 0.25, "attention_floor_ms": 0.15},
 {"tok_s": 200, "attend_ms": 4.5}, {"tok_s": 400, "select_ms": 1.5, "attend_ms": 0.5, "attention_floor_ms": 0.5}]}'
`
	if err := os.WriteFile(r.bin.gollm, []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	close(done)
	m := modelSpec{"llama-3.1-8b", "q8_0", 0, false}
	r.made[r.like(m).String()] = &making{path: "model.gguf", done: done}
	rows := r.sparseStepRows(1)
	if err := r.sparseSteps(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	want := map[string]struct{ value, density float64 }{
		"topk(k=0.1) step behind 32k":                {1.2, 0.3},
		"topk(k=0.1) step behind 128k":               {2, 0.3},
		"topk(k=0.1) selection behind 128k":          {1.5, 0},
		"cis(k=0.1) attention of a step behind 128k": {(4 + 0.5) / (1.5 + 0.5), 0}, // 5 ms beside 1, 2.5 beside 1
	}
	seen := map[string]bool{}
	for _, w := range rows {
		x, found := want[w.What]
		seen[w.What] = true
		switch {
		case strings.HasPrefix(w.What, "magicpig"):
			if w.state() != unmeasured || !strings.Contains(w.Unmeasured, "no room") {
				t.Errorf("%s is %s: %s", w.What, w.state(), w.Unmeasured)
			}
		case w.state() == unmeasured:
			t.Errorf("%s: %s", w.What, w.Unmeasured)
		case found && (math.Abs(w.Value-x.value) > 1e-9 || w.Density != x.density):
			t.Errorf("%s %s: %v at %v, want %v", w.What, w.How, w.Value, w.Density, x)
		}
	}
	for what := range want {
		if !seen[what] {
			t.Errorf("no row %s", what)
		}
	}

	several := r.sparseStepRows(16)
	if err := r.sparseBatches(t.Context(), several); err != nil {
		t.Fatal(err)
	}
	for _, w := range several {
		if strings.HasPrefix(w.What, "topk") && (math.Abs(w.Value-1.2) > 1e-9 || w.Density != 0) {
			t.Errorf("%s %s: %v at %v, want 1.2 and no density", w.What, w.How, w.Value, w.Density)
		}
	}
}
