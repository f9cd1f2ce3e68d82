package tokenizer

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzTokenize checks, for any bytes and both kinds of vocabulary, that the text
// reads back, that a stream gives it as valid UTF-8, and that parsing special tokens
// keeps the ids in range.
func FuzzTokenize(f *testing.F) {
	for _, seed := range []string{
		"", " ", "Hello world", "  two  spaces ", "\n\n\t x", "don't WE'LL", "1234567890", "a€😀\u200d", "\xff\xfe", "\xe2\x82",
		"<s>ab</s>", "<|eot_id|><|begin_of_text|>", "▁▁a", "<0x0A>", strings.Repeat("a", 300), "中文\u3000日本", "e\u0301 ²½Ⅷ", "\x00",
	} {
		f.Add(seed)
	}
	toks := []*Tokenizer{mustNew(f, tinyBytes()), mustNew(f, tinyPieces())}
	for _, name := range sharedVocabs {
		if _, err := os.Stat("../../shared/data/tokenizer/" + name + ".gguf"); err == nil {
			toks = append(toks, sharedTokenizer(f, "tokenizer/"+name+".gguf"))
		}
	}
	for _, pre := range []string{"default", "gpt-2", "tekken", "qwen2", "smollm"} {
		v := tinyBytes()
		v.Pre = pre
		toks = append(toks, mustNew(f, v))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range toks {
			checkRoundTrip(t, tok, text)
		}
	})
}

func checkRoundTrip(t *testing.T, tok *Tokenizer, text string) {
	for _, id := range tok.Encode(text, EncodeOptions{AddSpecial: true, ParseSpecial: true}) {
		if !tok.has(id) {
			t.Fatalf("%q gives id %d of %d", text, id, tok.Len())
		}
	}
	want := text
	if tok.vocab.Model == SentencePiece {
		want = strings.ReplaceAll(text, spaceMark, " ")
	}
	ids := tok.Encode(text, EncodeOptions{})
	if got := tok.Decode(ids, DecodeOptions{}); got != want {
		t.Fatalf("%q reads back as %q", text, got)
	}
	s := tok.Stream(DecodeOptions{})
	var b strings.Builder
	for _, id := range ids {
		piece := s.Next(id)
		if !utf8.ValidString(piece) {
			t.Fatalf("%q: id %d streams %q", text, id, piece)
		}
		b.WriteString(piece)
	}
	b.WriteString(s.Flush())
	if want = valid([]byte(want)); b.String() != want {
		t.Fatalf("%q streams as %q", want, b.String())
	}
}
