//go:build unix

package weights

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cut opens a model of two parts' worth of pages and cuts its file to size bytes.
func cut(t *testing.T, size int64) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cut.gguf")
	w := small()
	w.AddF32("last", make([]float32, 1<<16), 1<<16)
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return f
}

// readLast reads the last byte of the file.
func readLast(f *File) error {
	data := f.Tensors()[len(f.Tensors())-1].Data
	if data[len(data)-1] != 0 {
		return errors.New("another byte")
	}
	return nil
}

// TestCutWhileInUse reads what a file no longer has: an error that names it, also where
// the file was closed on the way out.
func TestCutWhileInUse(t *testing.T) {
	for name, read := range map[string]func(f *File) error{
		"open": readLast,
		"closed": func(f *File) error {
			defer f.Close()
			return readLast(f)
		},
		"hash": func(f *File) error { f.Hash(); return nil },
	} {
		f := cut(t, 5000)
		path, size := f.Path(), f.Size()
		err := Guarded(func() error { return read(f) })
		wantError(t, err, path, "cut short while it was in use", "5000 now", "rename")
		if name == "open" && size < 1<<18 {
			t.Errorf("a file of %d bytes", size)
		}
	}
}

// TestOverwrittenWhileInUse: a file that was cut and is whole again by the time of the
// error is not said to be cut.
func TestOverwrittenWhileInUse(t *testing.T) {
	f := cut(t, 5000)
	size := f.Size()
	err := Guarded(func() (err error) {
		defer func() { // between the fault and the error, as another program may be
			if err := os.Truncate(f.Path(), size); err != nil {
				t.Fatal(err)
			}
		}()
		return readLast(f)
	})
	wantError(t, err, f.Path(), "could not be read while the file was in use", "overwritten")
}

// TestOtherPanicsGoOn: Guarded is for files alone.
func TestOtherPanicsGoOn(t *testing.T) {
	var none *File
	for name, f := range map[string]func() error{
		"nil":     func() error { return errors.New(none.path) },
		"bounds":  func() error { return errors.New(strings.Repeat("x", len(os.Args))[1000:]) },
		"a value": func() error { panic("a value") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			err := Guarded(f)
			t.Errorf("%s: %v", name, err)
		}()
	}
	want := errors.New("an error")
	if err := Guarded(func() error { return want }); err != want {
		t.Errorf("%v, want %v", err, want)
	}
}

// TestMappingsAreForgotten: files that were closed before another is opened leave nothing
// behind.
func TestMappingsAreForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.gguf")
	if err := small().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	left := slices.DeleteFunc(slices.Clone(mappings.all), func(m *mapping) bool { return m.path != path })
	if len(left) > 1 {
		t.Errorf("%d mappings of %s are kept", len(left), path)
	}
}
