package userfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/internal/console"
)

func TestFileErrorNamesFlagAndWhatWasExpected(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := os.Open(missing)
	wrapped := fmt.Errorf("weights: %w", err)
	if got, want := console.Message(OpenError("-m", missing, "a GGUF file", wrapped)), "-m "+missing+": no such file or directory, want a GGUF file"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := OpenError("-m", missing, "a GGUF file", wrapped); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is no fs.ErrNotExist", err)
	}
	other := errors.New("the file is cut short")
	if got := OpenError("-m", missing, "a GGUF file", other); got != other {
		t.Errorf("%v, want it unchanged", got)
	}
	if got := OpenError("-m", "part-1", "a GGUF file", err); !errors.Is(got, err) || strings.Contains(got.Error(), "-m") {
		t.Errorf("%v: another file than the flag's is not the flag's", got)
	}
}
