package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gollm/gollm/sparse"
)

// TestSystems: every method has a row; one that ends with an error is a failed row with
// its first line, one that prints something else likewise, and the others are met.
func TestSystems(t *testing.T) {
	dir := t.TempDir()
	r := &report{device: "cuda", folder: dir, limit: time.Minute, start: time.Now(), made: map[string]*making{}}
	program := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o777); err != nil {
			t.Fatal(err)
		}
		return path
	}
	r.bin.gollm, r.bin.hashnets = program("gollm", "exit 0\n"), program("hashnets", "exit 0\n")
	r.bin.systems = program("systems", `case "$*" in
*"-attn h2o "*) echo "systems: eager steps: kernel states: CUDA_ERROR_INVALID_VALUE" >&2; exit 1 ;;
*"-attn quest "*) echo hello ;;
*"-attn cis "*) echo '{"rows": 768, "entries": 1000, "wrong": 2, "first": "layer 31, row 7, head 3 does not read 5"}' ;;
*"-attn psaw "*) echo '{"rows": 768, "entries": 1000, "apart": 0.02}' ;;
*"-attn etf "*) echo '{"rows": 768, "entries": 1000, "undecided": 11}' ;;
*) echo '{"rows": 768, "entries": 1000, "undecided": 10, "apart": 0.01}' ;;
esac
`)
	for _, s := range r.methodRuns() {
		done := make(chan struct{})
		close(done)
		r.made[s.model.String()] = &making{path: "model.gguf", done: done}
	}
	p := part{everyMethod, time.Minute, r.methodRows(), r.methods}
	for _, w := range p.rows {
		w.Part, w.Unmeasured = p.name, "not reached"
	}
	r.runPart(t.Context(), p)
	r.rows = p.rows
	checkReport(t, r, dir)
	bad := map[string]string{
		"h2o": "CUDA_ERROR_INVALID_VALUE", "quest": "what it printed", "cis": "does not read 5", "psaw": "captured steps", "etf": "11 of 1000",
	}
	if want := len(sparse.Methods()); len(p.rows) != want {
		t.Errorf("%d rows, want one for each of %d methods", len(p.rows), want)
	}
	for _, w := range p.rows {
		want, fails := bad[w.What]
		if got := w.state(); fails != (got == failed) || !fails && got != met || !strings.Contains(w.Failed+w.Note, want) {
			t.Errorf("%s is %s: %s %s", w.What, got, w.Failed, w.Note)
		}
	}
}

// TestSystemsInTime: what is not reached when the part ends is unmeasured, not failed.
func TestSystemsInTime(t *testing.T) {
	dir := t.TempDir()
	r := &report{device: "cuda", folder: dir, limit: time.Minute, start: time.Now(), made: map[string]*making{}}
	for _, path := range []*string{&r.bin.gollm, &r.bin.hashnets, &r.bin.systems} {
		*path = filepath.Join(dir, "program")
	}
	if err := os.WriteFile(r.bin.gollm, []byte("#!/bin/sh\nexec sleep 20\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	never := make(chan struct{})
	for _, s := range r.methodRuns() {
		r.made[s.model.String()] = &making{path: "model.gguf", done: never}
	}
	p := part{everyMethod, 100 * time.Millisecond, r.methodRows(), r.methods}
	for _, w := range p.rows {
		w.Part, w.Unmeasured = p.name, "not reached"
	}
	r.runPart(context.WithoutCancel(t.Context()), p)
	for _, w := range p.rows {
		if !strings.HasPrefix(w.Unmeasured, "it took longer than") || w.state() != unmeasured {
			t.Errorf("%s is %s: %s", w.What, w.state(), fmt.Sprint(w.Unmeasured, w.Failed))
		}
	}
}

// TestModelsOfParts: only what the parts that are asked for need is made, each model once.
func TestModelsOfParts(t *testing.T) {
	for _, c := range []struct {
		parts []string
		small bool
		want  string
	}{
		{[]string{everyMethod}, false, "llama-3.1-8b Q4_K_M of 4 layers, llama-3.1-8b Q4_K_M"},
		{[]string{everyMethod}, true, "tiny Q4_K_M, tiny-128 Q8_0"},
		{[]string{"suite", "PyTorch"}, false, ""},
		{[]string{"families"}, false, "llama-3.1-8b Q4_K_M, qwen2.5-7b Q4_K_M, qwen3-8b Q4_K_M"},
		{[]string{"sparse decode"}, false, "llama-3.1-8b F16, llama-2-7b F16"},
	} {
		r := &report{small: c.small}
		var got []string
		for _, m := range r.models(c.parts) {
			got = append(got, m.String())
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%v, small %v: %s; want %s", c.parts, c.small, got, c.want)
		}
	}
}
