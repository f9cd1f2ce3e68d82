package table

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gollm/gollm/eval/jsonl"
)

// Row is a row of a file.
type Row struct {
	JSON []byte // an object; it is good until the next row is read
	At   string // where it is: the file, and the line from 1 or the row from 0
}

// Files are the files of a data set in a folder, as its publisher or a mirror calls them:
// NAME.jsonl, NAME.parquet, or Parquet in parts, NAME_0.parquet, NAME/test-00000-of-00002.parquet
// and the like. Where several forms are there, the first of these is read. name is "" for the
// files of the folder itself; dir may also be one file, which is then all there is.
func Files(dir, name string) ([]string, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{dir}, nil
	}
	patterns := []string{name + ".jsonl", name + ".parquet", name + "_[0-9]*.parquet", name + "-[0-9]*.parquet", filepath.Join(name, "*.parquet"), filepath.Join(name, "*.jsonl")}
	if name == "" {
		patterns = []string{"*.parquet", "*.jsonl"}
	}
	found, err := match(os.DirFS(dir), patterns)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no data set %s: want one of %s", dir, name, strings.Join(patterns, ", "))
	}
	for i, f := range found {
		found[i] = filepath.Join(dir, filepath.FromSlash(f))
	}
	return found, nil
}

// match is the files of the first pattern that has any.
func match(dir fs.FS, patterns []string) ([]string, error) {
	for _, p := range patterns {
		found, err := fs.Glob(dir, filepath.ToSlash(p))
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			sortParts(found)
			return found, nil
		}
	}
	return nil, nil
}

// Rows are the rows of a file, in order; what its name ends with says which form it has. The
// last of them is an error where the file cannot be read on.
func Rows(path string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		file, size, err := open(path)
		if err != nil {
			yield(Row{}, err)
			return
		}
		defer file.Close()
		switch filepath.Ext(path) {
		case ".jsonl":
			lines(path, file, yield)
		case ".parquet":
			Parquet(path, file, size)(yield)
		default:
			yield(Row{}, fmt.Errorf("%s is neither NAME.jsonl nor NAME.parquet, the forms that data sets are read in", path))
		}
	}
}

// open opens a file of data. What is no file is refused before it is opened: that of a named
// pipe without a writer never ends.
func open(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is a folder, a pipe or a device, want a file", path)
	}
	file, err := os.Open(path)
	return file, info.Size(), err
}

// lines yields the lines of a file that are not empty.
func lines(path string, r io.Reader, yield func(Row, error) bool) {
	in := jsonl.NewReader(r)
	for {
		line, number, err := in.Next()
		if err == io.EOF {
			return
		}
		at := fmt.Sprintf("%s:%d", path, number)
		if err != nil {
			yield(Row{}, fmt.Errorf("%s: %w", at, err))
			return
		}
		if len(bytes.TrimSpace(line)) > 0 && !yield(Row{line, at}, nil) {
			return
		}
	}
}

// sortParts sorts the names of parts by their numbers: part 10 comes after part 9.
func sortParts(names []string) {
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
}
