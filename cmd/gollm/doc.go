// Command gollm runs Llama and Mistral models from GGUF files.
//
// There is one file for each subcommand, named after it, and few for what they
// share:
//
//   - main.go: exit codes; root.go: the command tree, help and usage errors.
//   - flags.go: flags that several subcommands have.
//   - open.go: from flags to a loaded model and its cache.
//   - terminal.go, progress.go: what is shown on a terminal only.
//   - stats.go: how sizes, rates and times are written.
//
// Text that the model writes and results go to stdout, everything else to
// stderr. Nothing is computed here: packages engine and eval do that.
//
// Start reading at root.go, then generate.go.
package main
