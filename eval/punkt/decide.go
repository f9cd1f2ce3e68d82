package punkt

import (
	"strings"
	"unicode"

	"github.com/gollm/gollm/eval/metric"
)

// token is a word and what is thought of it.
type token struct {
	text   string
	breaks bool // it ends a sentence
	abbrev bool
	dots   bool // it is an ellipsis
}

// ends reports whether a sentence ends in a context, before its last word.
func (c *cutter) ends(context string) bool {
	var last token
	held := false
	for word := range c.rules.words(context) {
		t := c.model.byItself(word)
		if held {
			if c.beside(&last, t); last.breaks {
				return true
			}
		}
		last, held = t, true
	}
	return false
}

// byItself decides by the word alone.
func (m *model) byItself(word string) token {
	t := token{text: word}
	stem, stop := strings.CutSuffix(word, ".")
	switch {
	case len(word) == 1 && strings.Contains(".?!", word):
		t.breaks = true
	case !stop:
	case strings.HasSuffix(stem, "."):
		t.dots = true // a word ends before two dots
	default:
		stem = metric.Lower(stem)
		t.abbrev = m.abbrevs[stem[strings.LastIndexByte(stem, '-')+1:]] // none has a dash
		t.breaks = !t.abbrev
	}
	return t
}

// beside decides again on a word that ends in a full stop, by the word that follows.
// That one's own full stop is part of its type unless it ends a sentence.
func (c *cutter) beside(t *token, next token) {
	if !strings.HasSuffix(t.text, ".") {
		return
	}
	kind, after := withoutStop(typeOf(t.text)), typeOf(next.text)
	if next.breaks {
		after = withoutStop(after)
	}
	initial := c.rules.isInitial(t.text)
	if c.model.pairs[[2]string{kind, after}] {
		t.breaks = false
		return
	}
	begins := c.model.begins(next.text, after)
	if (t.abbrev || t.dots) && !initial {
		if begins == yes || isUpper(next.text) && c.model.starters[after] {
			t.breaks = true
			return
		}
	}
	if initial || kind == number {
		if begins == no || begins == unknown && initial && isUpper(next.text) && c.model.contexts[after]&seenLower == 0 {
			t.breaks = false
		}
	}
}

// answer is what the case of a word tells.
type answer int

const (
	unknown answer = iota
	yes
	no
)

// begins tells by its case whether a word begins a sentence. kind is its type.
func (m *model) begins(word, kind string) answer {
	if len(word) == 1 && strings.Contains(";:,.!?", word) {
		return no
	}
	switch seen := m.contexts[kind]; {
	case isUpper(word) && seen&seenLower != 0 && seen&upperInside == 0:
		return yes
	case isLower(word) && (seen&seenUpper != 0 || seen&lowerFirst == 0):
		return no
	}
	return unknown
}

// number is the type of all numbers.
const number = "##number##"

// typeOf is a word without its case; all numbers are one type.
func typeOf(word string) string {
	word = metric.Lower(word)
	digits := strings.TrimPrefix(word, ".") // no word begins with a dash or a comma
	if c, _ := first(digits); !unicode.IsDigit(c) || strings.ContainsFunc(digits, notNumeric) {
		return word
	}
	return number
}

// notNumeric reports whether a character is in no number.
func notNumeric(c rune) bool { return !unicode.IsDigit(c) && c != ',' && c != '.' && c != '-' }

// withoutStop is a type without its full stop; that of a lone one stays.
func withoutStop(kind string) string {
	if len(kind) > 1 {
		return strings.TrimSuffix(kind, ".")
	}
	return kind
}

// isInitial reports whether a word is a letter and a full stop.
func (r rules) isInitial(word string) bool {
	c, size := first(word)
	return word[size:] == "." && r.letter(c)
}

// isUpper reports whether a word begins with a capital, as Python sees it.
func isUpper(word string) bool {
	c, _ := first(word)
	return unicode.In(c, unicode.Lu, unicode.Other_Uppercase)
}

// isLower reports whether a word begins with a small letter, as Python sees it.
func isLower(word string) bool {
	c, _ := first(word)
	return unicode.In(c, unicode.Ll, unicode.Other_Lowercase)
}
