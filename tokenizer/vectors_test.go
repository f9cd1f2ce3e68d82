package tokenizer

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPublicVectors checks the test strings that llama.cpp publishes for its own
// tokenizers.
func TestPublicVectors(t *testing.T) {
	for _, name := range []string{"llama-bpe", "llama-spm"} {
		t.Run(name, func(t *testing.T) {
			tok := sharedTokenizer(t, "tokenizer/"+name+".gguf")
			inputs := strings.SplitAfter(readShared(t, "tokenizer/"+name+".inp"), "\n__ggml_vocab_test__\n")
			lines := strings.SplitAfter(readShared(t, "tokenizer/"+name+".out"), "\n")
			if len(inputs) != 47 || len(lines) != 47 || inputs[46] != "" {
				t.Fatalf("%d inputs and %d lines of output, want 46 of each", len(inputs), len(lines))
			}
			for i, text := range inputs[:46] {
				text = strings.TrimSuffix(text, "\n__ggml_vocab_test__\n")
				want := parseIDs(t, lines[i])
				if got := tok.Encode(text, EncodeOptions{}); !slices.Equal(got, want) {
					t.Errorf("%q: got %v, want %v", text, got, want)
				}
			}
		})
	}
}

func parseIDs(t *testing.T, line string) []int32 {
	t.Helper()
	var ids []int32
	for _, f := range strings.Fields(line) {
		var id int32
		if _, err := fmt.Sscan(f, &id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// TestRoundTripBook checks that a whole book reads back as it was.
func TestRoundTripBook(t *testing.T) {
	book := readShared(t, "text/war-and-peace.txt")
	for _, name := range []string{"llama-bpe", "llama-spm"} {
		tok := sharedTokenizer(t, "tokenizer/"+name+".gguf")
		ids := tok.Encode(book, EncodeOptions{})
		if tok.Decode(ids, DecodeOptions{}) != book {
			t.Errorf("%s: the book of %d bytes changed", name, len(book))
		}
		t.Logf("%s: %d bytes, %d ids", name, len(book), len(ids))
	}
}

// peerVectors is a file of testdata, written by scripts/tokenizer-vectors.py.
type peerVectors struct {
	Cases []struct {
		Text, Hex string
		Special   int
		IDs       []int32
	}
	Runs []struct {
		Text string
		IDs  [][]int32
	}
	Book struct {
		Count  int
		SHA256 string
	}
	Ends   []int32
	Pieces string
}

func readVectors(t *testing.T, name string) (v peerVectors) {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&v); err != nil {
		t.Fatal(err)
	}
	if len(v.Cases) < 200 || len(v.Runs) < 4 || len(v.Ends) == 0 {
		t.Fatalf("%s: only %d cases and %d runs", name, len(v.Cases), len(v.Runs))
	}
	return v
}

// TestPeerVectors checks the ids that llama.cpp gives.
func TestPeerVectors(t *testing.T) {
	bpe := sharedVocab(t, "tokenizer/llama-bpe.gguf")
	for _, name := range []string{"llama-bpe", "llama-spm", "gpt-2", "default", "smaug-bpe", "tekken", "qwen2", "smollm"} {
		t.Run(name, func(t *testing.T) {
			v := bpe
			v.Pre = name
			if name == "llama-spm" {
				v = sharedVocab(t, "tokenizer/llama-spm.gguf")
			}
			tok, err := New(v)
			if err != nil {
				t.Fatal(err)
			}
			checkPeerVectors(t, tok, readVectors(t, name))
		})
	}
}

func checkPeerVectors(t *testing.T, tok *Tokenizer, v peerVectors) {
	for _, c := range v.Cases {
		if c.Hex != "" {
			checkInvalid(t, tok, c.Hex, c.IDs)
			continue
		}
		got := tok.Encode(c.Text, EncodeOptions{ParseSpecial: c.Special == 1})
		if !slices.Equal(got, c.IDs) {
			t.Errorf("%q, special %d: got %v, want %v", c.Text, c.Special, got, c.IDs)
		}
	}
	for _, r := range v.Runs {
		if len(r.IDs) != 257 {
			t.Fatalf("%q: %d runs, want 257", r.Text, len(r.IDs))
		}
		for i, want := range r.IDs {
			if got := tok.Encode(strings.Repeat(r.Text, i+1), EncodeOptions{}); !slices.Equal(got, want) {
				t.Errorf("%d times %q: got %v, want %v", i+1, r.Text, got, want)
			}
		}
	}
	if !slices.Equal(tok.Ends(), v.Ends) {
		t.Errorf("ends: got %v, want %v", tok.Ends(), v.Ends)
	}
	if got := piecesHash(tok); got != v.Pieces {
		t.Errorf("pieces of all tokens: hash %s, want %s", got, v.Pieces)
	}
	if v.Book.Count == 0 {
		return
	}
	ids := tok.Encode(readShared(t, "text/war-and-peace.txt"), EncodeOptions{})
	if got := idsHash(ids); len(ids) != v.Book.Count || got != v.Book.SHA256 {
		t.Errorf("book: got %d ids with hash %s, want %d with %s", len(ids), got, v.Book.Count, v.Book.SHA256)
	}
}

// checkInvalid checks bytes that are no UTF-8. llama.cpp replaces them by U+FFFD
// (byte level) or lets them swallow what follows (SentencePiece); here they are
// kept, so its ids are those of the replaced text, or decode to the same bytes.
func checkInvalid(t *testing.T, tok *Tokenizer, digits string, want []int32) {
	t.Helper()
	raw, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if got := tok.Decode(tok.Encode(text, EncodeOptions{}), DecodeOptions{}); got != text {
		t.Errorf("%q reads back as %q", text, got)
	}
	if tok.vocab.Model == ByteLevel {
		text = string([]rune(text))
		if got := tok.Encode(text, EncodeOptions{}); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func idsHash(ids []int32) string {
	h := sha256.New()
	binary.Write(h, binary.LittleEndian, ids)
	return hex.EncodeToString(h.Sum(nil))
}

func piecesHash(tok *Tokenizer) string {
	h := sha256.New()
	for id := range int32(tok.Len()) {
		piece := tok.Decode([]int32{id}, DecodeOptions{ShowSpecial: true, Continued: true})
		binary.Write(h, binary.LittleEndian, int32(len(piece)))
		h.Write([]byte(piece))
	}
	return hex.EncodeToString(h.Sum(nil))
}
