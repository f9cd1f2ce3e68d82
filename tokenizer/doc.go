// Package tokenizer turns text into token ids and token ids into text, from the
// vocabulary that a GGUF file carries.
//
// The few types:
//
//   - [Vocab]: the vocabulary as plain data; [FromMetadata] fills it from a file.
//   - [Tokenizer]: made once by [New], safe for concurrent use; [Tokenizer.Encode]
//     and [Tokenizer.Decode].
//   - [Stream]: decodes one id at a time and never shows half a character.
//
// Two kinds of vocabulary exist. Kind "gpt2" is byte-level BPE: text is cut into
// words by a pre-tokenizer (split.go), a word's bytes are merged by rank. Kind
// "llama" is SentencePiece BPE: text is cut only where no token can cross, its
// characters are merged by score, characters without a token become bytes.
// Both run the same merge loop (merge.go).
//
// The rules:
//
//  1. The ids are those of llama.cpp for every valid UTF-8 text, except that a
//     BOS that the text already has is not doubled, and that tekken splits by the
//     pattern that the model was trained with.
//  2. Invalid UTF-8 is kept, not replaced: each stray byte becomes a byte token,
//     so that Decode(Encode(s)) == s for every s. The exceptions are those of
//     SentencePiece itself: U+2581 reads back as a space, and a space appears
//     after a special token inside the text.
//  3. Special tokens in a text are parsed only when [EncodeOptions] asks for it.
//  4. The time is n log n in the length of the text at worst.
//
// From sugarme/tokenizer comes the byte alphabet. Its merge table,
// a map of pairs, is not used: filling it takes longer than all of [New]. Its merge
// loop, pre-tokenizers, added tokens and decoders give other ids than llama.cpp or
// take quadratic time; merge.go, split.go, special.go and decode.go replace them.
//
// Start reading at vocab.go, then tokenizer.go, then merge.go.
package tokenizer
