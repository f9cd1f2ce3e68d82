package main

import "github.com/spf13/cobra"

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
	for _, sub := range []*cobra.Command{newEvalRuler(), newEvalLongbench(), newEvalLongbench2(), newEvalNiah(), newEvalPpl(), newEvalScore(), newEvalShow(), newEvalCompare(), newEvalMerge(), newRulerData()} {
		sub.Flags().SortFlags = false
		cmd.AddCommand(sub)
	}
	return cmd
}
