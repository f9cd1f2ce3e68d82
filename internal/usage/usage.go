package usage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Error is a command line that makes no sense.
type Error struct{ text string }

func (e *Error) Error() string { return e.text }

// Errorf makes an Error.
func Errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// NoArgs refuses arguments after the flags.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if err := clusterError(cmd); err != nil {
		return err
	}
	if flag := loneValue(cmd, args[0]); flag != "" {
		return Errorf("unexpected argument %q; did you mean --%s=%s?", args[0], flag, args[0])
	}
	return Errorf("unexpected argument %q; see %s --help", args[0], cmd.CommandPath())
}

// UnknownCommand refuses arguments of a command that has nothing but
// subcommands: they are misspelt ones.
func UnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasAvailableSubCommands() {
		return NoArgs(cmd, args)
	}
	hint := "; " + cmd.CommandPath() + " --help lists the commands"
	if near := suggestions(cmd, args[0]); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	of := ""
	if cmd.HasParent() {
		of = " of " + cmd.CommandPath()
	}
	return Errorf("unknown command %q%s%s", args[0], of, hint)
}

// suggestions are the commands that name may stand for, each once.
func suggestions(cmd *cobra.Command, name string) []string {
	near := cmd.SuggestionsFor(name)
	slices.Sort(near)
	return slices.Compact(near)
}

// loneValue is a flag whose value is optional and must stand behind =, where it was
// given without one and arg may be meant for it; "" is none.
func loneValue(cmd *cobra.Command, arg string) (name string) {
	if _, err := strconv.Atoi(arg); err != nil {
		return ""
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" && f.Value.Type() != "bool" && f.Value.String() == f.NoOptDefVal {
			name = f.Name
		}
	})
	return name
}

// clusterError explains a flag that was taken for one of one letter and a value,
// such as -prompt.
func clusterError(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Shorthand != "" && err == nil {
			err = spelledOut(cmd, f.Shorthand+f.Value.String())
		}
	})
	return err
}

// spelledOut explains a word behind a single dash, which pflag takes for a
// cluster of flags of one letter each, or for one with its value.
func spelledOut(cmd *cobra.Command, word string) error {
	word, _, _ = strings.Cut(word, "=")
	if len(word) < 2 {
		return nil
	}
	if hint := habit(cmd, word); hint != "" {
		return Errorf("-%s: %s", word, hint)
	}
	if cmd.Flags().Lookup(word) != nil {
		return Errorf("-%s: a flag of more than one letter takes two dashes: --%s", word, word)
	}
	return nil
}
