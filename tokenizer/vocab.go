package tokenizer

import (
	"fmt"
	"strings"

	"github.com/gollm/gollm/internal/quote"
)

// The kinds of vocabulary, as tokenizer.ggml.model names them.
const (
	ByteLevel     = "gpt2"  // byte-level BPE with merges
	SentencePiece = "llama" // SentencePiece BPE with scores
)

// The token types of GGUF, the values of [Vocab.Types].
const (
	TypeNormal      = 1
	TypeUnknown     = 2
	TypeControl     = 3
	TypeUserDefined = 4
	TypeUnused      = 5
	TypeByte        = 6
)

// None stands for a token that the vocabulary does not have.
const None = int32(-1)

// Bounds on a vocabulary, so that a hostile one cannot make the tables take hours or all
// memory. Gemma 3 has 262,144 tokens and 514,906 merges; the longest token of Llama-3 has
// 256 bytes.
const (
	maxTokens     = 1 << 19
	maxMerges     = 1 << 22
	maxTokenBytes = 1024
)

// Vocab is a vocabulary as plain data. The zero value is not usable: start from
// [FromMetadata] or set every special id, [None] for an absent one.
type Vocab struct {
	Model string // ByteLevel or SentencePiece
	Pre   string // pre-tokenizer of a ByteLevel vocabulary; "" is "default"

	Tokens []string  // [n], in the byte alphabet for ByteLevel, with U+2581 for SentencePiece
	Scores []float32 // [n] for SentencePiece, else ignored
	Types  []int32   // [n] or empty when all are normal
	Merges []string  // "left right", best first, for ByteLevel

	BOS, EOS, UNK int32
	EOT, EOM      int32   // end of turn, end of message
	Ends          []int32 // further ids that end a generation

	AddBOS, AddEOS bool // what EncodeOptions.AddSpecial adds
	AddSpacePrefix bool // SentencePiece: a text begins with a space
}

// Metadata is the part of a GGUF file that a vocabulary is read from, as weights.File
// has it. Each getter fails, with the key and the file in its error, when the key is
// missing or has a value of another kind.
type Metadata interface {
	Has(key string) bool
	String(key string) (string, error)
	Uint(key string) (int, error)
	Bool(key string) (bool, error)
	Strings(key string) ([]string, error)
	Floats(key string) ([]float64, error)
	Ints(key string) ([]int, error)
}

// FromMetadata reads the vocabulary of a GGUF file. What the file leaves out gets
// the value that the kind of vocabulary implies.
func FromMetadata(m Metadata) (Vocab, error) {
	r := metadataReader{m: m}
	v := Vocab{Model: r.string("model"), BOS: None, EOS: None, UNK: None, EOT: None, EOM: None}
	if r.err == nil && !m.Has(metadataPrefix+"tokens") {
		return Vocab{}, fmt.Errorf("tokenizer: key %stokens is missing: the file has no vocabulary", metadataPrefix)
	}
	v.Tokens = optional(&r, "tokens", m.Strings)
	v.Pre = optional(&r, "pre", m.String)
	v.Merges = optional(&r, "merges", m.Strings)
	for _, s := range optional(&r, "scores", m.Floats) {
		v.Scores = append(v.Scores, float32(s))
	}
	for _, t := range optional(&r, "token_type", m.Ints) {
		v.Types = append(v.Types, int32(t))
	}
	v.setDefaults()
	r.specials(&v)
	r.bool("add_space_prefix", &v.AddSpacePrefix)
	v.AddBOS = v.AddBOS && v.BOS != None
	r.bool("add_bos_token", &v.AddBOS)
	r.bool("add_eos_token", &v.AddEOS)
	if r.err != nil {
		return Vocab{}, r.err
	}
	return v, nil
}

// setDefaults sets what the kind of vocabulary implies.
func (v *Vocab) setDefaults() {
	switch v.Model {
	case SentencePiece:
		v.AddBOS, v.AddSpacePrefix = true, true
		if len(v.Tokens) > 2 {
			v.UNK, v.BOS, v.EOS = 0, 1, 2
		}
	case ByteLevel:
		v.AddBOS = preTokenizers[v.Pre].addBOS
	}
}

// metadataPrefix begins every key that describes the tokenizer.
const metadataPrefix = "tokenizer.ggml."

// metadataReader reads keys until the first error, which it keeps.
type metadataReader struct {
	m   Metadata
	err error
}

// optional reads a key that may be missing.
func optional[T any](r *metadataReader, key string, get func(string) (T, error)) (value T) {
	key = metadataPrefix + key
	if r.err != nil || !r.m.Has(key) {
		return value
	}
	value, r.err = get(key)
	return value
}

