package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

func TestBarShowsNothingWithoutATerminal(t *testing.T) {
	var out strings.Builder
	b := newBar(&out, nil, "reading", 100, " tok")
	b.at(50)
	b.stop()
	b.stop()
	if out.String() != "" {
		t.Errorf("%q", out.String())
	}
}

// Without a terminal -v says now and then how far the work is, and not at its
// end, which says itself.
func TestProgressLines(t *testing.T) {
	var said []string
	log := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	b := newBar(new(strings.Builder), log, "reading the prompt", 4096, " tok")
	start := b.lines.start
	for _, at := range []struct {
		done  int
		after time.Duration
	}{{100, patience / 2}, {1000, patience}, {1100, patience + time.Second}, {2000, 3 * patience}, {4096, 9 * patience}} {
		b.lines.at(at.done, start.Add(at.after))
	}
	want := []string{"reading the prompt: 1000 of 4096 tok after 2.0 s", "reading the prompt: 2000 of 4096 tok after 6.0 s"}
	if !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
	b.at(1)
	b.stop()
	if len(said) != len(want) {
		t.Errorf("%q is said at once", said)
	}
}

func TestBarShowsAmountsAndLeavesNoTrace(t *testing.T) {
	var out strings.Builder // read after stop only, which waits for the drawing
	b := drawnBar(&out, 100, "reading the prompt", 4000, " tok")
	b.at(1000)
	b.show()
	time.Sleep(500 * time.Millisecond)
	b.at(2000)
	b.stop()
	b.stop()
	got := out.String()
	for _, word := range []string{"reading the prompt", " 25%", " 50%", "2.00K tok", "tok/s"} {
		if !strings.Contains(got, word) {
			t.Errorf("no %q in %q", word, got)
		}
	}
	if !strings.HasSuffix(got, "\n"+text.CursorUp.Sprint()+text.EraseLine.Sprint()) {
		t.Errorf("the line is not cleared at the end of %q", got)
	}
	if lines, ups := strings.Count(got, "\n"), strings.Count(got, text.CursorUp.Sprint()); lines != ups {
		t.Errorf("%d lines and %d steps back up in %q", lines, ups, got)
	}
}

func TestBarThatStopsInTimeIsNeverDrawn(t *testing.T) {
	var out strings.Builder
	b := drawnBar(&out, 100, "reading", 10, "")
	b.stop()
	b.show() // the timer may fire beside stop
	if out.String() != "" || b.done != nil {
		t.Errorf("%q", out.String())
	}
}
