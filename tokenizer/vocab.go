package tokenizer

import (
	"fmt"
	"math"
	"strings"
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

// maxTokenBytes bounds one token's text, so that a hostile vocabulary cannot make
// the tables take hours. The longest token of Llama-3 has 256 bytes.
const maxTokenBytes = 1024

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

// Metadata is the part of a GGUF file that a vocabulary is read from. Each method
// reports whether the key is there with a value of that kind; String also serves
// any other package that wants one key. Integers of any width are accepted.
type Metadata interface {
	String(key string) (string, bool)
	Uint(key string) (uint64, bool)
	Bool(key string) (bool, bool)
	Strings(key string) ([]string, bool)
	Floats(key string) ([]float32, bool)
	Ints(key string) ([]int32, bool)
}

// metadataPrefix begins every key that describes the tokenizer.
const metadataPrefix = "tokenizer.ggml."

// FromMetadata reads the vocabulary of a GGUF file. What the file leaves out gets
// the value that the kind of vocabulary implies.
func FromMetadata(m Metadata) (Vocab, error) {
	kind, ok := m.String(metadataPrefix + "model")
	if !ok {
		return Vocab{}, fmt.Errorf("tokenizer: key %smodel is missing: the file has no tokenizer", metadataPrefix)
	}
	v := Vocab{Model: kind, BOS: None, EOS: None, UNK: None, EOT: None, EOM: None}
	if v.Tokens, ok = m.Strings(metadataPrefix + "tokens"); !ok {
		return Vocab{}, fmt.Errorf("tokenizer: key %stokens is missing or not an array of strings", metadataPrefix)
	}
	v.Pre, _ = m.String(metadataPrefix + "pre")
	v.Scores, _ = m.Floats(metadataPrefix + "scores")
	v.Types, _ = m.Ints(metadataPrefix + "token_type")
	v.Merges, _ = m.Strings(metadataPrefix + "merges")
	v.setDefaults()
	if err := v.readSpecials(m); err != nil {
		return Vocab{}, err
	}
	setBool(m, "add_space_prefix", &v.AddSpacePrefix)
	v.AddBOS = v.AddBOS && v.BOS != None
	setBool(m, "add_bos_token", &v.AddBOS)
	setBool(m, "add_eos_token", &v.AddEOS)
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

// readSpecials reads the ids of special tokens.
func (v *Vocab) readSpecials(m Metadata) error {
	ids := []struct {
		key string
		id  *int32
	}{
		{"bos_token_id", &v.BOS}, {"eos_token_id", &v.EOS}, {"unknown_token_id", &v.UNK},
		{"eot_token_id", &v.EOT}, {"eom_token_id", &v.EOM},
	}
	for _, s := range ids {
		id, found, err := v.specialID(m, s.key)
		if err != nil {
			return err
		}
		if found {
			*s.id = id
		}
	}
	for _, key := range []string{"fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id"} {
		id, found, err := v.specialID(m, key)
		if err != nil {
			return err
		}
		if found {
			v.Ends = append(v.Ends, id)
		}
	}
	return nil
}

func (v *Vocab) specialID(m Metadata, key string) (id int32, found bool, err error) {
	n, ok := m.Uint(metadataPrefix + key)
	if !ok {
		return None, false, nil
	}
	if n >= uint64(len(v.Tokens)) {
		return None, false, fmt.Errorf("tokenizer: key %s%s is %d, but the vocabulary has %d tokens", metadataPrefix, key, n, len(v.Tokens))
	}
	return int32(n), true, nil
}

func setBool(m Metadata, key string, to *bool) {
	if b, ok := m.Bool(metadataPrefix + key); ok {
		*to = b
	}
}

// check reports the first thing in v that no tokenizer can be made from.
func (v *Vocab) check() error {
	if v.Model != ByteLevel && v.Model != SentencePiece {
		return fmt.Errorf("tokenizer: unknown model %q, supported are %q and %q", v.Model, ByteLevel, SentencePiece)
	}
	if _, ok := preTokenizers[v.Pre]; v.Model == ByteLevel && !ok {
		return fmt.Errorf("tokenizer: unknown pre-tokenizer %q, supported are %s", v.Pre, strings.Join(PreTokenizers(), ", "))
	}
	n := len(v.Tokens)
	if n == 0 || n > math.MaxInt32/2 {
		return fmt.Errorf("tokenizer: vocabulary has %d tokens, want at least one and fewer than 2^30", n)
	}
	if len(v.Types) != 0 && len(v.Types) != n {
		return fmt.Errorf("tokenizer: %d token types for %d tokens", len(v.Types), n)
	}
	if err := v.checkScores(); err != nil {
		return err
	}
	if v.Model == ByteLevel && len(v.Merges) == 0 {
		return fmt.Errorf("tokenizer: model %q has no merges", v.Model)
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
