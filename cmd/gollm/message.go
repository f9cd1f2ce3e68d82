package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// Libraries say which package an error comes from, as Go's own do; a user has no
// use for that, and with two packages it reads "model: weights: FILE: ...". This
// file is the one place where an error becomes a line for people.

// packagePrefix matches the name of a package of this module before what it
// says, at the beginning of an error or of a wrapped one.
var packagePrefix = regexp.MustCompile(`(^|: )((?:chat|cpu|cuda|device|engine|eval|jsonl|kernel|kvcache|lineedit|longbench|metric|model|needle|npy|page|preset|punkt|quote|ruler|sparse|tokenizer|trial|weights): )+`)

// message is one line for people: without names of packages, and with "; "
// between errors that happened together. What a file's name or contents would tell
// the terminal to do is shown, not done, and an endless name loses its middle.
func message(err error) string {
	text := packagePrefix.ReplaceAllString(err.Error(), "$1")
	return elide(oneLine(strings.ReplaceAll(text, "\n", "; ")), maxMessage)
}

// maxMessage is the characters of a line about an error.
const maxMessage = 2000

// fileError says which flag named a file that could not be opened, and what was
// expected there, for example "a GGUF file". The flag is empty for an argument.
// Errors about what is in a file pass unchanged.
func fileError(flag, path, want string, err error) error {
	open := new(fs.PathError)
	if err == nil || !errors.As(err, &open) || open.Path != path {
		return err
	}
	if want == ggufFile && errors.Is(err, fs.ErrNotExist) && elsewhere(path) {
		want += " of this machine: gollm downloads nothing, so fetch one before, for example with curl -LO"
	}
	if flag != "" {
		path = flag + " " + path
	}
	return fmt.Errorf("%s: %w, want %s", path, open.Err, want)
}

// ggufFile is what is expected where a model is named.
const ggufFile = "a GGUF file"

// elsewhere reports whether a path reads like the address of a model or like its name on
// Hugging Face.
func elsewhere(path string) bool {
	owner, name, ok := strings.Cut(path, "/")
	repository := ok && strings.Trim(owner, ".") != "" && name != "" && !strings.Contains(name, "/") && !strings.HasSuffix(name, ".gguf")
	return repository || strings.Contains(path, "://") || strings.HasPrefix(path, "huggingface.co/") || strings.HasPrefix(path, "hf.co/")
}
