package userfile

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// OpenError says which flag named a file that could not be opened, and what was
// expected there, for example "a GGUF file". The flag is empty for an argument.
// Errors about what is in a file pass unchanged.
func OpenError(flag, path, want string, err error) error {
	open := new(fs.PathError)
	if err == nil || !errors.As(err, &open) || open.Path != path {
		return err
	}
	if want == GGUF && errors.Is(err, fs.ErrNotExist) && elsewhere(path) {
		want += " of this machine: gollm downloads nothing, so fetch one before, for example with curl -LO"
	}
	if flag != "" {
		path = flag + " " + path
	}
	return fmt.Errorf("%s: %w, want %s", path, open.Err, want)
}

// GGUF is what is expected where a model is named.
const GGUF = "a GGUF file"

// elsewhere reports whether a path reads like the address of a model or like its name on
// Hugging Face.
func elsewhere(path string) bool {
	owner, name, ok := strings.Cut(path, "/")
	repository := ok && strings.Trim(owner, ".") != "" && name != "" && !strings.Contains(name, "/") && !strings.HasSuffix(name, ".gguf")
	return repository || strings.Contains(path, "://") || strings.HasPrefix(path, "huggingface.co/") || strings.HasPrefix(path, "hf.co/")
}
