// Package console is a command line that runs, as whoever sits before it sees it: what it
// prints and where, how it ends, and with which exit code.
//
//   - run.go: the main function: streams, errors as one line, exit codes.
//   - visible.go: text of files and models, before a terminal obeys it.
//   - message.go: an error as a line for people; log.go: remarks and -v.
//   - terminal.go: Ctrl-C; progress.go: how far the work is.
//   - table.go, amount.go, json.go: how results are written.
//
// It knows nothing of models. Start reading at Run.
package console
