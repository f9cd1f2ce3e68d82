package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/usage"
)

const compareLong = `Compare two runs, or two settings of runs, on the samples that both answered.

A and B are folders of runs, or the folder of one attention in them, for example
ruler/1-sketchwalk. Of a run the first setting is taken. A and B are the means over
the samples that both answered, n of them. The difference is B - A, with the 95 %
interval of a paired bootstrap; p is the exact McNemar test, where scores are right
or wrong.`

func newCompare() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "compare A B",
		Short:   "Compare two runs sample by sample",
		Long:    compareLong,
		Example: "  gollm eval compare ruler/0-dense ruler/1-sketchwalk",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage.Errorf("%s, want two; see gollm eval compare --help", console.Plural(len(args), "folder"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return compareRuns(cmd, args[0], args[1], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// findSetting reads the setting that a folder stands for.
func findSetting(ctx context.Context, path string) (*trial.Setting, *trial.Summary, error) {
	s, err := summarize(ctx, path, nil)
	if err == nil {
		return &s.Settings[0], s, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	parent, name := filepath.Split(filepath.Clean(path))
	if s, err := summarize(ctx, filepath.Clean(parent), nil); err == nil {
		for i, set := range s.Settings {
			if trial.SettingName(i, set.Attn) == name {
				return &s.Settings[i], s, nil
			}
		}
	}
	return nil, nil, err
}

func compareRuns(cmd *cobra.Command, pathA, pathB string, asJSON bool) error {
	a, runA, err := findSetting(cmd.Context(), pathA)
	if err != nil {
		return err
	}
	b, runB, err := findSetting(cmd.Context(), pathB)
	if err != nil {
		return err
	}
	for name, hash := range runA.Manifest.Identity.Data {
		if other, ok := runB.Manifest.Identity.Data[name]; ok && other != hash {
			return fmt.Errorf("%s has other samples in %s than in %s: answers to different questions cannot be paired", name, pathA, pathB)
		}
	}
	list := trial.Compare(a, b)
	if len(list) == 0 {
		return fmt.Errorf("%s and %s have no samples in common", pathA, pathB)
	}
	noteDoubts(cmd, runA, runB)
	noteUnpaired(cmd, a, b, list)
	if asJSON {
		return console.WriteJSON(cmd.OutOrStdout(), list)
	}
	columns := []string{"length", "n", "A", "B", "B - A", "its interval", "w/t/l", "p"}
	t := console.NewTable(columns...)
	nameA, nameB := a.Attn, b.Attn
	if nameA == nameB {
		nameA, nameB = nameA+" in "+pathA, nameB+" in "+pathB
	}
	t.AppendHeader(table.Row{"A: " + nameA + ", B: " + nameB, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6], columns[7]})
	for _, r := range list {
		for _, c := range append([]trial.Compared{r}, r.Subsets...) {
			t.AppendRow(comparedRow(&c))
		}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), t.Render())
	return err
}

// noteDoubts says which scores are not those that the runs stored; of two settings of
// one run once.
func noteDoubts(cmd *cobra.Command, a, b *trial.Summary) {
	for _, note := range a.Doubts {
		cmd.PrintErrln("note: A:", note)
	}
	for _, note := range b.Doubts {
		if a.Manifest.Hash != b.Manifest.Hash || !slices.Contains(a.Doubts, note) {
			cmd.PrintErrln("note: B:", note)
		}
	}
}

// comparedRow is a line of the table.
func comparedRow(r *trial.Compared) table.Row {
	p := r.Paired
	chance := ""
	if p.Binary {
		chance = chanceText(p.McNemar)
	}
	return table.Row{
		taskText(&r.Result), lengthText(r.Length), r.A.N, percent(r.A.Mean), percent(r.B.Mean), fmt.Sprintf("%+.1f", 100*p.Difference.Mean),
		intervalText(p.Difference), fmt.Sprintf("%d/%d/%d", p.Win, p.Tie, p.Loss), chance,
	}
}

// noteUnpaired says how many samples are in no pair because only one setting has
// them, also those of units that only one has.
func noteUnpaired(cmd *cobra.Command, a, b *trial.Setting, list []trial.Compared) {
	var onlyA, onlyB int
	for _, u := range a.Units {
		onlyA += u.Score.N
	}
	for _, u := range b.Units {
		onlyB += u.Score.N
	}
	for _, c := range list {
		onlyA, onlyB = onlyA-c.A.N, onlyB-c.B.N
	}
	if onlyA+onlyB > 0 {
		cmd.PrintErrf("note: %s that only A has and %s that only B has are left out\n", console.Plural(onlyA, "sample"), console.Plural(onlyB, "sample"))
	}
}

const mergeLong = `Join the folders of the shards of one run, written with --shard 0/n to n-1/n,
into one whose answers are those of one run on one machine, byte for byte, beside the
prompts that it made. Shards of
different runs, and shards that are not finished, are refused; --partial joins
what there is, as the folder of a run that was stopped.`

func newMerge() *cobra.Command {
	var out string
	var partial bool
	cmd := &cobra.Command{
		Use:     "merge -o DIR SHARD...",
		Short:   "Join the shards of a run",
		Long:    mergeLong,
		Example: "  gollm eval merge -o ruler shard-0 shard-1 shard-2 shard-3",
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" || len(args) == 0 {
				return usage.Errorf("want gollm eval merge -o DIR and the folders of the shards, not -o %q and %q", out, strings.Join(args, " "))
			}
			if err := trial.Merge(cmd.Context(), out, args, partial, os.Args); err != nil {
				return err
			}
			return finishRun(cmd, out, nil)
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "folder to write to (required)")
	cmd.Flags().BoolVar(&partial, "partial", false, "join what there is, also where samples have no answer yet")
	_ = cmd.MarkFlagDirname("out") // fails only for a flag that does not exist
	return cmd
}

const showLong = `Print the results of a run again, also of one that is not finished, and write
its summary.json, summary.csv and report.html where its folder takes files.

Answers are scored as they are now: where one was changed since the run, a note says
so. Those that are scored over words of Chinese need --jieba for that.`

func newShow() *cobra.Command {
	var jieba string
	cmd := &cobra.Command{
		Use:     "show DIR",
		Short:   "Print the results of a run, also of one that is not finished",
		Long:    showLong,
		Example: "  gollm eval show ruler",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage.Errorf("%d folders, want the folder of one run", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			words, err := openSplitter(jieba)
			if err != nil {
				return err
			}
			return showRun(cmd, args[0], words)
		},
	}
	cmd.Flags().StringVar(&jieba, "jieba", "", "longbench: "+jiebaUsage)
	_ = cmd.MarkFlagDirname("jieba") // fails only for a flag that does not exist
	return cmd
}
