package console

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// A terminal obeys control characters, draws text backwards behind a bidi override
// and shows nothing at all for others, and any of them may stand in a name, a key, a
// template or a path. What gollm prints goes through here: stdout and stderr of a
// command are screens, and the few commands whose output is data say so (DataOut,
// TextOut).

// visible is text with the characters that a terminal would obey or hide written as Go
// writes them, such as \x1b and \u202e, and bytes that are no UTF-8 as \xff. Tabs and
// ends of lines stay.
func visible(text string) string { return escapeRunes(text, isHidden, quoteRune) }

// OneLine is visible for what has to stay on a line: ends of lines and tabs are
// escaped too.
func OneLine(text string) string {
	return escapeRunes(text, func(c rune) bool { return c == '\n' || c == '\t' || isHidden(c) }, quoteRune)
}

// VisibleText is visible for the text of a model, whose scripts need joiners, marks of
// direction and soft hyphens: only what a terminal obeys is escaped, and what turns
// the text around it.
func VisibleText(text string) string { return escapeRunes(text, isObeyed, quoteRune) }

// isHidden reports whether a terminal may show nothing, or something else, for c:
// control and format characters (Cc, Cf), which bidi controls and zero-width
// characters are among, separators of lines and paragraphs, and letters without a
// shape.
func isHidden(c rune) bool {
	if c < utf8.RuneSelf {
		return (c < ' ' && c != '\n' && c != '\t') || c == 0x7f
	}
	return unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// isObeyed reports whether c controls a terminal or the direction of the text around
// it: controls but tab and end of line, and embeddings, overrides and isolates.
func isObeyed(c rune) bool {
	return (unicode.IsControl(c) && c != '\n' && c != '\t') || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069)
}

// escapeRunes is text with quote instead of the characters that are escaped, and of the
// bytes that are no UTF-8 as \xff.
func escapeRunes(text string, escaped func(rune) bool, quote func(rune) string) string {
	var b strings.Builder
	done := 0 // bytes of text that are in b
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		invalid := c == utf8.RuneError && n == 1
		if invalid || escaped(c) {
			b.WriteString(text[done:i])
			if invalid {
				fmt.Fprintf(&b, `\x%02x`, text[i])
			} else {
				b.WriteString(quote(c))
			}
			done = i + n
		}
		i += n
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// quoteRune is a character as Go writes it, without the quotes.
func quoteRune(c rune) string { return strings.Trim(strconv.QuoteRuneToASCII(c), "'") }

// VisibleJSON is a JSON text of the same value without hidden characters.
func VisibleJSON(text string) string {
	return escapeRunes(text, isHidden, func(c rune) string {
		if high, low := utf16.EncodeRune(c); high != unicode.ReplacementChar {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, c)
	})
}

// Elide is text of at most n characters: what is longer loses its middle.
func Elide(text string, n int) string {
	if len(text) <= n {
		return text
	}
	all := []rune(text)
	if len(all) <= n {
		return text
	}
	head := n * 3 / 4
	return string(all[:head]) + "…" + string(all[len(all)-(n-1-head):])
}

// Screen is a stream that shows text: what is written goes through show.
type Screen struct {
	io.Writer
	show func(string) string
	rest []byte // the beginning of a character whose end is not written yet
}

// NewScreen is a stream for reports, names and remarks.
func NewScreen(out io.Writer) *Screen { return &Screen{Writer: out, show: visible} }

// Write writes text, of which a character that is not whole waits for its end.
func (s *Screen) Write(b []byte) (int, error) {
	text := append(s.rest, b...)
	whole := len(text)
	for i := max(0, whole-utf8.UTFMax+1); i < whole; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			whole = i
			break
		}
	}
	s.rest = append([]byte(nil), text[whole:]...)
	if whole == 0 {
		return len(b), nil
	}
	if _, err := io.WriteString(s.Writer, s.show(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// flush writes the beginning of a character that never got its end.
func (s *Screen) flush() {
	if len(s.rest) > 0 {
		_, _ = io.WriteString(s.Writer, s.show(string(s.rest))) // the last bytes of a broken text
		s.rest = nil
	}
}

// Beneath is the stream that a screen writes to, or the stream itself.
func Beneath(stream any) any {
	if s, ok := stream.(*Screen); ok {
		return s.Writer
	}
	return stream
}

// DataOut is the stdout of a command for bytes that are data: it gets them as they are.
func DataOut(cmd *cobra.Command) io.Writer {
	return Beneath(cmd.OutOrStdout()).(io.Writer)
}

// TextOut is the stdout of a command for text that a model or a file has: on a terminal
// it is shown as VisibleText, a pipe or a file gets every byte as it is.
func TextOut(cmd *cobra.Command) io.Writer {
	out := DataOut(cmd)
	if f, ok := out.(*os.File); ok && IsTerminal(f) {
		return &Screen{Writer: out, show: VisibleText}
	}
	return out
}
