package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/term"
)

// isTerminal reports whether a stream is a terminal that a person looks at.
func isTerminal(stream any) bool {
	return terminalOf(stream) != nil
}

// terminalOf is the terminal behind a stream, nil where there is none.
func terminalOf(stream any) *os.File {
	if f, ok := beneath(stream).(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// earlyInterrupt is the key of what a context has from endAtInterrupt.
type earlyInterrupt struct{}

// endAtInterrupt makes Ctrl-C end the program with a line and its exit code until
// a command, which gets the context, has more to say about it.
func endAtInterrupt(ctx context.Context) context.Context {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	go func() {
		<-interrupts
		dropParts()
		if isTerminal(os.Stderr) {
			fmt.Fprintln(os.Stderr) // after the echo of ^C, or a bar
		}
		fmt.Fprintln(os.Stderr, "gollm: interrupted")
		os.Exit(exitInterrupted)
	}()
	return context.WithValue(ctx, earlyInterrupt{}, func() { signal.Stop(interrupts) })
}

// takeInterrupts ends what endAtInterrupt began, for a command that handles
// Ctrl-C itself from now on.
func takeInterrupts(ctx context.Context) {
	if stop, ok := ctx.Value(earlyInterrupt{}).(func()); ok {
		stop()
	}
}

// interruptible returns a context that the first Ctrl-C ends; a second one ends
// the program, as it does where nothing handles it.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	early := ctx
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	takeInterrupts(early)
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
