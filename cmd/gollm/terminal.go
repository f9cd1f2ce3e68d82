package main

import (
	"context"
	"io"
	"os"
	"os/signal"

	"golang.org/x/term"
)

// isTerminal reports whether a stream is a terminal that a person looks at.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// interruptible returns a context that the first Ctrl-C ends; a second one ends
// the program, as it does where nothing handles it.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// lastByte remembers the last byte that was written, to know whether a line is
// open.
type lastByte struct {
	io.Writer
	last byte
}

func (w *lastByte) Write(b []byte) (int, error) {
	if len(b) > 0 {
		w.last = b[len(b)-1]
	}
	return w.Writer.Write(b)
}

// endLine ends an open line where out is a terminal. A pipe or a file gets the
// model's text and not a byte more.
func (w *lastByte) endLine() {
	if w.last != 0 && w.last != '\n' && isTerminal(w.Writer) {
		_, _ = io.WriteString(w, "\n") // cosmetic
	}
}
