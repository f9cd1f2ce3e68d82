package punkt

import (
	"iter"
	"strings"

	"github.com/gollm/gollm/eval/metric"
)

// words yields the words and the punctuation of a text. A full stop at the end of a
// word is part of it; a word ends with its line.
func (r rules) words(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.SplitSeq(text, "\n") {
			if strings.TrimLeftFunc(line, metric.IsSpace) == "" {
				continue
			}
			for {
				line = strings.TrimLeftFunc(line, r.space)
				if line == "" {
					break
				}
				n := r.word(line)
				if !yield(line[:n]) {
					return
				}
				line = line[n:]
			}
		}
	}
}

// notFirst are characters that no word begins with; each is a word by itself.
const notFirst = "(\"`{[:;&#*@)}]-,"

// word is the length in bytes of the word at the beginning of a line.
func (r rules) word(line string) int {
	if n := r.run(line); n > 0 {
		return n
	}
	c, n := first(line)
	if strings.ContainsRune(notFirst, c) {
		return n
	}
	for !r.endsWord(line[n:]) && !(line[n] == ',' && r.endsWord(line[n+1:])) {
		_, size := first(line[n:])
		n += size
	}
	return n
}

// endsWord reports whether no word goes on with the rest of its line.
func (r rules) endsWord(rest string) bool {
	c, size := first(rest)
	return size == 0 || r.space(c) || r.divides(c) || r.run(rest) > 0
}

// run is the length in bytes of the dashes or dots at the beginning of a line, two or
// more, or three or more dots with white space between them; else 0.
func (r rules) run(line string) int {
	for _, c := range []string{"-", "."} {
		if n := len(line) - len(strings.TrimLeft(line, c)); n > 1 {
			return n
		}
	}
	n, dots := 0, 0 // n is the length up to the last dot
	for at := 0; strings.HasPrefix(line[at:], "."); {
		dots, n = dots+1, at+1
		c, size := first(line[n:])
		if !r.space(c) {
			break
		}
		at = n + size
	}
	if dots < 3 {
		return 0
	}
	return n
}
