package console

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/term"
)

// IsTerminal reports whether a stream is a terminal that a person looks at.
func IsTerminal(stream any) bool {
	return TerminalOf(stream) != nil
}

// TerminalOf is the terminal behind a stream, nil where there is none.
func TerminalOf(stream any) *os.File {
	if f, ok := Beneath(stream).(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// earlyInterrupt is the key of what a context has from endAtInterrupt.
type earlyInterrupt struct{}

// endAtInterrupt makes Ctrl-C end the program with a line and its exit code until
// a command, which gets the context, has more to say about it. clean is called before.
func endAtInterrupt(ctx context.Context, clean func()) context.Context {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	go func() {
		<-interrupts
		clean()
		if IsTerminal(os.Stderr) {
			fmt.Fprintln(os.Stderr) // after the echo of ^C, or a bar
		}
		fmt.Fprintln(os.Stderr, "gollm: interrupted")
		os.Exit(ExitInterrupted)
	}()
	return context.WithValue(ctx, earlyInterrupt{}, func() { signal.Stop(interrupts) })
}

// TakeInterrupts ends what endAtInterrupt began, for a command that handles
// Ctrl-C itself from now on.
func TakeInterrupts(ctx context.Context) {
	if stop, ok := ctx.Value(earlyInterrupt{}).(func()); ok {
		stop()
	}
}

// Interruptible returns a context that the first Ctrl-C ends; a second one ends
// the program, as it does where nothing handles it.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	early := ctx
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	TakeInterrupts(early)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
