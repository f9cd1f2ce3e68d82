package main

import (
	"context"
	"fmt"
	"strings"
)

// sparseSteps is the part with the whole step of every method of decoding beside dense, of one
// sequence, and sparseBatches that of several.
const (
	sparseSteps   = "sparse steps"
	sparseBatches = "sparse batches"
)

// stepSetting is a setting of attention and what its steps should be, behind 128k tokens
// and one sequence; 0 is no aim.
type stepSetting struct {
	attn     string  // %s is the folder with the files that some methods need
	times    float64 // attention, selection included, beside dense attention
	selectMS float64 // selection of all layers
}

// The aims of a step that ranks by exact keys and by copies of them in 4 bits: reading all
// keys takes 1.87 ms on an H200, and a quarter of them 0.5.
const (
	exactMS = 2.6
	q4MS    = 1.0
)

// stepSettings are in groups, each with runs of gollm bench of its own, so that one that fails
// costs only the rows of its group. A small report has the first of each.
func (r *report) stepSettings() [][]stepSetting {
	all := [][]stepSetting{
		{
			{attn: "streaming"},
			{attn: sketch, times: 2.5},
			{attn: santa},
			{attn: "santa(samples=128,exec=flash)"},
		}, {
			{attn: "quest(budget=0.1)"},
			{attn: "quest(budget=0.1,share=group)", times: 4},
			{attn: "random(k=0.1)"},
			{attn: "random(k=0.1,share=group)", times: 4},
		}, {
			{attn: "doublesparsity(file=%s/channels.npy,k=0.1)", times: 4},
		}, {
			{attn: "hashattention(dir=%s,k=0.1)", times: 4},
		}, {
			{attn: "topk(k=0.1)", selectMS: exactMS},
			{attn: "topk(k=0.1,index=q8)"},
			{attn: "topk(k=0.1,index=q4)", selectMS: q4MS},
			{attn: "topp", selectMS: exactMS},
			{attn: "topp(index=q4)", selectMS: q4MS},
			{attn: "psaw"},
		}, {
			{attn: "cis(k=0.1)", times: 1.3, selectMS: exactMS},
			{attn: "cis(k=0.1,index=q4)", times: 3, selectMS: q4MS},
			{attn: "cis(k=0.1,share=group)", times: 1.3, selectMS: exactMS},
			{attn: "cis(k=0.1,share=group,index=q4)", times: 3, selectMS: q4MS},
			{attn: "cpe(k=0.1,share=group)", times: 1.3, selectMS: exactMS},
			{attn: "cpe(k=0.1,share=group,index=q4)", times: 3, selectMS: q4MS},
		}, {
			{attn: "vattention", selectMS: exactMS},
			{attn: "vattention(index=q4)", selectMS: q4MS},
			{attn: "vattention(share=group)", times: 1.3, selectMS: exactMS},
			{attn: "vattention(share=group,index=q4)", times: 2.5, selectMS: q4MS},
		}, {
			{attn: "h2o(hh=0.05,recent=0.05)", times: 4},
		}, {
			{attn: "magicpig"},
		},
	}
	if r.small {
		for i := range all {
			all[i] = all[i][:1]
		}
	}
	return all
}

// stepLengths are the thousands of tokens behind each of so many sequences.
var stepLengths = map[int][]int{1: {32, 128}, 16: {32}}

// name is a setting as a row has it: without the folder of its files.
func (s stepSetting) name() string {
	return strings.NewReplacer("%s/channels.npy", "channels.npy", "%s", "nets").Replace(s.attn)
}

// sparseStepRows are the rows of sparseSteps, or of sparseBatches, in the order in which they are
// filled: of each setting its step at each length, then for one sequence its attention and its
// selection where they have aims.
func (r *report) sparseStepRows(batch int) []*row {
	how := "Llama-3.1-8B Q8_0, beside dense"
	if batch > 1 {
		how += fmt.Sprintf(", %d sequences", batch)
	}
	var rows []*row
	for _, group := range r.stepSettings() {
		for _, s := range group {
			for _, k := range stepLengths[batch] {
				w := &row{What: fmt.Sprintf("%s step behind %dk", s.name(), k), How: how}
				if batch == 1 {
					w.Aim = atLeast("value", 1)
				}
				rows = append(rows, w)
			}
			if batch == 1 && s.times > 0 {
				rows = append(rows, &row{What: s.name() + " attention of a step behind 128k", How: how + ", selection included" + byLength, Aim: atLeast("value", s.times)})
			}
			if batch == 1 && s.selectMS > 0 {
				rows = append(rows, &row{What: s.name() + " selection behind 128k", How: how + ", by marks", Aim: atMost(s.selectMS)})
			}
		}
	}
	return rows
}

