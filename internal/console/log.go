package console

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Logger returns a function that prints a line on stderr where --verbose is on.
func Logger(cmd *cobra.Command) func(format string, args ...any) {
	if on, err := cmd.Flags().GetBool("verbose"); err != nil || !on {
		return func(string, ...any) {}
	}
	return func(format string, args ...any) {
		cmd.PrintErrln("gollm:", Elide(OneLine(fmt.Sprintf(format, args...)), MaxMessage))
	}
}

// Warner returns a function that prints a warning on stderr.
func Warner(cmd *cobra.Command) func(format string, args ...any) {
	return func(format string, args ...any) {
		cmd.PrintErrln("gollm:", Elide(OneLine(fmt.Sprintf(format, args...)), MaxMessage))
	}
}
