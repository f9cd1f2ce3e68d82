// Package cli is the subcommands of gollm eval: a file for each, and few for what they share.
//
//   - ruler.go, longbench.go, suites.go, niah.go, recite.go: a suite becomes prompts and scores;
//     writer.go and prompts.go make the tokens; ruler_data.go writes prompts as files; ppl.go is
//     perplexity under several attention methods.
//   - run.go: a run from its flags to its end; survey.go reads its prompts before, group.go
//     answers them, grade.go scores the answers, print.go tells what came out.
//   - paper.go: a table of a paper becomes runs of these commands, or commands of
//     lm-evaluation-harness; paper_data.go finds what they read, paper_harness.go what that wrote.
//   - score.go, compare.go: answers and runs that are there already.
//
// What is measured and how runs are kept is in the packages beside it.
//
// Start reading at run.go, then ruler.go.
package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/usage"
)

const evalLong = `Measure what a model finds and understands in long contexts, and what a sparse
attention method costs it.

Data that others publish is read as it is: point at a checkout or a folder. What
can be made without it is made: gollm eval ruler-data writes the synthetic tasks
of RULER at any length for any tokenizer. gollm eval paper runs the tables of the
papers that the attention methods come from, and has their figures beside ours.`

// New makes the command eval and its subcommands, for a group of the root's help.
func New(group string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "eval",
		Short:   "Evaluate long contexts: RULER, LongBench, MRCR, SCBench, needles",
		Long:    evalLong,
		GroupID: group,
		Args:    usage.UnknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, sub := range append(suites(), newPpl(), newPaper(), newScore(), newShow(), newCompare(), newMerge(), newRulerData()) {
		sub.RunE = stoppable(sub.RunE)
		sub.Flags().SortFlags = false
		cmd.AddCommand(sub)
	}
	return cmd
}

// suites makes the commands that answer prompts into the folder of a run: those that a
// table of a paper may name.
func suites() []*cobra.Command {
	return []*cobra.Command{
		newRuler(), newLongbench(), newLongbench2(), newMRCR(), newSCBench(), newInfiniteBench(), newKVPress(), newNiah(), newRecite(),
	}
}

// stoppable lets the first Ctrl-C end the context of a command from its beginning
// on: prompts are made for minutes before a model runs. It says that the command
// stopped where that did not.
func stoppable(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, release := console.Interruptible(cmd.Context())
		defer release()
		cmd.SetContext(ctx)
		err := run(cmd, args)
		if errors.Is(err, context.Canceled) && !errors.Is(err, console.ErrInterrupted) {
			cmd.PrintErrln("gollm: stopped")
			return errors.Join(console.ErrInterrupted, err)
		}
		return err
	}
}
