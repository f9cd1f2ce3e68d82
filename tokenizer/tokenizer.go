package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gollm/gollm/internal/quote"
)

// Tokenizer encodes and decodes with one vocabulary. Make it with [New]. It may be
// used from several goroutines.
type Tokenizer struct {
	vocab  Vocab
	ids    map[string]int32 // token text to id
	types  []int32          // [n] Type constants
	pieces []string         // [n] what each id stands for; "" for unused tokens
	ends   map[int32]bool
	parsed *specialSet // control, unknown and user-defined tokens
	user   *specialSet // user-defined tokens only
	kind   kind

	mu   sync.Mutex
	idle []*encoder // at most maxIdle
}

// kind is what differs between byteLevel and sentencePiece.
type kind interface {
	// encode appends the ids of a text without special tokens. first says that it
	// begins the whole text or follows a special token.
	encode(e *encoder, text string, first bool, out []int32) []int32
	// table returns the merges.
	table() *pairTable
}

// maxIdle bounds the encoders kept for reuse, and with them the cached words.
const maxIdle = 4

// encoder is the memory that one call of Encode works in.
type encoder struct {
	words  wordCache
	merge  merger
	text   []byte
	starts []int32 // offset of each symbol in the word
}

// New makes a tokenizer. It keeps v and its slices, which must not change.
func New(v Vocab) (*Tokenizer, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	t := &Tokenizer{vocab: v, ids: make(map[string]int32, len(v.Tokens)), types: slices.Clone(v.Types)}
	if len(t.types) == 0 {
		t.types = slices.Repeat([]int32{TypeNormal}, len(v.Tokens))
	}
	for id, text := range v.Tokens {
		if text == "" {
			continue
		}
		if other, ok := t.ids[text]; ok {
			return nil, fmt.Errorf("tokenizer: tokens %d and %d are both %s", other, id, quote.Short(text))
		}
		t.ids[text] = int32(id)
	}
	t.findEnds()
	t.findSpecials()
	t.makePieces()
	var err error
	if v.Model == ByteLevel {
		t.kind, err = newByteLevel(&t.vocab, t.ids)
	} else {
		t.kind, err = newSentencePiece(&t.vocab, t.ids)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// findEnds collects the tokens that end a generation. Those known by their text are
// control tokens, whatever the file says, as in llama.cpp.
func (t *Tokenizer) findEnds() {
	t.ends = map[int32]bool{}
	for _, text := range slices.Concat(endTexts, stopTexts) {
		if id, ok := t.ids[text]; ok {
			t.ends[id] = true
			t.types[id] = TypeControl
		}
	}
	for _, id := range append([]int32{t.vocab.EOS, t.vocab.EOT, t.vocab.EOM}, t.vocab.Ends...) {
		if id != None {
			t.ends[id] = true
		}
	}
}

func (t *Tokenizer) findSpecials() {
	var parsed, user []specialText
	for id, text := range t.vocab.Tokens {
		token := specialText{text: text, id: int32(id)}
		switch t.types[id] {
		case TypeUserDefined:
			user = append(user, token)
			parsed = append(parsed, token)
		case TypeControl, TypeUnknown:
			parsed = append(parsed, token)
		}
	}
	t.parsed, t.user = newSpecialSet(parsed), newSpecialSet(user)
}

// EncodeOptions says what Encode does besides encoding the text as it is.
type EncodeOptions struct {
	// AddSpecial adds BOS in front and EOS at the end where the vocabulary's AddBOS
	// and AddEOS say so and the text does not have them already.
	AddSpecial bool
	// ParseSpecial turns the text of a control token, such as <|eot_id|>, into that
	// token. Leave it off for text that is not trusted.
	ParseSpecial bool
	// Quoted takes the marks of [Tokenizer.Quote] out: what was quoted is text.
	Quoted bool
}

// Encode returns the token ids of text.
func (t *Tokenizer) Encode(text string, o EncodeOptions) []int32 {
	e := t.take()
	defer t.put(e)
	addBOS := o.AddSpecial && t.vocab.AddBOS
	out := make([]int32, 0, len(text)/3+8)
	if addBOS {
		out = append(out, t.vocab.BOS)
	}
	out = t.encodeParts(e, text, o, out)
	if addBOS && o.ParseSpecial && len(out) > 1 && out[1] == t.vocab.BOS {
		out = out[1:]
	}
	if o.AddSpecial && t.vocab.AddEOS && (!o.ParseSpecial || len(out) == 0 || out[len(out)-1] != t.vocab.EOS) {
		out = append(out, t.vocab.EOS)
	}
	return out
}

// encodeParts encodes what is between special tokens and the special tokens.
func (t *Tokenizer) encodeParts(e *encoder, text string, o EncodeOptions, out []int32) []int32 {
	set := t.user
	if o.ParseSpecial {
		set = t.parsed
	}
	for first := true; text != ""; {
		start, end, id := set.next(text)
		if part := text[:start]; part != "" {
			if o.Quoted {
				part = strings.ReplaceAll(part, quoteMark, "")
			}
			out = t.kind.encode(e, part, first, out)
			first = false
		}
		if id != None {
			out = append(out, id)
			first = true
		}
		text = text[end:]
	}
	return out
}

// take returns an idle encoder or a new one.
func (t *Tokenizer) take() *encoder {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.idle); n > 0 {
		e := t.idle[n-1]
		t.idle = t.idle[:n-1]
		return e
	}
	return &encoder{merge: merger{pairs: t.kind.table()}}
}

// maxKeptSymbols bounds the memory that an idle encoder keeps after a long word.
const maxKeptSymbols = 1 << 14

// put makes e idle.
func (t *Tokenizer) put(e *encoder) {
	if cap(e.merge.syms) > maxKeptSymbols {
		e.merge.syms, e.merge.heap, e.starts, e.text = nil, nil, nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle) < maxIdle {
		t.idle = append(t.idle, e)
	}
}

// Len returns the number of tokens.
func (t *Tokenizer) Len() int { return len(t.vocab.Tokens) }

// BOS returns the id of the token that begins a text, [None] when there is none.
func (t *Tokenizer) BOS() int32 { return t.vocab.BOS }

// EOS returns the id of the token that ends a text, [None] when there is none.
func (t *Tokenizer) EOS() int32 { return t.vocab.EOS }

// AddsBOS reports whether the model wants its texts to begin with BOS.
func (t *Tokenizer) AddsBOS() bool { return t.vocab.AddBOS }

// EndOfGeneration reports whether a model that generates id has finished.
func (t *Tokenizer) EndOfGeneration(id int32) bool { return t.ends[id] }

// Ends returns the ids that end a generation, sorted.
func (t *Tokenizer) Ends() []int32 {
	ids := make([]int32, 0, len(t.ends))
	for id := range t.ends {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// ID returns the id of the token with this text, as the file writes it, and
// whether there is one.
func (t *Tokenizer) ID(text string) (int32, bool) {
	id, ok := t.ids[text]
	return id, ok
}

// Text returns the text of a token as the file writes it, "" for an id outside the
// vocabulary.
func (t *Tokenizer) Text(id int32) string {
	if !t.has(id) {
		return ""
	}
	return t.vocab.Tokens[id]
}

// Special reports whether id is a control token or the unknown token, which
// decoding leaves out unless asked.
func (t *Tokenizer) Special(id int32) bool {
	return t.has(id) && (t.types[id] == TypeControl || t.types[id] == TypeUnknown)
}

// HasSpecial reports whether text contains the text of a control token, which
// ParseSpecial would turn into that token. A caller with users that are not trusted
// can refuse their text.
func (t *Tokenizer) HasSpecial(text string) bool {
	for {
		_, end, id := t.parsed.next(text)
		if id == None || t.Special(id) {
			return id != None
		}
		text = text[end:]
	}
}

func (t *Tokenizer) has(id int32) bool { return id >= 0 && int(id) < len(t.pieces) }
