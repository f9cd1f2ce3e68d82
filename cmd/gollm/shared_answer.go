package main

import (
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/usage"
)

// registerStop registers --stop.
func registerStop(cmd *cobra.Command, stop *[]string) {
	cmd.Flags().StringArrayVar(stop, "stop", nil, "end at this text, which is left out (repeatable)")
}

// checkStop refuses a --stop that everything contains.
func checkStop(stop []string) error {
	if slices.Contains(stop, "") {
		return usage.Errorf(`--stop "", want a text that ends the generation`)
	}
	return nil
}

// checkLimit refuses a -n that is neither a number of tokens nor -1.
func checkLimit(n int) error {
	if n == 0 || n < -1 {
		return usage.Errorf("-n %d, want 1 or more, or -1 for no limit", n)
	}
	return nil
}

// answerWriter passes on the model's text as it comes.
type answerWriter struct {
	out    *lastByte
	quiet  bool   // text is not shown, only timed
	trim   bool   // white space before the first word is not shown
	first  func() // called before the first token
	cancel func() // ends the generation when nobody reads it
	start  time.Time
	ttft   time.Duration // from start to the first token; 0 where there was none
	err    error         // of the first write that failed
}

func (w *answerWriter) emit(p engine.Piece) {
	if w.ttft == 0 {
		w.ttft = time.Since(w.start)
		w.first()
	}
	text := p.Text
	if w.trim {
		text = strings.TrimLeft(text, " \n")
		w.trim = text == ""
	}
	if w.quiet || w.err != nil {
		return
	}
	if _, w.err = io.WriteString(w.out, text); w.err != nil {
		w.cancel()
	}
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
	if w.last != 0 && w.last != '\n' && console.IsTerminal(w.Writer) {
		_, _ = io.WriteString(w, "\n") // cosmetic
	}
}
