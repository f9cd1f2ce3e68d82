package console

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

func TestBarShowsNothingWithoutATerminal(t *testing.T) {
	var out strings.Builder
	b := NewBar(&out, nil, "reading", 100, " tok")
	b.At(50)
	b.Stop()
	b.Stop()
	if out.String() != "" {
		t.Errorf("%q", out.String())
	}
}

// Without a terminal -v says now and then how far the work is, and not at its
// end, which says itself.
func TestProgressLines(t *testing.T) {
	var said []string
	log := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	b := NewBar(new(strings.Builder), log, "reading the prompt", 4096, " tok")
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
	b.At(1)
	b.Stop()
	if len(said) != len(want) {
		t.Errorf("%q is said at once", said)
	}
}

func TestBarShowsAmountsAndLeavesNoTrace(t *testing.T) {
	var out strings.Builder // read after stop only, which waits for the drawing
	b := drawnBar(&out, columns(100), "reading the prompt", 4000, " tok")
	b.At(1000)
	b.show()
	time.Sleep(500 * time.Millisecond)
	b.Say("reading another")
	b.At(2000)
	b.Stop()
	b.Stop()
	got := out.String()
	for _, word := range []string{"reading the prompt", "reading another", " 25%", " 50%", "2.00K tok", "tok/s"} {
		if !strings.Contains(got, word) {
			t.Errorf("no %q in %q", word, got)
		}
	}
	if !strings.HasSuffix(got, "\r"+eraseBelow) {
		t.Errorf("the line is not cleared at the end of %q", got)
	}
	if lines, ups := strings.Count(got, "\n"), strings.Count(got, text.CursorUp.Sprint()); lines+ups > 0 {
		t.Errorf("%d lines and %d steps back up in %q", lines, ups, got)
	}
}

// columns is a terminal that stays as wide as it is.
func columns(n int) func() int { return func() int { return n } }

// window is a terminal that wraps lines which became too wide, as those of today do,
// and knows the sequences that a bar writes.
type window struct {
	sync.Mutex
	lines     []string // before they are wrapped
	line, at  int      // the cursor, in them
	wide      int
	unknown   string // a sequence that it does not know
	wrappable bool   // false: cuts lines off, as older ones do
}

// columns is how wide the screen is.
func (s *window) columns() int {
	s.Lock()
	defer s.Unlock()
	return s.wide
}

// resize makes the screen wide or narrow.
func (s *window) resize(wide int) {
	s.Lock()
	defer s.Unlock()
	if s.wide = wide; s.wrappable {
		return
	}
	for i, line := range s.lines {
		s.lines[i] = line[:min(len(line), wide)]
	}
	s.at = min(s.at, wide)
}

// Write draws what a bar writes, whose characters are of one byte in this test.
func (s *window) Write(b []byte) (int, error) {
	s.Lock()
	defer s.Unlock()
	text := strings.Map(func(c rune) rune {
		if c > 0x7f {
			return '#'
		}
		return c
	}, string(b))
	for len(text) > 0 {
		switch {
		case strings.HasPrefix(text, "\x1b[J"):
			s.lines, text = append(s.lines[:s.line], s.lines[s.line][:s.at]), text[3:]
		case strings.HasPrefix(text, "\x1b[K"): // to the end of the row
			line := s.lines[s.line]
			end := min(len(line), s.at-s.at%s.wide+s.wide)
			s.lines[s.line], text = line[:s.at]+strings.Repeat(" ", max(0, end-s.at))+line[end:], text[3:]
		case strings.HasPrefix(text, "\x1b[A"): // a row up
			if s.at >= s.wide {
				s.at -= s.wide
			} else if s.line > 0 {
				s.line--
				s.at += max(0, len(s.lines[s.line])-1) / s.wide * s.wide
			}
			text = text[3:]
		case text[0] == '\x1b':
			s.unknown, text = text, ""
		case text[0] == '\r':
			s.at, text = s.at-s.at%s.wide, text[1:]
		case text[0] == '\n':
			s.line, s.at, text = s.line+1, 0, text[1:]
			if s.line == len(s.lines) {
				s.lines = append(s.lines, "")
			}
		default:
			line := s.lines[s.line]
			s.lines[s.line] = line[:s.at] + text[:1] + line[min(len(line), s.at+1):]
			s.at, text = s.at+1, text[1:]
		}
	}
	return len(b), nil
}

// TestBarInAWindowThatBecomesNarrower resizes the terminal under a bar: there is one bar
// on it, which fits, and in the end nothing but what stood there before.
func TestBarInAWindowThatBecomesNarrower(t *testing.T) {
	for _, wraps := range []bool{true, false} {
		s := &window{lines: []string{"$ gollm", ""}, line: 1, wide: 100, wrappable: wraps}
		b := drawnBar(s, s.columns, "reading the prompt", 4000, " tok")
		b.At(1000)
		b.show()
		for _, wide := range []int{60, 31, 120, 45} {
			time.Sleep(300 * time.Millisecond) // for a frame
			s.resize(wide)
		}
		time.Sleep(300 * time.Millisecond)
		s.Lock()
		if all := strings.Join(s.lines, "\n"); strings.Count(all, "25%") != 1 || len(s.lines) != 2 || len(s.lines[1]) > 44 || s.lines[0] != "$ gollm" {
			t.Errorf("wraps %v: the screen is %q", wraps, s.lines)
		}
		s.Unlock()
		b.Stop()
		if strings.TrimSpace(strings.Join(s.lines, "\n")) != "$ gollm" || s.unknown != "" {
			t.Errorf("wraps %v: %q is left, %q is not known", wraps, s.lines, s.unknown)
		}
	}
}

func TestBarThatStopsInTimeIsNeverDrawn(t *testing.T) {
	var out strings.Builder
	b := drawnBar(&out, columns(100), "reading", 10, "")
	b.Stop()
	b.show() // the timer may fire beside stop
	if out.String() != "" || b.done != nil {
		t.Errorf("%q", out.String())
	}
}
