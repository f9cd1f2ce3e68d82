package lineedit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
)

// typing is what keys make of an empty entry, with | at the cursor.
func typing(input string) string {
	var d decoder
	var b buffer
	d.feed([]byte(input))
	for {
		k, ok := d.next()
		if !ok {
			return string(b.text[:b.at]) + "|" + string(b.text[b.at:])
		}
		b.edit(k)
	}
}

func TestKeysEdit(t *testing.T) {
	const left, right, home, end, del = "\x1b[D", "\x1b[C", "\x1b[H", "\x1bOF", "\x1b[3~"
	for _, tt := range []struct{ keys, want string }{
		{"hello", "hello|"},
		{"hello" + left + left + "X" + right + "Y", "helXlY|o"},
		{"ab" + left + left + left + "c", "c|ab"},
		{"hello" + home + "X" + end + "Y", "XhelloY|"},
		{"hello\x01X\x05Y\x02Z\x06W", "XhelloZYW|"},
		{"hello\x7f\x08", "hel|"},
		{"hello" + home + del + "\x04", "|llo"},
		{"one two-three\x1bb\x1bb", "one |two-three"},
		{"one two" + home + "\x1bf\x1b[1;5C", "one two|"},
		{"one two\x1b[1;5D\x1b[1;3D", "|one two"},
		{"one two-three\x17", "one |"},
		{"one two-three\x1b\x7f", "one two-|"},
		{"one two-three" + home + "\x1bd", "| two-three"},
		{"one two\x1bb\x0b\x01\x19", "two|one "},
		{"one two\x15x\x19", "xone two|"},
		{"ab\x14", "ba|"},
		{"abc\x02\x14", "acb|"},
		{"a\x1b\rb\x1b[13;2uc", "a\nb\nc|"},
		{"a\x1b\rb\x01\x02\x02", "|a\nb"},
		{"a\x1b\rb" + home + "X\x1b<Y\x1b>Z", "Ya\nXbZ|"},
		{"a\x1b\rb\x1b[1;5H\x0b\x0b", "|b"},
		{"漢字" + left + "x", "漢x|字"},
		{"a👩\u200d💻e\u0301" + left + left, "a|👩\u200d💻e\u0301"},
		{"a👩\u200d💻e\u0301\x7f\x7f", "a|"},
		{"ab\x1b[99;99Zc\x1b[Id\x1b\x1b[De", "abce|d"},
		{"a\x1bxb\x00\x1c", "ab|"},
		{"a\xffb", "a\ufffdb|"},
		{"\x1b[200~one\r\ntwo\rthree\n\x1b[31m\x1b[201~!", "one\ntwo\nthree\n\x1b[31m!|"},
	} {
		if got := typing(tt.keys); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.keys, got, tt.want)
		}
	}
}

// Bytes come in any pieces.
func TestKeysInPieces(t *testing.T) {
	input := "a漢\x1b[D\x1b[200~" + strings.Repeat("x\x1b[20\r", 50) + "\x1b[201~\x1b\rb\x1bOF👩\u200d💻\x1b[3~"
	want := typing(input)
	for size := 1; size < 12; size++ {
		var d decoder
		var b buffer
		for piece := range slices.Chunk([]byte(input), size) {
			d.feed(piece)
			for k, ok := d.next(); ok; k, ok = d.next() {
				b.edit(k)
			}
		}
		if got := string(b.text[:b.at]) + "|" + string(b.text[b.at:]); got != want {
			t.Errorf("in pieces of %d bytes: %q, want %q", size, got, want)
		}
	}
}

// A row is never wider than the screen, the rows together are the text, and the
// cursor is before the character that it should be.
func TestLayout(t *testing.T) {
	same := func(s string) string { return s }
	for _, text := range []string{"", "a", "hello world, this is long", "漢字漢字漢字漢字漢字", "a\n\nb\n", "👩\u200d💻👩\u200d💻👩\u200d💻👩\u200d💻👩\u200d💻👩\u200d💻e\u0301x", strings.Repeat("x", 24)} {
		runes := []rune(text)
		for at := range len(runes) + 1 {
			l := lay(runes, at, "> ", "  ", minWidth, same)
			joined := ""
			for i, row := range l.rows {
				if w := uniseg.StringWidth(row); w > minWidth {
					t.Errorf("%q: row %q has %d columns", text, row, w)
				}
				if l.indents[i] > 0 {
					joined += "\n" + row[2:]
				} else {
					joined += row
				}
			}
			if strings.TrimPrefix(joined, "\n") != text {
				t.Errorf("%q is laid out as %q", text, l.rows)
			}
			want := l.indents[l.row] + uniseg.StringWidth(string(runes[l.starts[l.row]:at]))
			b := buffer{text: runes, at: at}
			if whole := at == len(runes) || b.after() > at && boundary(runes, at); whole && l.col != min(want, minWidth-1) {
				t.Errorf("%q: the cursor before %d is in row %d at %d, want %d", text, at, l.row, l.col, want)
			}
		}
	}
}

