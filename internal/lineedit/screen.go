package lineedit

import (
	"fmt"
	"io"
	"strings"

	"github.com/rivo/uniseg"
)

// layout is an entry on rows of a screen.
type layout struct {
	rows     []string
	starts   []int // the first character of each row
	indents  []int // the columns of the prompt before it
	row, col int   // of the cursor
}

// typesetter lays an entry out.
type typesetter struct {
	layout
	width int
	line  strings.Builder // the row that is written
	col   int             // its columns so far
}

// lay lays text with the cursor at a place out on rows of some width: prompt stands
// before the first line, more before the others.
func lay(text []rune, at int, prompt, more string, width int, show func(string) string) layout {
	t := &typesetter{width: max(width, minWidth)}
	t.begin(prompt, 0)
	for i := 0; i < len(text); {
		if text[i] == '\n' {
			if i == at {
				t.cursor()
			}
			i++
			t.end()
			t.begin(more, i)
			continue
		}
		if t.col < t.width && at != i && isPlain(text[i]) && (i+1 == len(text) || text[i+1] < 0x80) {
			t.line.WriteByte(byte(text[i])) // nearly all of most texts
			t.col++
			i++
			continue
		}
		n := clusterLen(text[i:])
		shown, columns := shownAs(text[i:i+n], show)
		if t.col+columns > t.width && t.col > 0 {
			t.end()
			t.begin("", i)
		}
		if at >= i && at < i+n {
			t.cursor()
		}
		t.line.WriteString(shown)
		t.col += columns
		i += n
	}
	if at == len(text) {
		if t.col >= t.width {
			t.end()
			t.begin("", at)
		}
		t.cursor()
	}
	t.end()
	return t.layout
}

// minWidth is the columns that are used where a terminal says to have fewer.
const minWidth = 12

// isPlain reports whether c is a visible character of ASCII, which has one column.
func isPlain(c rune) bool { return c >= ' ' && c < 0x7f }

// shownAs is a character on the screen and its columns.
func shownAs(cluster []rune, show func(string) string) (string, int) {
	if len(cluster) == 1 && isPlain(cluster[0]) {
		return string(cluster), 1
	}
	if len(cluster) == 1 && cluster[0] == '\t' {
		return "    ", 4
	}
	text := show(string(cluster))
	return text, uniseg.StringWidth(text)
}

// place is the character at a column of a row.
func (l *layout) place(text []rune, row, col int, show func(string) string) int {
	i, end := l.starts[row], len(text)
	if row+1 < len(l.starts) {
		end = l.starts[row+1] - 1 // an end of line, or the last character of a row that goes on
	}
	for at := l.indents[row]; i < end; {
		n := clusterLen(text[i:])
		_, columns := shownAs(text[i:i+n], show)
		if at += columns; at > col || i+n > end {
			break
		}
		i += n
	}
	return i
}

// begin begins a row, with the character that it starts with.
func (t *typesetter) begin(prefix string, start int) {
	t.line.Reset()
	t.line.WriteString(prefix)
	t.col = uniseg.StringWidth(prefix)
	t.starts, t.indents = append(t.starts, start), append(t.indents, t.col)
}

// end ends a row.
func (t *typesetter) end() { t.rows = append(t.rows, t.line.String()) }

// cursor puts the cursor where the next character goes.
func (t *typesetter) cursor() {
	t.layout.row, t.layout.col = len(t.rows), min(t.col, t.width-1)
}

// screen is what stands on the terminal of an entry.
type screen struct {
	out  io.Writer
	rows []string
	row  int // of the cursor
	col  int
	top  int // rows of the entry that are above the screen
}

// draw shows a layout on a terminal of some height; of a taller one the rows around
// the cursor. Rows that are there already are not written again.
func (s *screen) draw(l layout, height int) error {
	height = max(height-1, 1)
	s.top = max(min(s.top, l.row, len(l.rows)-height), l.row-height+1, 0)
	rows := l.rows[s.top:min(len(l.rows), s.top+height)]
	row := l.row - s.top
	var b strings.Builder
	s.home(&b)
	for i, text := range rows {
		if i > 0 {
			b.WriteString("\n")
		}
		if i >= len(s.rows) || s.rows[i] != text {
			b.WriteString(clearLine + text) // cleared before: behind a full row it would take its last character
		}
	}
	if len(s.rows) > len(rows) {
		b.WriteString("\n" + clearBelow + up(1))
	}
	b.WriteString(up(len(rows)-1-row) + "\r")
	if l.col > 0 {
		fmt.Fprintf(&b, "\x1b[%dC", l.col)
	}
	s.rows, s.row, s.col = rows, row, l.col
	_, err := io.WriteString(s.out, b.String())
	return err
}

// What a terminal is told.
const (
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	clearScreen = "\x1b[H\x1b[2J"
	pasteOn     = "\x1b[?2004h" // pastes come with a beginning and an end
	pasteOff    = "\x1b[?2004l"
)

// up moves the cursor up.
func up(rows int) string {
	if rows <= 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA", rows)
}

// home moves the cursor to the first row that was drawn.
func (s *screen) home(b *strings.Builder) { b.WriteString(up(s.row) + "\r") }

// reflow forgets what was drawn after the terminal got another width, which breaks the
// rows that are too long now: they are counted again to find the first.
func (s *screen) reflow(width, height int) error {
	above := s.col / max(width, 1)
	for _, text := range s.rows[:min(s.row, len(s.rows))] {
		above += max(1, (uniseg.StringWidth(text)+width-1)/max(width, 1))
	}
	text := up(min(above, height-1)) + "\r" + clearBelow
	s.forget()
	_, err := io.WriteString(s.out, text)
	return err
}

// leave puts the cursor behind what was drawn.
func (s *screen) leave(note string) error {
	var b strings.Builder
	b.WriteString(strings.Repeat("\n", max(0, len(s.rows)-1-s.row)) + "\r")
	if n := len(s.rows); n > 0 {
		if columns := uniseg.StringWidth(s.rows[n-1]); columns > 0 {
			fmt.Fprintf(&b, "\x1b[%dC", columns)
		}
	}
	b.WriteString(note + "\n")
	s.forget()
	_, err := io.WriteString(s.out, b.String())
	return err
}

// forget is for a screen on which nothing is drawn.
func (s *screen) forget() { *s = screen{out: s.out} }
