package grammar

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Vocabulary is the bytes of the tokens of a tokenizer as a trie, whose nodes lie in the order
// of their texts: behind a node come the nodes under it. Make it with [NewVocabulary]. It may
// be used from several goroutines.
type Vocabulary struct {
	size int     // ids
	ends []int32 // ids that end an answer

	nodes []trieNode        // node 0 is the root
	alike map[int32][]int32 // the other tokens of nodes that have several
	texts []string          // of each id, "" where it is never allowed or ends an answer

	mu   sync.Mutex
	free map[int32]*lexemeMask // of the states of freeText

	slow chan struct{} // capacity 1: a mask of much work is made, and others of the kind wait
}

// trieNode is a beginning of tokens: the bytes on the way to it.
type trieNode struct {
	after int32 // the first node behind those under it
	id    int32 // the token whose text it is, -1 for none
	depth uint16
	byte  byte // the last one
	alike bool // there are more such tokens
}

// maxToken bounds the bytes of a token: a longer one is never allowed.
const maxToken = 1 << 10

// NewVocabulary makes the trie of tokens: texts[id] is the bytes that a token stands for, ""
// for one that stands for none and is never allowed. ends are the tokens that end an answer:
// they are allowed behind a whole value only, whatever their text.
func NewVocabulary(texts []string, ends []int32) (*Vocabulary, error) {
	v := &Vocabulary{size: len(texts), ends: slices.Clone(ends), free: map[int32]*lexemeMask{}, slow: make(chan struct{}, 1)}
	var ids []int32 // allowed ones, in the order of their texts
	isEnd := make(map[int32]bool, len(ends))
	for _, id := range ends {
		if id < 0 || int(id) >= len(texts) {
			return nil, fmt.Errorf("grammar: token %d ends an answer, but the vocabulary has %d tokens", id, len(texts))
		}
		isEnd[id] = true
	}
	if len(ends) == 0 {
		return nil, fmt.Errorf("grammar: the vocabulary has no token that ends an answer")
	}
	for id, text := range texts {
		if text != "" && len(text) <= maxToken && !isEnd[int32(id)] {
			ids = append(ids, int32(id))
		}
	}
	slices.SortFunc(ids, func(a, b int32) int { return strings.Compare(texts[a], texts[b]) })
	if err := checkBytes(texts, ids); err != nil {
		return nil, err
	}
	v.texts = make([]string, len(texts))
	for _, id := range ids {
		v.texts[id] = texts[id]
	}
	v.build(ids)
	return v, nil
}

// build makes the nodes of the sorted tokens.
func (v *Vocabulary) build(sorted []int32) {
	v.alike = map[int32][]int32{}
	v.nodes = []trieNode{{id: -1}}
	var path [maxToken + 1]int32 // the nodes of the text before
	before := ""
	for _, id := range sorted {
		text := v.texts[id]
		n := common(before, text)
		for d := len(before); d > n; d-- {
			v.nodes[path[d]].after = int32(len(v.nodes))
		}
		for d := n; d < len(text); d++ {
			path[d+1] = int32(len(v.nodes))
			v.nodes = append(v.nodes, trieNode{id: -1, depth: uint16(d + 1), byte: text[d]})
		}
		last := path[len(text)]
		if v.nodes[last].id < 0 {
			v.nodes[last].id = id
		} else {
			v.nodes[last].alike = true
			v.alike[last] = append(v.alike[last], id)
		}
		before = text
	}
	for d := range len(before) + 1 {
		v.nodes[path[d]].after = int32(len(v.nodes))
	}
}

// common is the length of the common beginning of two texts.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// checkBytes reports the bytes that JSON can need and that no token has alone: with one missing
// an answer could come to a state where nothing may follow. Control characters are escaped.
func checkBytes(texts []string, sorted []int32) error {
	var have [256]bool
	for _, id := range sorted {
		if len(texts[id]) == 1 {
			have[texts[id][0]] = true
		}
	}
	var missing []string
	for b := range 256 {
		needed := ' ' <= b && b <= '~' || 0x80 <= b && b <= 0xBF || 0xC2 <= b && b <= 0xF4
		if needed && !have[b] {
			missing = append(missing, fmt.Sprintf("%#02x", b))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("grammar: the vocabulary has no token for %d of the bytes that JSON can need (%s), so an answer could come to where nothing may follow",
			len(missing), strings.Join(missing[:min(len(missing), 8)], " "))
	}
	return nil
}

// Len is the number of ids.
func (v *Vocabulary) Len() int { return v.size }

// words is the length of a mask.
func (v *Vocabulary) words() int { return (v.size + 31) / 32 }

// allow sets the bits of the tokens of a node.
func (v *Vocabulary) allow(mask []uint32, node int32) {
	if id := v.nodes[node].id; id >= 0 {
		mask[id>>5] |= 1 << (id & 31)
		if v.nodes[node].alike {
			for _, id := range v.alike[node] {
				mask[id>>5] |= 1 << (id & 31)
			}
		}
	}
}
