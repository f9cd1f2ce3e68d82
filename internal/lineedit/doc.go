// Package lineedit reads what a person types on a terminal: entries of one or many
// lines, with the keys that shells have, a history and pastes that stay one piece.
//
// The terminal is switched to noncanonical input without echo from New to Close, also
// between entries: what is typed or pasted meanwhile waits for the next entry, whole,
// where canonical input cuts lines at 4,095 bytes. Signals stay with the terminal, so
// Ctrl-C is os.Interrupt and Ctrl-Z suspends, and output is processed as always, so
// programs print between entries as they are used to.
package lineedit
