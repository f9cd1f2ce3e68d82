package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/cli"
	"github.com/gollm/gollm/internal/usage"
)

const rootLong = `gollm runs language models of the Llama, Mistral and Qwen families on this
machine.

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
	info, _ := debug.ReadBuildInfo()
	root := &cobra.Command{
		Use:     "gollm",
		Version: versionText(info),
		Short:   "Run Llama, Mistral and Qwen models from GGUF files",
		Long:    rootLong,
		Example: rootExample,
		Args:    usage.UnknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run a model:"},
		&cobra.Group{ID: groupLook, Title: "Look into a model:"},
		&cobra.Group{ID: groupAbout, Title: "About this program:"},
	)
	root.SetCompletionCommandGroupID(groupAbout)
	root.SetHelpCommand(newHelp())
	for _, sub := range []*cobra.Command{
		newGenerate(), newChat(), newServe(),
		newInspect(), newTokenize(), newLogits(), newPerplexity(), newBench(), newAttend(), newChannels(), cli.New(groupLook),
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
