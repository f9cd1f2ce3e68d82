package tokenizer

import (
	"errors"

	sugarme "github.com/sugarme/tokenizer"
)

// Model shows a Tokenizer as a model of github.com/sugarme/tokenizer, for code that
// is written against that library. Offsets are in bytes of the sequence; they are
// exact except for the space that a SentencePiece text begins with.
type Model struct{ *Tokenizer }

var _ sugarme.Model = Model{}

// Tokenize encodes without adding or parsing special tokens.
func (m Model) Tokenize(sequence string) ([]sugarme.Token, error) {
	ids := m.Encode(sequence, EncodeOptions{})
	tokens := make([]sugarme.Token, 0, len(ids))
	at := 0
	strip := m.strips(DecodeOptions{})
	for _, id := range ids {
		n := len(m.Piece(id))
		if strip {
			n--
			strip = false
		}
		tokens = append(tokens, sugarme.NewToken(int(id), m.Text(id), []int{at, at + n}))
		at += n
	}
	return tokens, nil
}

// TokenToId returns the id of a token's text.
func (m Model) TokenToId(token string) (int, bool) {
	id, ok := m.ID(token)
	return int(id), ok
}

// IdToToken returns the text of a token.
func (m Model) IdToToken(id int) (string, bool) {
	if id < 0 || id >= m.Len() {
		return "", false
	}
	return m.Text(int32(id)), true
}

// GetVocab returns the id of every token's text.
func (m Model) GetVocab() map[string]int {
	vocab := make(map[string]int, m.Len())
	for text, id := range m.ids {
		vocab[text] = int(id)
	}
	return vocab
}

// GetVocabSize returns the number of tokens.
func (m Model) GetVocabSize() int { return m.Len() }

// Save refuses: a vocabulary lives in its GGUF file.
func (m Model) Save(string, ...string) error {
	return errors.New("tokenizer: a vocabulary cannot be saved, it belongs to its model file")
}
