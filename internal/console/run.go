package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/weights"
)

// The exit codes; the help of the root command documents them.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitInterrupted = 130 // what shells use for Ctrl-C
)

// Main is the main function of a program: it runs the command line of the process and
// ends with its exit code. Where Ctrl-C ends it, clean is called before.
func Main(root *cobra.Command, clean func()) {
	ctx := endAtInterrupt(context.Background(), clean)
	os.Exit(Run(ctx, root, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Run runs the command line args of a tree of commands and returns the exit code. What
// holds of every command is set here: how its streams are shown, what -v is, and what is
// said about a command line that makes no sense.
func Run(ctx context.Context, root *cobra.Command, args []string, in io.Reader, out, errs io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(usage.FlagError)
	root.PersistentFlags().BoolP("verbose", "v", false, "say on stderr what is happening")
	usage.TakeOnce(root)
	root.SetArgs(args)
	root.SetIn(in)
	shown, remarks := NewScreen(out), NewScreen(errs)
	root.SetOut(shown)
	root.SetErr(remarks)
	defer remarks.flush()
	defer shown.flush()
	checkCompletion(root) // which writes to the stdout that was set before
	helpError := keepHelpError(root)
	err := weights.Guarded(func() error { return root.ExecuteContext(ctx) })
	return report(errs, cmp.Or(err, helpError()))
}

// report prints err, if it is one that a user should see, and returns the exit
// code that goes with it.
func report(errs io.Writer, err error) int {
	wrong := new(usage.Error)
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrInterrupted), errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, syscall.EPIPE):
		return ExitFailure // the reader has gone and wants no more
	case errors.As(err, &wrong):
		fmt.Fprintln(errs, "gollm:", Message(err))
		return ExitUsage
	}
	fmt.Fprintln(errs, "gollm:", Message(err))
	return ExitFailure
}

// ErrInterrupted ends a command that Ctrl-C stopped; what it had to say is
// printed already.
var ErrInterrupted = errors.New("interrupted")

// keepHelpError makes help remember why it could not be written, which cobra
// leaves to nobody. What it returns says so.
func keepHelpError(root *cobra.Command) func() error {
	var failed error
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var text strings.Builder
		cmd.SetOut(&text)
		show(cmd, args)
		cmd.SetOut(out)
		_, failed = io.WriteString(out, text.String())
	})
	return func() error { return failed }
}

// checkCompletion makes cobra's completion command refuse shells that it does
// not know; its own prints the help and succeeds.
func checkCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	all := root.Commands()
	completion := all[slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == "completion" })]
	completion.Args = usage.UnknownCommand
	completion.SuggestionsMinimumDistance = root.SuggestionsMinimumDistance
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, shell := range completion.Commands() {
		shell.Args = usage.NoArgs
	}
}
