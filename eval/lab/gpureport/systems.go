package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gollm/gollm/sparse"
)

// everyMethod is the part that runs each attention method.
const everyMethod = "every method runs"

// methodLimit is the time of one method: a prompt, steps, and what the CPU selects.
const methodLimit = 200 * time.Second

// methodsAtOnce is how many methods run at once, each in a process of its own: while one
// computes on the GPU the CPU selects for another.
const methodsAtOnce = 3

// The most that captured steps may be from eager ones, and the share of entries that
// rounding may decide: a comparison that leaves more open says nothing.
const (
	maxApart     = 1e-2
	maxUndecided = 1e-2
)

// methodRun is how a method is run.
type methodRun struct {
	attn   string // %s is the folder with the files that some methods need
	model  modelSpec
	layers string // that are compared
}

// everyPair are the methods that look at every pair of a prompt's rows one by one: minutes
// for 32 layers, so that they run in four.
var everyPair = []string{"h2o", "topk", "topp", "random"}

// methodRuns are the methods of gollm attn in the order in which they are run: the one
// that takes longest first.
func (r *report) methodRuns() []methodRun {
	var all []methodRun
	for _, e := range sparse.Methods() {
		run := methodRun{attn: e.Name, model: modelSpec{"llama-3.1-8b", "q4_k_m", 0, false}, layers: "2,31"}
		name := e.Name
		switch {
		case slices.Contains(everyPair, name):
			run.model.layers, run.layers = 4, "3"
		case name == "sketchwalk": // whose walk goes through all layers from 2 on
			run.layers = "2,3"
		case name == "doublesparsity":
			run.attn = "doublesparsity(file=%s/channels.npy)"
		case name == "hashattention":
			run.attn = "hashattention(dir=%s)"
		}
		if name == "h2o" { // which takes the CPU longest
			all = slices.Insert(all, 0, run)
		} else {
			all = append(all, run)
		}
	}
	for i := range all {
		if r.small {
			all[i].model, all[i].layers = smallMethods, "2"
		}
	}
	return all
}

// methodRows are a row for each.
func (r *report) methodRows() []*row {
	var rows []*row
	for _, s := range r.methodRuns() {
		name, _, _ := strings.Cut(s.attn, "(")
		rows = append(rows, &row{
			What: name, Unit: "wrong", Aim: none,
			How: fmt.Sprintf("%v, a prompt of 32k tokens and steps behind it; what layers %s select beside the CPU", s.model, s.layers),
		})
	}
	return rows
}

// methods runs every method. One that fails is a failed row, and the others go on.
func (r *report) methods(ctx context.Context, rows []*row) error {
	for _, path := range []string{r.bin.systems, r.bin.hashnets, r.bin.gollm} {
		if _, err := os.Stat(path); err != nil {
			return err
		}
	}
	files, filesErr := r.methodFiles(ctx, modelSpec{"llama-3.1-8b", "q4_k_m", 0, false})
	jobs := make(chan int)
	var all sync.WaitGroup
	runs := r.methodRuns()
	for range methodsAtOnce {
		all.Go(func() {
			for i := range jobs {
				s := runs[i]
				var err error
				if strings.Contains(s.attn, "%s") {
					s.attn, err = fmt.Sprintf(s.attn, files), filesErr
				}
				if err == nil {
					err = r.method(ctx, rows[i], s)
				}
				if err != nil && ctx.Err() == nil {
					rows[i].fail(err)
				}
			}
		})
	}
	for i := range rows {
		jobs <- i
	}
	close(jobs)
	all.Wait()
	return ctx.Err()
}

// methodFiles makes what some methods need to know of a model: the ranks of its channels
// and networks of random weights.
func (r *report) methodFiles(ctx context.Context, m modelSpec) (folder string, err error) {
	if r.small {
		m = smallMethods
	}
	model, err := r.model(ctx, m)
	if err != nil {
		return "", err
	}
	folder = filepath.Join(r.folder, "systems-"+m.mix)
	if _, err := output(ctx, "", r.bin.hashnets, model, folder); err != nil {
		return "", err
	}
	text := filepath.Join(r.folder, "channels.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("channels of the heads ", 8)), 0o666); err != nil {
		return "", err
	}
	_, err = output(ctx, "", r.bin.gollm, "channels", "-m", model, "--device", r.device, "-f", text, "-o", filepath.Join(folder, "channels.npy"))
	return folder, err
}

// seen is what eval/lab/systems prints.
type seen struct {
	Prompt    int     `json:"prompt"`
	Prefill   float64 `json:"prefill_s"`
	Steps     int     `json:"steps"`
	StepMS    float64 `json:"step_ms"`
	Apart     float64 `json:"apart"`
	Rows      int     `json:"rows"`
	Dense     int     `json:"dense"`
	Entries   int     `json:"entries"`
	Undecided int     `json:"undecided"`
	Wrong     int     `json:"wrong"`
	First     string  `json:"first"`
	CompareS  float64 `json:"compare_s"`
}

// method runs one method and fills its row.
func (r *report) method(ctx context.Context, w *row, s methodRun) error {
	path, err := r.model(ctx, s.model)
	if err != nil {
		return err
	}
	args := []string{"-m", path, "-device", r.device, "-attn", s.attn, "-layers", s.layers}
	limit := methodLimit
	if r.small {
		args = append(args, "-len", "70", "-steps", "2", "-threads", "1")
		limit *= slower
	}
	own, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := output(own, "", r.bin.systems, args...)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("it took longer than %v", limit)
	}
	if err != nil {
		return err
	}
	var x seen
	if err := json.Unmarshal(out, &x); err != nil {
		return fmt.Errorf("what it printed: %w", err)
	}
	return w.selection(x)
}

// selection fills a row with what was seen of a method.
func (w *row) selection(x seen) error {
	w.set(float64(x.Wrong), "wrong")
	w.Note = fmt.Sprintf("prompt of %d in %.1f s; %d eager and %d captured steps, %.2f ms, logits %.1g apart; %d rows of heads, %d read everything, %d entries of the others, %d undecided; the CPU took %.0f s",
		x.Prompt, x.Prefill, x.Steps, x.Steps, x.StepMS, x.Apart, x.Rows, x.Dense, x.Entries, x.Undecided, x.CompareS)
	if x.First != "" {
		w.Note = x.First + "; " + w.Note
	}
	switch {
	case x.Rows == 0:
		return errors.New("no row was compared")
	case !(x.Apart <= maxApart):
		return fmt.Errorf("logits of captured steps are %.2g from those of eager ones, want at most %g", x.Apart, maxApart)
	case float64(x.Undecided) > maxUndecided*float64(x.Entries):
		return fmt.Errorf("rounding decides %d of %d entries, want at most %g of them", x.Undecided, x.Entries, maxUndecided)
	}
	return nil
}
