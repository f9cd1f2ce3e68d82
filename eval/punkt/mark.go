package punkt

import (
	"iter"
	"strings"
)

// mark is a full stop, question or exclamation mark by its offset, with its context.
type mark struct {
	at    int
	word  int // where the word before it begins
	next  int // where the next sentence would begin
	after int // where what follows it ends: a word, or one character of punctuation
}

// marks yields the marks to decide on. Of several that belong to one word, such as
// those of "What?!", it is the last.
func (c *cutter) marks() iter.Seq[mark] {
	return func(yield func(mark) bool) {
		var last mark // its word is that of the mark before, also where that was none
		held := false
		for i := range len(c.text) {
			if c.text[i] != '.' && c.text[i] != '?' && c.text[i] != '!' {
				continue
			}
			m, ok := c.look(i)
			if !ok {
				continue
			}
			m.word = last.word
			if blank := strings.LastIndexAny(c.text[last.at:i], " \t\n\r\v\f"); blank >= 0 {
				m.word = last.at + blank + 1
			}
			if held && last.at <= m.word && !yield(last) {
				return
			}
			last, held = m, true
		}
		if held {
			yield(last)
		}
	}
}

// look is what follows the mark at i: punctuation, or white space and a word; false
// where the mark is inside a word or the last of the text.
func (c *cutter) look(i int) (mark, bool) {
	rest := c.text[i+1:]
	r, size := first(rest)
	if size > 0 && c.rules.divides(r) {
		return mark{at: i, next: i + 1, after: i + 1 + size}, true
	}
	word := strings.TrimLeftFunc(rest, c.rules.space)
	if len(word) == len(rest) || word == "" {
		return mark{}, false
	}
	next := len(c.text) - len(word)
	if n := strings.IndexFunc(word, c.rules.space); n >= 0 {
		word = word[:n]
	}
	return mark{at: i, next: next, after: next + len(word)}, true
}
