package punkt

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gollm/gollm/eval/metric"
)

// Release is a release of NLTK whose rules are followed.
type Release string

// The releases whose rules differ.
const (
	// NLTK3101 is 3.10.1 and those before it, to 3.8.1 at least.
	NLTK3101 Release = "3.10.1"
	// NLTK3104 is 3.10.4: curly quotes and guillemets close sentences too, as since
	// 3.10.2, and letters and white space are those of the package regex.
	NLTK3104 Release = "3.10.4"
)

// Releases lists the releases, the first of them what RULER's published rows were
// made with.
func Releases() []Release { return []Release{NLTK3101, NLTK3104} }

// ParseRelease is the release of that name.
func ParseRelease(name string) (Release, error) {
	if r := Release(name); slices.Contains(Releases(), r) {
		return r, nil
	}
	return "", fmt.Errorf("punkt: no rules of NLTK %q; want %s, which those before it have too, or %s", name, NLTK3101, NLTK3104)
}

// Sentences cuts a text into sentences. White space between them is in none; inside
// of them it stays as it is.
func Sentences(text string, release Release) []string {
	c := cutter{text: text, rules: rules{late: release == NLTK3104}, model: english()}
	return c.realign(c.spans())
}

// span is the bytes from start to end of the text.
type span struct{ start, end int }

// cutter cuts one text.
type cutter struct {
	text  string
	rules rules
	model *model
}

// spans cuts after every mark that ends a sentence.
func (c *cutter) spans() []span {
	var all []span
	start := 0
	for m := range c.marks() {
		if c.ends(c.text[m.word:m.after]) {
			all = append(all, span{start, m.at + 1})
			start = m.next
		}
	}
	end := len(strings.TrimRightFunc(c.text, metric.IsSpace))
	return append(all, span{start, max(start, end)})
}

// realign gives quotes and brackets at the beginning of a span to the sentence that
// they close.
func (c *cutter) realign(spans []span) []string {
	var all []string
	given := 0 // bytes of this span that went to the one before
	for i, s := range spans {
		s.start += given
		given = 0
		if i+1 < len(spans) {
			next := spans[i+1]
			var closed int
			if closed, given = c.rules.closing(c.text[next.start:next.end]); closed > 0 {
				s.end = next.start + closed
			}
		}
		if s.start < s.end {
			all = append(all, c.text[s.start:s.end])
		}
	}
	return all
}

// closing is how many bytes at the beginning of a span are quotes and brackets that
// close the sentence before it, and how many those are with the white space after
// them: 0 where a word follows.
func (r rules) closing(s string) (closed, given int) {
	rest := strings.TrimLeftFunc(s, r.closes)
	closed = len(s) - len(rest)
	after := strings.TrimLeftFunc(rest, r.space)
	if closed == 0 || len(after) == len(rest) && rest != "" && !strings.HasPrefix(rest, "--") {
		return 0, 0
	}
	return closed, len(s) - len(after)
}

// rules are the classes of characters, which differ between releases.
type rules struct{ late bool }

// curlies are the quotes that the later releases know.
const curlies = "\u2018\u2019\u201c\u201d\u00ab\u00bb"

// closes reports whether a character belongs to the sentence before it.
func (r rules) closes(c rune) bool {
	return strings.ContainsRune(`"')]}`, c) || r.late && strings.ContainsRune(curlies, c)
}

// divides reports whether a character ends a word and is no part of it.
func (r rules) divides(c rune) bool {
	return strings.ContainsRune(`)";}]*:@'({[?!`, c) || r.late && strings.ContainsRune(curlies, c)
}

// space reports whether a character is white space: what Python's re takes for it, or
// the package regex, which leaves out four separators.
func (r rules) space(c rune) bool {
	return metric.IsSpace(c) && !(r.late && c >= 0x1c && c <= 0x1f)
}

// letter reports whether a character is what \w has beside digits: in Python's re, or
// in the package regex.
func (r rules) letter(c rune) bool {
	if r.late {
		return unicode.In(c, unicode.L, unicode.M, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
	}
	return c == '_' || unicode.In(c, unicode.L, unicode.Nl, unicode.No)
}

// first is the first character of a text and its bytes.
func first(s string) (rune, int) { return utf8.DecodeRuneInString(s) }
