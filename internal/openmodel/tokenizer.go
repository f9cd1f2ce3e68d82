package openmodel

import (
	"fmt"

	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/weights"
)

// OpenTokenizer reads the tokenizer of a GGUF file.
func OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	f, err := weights.Open(path)
	if err != nil {
		return nil, userfile.OpenError("-m", path, userfile.GGUF, err)
	}
	defer f.Close()
	return FileTokenizer(f)
}

// FileTokenizer makes the tokenizer of an open file.
func FileTokenizer(f *weights.File) (*tokenizer.Tokenizer, error) {
	vocab, err := tokenizer.FromMetadata(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path(), err)
	}
	tok, err := tokenizer.New(vocab)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path(), err)
	}
	return tok, nil
}
