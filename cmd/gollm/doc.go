// Command gollm runs Llama, Mistral and Qwen models from GGUF files.
//
// There is one file for each subcommand, named after it, with the parts of a large one
// beside it (chat.go, chat_input.go, chat_commands.go). What several of them share is in
// shared_*.go:
//
//   - shared_sampling.go: how a token is sampled; shared_answer.go: text as it comes.
//   - shared_audit.go: attention beside dense; shared_broken.go: numbers that are none.
//   - shared_summary.go: what is said about a generation.
//
// What the commands of package eval/cli need too has packages of its own: internal/console
// (streams, errors, exit codes), internal/usage (command lines that make no sense),
// internal/userfile (files that are named) and internal/openmodel (from flags to a model).
//
// Text that the model writes and results go to stdout, everything else to
// stderr. Nothing is computed here: packages engine and eval do that.
//
// Start reading at root.go, then generate.go.
package main
