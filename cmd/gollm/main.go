package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/gollm/gollm/weights"
)

// The exit codes; the help of the root command documents them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // what shells use for Ctrl-C
)

func main() {
	os.Exit(run(endAtInterrupt(context.Background()), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs the command line args and returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	shown, remarks := newScreen(out), newScreen(errs)
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
	usage := new(usageError)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, syscall.EPIPE):
		return exitFailure // the reader has gone and wants no more
	case errors.As(err, &usage):
		fmt.Fprintln(errs, "gollm:", message(err))
		return exitUsage
	}
	fmt.Fprintln(errs, "gollm:", message(err))
	return exitFailure
}
