package main

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newHelp is the help command. Cobra's own prints the usage and succeeds where
// there is no such command.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Tell about a command",
		GroupID: groupAbout,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return unknownCommand(about, rest)
			}
			about.InitDefaultHelpFlag() // which it lists
			return about.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			if about, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range about.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

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
	completion.Args = unknownCommand
	completion.SuggestionsMinimumDistance = root.SuggestionsMinimumDistance
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, shell := range completion.Commands() {
		shell.Args = noArgs
	}
}

// unknownCommand refuses arguments of a command that has nothing but
// subcommands: they are misspelt ones.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasAvailableSubCommands() {
		return noArgs(cmd, args)
	}
	hint := "; " + cmd.CommandPath() + " --help lists the commands"
	if near := suggestions(cmd, args[0]); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	of := ""
	if cmd.HasParent() {
		of = " of " + cmd.CommandPath()
	}
	return usagef("unknown command %q%s%s", args[0], of, hint)
}

// suggestions are the commands that name may stand for, each once.
func suggestions(cmd *cobra.Command, name string) []string {
	near := cmd.SuggestionsFor(name)
	slices.Sort(near)
	return slices.Compact(near)
}

// noArgs refuses arguments after the flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if err := clusterError(cmd); err != nil {
		return err
	}
	if flag := loneValue(cmd, args[0]); flag != "" {
		return usagef("unexpected argument %q; did you mean --%s=%s?", args[0], flag, args[0])
	}
	return usagef("unexpected argument %q; see %s --help", args[0], cmd.CommandPath())
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
