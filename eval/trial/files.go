package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// A folder of a run may be somebody else's: its manifest names files, and what stands
// under a name may be a link. Whatever is read or written in one is therefore opened
// through an [os.Root], which no name and no link leads out of.

// InFolder opens the folder of a run for f, which works on the file of that name in it.
func InFolder(folder, name string, f func(root *os.Root) error) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	err = f(root)
	if err == nil {
		return nil
	}
	if link := linkOut(root, name); link != "" {
		return fmt.Errorf("trial: %s is a link that leads out of the folder of the run; put what it leads to in its place", filepath.Join(folder, link))
	}
	where, moved := new(os.PathError), new(os.LinkError)
	switch path := filepath.Join(folder, name); { // and not a path in the folder, or that of a file beside it
	case errors.As(err, &where):
		where.Path = path
	case errors.As(err, &moved):
		moved.New = path
	}
	return err
}

// linkOut is the part of a name that is a link out of the root, "" where there is none.
func linkOut(root *os.Root, name string) string {
	for part := ""; part != name; {
		rest := strings.TrimPrefix(name[len(part):], string(filepath.Separator))
		first, _, _ := strings.Cut(rest, string(filepath.Separator))
		part = filepath.Join(part, first)
		info, err := root.Lstat(part)
		if err != nil {
			return ""
		}
		if info.Mode()&os.ModeSymlink == 0 {
			continue
		}
		if _, err := root.Stat(part); err != nil && !errors.Is(err, os.ErrNotExist) {
			return part
		}
	}
	return ""
}

// maxFile is the bytes of the longest file that is read from the folder of a run, but for
// prompts, which are as long as lengths and samples make them: answers to ten thousand
// samples take a hundredth of it.
const maxFile = 1 << 30

// ReadFile reads a file in the folder of a run. What is no file is refused before it is
// opened: a named pipe without a writer never ends. So is what is longer than any that a
// run writes, which would take all memory.
func ReadFile(folder, name string) (b []byte, err error) {
	err = InFolder(folder, name, func(root *os.Root) error {
		info, err := root.Stat(name)
		if err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("trial: %s is a folder, a pipe or a device, want a file", filepath.Join(folder, name))
		}
		if most := longest(name); err == nil && info.Size() > most {
			return fmt.Errorf("trial: %s has %d bytes, want at most %d; no run of gollm writes that", filepath.Join(folder, name), info.Size(), most)
		}
		if err != nil {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		b, err = io.ReadAll(io.LimitReader(f, longest(name)))
		return err
	})
	return b, err
}

// longest is the bytes of the longest file of that name.
func longest(name string) int64 {
	if strings.HasPrefix(filepath.ToSlash(name), PromptsName+"/") {
		return math.MaxInt64
	}
	return maxFile
}

// Has reports whether there is a file of that name in the folder of a run. A link that
// leads out of it is an error.
func Has(folder, name string) (bool, error) {
	err := InFolder(folder, name, func(root *os.Root) error {
		_, err := root.Stat(name)
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// makeParent makes the folders of a file.
func makeParent(root *os.Root, name string) error {
	if dir := filepath.Dir(name); dir != "." {
		return root.MkdirAll(dir, 0o777)
	}
	return nil
}

// writeFile writes v as JSON so that the file is there in whole or not at all.
func writeFile(folder, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(folder, name, append(b, '\n'))
}

// WriteFile writes a file in a folder, with the folders that its name has, so that it is
// there in whole or not at all: what reads it meanwhile, or after a kill, has the one
// before. A link in the folder does not lead it elsewhere.
func WriteFile(folder, name string, b []byte) error {
	return InFolder(folder, name, func(root *os.Root) error {
		if err := makeParent(root, name); err != nil {
			return err
		}
		part := filepath.Join(filepath.Dir(name), fmt.Sprintf(".part-%016x", rand.Uint64()))
		f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(b)
		err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
		if err == nil {
			err = root.Rename(part, name)
		}
		if err != nil {
			return errors.Join(err, root.Remove(part))
		}
		return nil
	})
}
