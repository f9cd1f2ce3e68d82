package userfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"github.com/gollm/gollm/internal/usage"
)

// Named is a file and the flag that names it.
type Named struct{ Flag, Path string }

// file reports whether the name is one, and not nothing, stdin or stdout.
func (n Named) file() bool { return n.Path != "" && n.Path != "-" }

// CheckOutputs refuses a command line that would write over what it reads, or
// twice to one file: the one would be destroyed before it was read, the other
// lost.
func CheckOutputs(inputs []Named, outputs ...Named) error {
	for i, out := range outputs {
		for j, other := range append(outputs[:i:i], inputs...) {
			fresh := j < i && filepath.Clean(out.Path) == filepath.Clean(other.Path)
			if out.file() && other.file() && (sameFile(out.Path, other.Path) || fresh && !Exists(out.Path)) {
				return usage.Errorf("%s %s is the file of %s too; write to another one", out.Flag, out.Path, other.Flag)
			}
		}
	}
	return nil
}

// sameFile reports whether two names are of one file. Devices and pipes can be
// named as often as one likes.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil || !x.Mode().IsRegular() {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// Exists reports whether there is something of a name.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Out is a file that a command writes. Until it is finished what stood at its
// path stays as it was; devices, pipes and files in a folder that takes no new
// ones are written where they are, and never removed.
type Out struct {
	*os.File
	target   string // where the file goes; empty where it is written in place
	finished bool
}

// Create begins the file that a flag names.
func Create(flag, path string) (*Out, error) {
	f, err := openOut(path)
	if err != nil {
		open := new(fs.PathError)
		if errors.As(err, &open) {
			open.Path = path // and not that of the file beside it
		}
		return nil, OpenError(flag, path, "a file that can be written", err)
	}
	return f, nil
}

func openOut(path string) (*Out, error) {
	target, mode := path, fs.FileMode(0)
	info, err := os.Stat(path)
	if err == nil {
		if !info.Mode().IsRegular() {
			return inPlace(path)
		}
		if target, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err
		}
		mode = info.Mode().Perm()
		if probe, err := os.OpenFile(target, os.O_WRONLY, 0); err != nil { // a read-only file stays
			return nil, err
		} else if err := probe.Close(); err != nil {
			return nil, err
		}
	} else if _, linkErr := os.Lstat(path); linkErr == nil { // a link to what is not there yet
		return inPlace(path)
	}
	f, err := openPart(fmt.Sprintf("%s.part-%08x", target, rand.Uint32()))
	if err != nil {
		if mode != 0 {
			return inPlace(path)
		}
		return nil, err
	}
	if mode != 0 {
		err = f.Chmod(mode)
	}
	o := &Out{File: f, target: target}
	if err != nil {
		return nil, o.Finish(err)
	}
	return o, nil
}

// parts are the files that are being written beside their targets, which a program
// that ends in the middle must not leave there.
var parts = struct {
	sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// openPart makes such a file.
func openPart(name string) (*os.File, error) {
	parts.Lock()
	defer parts.Unlock()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err == nil {
		parts.names[name] = true
	}
	return f, err
}

// DropParts removes the files that are not finished, for a program that ends now:
// the lock is kept, so that none is begun or put in its place afterwards.
func DropParts() {
	parts.Lock()
	for name := range parts.names {
		_ = os.Remove(name) // nobody is left to tell
	}
}

// inPlace opens what is written where it is.
func inPlace(path string) (*Out, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	return &Out{File: f}, err
}

// Drop removes the file where it was not finished; o may be nil. Commands that work
// for minutes open what they write before, and have this for when they fail.
func (o *Out) Drop() {
	if o != nil && !o.finished {
		_ = o.Finish(errUnfinished) // which the command has told already
	}
}

// errUnfinished is why a file is dropped.
var errUnfinished = errors.New("the command ended before")

// Finish closes the file and puts it in its place; where the writing ended with
// err it is removed instead.
func (o *Out) Finish(err error) error {
	o.finished = true
	err = errors.Join(err, o.Close())
	if o.target == "" {
		return err
	}
	parts.Lock()
	defer parts.Unlock()
	delete(parts.names, o.Name())
	if err == nil {
		err = os.Rename(o.Name(), o.target)
	}
	if err != nil {
		return errors.Join(err, os.Remove(o.Name()))
	}
	return nil
}
