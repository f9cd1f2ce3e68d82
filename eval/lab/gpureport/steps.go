package main

import (
	"context"
	"fmt"
	"strings"
)

// sparseSteps is the part with the whole step of every method of decoding beside dense.
const sparseSteps = "sparse steps"

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

// stepLengths are the lengths of the part: sequences, thousands of tokens behind each.
var stepLengths = []struct{ batch, k int }{{1, 32}, {1, 128}, {16, 32}}

// name is a setting as a row has it: without the folder of its files.
func (s stepSetting) name() string {
	return strings.NewReplacer("%s/channels.npy", "channels.npy", "%s", "nets").Replace(s.attn)
}

// sparseStepRows are the rows of sparseSteps, in the order in which it fills them: of each
// setting its step at each length, then its attention and its selection where they have
// aims.
func (r *report) sparseStepRows() []*row {
	how := "Llama-3.1-8B Q8_0, beside dense"
	var rows []*row
	for _, group := range r.stepSettings() {
		for _, s := range group {
			for _, n := range stepLengths {
				w := &row{What: fmt.Sprintf("%s step behind %dk", s.name(), n.k), How: how, Aim: atLeast("value", 1)}
				if n.batch > 1 {
					w.How, w.Aim = fmt.Sprintf("%s, %d sequences", how, n.batch), nil
				}
				rows = append(rows, w)
			}
			if s.times > 0 {
				rows = append(rows, &row{What: s.name() + " attention of a step behind 128k", How: how + ", selection included" + byLength, Aim: atLeast("value", s.times)})
			}
			if s.selectMS > 0 {
				rows = append(rows, &row{What: s.name() + " selection behind 128k", How: how + ", by marks", Aim: atMost(s.selectMS)})
			}
		}
	}
	return rows
}

// sparseSteps measures them, then densities: those take a pass of their own, in which every list
// is counted. A group that fails leaves its rows unmeasured.
func (r *report) sparseSteps(ctx context.Context, rows []*row) error {
	m := modelSpec{"llama-3.1-8b", "q8_0", 0, false}
	var files string
	var filesErr error
	if !r.small {
		files, filesErr = r.methodFiles(ctx, m)
	}
	var densities []func()
	for _, group := range r.stepSettings() {
		n := len(group) * len(stepLengths)
		for _, s := range group {
			n += count(s.times > 0) + count(s.selectMS > 0)
		}
		own := rows[:n]
		rows = rows[n:]
		var settings []string
		err := filesErr
		for _, s := range group {
			settings = append(settings, strings.ReplaceAll(s.attn, "%s", files))
		}
		if err == nil {
			err = r.stepGroup(ctx, m, group, settings, own)
		}
		if err != nil {
			for _, w := range own {
				if w.Value == 0 {
					w.Unmeasured = err.Error()
				}
			}
			continue
		}
		densities = append(densities, func() { r.stepDensities(ctx, m, group, settings, own) })
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
		for range stepLengths {
			if err != nil {
				rows[0].Note += "; density not counted"
			} else {
				rows[0].Density = b.Rows[1+i].Density
			}
			rows = rows[1:]
		}
		rows = rows[count(s.times > 0)+count(s.selectMS > 0):]
	}
}

// count is 1 for true.
func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// stepGroup measures a group of settings with one sequence, then with several.
func (r *report) stepGroup(ctx context.Context, m modelSpec, group []stepSetting, settings []string, rows []*row) error {
	measured := map[[2]int][]benchRow{} // by sequences and thousands of tokens: dense, then the settings
	var short benchRow
	for _, batch := range []int{1, 16} {
		depths, lengths := []string{r.shortest()}, []int{}
		for _, n := range stepLengths {
			if n.batch == batch {
				depths, lengths = append(depths, r.length(n.k)), append(lengths, n.k)
			}
		}
		sequences := batch
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
		if batch == 1 {
			short = b.Rows[0]
		}
		for i, k := range lengths {
			measured[[2]int{batch, k}] = b.Rows[(1+i)*each : (2+i)*each]
		}
	}
	for i, s := range group {
		for _, n := range stepLengths {
			of := measured[[2]int{n.batch, n.k}]
			rows[0].step(of[0], of[1+i])
			rows = rows[1:]
		}
		dense, own := measured[[2]int{1, 128}][0], measured[[2]int{1, 128}][1+i]
		if s.times > 0 {
			besideSteps(1, short, dense, own, rows[0], nil, nil)
			rows = rows[1:]
		}
		if s.selectMS > 0 {
			rows[0].set(own.SelectMS, "ms")
			rows = rows[1:]
		}
	}
	return nil
}

// step fills a row with a whole step beside dense.
func (w *row) step(dense, own benchRow) {
	w.set(own.TokS/dense.TokS, "times")
	if own.both() > 0 {
		w.Share, w.Of = own.LimitMS/own.both(), "its own limit"
	}
	w.Note = fmt.Sprintf("%s beside %s tok/s; %s to select and %s to attend beside %s, limit %s",
		threeDigits(own.TokS), threeDigits(dense.TokS), number(own.SelectMS, "ms"), number(own.AttendMS, "ms"), number(dense.both(), "ms"), number(own.LimitMS, "ms"))
}
