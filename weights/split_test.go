package weights

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// split writes small in n parts in a new folder.
func split(t *testing.T, n int) []string {
	t.Helper()
	paths, err := small().WriteSplit(filepath.Join(t.TempDir(), "m"), n)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestSplit opens a split model by each of its parts: the same tensors in the
// same order as the whole model has.
func TestSplit(t *testing.T) {
	file, err := small().Bytes()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Parse("whole.gguf", file)
	if err != nil {
		t.Fatal(err)
	}
	hash := ""
	for _, n := range []int{1, 2, 3, 16, 20} {
		paths := split(t, n)
		for i, path := range paths {
			f, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if f.Path() != path || len(f.Parts()) != n || f.Parts()[i] != path {
				t.Errorf("Path %s, Parts %v", f.Path(), f.Parts())
			}
			if len(f.Tensors()) != len(whole.Tensors()) {
				t.Fatalf("%d tensors, want %d", len(f.Tensors()), len(whole.Tensors()))
			}
			for k, want := range whole.Tensors() {
				if got := f.Tensors()[k]; got.String() != want.String() || !bytes.Equal(got.Data, want.Data) {
					t.Errorf("tensor %d is %v, want %v", k, got, want)
				}
			}
			if arch, err := f.Architecture(); arch != "llama" || err != nil {
				t.Errorf("architecture %q, %v", arch, err)
			}
			if i == 0 {
				hash = f.Hash()
			}
			if f.Hash() != hash {
				t.Error("Hash depends on the part that was opened")
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestBadSplit breaks a model of three parts in every way.
func TestBadSplit(t *testing.T) {
	rewrite := func(t *testing.T, path string, no, count, tensors any, name string) {
		t.Helper()
		w := new(Writer)
		w.Set(keySplitNo, no)
		w.Set(keySplitCount, count)
		w.Set(keySplitTensors, tensors)
		w.AddF32(name, []float32{1}, 1)
		if err := w.WriteFile(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		open   int // the part to open
		damage func(t *testing.T, paths []string)
		want   []string
	}{
		"missing":     {0, func(t *testing.T, p []string) { os.Remove(p[2]) }, []string{"m-00003-of-00003.gguf", "no such file", "all 3 parts", "one folder"}},
		"first gone":  {1, func(t *testing.T, p []string) { os.Remove(p[0]) }, []string{"m-00001-of-00003.gguf", "no such file"}},
		"broken":      {0, func(t *testing.T, p []string) { os.Truncate(p[1], 60) }, []string{"m-00002-of-00003.gguf", "cut short"}},
		"swapped":     {0, func(t *testing.T, p []string) { swap(t, p[1], p[2]) }, []string{"m-00002-of-00003.gguf", "are 2 and 3, want 1 and 3", "mixed up"}},
		"number":      {2, func(t *testing.T, p []string) { rewrite(t, p[0], 1, 3, 16, "x") }, []string{"m-00001-of-00003.gguf", `"split.no"`, "are 1 and 3, want 0 and 3"}},
		"count":       {0, func(t *testing.T, p []string) { rewrite(t, p[1], 1, 4, 16, "x") }, []string{"m-00002-of-00003.gguf", `"split.count"`, "are 1 and 4, want 1 and 3"}},
		"no count":    {0, func(t *testing.T, p []string) { os.WriteFile(p[1], *head(0, 1).key(keySplitNo, 1), 0o600) }, []string{"m-00002-of-00003.gguf", `no key "split.count"`}},
		"no number":   {0, func(t *testing.T, p []string) { rewrite(t, p[1], "one", 3, 16, "x") }, []string{"m-00002-of-00003.gguf", `"split.no" is string "one"`, "non-negative integer"}},
		"tensors":     {0, func(t *testing.T, p []string) { rewrite(t, p[2], 2, 3, 16, "x") }, []string{"m-00001-of-00003.gguf", "hold 11 tensors, want 16", `"split.tensors.count"`}},
		"tensors < 0": {0, func(t *testing.T, p []string) { rewrite(t, p[0], 0, 3, -1, "x") }, []string{"m-00001-of-00003.gguf", `"split.tensors.count" is i32 -1`}},
		"name":        {0, func(t *testing.T, p []string) { os.Rename(p[0], p[0]+".gguf") }, []string{"3 parts", "want a name that ends in -00001-of-00003.gguf"}},
		"no keys":     {1, func(t *testing.T, p []string) { w := small(); w.WriteFile(p[1]) }, []string{"one of 3 parts", `key "split.count" does not`}},
		"twice": {0, func(t *testing.T, p []string) {
			rewrite(t, p[0], 0, 3, 3, "x")
			rewrite(t, p[1], 1, 3, 3, "y")
			rewrite(t, p[2], 2, 3, 3, "x")
		}, []string{"m-00003-of-00003.gguf", `tensor "x" is also in`, "m-00001-of-00003.gguf"}},
	} {
		t.Run(name, func(t *testing.T) {
			paths := split(t, 3)
			c.damage(t, paths)
			path := paths[c.open]
			if name == "name" {
				path += ".gguf"
			}
			f, err := Open(path)
			if f != nil {
				t.Error("Open gave a file")
			}
			wantError(t, err, c.want...)
			if name == "missing" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%v is not fs.ErrNotExist", err)
			}
		})
	}
}

func swap(t *testing.T, a, b string) {
	t.Helper()
	for _, r := range [][2]string{{a, a + ".tmp"}, {b, a}, {a + ".tmp", b}} {
		if err := os.Rename(r[0], r[1]); err != nil {
			t.Fatal(err)
		}
	}
}
