package tokenizer

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// makePieces fills the table of what each id stands for.
func (t *Tokenizer) makePieces() {
	t.pieces = make([]string, len(t.vocab.Tokens))
	for id, text := range t.vocab.Tokens {
		switch t.types[id] {
		case TypeControl, TypeUnknown, TypeUserDefined:
			t.pieces[id] = text
		case TypeByte:
			t.pieces[id] = byteOf(text)
		case TypeUnused:
		default:
			if t.vocab.Model == ByteLevel {
				t.pieces[id] = pieceOf(text)
			} else {
				t.pieces[id] = strings.ReplaceAll(text, spaceMark, " ")
			}
		}
	}
}

// byteOf returns the byte that a token such as <0x0A> stands for, or text when it
// is not of that form.
func byteOf(text string) string {
	if len(text) != 6 || !strings.HasPrefix(text, "<0x") || text[5] != '>' {
		return text
	}
	b, err := strconv.ParseUint(text[3:5], 16, 8)
	if err != nil {
		return text
	}
	return string([]byte{byte(b)})
}

// DecodeOptions says how ids become text.
type DecodeOptions struct {
	// ShowSpecial writes control tokens, such as <|eot_id|>, instead of leaving them
	// out.
	ShowSpecial bool
	// Show are control tokens that are written without ShowSpecial too.
	Show []int32
	// Continued says that the ids go on from others: a SentencePiece text keeps its
	// leading space.
	Continued bool
}

// Decode returns the text of ids, byte for byte: where the ids end inside a
// character, so does the text. Ids outside the vocabulary have no text.
func (t *Tokenizer) Decode(ids []int32, o DecodeOptions) string {
	var b strings.Builder
	b.Grow(4 * len(ids))
	strip := t.strips(o)
	for _, id := range ids {
		piece := t.piece(id, o)
		if strip && piece != "" && !t.Special(id) {
			piece = strings.TrimPrefix(piece, " ")
			strip = false
		}
		b.WriteString(piece)
	}
	return b.String()
}

// Piece returns the bytes that one id stands for, "" for a control token or an id
// outside the vocabulary.
func (t *Tokenizer) Piece(id int32) string { return t.piece(id, DecodeOptions{}) }

func (t *Tokenizer) piece(id int32, o DecodeOptions) string {
	if !t.has(id) || t.Special(id) && !o.ShowSpecial && !slices.Contains(o.Show, id) {
		return ""
	}
	return t.pieces[id]
}

// strips reports whether the first piece loses the space that Encode put there.
func (t *Tokenizer) strips(o DecodeOptions) bool {
	return t.vocab.Model == SentencePiece && t.vocab.AddSpacePrefix && !o.Continued
}

// Stream decodes ids one at a time. What it returns is always whole, valid UTF-8:
// a character that spans several ids appears with the last of them, and bytes that
// are no character appear as U+FFFD. Make it with [Tokenizer.Stream].
type Stream struct {
	tokens *Tokenizer
	o      DecodeOptions
	strip  bool
	held   []byte // the beginning of a character, at most 3 bytes between calls
}

// Stream begins a text.
func (t *Tokenizer) Stream(o DecodeOptions) *Stream {
	return &Stream{tokens: t, o: o, strip: t.strips(o)}
}

// Next returns the text that id completes, possibly none.
func (s *Stream) Next(id int32) string {
	piece := s.tokens.piece(id, s.o)
	if s.strip && piece != "" && !s.tokens.Special(id) {
		piece = strings.TrimPrefix(piece, " ")
		s.strip = false
	}
	s.held = append(s.held, piece...)
	whole := len(s.held) - partial(s.held)
	text := valid(s.held[:whole])
	s.held = append(s.held[:0], s.held[whole:]...)
	return text
}

// Flush returns what is held back, as U+FFFD, and ends the text.
func (s *Stream) Flush() string {
	text := valid(s.held)
	s.held = s.held[:0]
	return text
}

// partial returns the length of the unfinished character that b ends with.
func partial(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// valid returns b as valid UTF-8: each beginning of a character that does not go
// on, and each other stray byte, becomes one U+FFFD.
func valid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n+1]) {
				n++
			}
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}
