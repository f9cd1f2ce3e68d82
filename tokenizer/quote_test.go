package tokenizer

import "testing"

// TestQuote encodes texts that are part of a text of special tokens: they stay what they
// are without special tokens.
func TestQuote(t *testing.T) {
	tok, err := New(Vocab{
		Model: ByteLevel, Pre: "llama-bpe", Tokens: []string{"<", "|", "e", "o", "t", ">", "a", "<|eot|>", "<|eo|>", "user", "#", "eo", "<unk>"},
		Types:  []int32{1, 1, 1, 1, 1, 1, 1, TypeControl, TypeControl, TypeUserDefined, TypeControl, 1, TypeUnknown},
		Merges: []string{"e o"}, BOS: None, EOS: None, UNK: 12, EOT: None, EOM: None,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "a", "<|eot|>", "a<|eot|>a<|eo|><|eot|>", "<<|eot|>", "<|eo<|eot|>t|>", "auser<|eot|>"} {
		quoted, err := tok.Quote(text)
		if err != nil {
			t.Fatal(err)
		}
		want := tok.Encode(text, EncodeOptions{})
		all := tok.Encode("<|eot|>"+quoted+"<|eo|>", EncodeOptions{ParseSpecial: true, Quoted: true})
		if all[0] != 7 || all[len(all)-1] != 8 || len(all) != len(want)+2 {
			t.Fatalf("%q becomes %v, want %v between 7 and 8", text, all, want)
		}
		for i, id := range want {
			if all[i+1] != id {
				t.Errorf("%q becomes %v, want %v between 7 and 8", text, all, want)
			}
		}
	}
	for _, text := range []string{"a\uFDD0", "a#"} {
		if _, err := tok.Quote(text); err == nil {
			t.Errorf("%q is quoted", text)
		}
	}
}
