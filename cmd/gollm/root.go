package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// errInterrupted ends a command that Ctrl-C stopped; what it had to say is
// printed already.
var errInterrupted = errors.New("interrupted")

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// usagef makes a usageError.
func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

const rootLong = `gollm runs language models of the Llama and Mistral families on this machine.

A model is one GGUF file: weights, tokenizer and chat template together.
A small one, which answers questions about a text, is part of the source:
testdata/demo.gguf. Real ones are on the web as NAME.gguf, for example
Llama-3.2-1B-Instruct-Q4_K_M.gguf.`

const rootExample = `  # what is in a file, and how much memory it needs
  gollm inspect testdata/demo.gguf

  # a first answer: the small model finds a number in four thousand tokens
  gollm generate -m testdata/demo.gguf -f testdata/demo-prompt.txt --temp 0 -n 16

  # a conversation with an instruction-tuned model
  gollm chat -m Llama-3.2-1B-Instruct-Q4_K_M.gguf

  # how fast this machine is, and how fast it could be
  gollm bench -m Llama-3.2-1B-Instruct-Q4_K_M.gguf

Exit codes:
  0    done
  1    it failed: the line on stderr says what, where and how to fix it
  2    the command line makes no sense
  130  stopped by Ctrl-C; what was written so far is kept`

// newRoot makes the command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "gollm",
		Short:         "Run Llama and Mistral models from GGUF files",
		Long:          rootLong,
		Example:       rootExample,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().BoolP("verbose", "v", false, "say on stderr what is happening")
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run a model:"},
		&cobra.Group{ID: groupLook, Title: "Look into a model:"},
		&cobra.Group{ID: groupAbout, Title: "About this program:"},
	)
	root.SetHelpCommandGroupID(groupAbout)
	root.SetCompletionCommandGroupID(groupAbout)
	for _, sub := range []*cobra.Command{
		newGenerate(), newChat(),
		newInspect(), newTokenize(), newLogits(), newPerplexity(), newBench(), newAttend(), newEval(),
		newAttn(), newDevices(), newVersion(),
	} {
		sub.Flags().SortFlags = false
		root.AddCommand(sub)
	}
	return root
}

// The groups of the help.
const (
	groupRun   = "run"
	groupLook  = "look"
	groupAbout = "about"
)

// unknownCommand refuses arguments of the root, which are misspelt subcommands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "; gollm --help lists the commands"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("unknown command %q%s", args[0], hint)
}

// noArgs refuses arguments after the flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q; see gollm %s --help", args[0], cmd.Name())
	}
	return nil
}

// numberKinds says what a flag of a type wants, by the names that pflag has for
// types.
var numberKinds = map[string]string{
	"int": "a whole number", "uint64": "a whole number of 0 or more", "uint": "a whole number of 0 or more",
	"float32": "a number", "float64": "a number", "intSlice": "whole numbers such as 512,2048",
}

// flagError explains a flag that could not be parsed.
func flagError(cmd *cobra.Command, err error) error {
	unknown := new(pflag.NotExistError)
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		if near := nearestFlag(cmd, unknown.GetSpecifiedName()); near != "" {
			return usagef("unknown flag --%s; did you mean --%s?", unknown.GetSpecifiedName(), near)
		}
	}
	invalid := new(pflag.InvalidValueError)
	if errors.As(err, &invalid) {
		if want := numberKinds[invalid.GetFlag().Value.Type()]; want != "" {
			return usagef("--%s %q, want %s; see %s --help", invalid.GetFlag().Name, invalid.GetValue(), want, cmd.CommandPath())
		}
	}
	return usagef("%v; see %s --help", err, cmd.CommandPath())
}

// nearestFlag is the flag of cmd that name is most likely a misspelling of, or
// "".
func nearestFlag(cmd *cobra.Command, name string) string {
	best, nearest := 3, "" // three edits are too many to be a slip
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := levenshtein.ComputeDistance(name, f.Name); d < best {
			best, nearest = d, f.Name
		}
	})
	return nearest
}

// logger returns a function that prints a line on stderr where --verbose is on.
func logger(cmd *cobra.Command) func(format string, args ...any) {
	if on, err := cmd.Flags().GetBool("verbose"); err != nil || !on {
		return func(string, ...any) {}
	}
	return func(format string, args ...any) {
		cmd.PrintErrf("gollm: "+format+"\n", args...)
	}
}
