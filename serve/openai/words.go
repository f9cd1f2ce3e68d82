package openai

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gollm/gollm/tokenizer"
)

// tokenName is the text of a token. Bytes that are no characters are written as OpenAI
// writes them, control tokens as the file does.
func tokenName(tok *tokenizer.Tokenizer, id int32) string {
	if tok.Special(id) {
		return tok.Text(id)
	}
	piece := tok.Piece(id)
	if utf8.ValidString(piece) {
		return piece
	}
	var b strings.Builder
	b.WriteString("bytes:")
	for i := range len(piece) {
		fmt.Fprintf(&b, `\x%02x`, piece[i])
	}
	return b.String()
}

// nameOf is the name of a token: its text, or its id as vLLM writes it.
func nameOf(tok *tokenizer.Tokenizer, id int32, asID bool) string {
	if asID {
		return fmt.Sprintf("token_id:%d", id)
	}
	return tokenName(tok, id)
}

// minLogprob stands for the log-probability of what is impossible, which JSON cannot
// say.
const minLogprob = -9999.0

// finite is a log-probability that JSON can say.
func finite(x float64) float64 { return max(x, minLogprob) }
