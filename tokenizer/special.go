package tokenizer

// specialSet finds special tokens in text: a trie over their bytes.
type specialSet struct {
	first [256]bool // bytes that a token begins with
	nodes []specialNode
	edges map[uint64]int32 // node<<8 | byte to node
}

type specialNode struct{ id int32 }

func newSpecialSet() *specialSet {
	return &specialSet{nodes: []specialNode{{None}}, edges: map[uint64]int32{}}
}

// add enters a token; an empty text is never found.
func (s *specialSet) add(text string, id int32) {
	if text == "" {
		return
	}
	s.first[text[0]] = true
	at := int32(0)
	for i := 0; i < len(text); i++ {
		key := uint64(at)<<8 | uint64(text[i])
		next, ok := s.edges[key]
		if !ok {
			next = int32(len(s.nodes))
			s.nodes = append(s.nodes, specialNode{None})
			s.edges[key] = next
		}
		at = next
	}
	s.nodes[at].id = id
}

// next finds the leftmost special token of text, the longest of those that begin
// there. When there is none, start is len(text) and id is None.
func (s *specialSet) next(text string) (start, end int, id int32) {
	for i := 0; i < len(text); i++ {
		if !s.first[text[i]] {
			continue
		}
		if end, id := s.longest(text, i); id != None {
			return i, end, id
		}
	}
	return len(text), len(text), None
}

// longest returns the longest special token that begins at text[i:].
func (s *specialSet) longest(text string, i int) (end int, id int32) {
	end, id = i, None
	at := int32(0)
	for k := i; k < len(text); k++ {
		next, ok := s.edges[uint64(at)<<8|uint64(text[k])]
		if !ok {
			break
		}
		at = next
		if s.nodes[at].id != None {
			end, id = k+1, s.nodes[at].id
		}
	}
	return end, id
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
