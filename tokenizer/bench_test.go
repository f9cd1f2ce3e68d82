package tokenizer

import (
	"strings"
	"testing"
)

var benchVocabs = []string{"llama-bpe", "llama-spm"}

// BenchmarkNew is what the tokenizer adds to the start of the program.
func BenchmarkNew(b *testing.B) {
	for _, name := range benchVocabs {
		b.Run(name, func(b *testing.B) {
			v := sharedVocab(b, "tokenizer/"+name+".gguf")
			b.ResetTimer()
			for b.Loop() {
				if _, err := New(v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncode encodes a book with and without the words of an earlier run.
func BenchmarkEncode(b *testing.B) {
	book := readShared(b, "text/war-and-peace.txt")
	texts := map[string]string{"500KB": book[:500_000], "book": book}
	for _, name := range benchVocabs {
		tok := sharedTokenizer(b, "tokenizer/"+name+".gguf")
		for _, size := range []string{"500KB", "book"} {
			text := texts[size]
			b.Run(name+"/cold/"+size, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					tok.idle = nil
					tok.Encode(text, EncodeOptions{})
				}
			})
			b.Run(name+"/warm/"+size, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					tok.Encode(text, EncodeOptions{})
				}
			})
		}
	}
}

// BenchmarkLongWord encodes 1 MB without a break.
func BenchmarkLongWord(b *testing.B) {
	words := map[string]string{
		"a":   strings.Repeat("a", 1<<20),
		"mix": strings.Repeat("abcdefghijklmnopqrstuvwxyzETAOINSHRDLU", 1<<20/38+1)[:1<<20],
	}
	for _, name := range benchVocabs {
		tok := sharedTokenizer(b, "tokenizer/"+name+".gguf")
		for _, kind := range []string{"a", "mix"} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(1 << 20)
				for b.Loop() {
					tok.Encode(words[kind], EncodeOptions{})
				}
			})
		}
	}
}

// BenchmarkDecode decodes the ids of a book.
func BenchmarkDecode(b *testing.B) {
	book := readShared(b, "text/war-and-peace.txt")
	for _, name := range benchVocabs {
		tok := sharedTokenizer(b, "tokenizer/"+name+".gguf")
		ids := tok.Encode(book, EncodeOptions{})
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(book)))
			for b.Loop() {
				tok.Decode(ids, DecodeOptions{})
			}
		})
	}
}
