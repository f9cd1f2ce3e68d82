package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

const evalLong = `Measure what a model finds and understands in long contexts, and what a sparse
attention system costs it.

Data that others publish is read as it is: point at a checkout or a folder. What
can be made without it is made: gollm eval ruler-data writes the synthetic tasks
of RULER at any length for any tokenizer.`

// newEval makes the commands of evaluations.
func newEval() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "eval",
		Short:   "Evaluate long contexts: RULER, LongBench, needles",
		Long:    evalLong,
		GroupID: groupLook,
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	long := []*cobra.Command{newEvalRuler(), newEvalLongbench(), newEvalLongbench2(), newEvalNiah(), newEvalPpl()}
	data := newRulerData()
	for _, sub := range append(long, newEvalScore(), newEvalShow(), newEvalCompare(), newEvalMerge(), data) {
		sub.RunE = stoppable(sub.RunE)
		sub.Flags().SortFlags = false
		cmd.AddCommand(sub)
	}
	return cmd
}

// stoppable lets the first Ctrl-C end the context of a command from its beginning
// on: prompts are made for minutes before a model runs. It says that the command
// stopped where that did not.
func stoppable(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, release := interruptible(cmd.Context())
		defer release()
		cmd.SetContext(ctx)
		err := run(cmd, args)
		if errors.Is(err, context.Canceled) && !errors.Is(err, errInterrupted) {
			cmd.PrintErrln("gollm: stopped")
			return errors.Join(errInterrupted, err)
		}
		return err
	}
}
