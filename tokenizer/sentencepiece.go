package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
)

// spaceMark, U+2581, stands for the space in a token's text.
const spaceMark = "\u2581"

// Bounds on the merges of a SentencePiece vocabulary: their number and the bytes
// looked at to find them. Llama-2 has 61,249 merges, found in 2 MB.
const (
	maxScoreMerges    = 1 << 22
	maxScoreMergeWork = 1 << 28
)

// sentencePiece is BPE over characters with byte fallback. Any two symbols whose
// texts join to a token merge; the token's score ranks the merge.
type sentencePiece struct {
	prefix bool           // a text begins with a space
	near   neighbours     // characters that stand side by side in some token
	ascii  [128]int32     // symbol of each ASCII character
	runes  map[rune]int32 // symbol of each other character that is in any token
	bytes  [256]int32     // token of each byte
	tokens int32          // symbols from here on are characters without a token
	pairs  pairTable
}

func newSentencePiece(v *Vocab, ids map[string]int32) (*sentencePiece, error) {
	s := &sentencePiece{prefix: v.AddSpacePrefix, runes: map[rune]int32{}, tokens: int32(len(v.Tokens))}
	for b := range s.bytes {
		id, ok := ids[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			id, ok = ids[string([]byte{byte(b)})]
		}
		if !ok {
			id = v.UNK
		}
		if id == None {
			return nil, fmt.Errorf("tokenizer: no token <0x%02X> for a byte and no unknown token", b)
		}
		s.bytes[b] = id
	}
	symbols := s.collectRunes(v, ids)
	if err := s.collectPairs(v, ids, symbols); err != nil {
		return nil, err
	}
	for r := range s.ascii {
		s.ascii[r] = s.symbolOf(rune(r))
	}
	s.ascii[' '] = s.symbolOf(spaceRune)
	return s, nil
}

const spaceRune = '\u2581'

func (s *sentencePiece) symbolOf(r rune) int32 {
	if id, ok := s.runes[r]; ok {
		return id
	}
	return noSymbol
}

// collectRunes gives every character of the vocabulary a symbol: its token's id, or
// a number above all ids. It returns the texts of the latter.
func (s *sentencePiece) collectRunes(v *Vocab, ids map[string]int32) map[string]int32 {
	extra := map[string]int32{}
	var seen [utf8.RuneSelf]bool // most characters are ASCII, and a map is slow for millions
	for _, text := range v.Tokens {
		if !utf8.ValidString(text) {
			continue // no text is ever merged to it
		}
		last := rune(-1)
		for _, r := range text {
			s.near.add(last, r)
			last = r
			if r < utf8.RuneSelf && seen[r] {
				continue
			}
			if _, ok := s.runes[r]; ok {
				continue
			}
			if r < utf8.RuneSelf {
				seen[r] = true
			}
			id, ok := ids[string(r)]
			if !ok {
				id = s.tokens + int32(len(extra))
				extra[string(r)] = id
			}
			s.runes[r] = id
		}
	}
	return extra
}

// collectPairs enters every way to join two symbols to a token.
func (s *sentencePiece) collectPairs(v *Vocab, ids, extra map[string]int32) error {
	symbol := func(text string) int32 {
		if id, ok := ids[text]; ok {
			return id
		}
		if id, ok := extra[text]; ok && len(text) <= utf8.UTFMax {
			return id
		}
		return noSymbol
	}
	ranks := scoreRanks(v.Scores)
	var found []pair
	work := 0
	for id, text := range v.Tokens {
		work += len(text) * len(text)
		if len(found) > maxScoreMerges || work > maxScoreMergeWork {
			return fmt.Errorf("tokenizer: the vocabulary has more than %d ways to make its tokens or too many long tokens", maxScoreMerges)
		}
		for i := range text {
			if i == 0 {
				continue
			}
			left := symbol(text[:i])
			if left == noSymbol {
				continue
			}
			if right := symbol(text[i:]); right != noSymbol {
				found = append(found, pair{left, right, ranks[id], int32(id)})
			}
		}
	}
	s.pairs = newPairTable(len(found))
	for _, p := range found {
		s.pairs.add(p)
	}
	return nil
}

