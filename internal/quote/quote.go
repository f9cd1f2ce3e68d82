// Package quote writes names that files give, of keys, tensors and tokens, into
// errors: escaped, and no longer than a line of text. It also writes commands as a shell
// reads them.
//
// Start reading at [Short].
package quote

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxChars is the characters of a name that are shown: more than any key of GGUF and any
// tensor of a Llama has.
const maxChars = 80

// Short is s in double quotes with Go's escapes. A longer one than 80 characters is cut,
// and its length in bytes is said behind the quotes.
func Short(s string) string {
	end := 0
	for range maxChars {
		if end == len(s) {
			return strconv.Quote(s)
		}
		_, n := utf8.DecodeRuneInString(s[end:])
		end += n
	}
	if end == len(s) {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:end]) + "... (" + strconv.Itoa(len(s)) + " bytes)"
}

// plain is the characters that mean themselves to every POSIX shell, in any place of a word.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:@_"

// Command is the words of a command as a POSIX shell reads them: a word with any other
// character is in single quotes.
func Command(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; w == "" || strings.Trim(w, plain) != "" {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
