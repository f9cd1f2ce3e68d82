package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sugarme/tokenizer/pretokenizer"

	"github.com/gollm/gollm/internal/quote"
)

// byteLevel is byte-level BPE: each byte of a word is a symbol.
type byteLevel struct {
	pre   preTokenizer
	bytes [256]int32       // token of each byte
	whole map[string]int32 // text to id, in the byte alphabet
	pairs pairTable
}

// byteRune has the character that stands for each byte in a token's text.
var byteRune = func() (t [256]rune) {
	for b, s := range pretokenizer.BytesChar {
		t[b], _ = utf8.DecodeRuneInString(s)
	}
	return t
}()

// runeByte is the inverse of byteRune, -1 for other characters.
var runeByte = func() (t [512]int16) {
	for r := range t {
		t[r] = -1
	}
	for b, r := range byteRune {
		t[r] = int16(b)
	}
	return t
}()

func newByteLevel(v *Vocab, ids map[string]int32) (*byteLevel, error) {
	b := &byteLevel{pre: preTokenizers[v.Pre], whole: ids, pairs: newPairTable(len(v.Merges))}
	for i, r := range byteRune {
		id, ok := ids[string(r)]
		if !ok {
			id = v.UNK
		}
		if id == None {
			return nil, fmt.Errorf("tokenizer: no token for the byte %#02x (%q) and no unknown token", i, r)
		}
		b.bytes[i] = id
	}
	var joined []byte
	for rank, line := range v.Merges {
		p, err := parseMerge(ids, line, &joined)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: merge %d, %s: %w", rank, quote.Short(line), err)
		}
		p.rank = int32(rank)
		b.pairs.add(p)
	}
	return b, nil
}

// parseMerge reads "left right". A space in the first place belongs to left. The
// result is built in joined.
func parseMerge(ids map[string]int32, line string, joined *[]byte) (pair, error) {
	cut := 1
	if line != "" {
		cut = strings.IndexByte(line[1:], ' ') + 1
	}
	if cut == 0 || cut >= len(line)-1 {
		return pair{}, fmt.Errorf("want two tokens with a space between them")
	}
	var p pair
	var ok bool
	if p.left, ok = ids[line[:cut]]; !ok {
		return p, fmt.Errorf("no token %s", quote.Short(line[:cut]))
	}
	if p.right, ok = ids[line[cut+1:]]; !ok {
		return p, fmt.Errorf("no token %s", quote.Short(line[cut+1:]))
	}
	*joined = append(append((*joined)[:0], line[:cut]...), line[cut+1:]...)
	if p.id, ok = ids[string(*joined)]; !ok {
		return p, fmt.Errorf("no token %s for the result", quote.Short(string(*joined)))
	}
	return p, nil
}

func (b *byteLevel) table() *pairTable { return &b.pairs }

// encode appends the ids of text to out.
func (b *byteLevel) encode(e *encoder, text string, _ bool, out []int32) []int32 {
	b.pre.split(text, func(word string) { out = b.encodeWord(e, word, out) })
	return out
}

func (b *byteLevel) encodeWord(e *encoder, word string, out []int32) []int32 {
	if len(word) == 1 {
		return append(out, b.bytes[word[0]])
	}
	h := hash(word)
	if ids, ok := e.words.find(h, word); ok {
		return append(out, ids...)
	}
	from := len(out)
	out = b.mergeWord(e, word, out)
	e.words.add(h, word, out[from:])
	return out
}

// mergeWord is encodeWord without the cache.
func (b *byteLevel) mergeWord(e *encoder, word string, out []int32) []int32 {
	if b.pre.wholeWords && len(word) <= maxTokenBytes {
		e.text = e.text[:0]
		for i := 0; i < len(word); i++ {
			e.text = utf8.AppendRune(e.text, byteRune[word[i]])
		}
		if id, ok := b.whole[string(e.text)]; ok {
			return append(out, id)
		}
	}
	m := &e.merge
	m.start(len(word))
	for i := 0; i < len(word); i++ {
		m.push(b.bytes[word[i]])
	}
	m.run()
	for i := int32(0); i >= 0; i = m.syms[i].next {
		out = append(out, m.syms[i].id)
	}
	return out
}

// pieceOf returns the bytes that a token's text in the byte alphabet stands for.
// Characters outside the alphabet stand for themselves.
func pieceOf(text string) string {
	piece := make([]byte, 0, len(text))
	for _, r := range text {
		if int(r) < len(runeByte) && runeByte[r] >= 0 {
			piece = append(piece, byte(runeByte[r]))
		} else {
			piece = utf8.AppendRune(piece, r)
		}
	}
	return string(piece)
}