// rowsOf is the number of rows of a setting.
func (s stepSetting) rowsOf(batch int) int {
	n := len(stepLengths[batch])
	if batch == 1 {
		n += count(s.times > 0) + count(s.selectMS > 0)
	}
	return n
}

// sparseSteps measures the steps of one sequence, then densities: those take a pass of their own,
// in which every list is counted.
func (r *report) sparseSteps(ctx context.Context, rows []*row) error {
	return r.stepGroups(ctx, 1, rows, true)
}

// sparseBatches measures those of several.
func (r *report) sparseBatches(ctx context.Context, rows []*row) error {
	return r.stepGroups(ctx, 16, rows, false)
}

// stepGroups measures all settings, and their densities where they are asked for. A group that
// fails leaves its rows unmeasured.
func (r *report) stepGroups(ctx context.Context, batch int, rows []*row, counted bool) error {
	m := modelSpec{"llama-3.1-8b", "q8_0", 0, false}
	var files string
	var filesErr error
	if !r.small {
		files, filesErr = r.methodFiles(ctx, m)
	}
	var densities []func()
	for _, group := range r.stepSettings() {
		n := 0
		var settings []string
		for _, s := range group {
			n += s.rowsOf(batch)
			settings = append(settings, strings.ReplaceAll(s.attn, "%s", files))
		}
		own := rows[:n]
		rows = rows[n:]
		err := filesErr
		if err == nil {
			err = r.stepGroup(ctx, m, batch, group, settings, own)
		}
		if err != nil {
			for _, w := range own {
				if w.Value == 0 {
					w.Unmeasured = err.Error()
				}
			}
			continue
		}
		if counted {
			densities = append(densities, func() { r.stepDensities(ctx, m, group, settings, own) })
		}
	}
	for _, measure := range densities {
		measure()
	}
	return ctx.Err()
}

// stepDensities puts the density of each setting behind 32k tokens into the rows of its steps,
// which keep none where it cannot be counted.
func (r *report) stepDensities(ctx context.Context, m modelSpec, group []stepSetting, settings []string, rows []*row) {
	args := []string{"--steps", "1", "--reps", "1", "--prefill", "0", "--decode", r.length(32), "--attn", "dense"}
	for _, attn := range settings {
		args = append(args, "--attn", attn)
	}
	b, err := r.bench(ctx, m, args...)
	for i, s := range group {
		for _, w := range rows[:len(stepLengths[1])] {
			if err != nil {
				w.Note += "; density not counted"
			} else {
				w.Density = b.Rows[1+i].Density
			}
		}
		rows = rows[s.rowsOf(1):]
	}
}

// count is 1 for true.
func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// stepGroup measures a group of settings, and of one sequence dense behind a short past, too.
func (r *report) stepGroup(ctx context.Context, m modelSpec, batch int, group []stepSetting, settings []string, rows []*row) error {
	depths, sequences := []string{r.shortest()}, batch
	for _, k := range stepLengths[batch] {
		depths = append(depths, r.length(k))
	}
	if r.small {
		sequences = min(batch, 2)
	}
	args := append(r.once(), "--prefill", "0", "--decode", strings.Join(depths, ","), "--batch", fmt.Sprint(sequences), "--density=false", "--attn", "dense")
	for _, attn := range settings {
		args = append(args, "--attn", attn)
	}
	b, err := r.bench(ctx, m, args...)
	if err != nil {
		return err
	}
	each := 1 + len(settings)
	at := func(depth, setting int) benchRow { return b.Rows[depth*each+setting] }
	last := len(stepLengths[batch]) // the longest
	for i, s := range group {
		for d := range stepLengths[batch] {
			rows[d].step(at(d+1, 0), at(d+1, i+1))
		}
		own := rows[last:s.rowsOf(batch)]
		rows = rows[s.rowsOf(batch):]
		if len(own) > 0 && s.times > 0 {
			besideSteps(1, at(0, 0), at(last, 0), at(last, i+1), own[0], nil, nil)
			own = own[1:]
		}
		if len(own) > 0 {
			own[0].set(at(last, i+1).SelectMS, "ms")
		}
	}
	return nil
}

// step fills a row with a whole step beside dense. What the step could take is not among it: that
// follows from the density, which is counted later.
func (w *row) step(dense, own benchRow) {
	w.set(own.TokS/dense.TokS, "times")
	w.Note = fmt.Sprintf("%s beside %s tok/s; %s to select and %s to attend beside %s",
		threeDigits(own.TokS), threeDigits(dense.TokS), number(own.SelectMS, "ms"), number(own.AttendMS, "ms"), number(dense.both(), "ms"))
}
