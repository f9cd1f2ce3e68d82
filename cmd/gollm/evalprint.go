package main

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/metric"
	"github.com/gollm/gollm/eval/trial"
)

// printRun writes the summary of a run into its folder and prints it.
func printRun(cmd *cobra.Command, folder string) error {
	s, err := trial.Summarize(folder)
	if err != nil {
		return err
	}
	if err := s.Write(folder); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	for _, set := range s.Settings {
		if err := printSetting(out, &set, s.Settings[0].Attn); err != nil {
			return err
		}
	}
	for _, note := range s.Manifest.Notes {
		cmd.PrintErrln("note:", note)
	}
	if !s.Complete {
		cmd.PrintErrln("note: some samples have no answer yet")
	}
	return nil
}

// scoreColumns are the numbers of the table of a run.
var scoreColumns = []string{"length", "n", "score", "95 % interval", "difference", "its interval", "w/t/l", "density %", "K read %", "mass %", "prefill tok/s", "decode tok/s"}

// printSetting prints the results of one attention; first is the attention that
// it is compared with.
func printSetting(out io.Writer, set *trial.Setting, first string) error {
	t := newTable(scoreColumns...)
	header := table.Row{set.Attn}
	for _, c := range scoreColumns {
		header = append(header, c)
	}
	t.AppendHeader(header)
	for _, r := range append(append([]trial.Result{}, set.Units...), set.Means...) {
		t.AppendRow(resultRow(&r, set.Attn == "dense"))
	}
	if set.Attn != first {
		t.SetCaption("difference: to %s, on the same samples", first)
	}
	_, err := fmt.Fprintln(out, t.Render()+"\n")
	return err
}

// resultRow is a line of the table.
func resultRow(r *trial.Result, dense bool) table.Row {
	row := table.Row{r.Task, lengthText(r.Length), r.Done, percent(r.Score.Mean), intervalText(r.Score)}
	if p := r.Paired; p != nil {
		row = append(row, fmt.Sprintf("%+.1f", 100*p.Difference.Mean), intervalText(p.Difference), fmt.Sprintf("%d/%d/%d", p.Win, p.Tie, p.Loss))
	} else {
		row = append(row, "", "", "")
	}
	row = append(row, readingCells(r.Audit, dense)...)
	return append(row, rateCell(r.PrefillTokS), rateCell(r.DecodeTokS))
}

// readingCells is density, rows of K read and mass: of the prefill, and after a
// stroke of the decode steps.
func readingCells(a *trial.Audited, dense bool) table.Row {
	if dense {
		return table.Row{"100", "100", "100"}
	}
	if a == nil {
		return table.Row{"", "", ""}
	}
	pair := func(f func(*trial.Reading) float64) string {
		text := "-"
		if a.Prefill != nil {
			text = percent(f(a.Prefill))
		}
		if a.Decode != nil {
			text += " / " + percent(f(a.Decode))
		}
		return text
	}
	return table.Row{
		pair(func(r *trial.Reading) float64 { return r.Density }),
		pair(func(r *trial.Reading) float64 { return r.KRead }),
		pair(func(r *trial.Reading) float64 { return r.Mass }),
	}
}

func percent(x float64) string { return fmt.Sprintf("%.1f", 100*x) }

func intervalText(iv metric.Interval) string {
	if iv.N == 0 {
		return ""
	}
	return fmt.Sprintf("[%.1f, %.1f]", 100*iv.Low, 100*iv.High)
}

func lengthText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func rateCell(x float64) string {
	if x <= 0 {
		return ""
	}
	return threeDigits(x)
}
