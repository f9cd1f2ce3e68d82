package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

func TestBarShowsNothingWithoutATerminal(t *testing.T) {
	var out strings.Builder
	b := newBar(&out, "reading", 100, " tok")
	b.at(50)
	b.stop()
	b.stop()
	if out.String() != "" {
		t.Errorf("%q", out.String())
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