// boundary reports whether a character begins at a place.
func boundary(text []rune, at int) bool {
	i := 0
	for i < at {
		i += clusterLen(text[i:])
	}
	return i == at
}

func TestPlaceOnARow(t *testing.T) {
	text := []rune("漢字ab\ncd\nlonger than a row is")
	same := func(s string) string { return s }
	l := lay(text, len(text), "> ", "  ", minWidth, same)
	for _, tt := range []struct{ row, col, want int }{{0, 2, 0}, {0, 3, 0}, {0, 4, 1}, {0, 99, 4}, {1, 3, 6}, {1, 99, 7}, {2, 2, 8}, {2, 99, 17}, {3, 0, 18}, {3, 4, 22}} {
		if got := l.place(text, tt.row, tt.col, same); got != tt.want {
			t.Errorf("row %d, column %d of %q: %d, want %d", tt.row, tt.col, l.rows, got, tt.want)
		}
	}
}

func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gollm", "history")
	h, err := OpenHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range []string{"one", "two\nlines", "two\nlines", "", strings.Repeat("x", maxEntryBytes+1)} {
		if err := h.Add(entry); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want a file that others cannot read", info.Mode(), err)
	}
	next, err := OpenHistory(path)
	if err != nil || !slices.Equal(next.entries, []string{"one", "two\nlines"}) {
		t.Errorf("%q, %v", next.entries, err)
	}
	w := walk{History: next}
	w.begin()
	for _, tt := range []struct {
		n    int
		text string
		want string
		ok   bool
	}{{1, "typing", "", false}, {-1, "typing", "two\nlines", true}, {-1, "two\nlines", "one", true}, {-1, "one", "", false}, {1, "one", "two\nlines", true}, {1, "changed", "typing", true}} {
		if got, ok := w.step(tt.n, tt.text); got != tt.want || ok != tt.ok {
			t.Errorf("step %d: %q, %v, want %q, %v", tt.n, got, ok, tt.want, tt.ok)
		}
	}
}

// A history that has grown is cut when it is opened, and a line that is broken is left
// out.
func TestHistoryIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	var b strings.Builder
	for i := range maxEntries + 500 {
		fmt.Fprintf(&b, "%q\n", fmt.Sprint("entry ", i))
	}
	b.WriteString(`"cut`)
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := OpenHistory(path)
	if err != nil || len(h.entries) != maxEntries || h.entries[0] != "entry 500" {
		t.Fatalf("%d entries, %v", len(h.entries), err)
	}
	text, err := os.ReadFile(path)
	if info, statErr := os.Stat(path); err != nil || statErr != nil || strings.Count(string(text), "\n") != maxEntries || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %d lines and mode %v", strings.Count(string(text), "\n"), info.Mode())
	}
	for _, text := range []string{"a model\n\"x\"\n", "GGUF", "\"a\"\n5\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		h, err := OpenHistory(path)
		if kept, readErr := os.ReadFile(path); err == nil || readErr != nil || string(kept) != text || h.Add("x") != nil || h.path != "" {
			t.Errorf("%q: %v, and the file is %q", text, err, kept)
		}
	}
	if _, err := OpenHistory(t.TempDir()); err == nil {
		t.Error("a folder is no history")
	}
}

func TestCommonPrefix(t *testing.T) {
	for _, tt := range []struct {
		all  []string
		want string
	}{{[]string{"/save "}, "/save "}, {[]string{"/save ", "/stats"}, "/s"}, {[]string{"äb", "äc"}, "ä"}} {
		if got := commonPrefix(tt.all); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
