package tokenizer

import (
	"fmt"
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
