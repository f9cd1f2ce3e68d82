package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/metric"
	"github.com/gollm/gollm/eval/page"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/console"
)

// finishRun prints a run and writes its summary into its folder. The tables come
// first: they are there also where the folder takes no files.
func finishRun(cmd *cobra.Command, folder string, words *longbench.Splitter) error {
	s, err := summarize(cmd.Context(), folder, words)
	if err != nil {
		return err
	}
	return errors.Join(printRun(cmd, s), writeRun(folder, s))
}

// showRun is finishRun for a run that may be of somebody else: a folder that takes
// no files is no error.
func showRun(cmd *cobra.Command, folder string, words *longbench.Splitter) error {
	s, err := summarize(cmd.Context(), folder, words)
	if err != nil {
		return err
	}
	if err := printRun(cmd, s); err != nil {
		return err
	}
	if err := writeRun(folder, s); err != nil {
		cmd.PrintErrf("note: the summary and the report in %s are not new: %s\n", console.OneLine(folder), console.Message(err))
	}
	return nil
}

// writeRun writes summary and report.
func writeRun(folder string, s *trial.Summary) error {
	if err := s.Write(folder); err != nil {
		return err
	}
	return writeReport(folder, s)
}

// printRun prints the tables of a run.
func printRun(cmd *cobra.Command, s *trial.Summary) error {
	out := cmd.OutOrStdout()
	for _, set := range s.Settings {
		if err := printSetting(out, &set, s.Settings[0].Attn); err != nil {
			return err
		}
	}
	var err error
	switch s.Manifest.Identity.Suite {
	case "ruler":
		err = rulerMeans(cmd, s)
	case "longbench":
		err = longbenchMeans(cmd, s)
	case "niah":
		err = printMaps(out, s)
	}
	if err != nil {
		return err
	}
	if len(s.Manifest.About.Shared) > 0 {
		cmd.PrintErrln("note: prefill tok/s (of n) is that of one prefill for n settings; --share-prefill=false times each by itself")
	}
	for _, note := range s.Manifest.Notes {
		cmd.PrintErrln("note:", console.OneLine(note))
	}
	for _, alarm := range s.Alarms {
		cmd.PrintErrln("alarm:", console.OneLine(alarm))
	}
	if !s.Complete {
		cmd.PrintErrln("note: some samples have no answer yet")
	}
	return nil
}

// writeReport writes the page of a run, with its needle maps, and each of its figures as
// a file in figures/.
func writeReport(folder string, s *trial.Summary) error {
	maps, err := writeMaps(folder, s)
	if err != nil {
		return err
	}
	curves, err := writeCurves(folder, s)
	if err != nil {
		return err
	}
	p := page.New(s, maps)
	p.Plots = append(curves, p.Plots...)
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		return err
	}
	if err := trial.WriteFile(folder, "report.html", b.Bytes()); err != nil {
		return err
	}
	for _, f := range p.Figures() {
		if err := trial.WriteFile(folder, filepath.Join("figures", f.File+".svg"), []byte(f.Paper())); err != nil {
			return err
		}
	}
	return nil
}

// rulerMeans prints the averages over lengths that publications give: of each
// setting the mean, with weights that rise or fall with the length, and the
// longest length that is still good. It is silent where there is one length.
func rulerMeans(cmd *cobra.Command, s *trial.Summary) error {
	t := console.NewTable("lengths", "mean", "wAvg(inc)", "wAvg(dec)", "effective length")
	t.AppendHeader(table.Row{"attention", "of", "lengths", "mean", "wAvg(inc)", "wAvg(dec)", "effective length"})
	count := 0
	for _, set := range s.Settings {
		scored := map[int][]ruler.Scored{}
		for _, u := range set.Units {
			if u.Score.N == 0 {
				continue
			}
			scored[u.Length] = append(scored[u.Length], ruler.Scored{Task: u.Task, Score: metric.Round(100*u.Score.Mean, 2)})
		}
		var lengths []ruler.LengthScore
		complete := true
		for length, list := range scored {
			l := ruler.Summarize(length, list)
			lengths, complete = append(lengths, l), complete && l.Complete
		}
		count = len(lengths)
		of := "some tasks"
		if complete {
			of = "all thirteen tasks"
		}
		w, effective := ruler.Weigh(lengths), "none"
		if w.Effective > 0 {
			effective = fmt.Sprint(w.Effective)
		}
		t.AppendRow(table.Row{set.Attn, of, count, fmt.Sprintf("%.1f", w.Mean), fmt.Sprintf("%.1f", w.Rising), fmt.Sprintf("%.1f", w.Falling), effective})
	}
	if count < 2 {
		return nil
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), t.Render()+"\n")
	return err
}

// longbenchMeans prints the averages that publications give.
func longbenchMeans(cmd *cobra.Command, s *trial.Summary) error {
	t := console.NewTable("English", "without count", "of categories")
	t.AppendHeader(table.Row{"attention", "of", "English", "without count", "of categories"})
	for _, set := range s.Settings {
		var scored []longbench.Scored
		for _, u := range set.Units {
			if u.Score.N == 0 {
				continue
			}
			scored = append(scored, longbench.Scored{Dataset: u.Task, Score: metric.Round(100*u.Score.Mean, 2)})
		}
		a, of := longbench.Average(scored), "some data sets"
		if a.Complete {
			of = "all sixteen"
		}
		t.AppendRow(table.Row{set.Attn, of, fmt.Sprintf("%.2f", a.English), fmt.Sprintf("%.2f", a.WithoutCount), fmt.Sprintf("%.2f", a.ByCategory)})
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), t.Render()+"\n")
	return err
}

// scoreColumns are the numbers of the table of a run.
var scoreColumns = []string{"length", "n", "score", "95 % interval", "difference", "its interval", "w/t/l", "density %", "K read %", "mass %", "prefill tok/s", "decode tok/s"}

// printSetting prints the results of one attention; first is the attention that
// it is compared with.
func printSetting(out io.Writer, set *trial.Setting, first string) error {
	t := console.NewTable(scoreColumns...)
	header := table.Row{set.Attn}
	for _, c := range scoreColumns {
		header = append(header, c)
	}
	t.AppendHeader(header)
	for _, r := range set.Results() {
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
	row := table.Row{taskText(r), lengthText(r.Length), r.Done, "", intervalText(r.Score)}
	if r.Score.N > 0 {
		row[3] = percent(r.Score.Mean)
	}
	if p := r.Paired; p != nil {
		row = append(row, fmt.Sprintf("%+.1f", 100*p.Difference.Mean), intervalText(p.Difference), fmt.Sprintf("%d/%d/%d", p.Win, p.Tie, p.Loss))
	} else {
		row = append(row, "", "", "")
	}
	row = append(row, readingCells(r.Audit, dense)...)
	prefill := rateCell(r.PrefillTokS)
	if r.Shared > 1 && prefill != "" {
		prefill += fmt.Sprintf(" (of %d)", r.Shared)
	}
	return append(row, prefill, rateCell(r.DecodeTokS))
}

// taskText is the task of a result, and that of a subset below it.
func taskText(r *trial.Result) string {
	if r.Subset != "" {
		return "  " + r.Subset
	}
	return r.Task
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
	return console.ThreeDigits(x)
}

// chanceText is a probability with three decimals. No difference is certain: what would
// be 0.000 is said to be less than the least of them.
func chanceText(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", p)
}