func (r *metadataReader) string(key string) (s string) {
	s, r.err = r.m.String(metadataPrefix + key)
	return s
}

func (r *metadataReader) bool(key string, to *bool) {
	if r.m.Has(metadataPrefix + key) {
		*to = optional(r, key, r.m.Bool)
	}
}

// specials reads the ids of special tokens.
func (r *metadataReader) specials(v *Vocab) {
	ids := []struct {
		key string
		id  *int32
	}{
		{"bos_token_id", &v.BOS}, {"eos_token_id", &v.EOS}, {"unknown_token_id", &v.UNK},
		{"eot_token_id", &v.EOT}, {"eom_token_id", &v.EOM},
	}
	for _, s := range ids {
		if id, ok := r.id(s.key, len(v.Tokens)); ok {
			*s.id = id
		}
	}
	for _, key := range []string{"fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id"} {
		if id, ok := r.id(key, len(v.Tokens)); ok {
			v.Ends = append(v.Ends, id)
		}
	}
}

// id reads the id of a token of a vocabulary of n tokens.
func (r *metadataReader) id(key string, n int) (id int32, ok bool) {
	if !r.m.Has(metadataPrefix + key) {
		return None, false
	}
	got := optional(r, key, r.m.Uint)
	if r.err == nil && got >= n {
		r.err = fmt.Errorf("tokenizer: key %s%s is %d, but the vocabulary has %d tokens", metadataPrefix, key, got, n)
	}
	return int32(got), r.err == nil
}

// check reports the first thing in v that no tokenizer can be made from.
func (v *Vocab) check() error {
	if v.Model != ByteLevel && v.Model != SentencePiece {
		return fmt.Errorf("tokenizer: unknown model %s, supported are %q and %q", quote.Short(v.Model), ByteLevel, SentencePiece)
	}
	if _, ok := preTokenizers[v.Pre]; v.Model == ByteLevel && !ok {
		return fmt.Errorf("tokenizer: unknown pre-tokenizer %s, supported are %s", quote.Short(v.Pre), strings.Join(PreTokenizers(), ", "))
	}
	n := len(v.Tokens)
	if n == 0 || n > maxTokens {
		return fmt.Errorf("tokenizer: vocabulary has %d tokens, want 1 to %d", n, maxTokens)
	}
	if len(v.Types) != 0 && len(v.Types) != n {
		return fmt.Errorf("tokenizer: %d token types for %d tokens", len(v.Types), n)
	}
	if err := v.checkScores(); err != nil {
		return err
	}
	if n := len(v.Merges); v.Model == ByteLevel && (n == 0 || n > maxMerges) {
		return fmt.Errorf("tokenizer: model %q has %d merges, want 1 to %d", v.Model, n, maxMerges)
	}
	for id, t := range v.Tokens {
		if len(t) > maxTokenBytes {
			return fmt.Errorf("tokenizer: token %d has %d bytes, at most %d are supported", id, len(t), maxTokenBytes)
		}
	}
	return v.checkSpecials()
}

func (v *Vocab) checkScores() error {
	if v.Model != SentencePiece {
		return nil
	}
	if len(v.Scores) != len(v.Tokens) {
		return fmt.Errorf("tokenizer: %d scores for %d tokens, model %q needs one for each token", len(v.Scores), len(v.Tokens), v.Model)
	}
	for id, s := range v.Scores {
		if s != s {
			return fmt.Errorf("tokenizer: score of token %d is not a number", id)
		}
	}
	return nil
}

func (v *Vocab) checkSpecials() error {
	ids := []struct {
		name string
		id   int32
	}{{"BOS", v.BOS}, {"EOS", v.EOS}, {"UNK", v.UNK}, {"EOT", v.EOT}, {"EOM", v.EOM}}
	for _, id := range v.Ends {
		ids = append(ids, struct {
			name string
			id   int32
		}{"end", id})
	}
	for _, s := range ids {
		if s.id < None || int(s.id) >= len(v.Tokens) {
			return fmt.Errorf("tokenizer: %s token id %d is outside the vocabulary of %d tokens", s.name, s.id, len(v.Tokens))
		}
	}
	if v.AddBOS && v.BOS == None {
		return fmt.Errorf("tokenizer: a BOS token shall be added, but the vocabulary names none")
	}
	if v.AddEOS && v.EOS == None {
		return fmt.Errorf("tokenizer: an EOS token shall be added, but the vocabulary names none")
	}
	return nil
}
