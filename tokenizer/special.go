package tokenizer

import (
	"cmp"
	"slices"
	"strings"
)

// specialSet finds special tokens in text: their texts in order, each with the longest
// other one that it begins with. It takes a few bytes for a token, however long that is.
type specialSet struct {
	tokens []specialText // sorted by text
	first  [257]int32    // the tokens that begin with byte b are first[b] to first[b+1]-1
}

// specialText is a token of a specialSet.
type specialText struct {
	text   string
	id     int32
	prefix int32 // index of the longest other token that text begins with, -1 for none
}

// newSpecialSet takes tokens with their texts and ids; no two have the same text, and an
// empty one is never found.
func newSpecialSet(tokens []specialText) *specialSet {
	s := &specialSet{tokens: slices.DeleteFunc(tokens, func(t specialText) bool { return t.text == "" })}
	slices.SortFunc(s.tokens, func(a, b specialText) int { return cmp.Compare(a.text, b.text) })
	for i := range s.tokens {
		t := &s.tokens[i]
		// What begins like t and sorts before it is a neighbour or a prefix of one.
		t.prefix = int32(i) - 1
		for t.prefix >= 0 && !strings.HasPrefix(t.text, s.tokens[t.prefix].text) {
			t.prefix = s.tokens[t.prefix].prefix
		}
		s.first[int(t.text[0])+1] = int32(i) + 1
	}
	for b := 1; b < len(s.first); b++ {
		s.first[b] = max(s.first[b], s.first[b-1])
	}
	return s
}

// next finds the leftmost special token of text, the longest of those that begin
// there. When there is none, start is len(text) and id is None.
func (s *specialSet) next(text string) (start, end int, id int32) {
	for i := 0; i < len(text); i++ {
		if s.first[text[i]] == s.first[int(text[i])+1] {
			continue
		}
		if end, id := s.longest(text, i); id != None {
			return i, end, id
		}
	}
	return len(text), len(text), None
}

// longest returns the longest special token that begins at text[i:]: the last token that
// does not sort behind text[i:], or the longest of that one's prefixes which the two have
// in common. It takes no more steps than the longest token has bytes.
func (s *specialSet) longest(text string, i int) (end int, id int32) {
	rest := text[i:]
	from, to := s.first[rest[0]], s.first[int(rest[0])+1]
	n, _ := slices.BinarySearchFunc(s.tokens[from:to], rest, func(t specialText, rest string) int {
		if t.text <= rest {
			return -1
		}
		return 1
	})
	if n == 0 {
		return i, None
	}
	at := from + int32(n) - 1
	for common := commonPrefix(s.tokens[at].text, rest); at >= 0; at = s.tokens[at].prefix {
		if t := &s.tokens[at]; len(t.text) <= common {
			return i + len(t.text), t.id
		}
	}
	return i, None
}

// commonPrefix is the number of bytes that a and b begin with both.
func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// endTexts are the tokens that end a generation wherever they occur, whether or
// not the metadata names them.
var endTexts = []string{
	"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|end|>", "</s>",
	"<|endoftext|>", "<end_of_turn>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
	"<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<end_of_utterance>",
	"<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
}

// stopTexts are the tokens of code infilling that end a generation as well.
var stopTexts = []string{
	"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]",
	"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>",
	"<|file_sep|>",
}
