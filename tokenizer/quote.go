package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// quoteMark breaks the text of a control token. It is a noncharacter of Unicode, which no
// text for interchange has.
const quoteMark = "\uFDD0"

// Quote marks the texts of control tokens in a text that is not trusted, so that they stay
// text when it has become a part of another one, a chat template's, which is encoded with
// ParseSpecial and Quoted. A text that cannot be quoted is an error.
func (t *Tokenizer) Quote(text string) (string, error) {
	if strings.Contains(text, quoteMark) {
		return "", fmt.Errorf("tokenizer: the text contains U+FDD0, which is no character; take it out")
	}
	var b strings.Builder
	for text != "" {
		start, end, id := t.parsed.next(text)
		if id == None || !t.Special(id) { // user-defined tokens are tokens in any text
			b.WriteString(text[:end])
			text = text[end:]
			continue
		}
		_, n := utf8.DecodeRuneInString(text[start:end])
		if start+n == end {
			return "", fmt.Errorf("tokenizer: the text contains the control token %q, which has one character and cannot be quoted; take it out", text[start:end])
		}
		b.WriteString(text[:start+n] + quoteMark)
		text = text[start+n:]
	}
	return b.String(), nil
}