// scoreRanks numbers the scores from the highest on; equal scores rank equal.
func scoreRanks(scores []float32) []int32 {
	order := make([]int32, len(scores))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(scores[b], scores[a]) })
	ranks := make([]int32, len(scores))
	for i, id := range order {
		if i > 0 {
			last := order[i-1]
			ranks[id] = ranks[last]
			if scores[id] != scores[last] {
				ranks[id]++
			}
		}
	}
	return ranks
}

func (s *sentencePiece) table() *pairTable { return &s.pairs }

// encode appends the ids of text to out. first says that text begins the whole text
// or follows a special token, so that a space goes in front.
func (s *sentencePiece) encode(e *encoder, text string, first bool, out []int32) []int32 {
	if first && s.prefix && text != "" {
		end := s.wordEnd(text)
		e.text = append(append(e.text[:0], ' '), text[:end]...)
		out = s.encodeWord(e, string(e.text), out)
		text = text[end:]
	}
	for text != "" {
		end := s.wordEnd(text)
		out = s.encodeWord(e, text[:end], out)
		text = text[end:]
	}
	return out
}

// wordEnd returns the end of the first word of text: no token has the last character
// of a word beside the first of the next, so that nothing ever merges across.
func (s *sentencePiece) wordEnd(text string) int {
	r, i := runeAt(text, 0)
	for i < len(text) {
		next, n := runeAt(text, i)
		if !s.near.have(r, next) {
			break
		}
		r = next
		i += n
	}
	return i
}

// runeAt returns the character at text[i:] and its length, -1 for a stray byte.
func runeAt(text string, i int) (r rune, n int) {
	if b := text[i]; b < utf8.RuneSelf {
		return rune(b), 1
	}
	if r, n = utf8.DecodeRuneInString(text[i:]); n == 1 {
		r = -1
	}
	return r, n
}

// neighbours is a set of pairs of characters: exact for ASCII, where the space
// stands for U+2581, and hashed for others, so that have may be true by chance.
type neighbours struct {
	ascii  [utf8.RuneSelf][2]uint64
	others [1 << 10]uint64
}

func (n *neighbours) add(a, b rune) {
	if a < 0 || b < 0 {
		return
	}
	word, bit := n.place(a, b)
	*word |= 1 << bit
}

// have reports whether a and b are side by side in some token. A negative a or b is
// in none.
func (n *neighbours) have(a, b rune) bool {
	if a < 0 || b < 0 {
		return false
	}
	word, bit := n.place(a, b)
	return *word>>bit&1 != 0
}

func (n *neighbours) place(a, b rune) (word *uint64, bit uint32) {
	if a == spaceRune {
		a = ' '
	}
	if b == spaceRune {
		b = ' '
	}
	if a < utf8.RuneSelf && b < utf8.RuneSelf {
		return &n.ascii[a][b>>6], uint32(b) & 63
	}
	h := (uint64(a)<<32 | uint64(b)) * 0x9E3779B97F4A7C15 >> 48
	return &n.others[h>>6], uint32(h) & 63
}

func (s *sentencePiece) encodeWord(e *encoder, word string, out []int32) []int32 {
	h := hash(word)
	if ids, ok := e.words.find(h, word); ok {
		return append(out, ids...)
	}
	from := len(out)
	out = s.mergeWord(e, word, out)
	e.words.add(h, word, out[from:])
	return out
}

// mergeWord is encodeWord without the cache.
func (s *sentencePiece) mergeWord(e *encoder, word string, out []int32) []int32 {
	m := &e.merge
	m.start(len(word))
	e.starts = slices.Grow(e.starts[:0], len(word))
	for i := 0; i < len(word); {
		e.starts = append(e.starts, int32(i))
		if b := word[i]; b < utf8.RuneSelf {
			m.push(s.ascii[b])
			i++
			continue
		}
		r, n := runeAt(word, i)
		m.push(s.symbolOf(r))
		i += n
	}
	m.run()
	for i := int32(0); i >= 0; i = m.syms[i].next {
		if id := m.syms[i].id; id >= 0 && id < s.tokens {
			out = append(out, id)
			continue
		}
		_, n := utf8.DecodeRuneInString(word[e.starts[i]:])
		for k := range n {
			out = append(out, s.bytes[word[int(e.starts[i])+k]])
		}
	}
	return out
}
