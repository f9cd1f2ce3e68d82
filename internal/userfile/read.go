package userfile

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/console"
)

// Read returns the contents of the file that flag names, or of stdin where
// path is "" or "-"; want is what is expected in it.
func Read(cmd *cobra.Command, flag, path, want string) ([]byte, error) {
	if path != "" && path != "-" {
		b, err := ReadLimited(path, MaxText)
		return b, OpenError(flag, path, want, err)
	}
	return readWhole(cmd.InOrStdin(), "stdin", MaxText)
}

// The largest files that are read whole, in bytes.
const (
	MaxText = 1 << 30 // a prompt or a text to score
	MaxSpec = 1 << 20 // a description that somebody wrote
)

// ReadLimited returns the contents of a file of at most limit bytes; devices and
// pipes that never end are larger.
func ReadLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readWhole(f, path, limit)
}

// readWhole returns all of r, which errors call name, of at most limit bytes.
func readWhole(r io.Reader, name string, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", name, err)
	case int64(len(b)) > limit:
		return nil, tooLarge(name, limit)
	}
	return b, nil
}

func tooLarge(name string, limit int64) error {
	return fmt.Errorf("%s is larger than %s, the most that is read; give less", name, console.SizeText(limit))
}

// ReadLine returns the next line with its end, which errors call name, of at most limit
// bytes. The last line may come with io.EOF.
func ReadLine(r *bufio.Reader, name string, limit int64) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if int64(len(line)+len(part)) > limit {
			return "", tooLarge(name, limit)
		}
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			return string(line), err
		}
	}
}
