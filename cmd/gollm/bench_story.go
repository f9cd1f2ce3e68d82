package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/eval/page"
	"github.com/gollm/gollm/internal/console"
)

// storyRow is what one setting costs at one length: the prompt and the tokens
// after it.
type storyRow struct {
	Tokens int        `json:"tokens"`
	Attn   string     `json:"attn"`
	TTFTMS float64    `json:"ttft_ms"`
	TokS   float64    `json:"tok_s"`        // of decode steps
	Memory int        `json:"memory_bytes"` // of the cache and of what the attention keeps
	First  storyPhase `json:"prefill"`
	Step   storyPhase `json:"decode"`
}

// storyPhase is the attention of a prompt or of a step.
type storyPhase struct {
	Times    float64  `json:"times_dense,omitempty"` // of the whole, beside dense attention
	SelectMS float64  `json:"select_ms"`
	AttendMS float64  `json:"attend_ms"`
	Both     float64  `json:"times_both,omitempty"` // of selection and attention
	Density  *float64 `json:"density,omitempty"`
}

func newStoryPhase(r benchRow) storyPhase {
	return storyPhase{Times: r.TimesDense, SelectMS: r.SelectMS, AttendMS: r.AttendMS, Both: r.TimesBoth, Density: r.Density}
}

// newStory puts the row of a prompt and that of the steps behind it together.
func newStory(rows []benchRow) []storyRow {
	var all []storyRow
	for _, first := range rows {
		for _, step := range rows {
			if first.Phase == eval.Prefill && step.Phase == eval.Decode && step.Depth == first.Tokens && step.Attn == first.Attn {
				all = append(all, storyRow{
					Tokens: first.Tokens, Attn: first.Attn, TTFTMS: first.TTFTMS, TokS: step.TokS,
					Memory: step.KVBytes + step.StateBytes, First: newStoryPhase(first), Step: newStoryPhase(step),
				})
			}
		}
	}
	return all
}

// storyColumns are the columns of --ctx.
var storyColumns = []column[storyRow]{
	{"tokens", func(r storyRow) any { return r.Tokens }},
	{"attention", func(r storyRow) any { return r.Attn }},
	{"first token ms", func(r storyRow) any { return console.ThreeDigits(r.TTFTMS) }},
	{"× dense", func(r storyRow) any { return times(r.First.Times) }},
	{"select ms", func(r storyRow) any { return console.ThreeDigits(r.First.SelectMS) }},
	{"attend ms", func(r storyRow) any { return console.ThreeDigits(r.First.AttendMS) }},
	{"× both", func(r storyRow) any { return times(r.First.Both) }},
	{"density %", func(r storyRow) any { return percentOf(r.First.Density) }},
	{"tok/s", func(r storyRow) any { return console.ThreeDigits(r.TokS) }},
	{"step × dense", func(r storyRow) any { return times(r.Step.Times) }},
	{"step select ms", func(r storyRow) any { return console.ThreeDigits(r.Step.SelectMS) }},
	{"step attend ms", func(r storyRow) any { return console.ThreeDigits(r.Step.AttendMS) }},
	{"step × both", func(r storyRow) any { return times(r.Step.Both) }},
	{"step density %", func(r storyRow) any { return percentOf(r.Step.Density) }},
	{"memory MB", func(r storyRow) any { return console.ThreeDigits(float64(r.Memory) / 1e6) }},
}

// storyPage is the page of --ctx.
func storyPage(r benchReport) *page.Page {
	p := &page.Page{
		Title: "Speed against length: " + r.Model, Model: r.Model, Device: r.Machine.Device, Complete: true,
		About: "Medians of the runs. Choosing and attending are the attention of the whole prompt, and of one step. × dense compares with dense attention in the same run, × both the attention alone. Density is the share of the pairs of query and key that are read. A click on a column sorts by it.",
		Facts: []page.Fact{
			{Name: "machine", Text: fmt.Sprintf("%s, %d cores", r.Machine.CPU, r.Machine.Cores)}, {Name: "device", Text: r.Machine.Device},
			{Name: "at best", Text: strings.TrimPrefix(r.headLine(), r.Model+"; ")}, {Name: "sequences of a step", Text: fmt.Sprint(r.Batch)},
		},
	}
	for i, attn := range r.Attn {
		p.Legend = append(p.Legend, page.Series{Name: attn, Colour: i})
	}
	for _, c := range storyColumns {
		p.Columns = append(p.Columns, c.name)
	}
	for _, row := range r.Story {
		var cells []page.Cell
		for _, c := range storyColumns {
			text := fmt.Sprint(c.cell(row))
			value := text
			if text == "-" {
				value = ""
			}
			cell := page.Cell{Text: text, Value: value}
			if i := slices.Index(r.Attn, text); c.name == "attention" && i >= 0 {
				cell.Key = &p.Legend[i]
			}
			cells = append(cells, cell)
		}
		p.Rows = append(p.Rows, page.Row{Cells: cells})
	}
	p.Plots = r.plots()
	return p
}

// plots are the figures of --ctx.
func (r benchReport) plots() []page.Plot {
	plots := []page.Plot{
		{Title: "Time to the first token", X: "tokens of the prompt", Y: "milliseconds", Log: true, Lines: true},
		{Title: "Speed of decode steps", X: "tokens before the step", Y: "tokens per second", Log: true, Lines: true},
		{Title: "Attention of a step", X: "tokens before the step", Y: "milliseconds", Log: true, Lines: true},
		{Title: "Attention of a step, times faster than dense, against density", X: "density, %", Y: "times faster"},
	}
	for i, attn := range r.Attn {
		series := make([]page.Series, len(plots))
		for k := range series {
			series[k] = page.Series{Name: attn, Colour: i}
		}
		for _, row := range r.Story {
			if row.Attn != attn {
				continue
			}
			x := float64(row.Tokens)
			for k, y := range []float64{row.TTFTMS, row.TokS, row.Step.SelectMS + row.Step.AttendMS} {
				series[k].Points = append(series[k].Points, page.Point{X: x, Y: y, Note: fmt.Sprintf("%d tokens, %s", row.Tokens, console.ThreeDigits(y))})
			}
			if d := row.Step.Density; d != nil && row.Step.Both > 0 {
				series[3].Points = append(series[3].Points, page.Point{X: 100 * *d, Y: row.Step.Both,
					Note: fmt.Sprintf("%d tokens, density %.1f %%, %s times", row.Tokens, 100**d, console.ThreeDigits(row.Step.Both))})
			}
		}
		for k := range plots {
			if len(series[k].Points) > 0 {
				plots[k].Series = append(plots[k].Series, series[k])
			}
		}
	}
	var drawn []page.Plot
	for _, p := range plots {
		if !p.Empty() {
			drawn = append(drawn, p)
		}
	}
	return drawn
}
