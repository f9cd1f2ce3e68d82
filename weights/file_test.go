package weights

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ollama/ollama/fs/ggml"

	"github.com/gollm/gollm/device"
)

// good lists the model and vocabulary files that other programs wrote.
func good(tb testing.TB) []string {
	tb.Helper()
	paths, err := filepath.Glob("../../shared/data/*/*.gguf")
	if err != nil {
		tb.Fatal(err)
	}
	if len(paths) == 0 && os.Getenv("CI") == "true" {
		tb.Fatal("no files match ../shared/data/*/*.gguf beside the repository")
	}
	if len(paths) == 0 {
		tb.Skip("no files match ../shared/data/*/*.gguf beside the repository")
	}
	return paths
}

// TestGoodFiles compares every tensor with the bytes of the file at the place
// that fs/ggml gives, and some metadata with its getters.
func TestGoodFiles(t *testing.T) {
	for _, path := range good(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Size() != int64(len(data)) || f.Path() != path || len(f.Parts()) != 1 {
				t.Errorf("Size %d, Path %s, Parts %v", f.Size(), f.Path(), f.Parts())
			}
			g, err := ggml.Decode(bytes.NewReader(data), -1)
			if err != nil {
				t.Fatal(err)
			}
			sameTensors(t, f, g, data)
			sameMetadata(t, f, g.KV())
		})
	}
}

// sameTensors compares f's tensors with those of g, an independent reading of
// data.
func sameTensors(t *testing.T, f *File, g *ggml.GGML, data []byte) {
	t.Helper()
	items := g.Tensors().Items()
	if len(items) != len(f.Tensors()) {
		t.Fatalf("%d tensors, want %d", len(f.Tensors()), len(items))
	}
	for i, want := range items {
		x := f.Tensors()[i]
		if x.Name != want.Name {
			t.Errorf("tensor %d is %s, want %s", i, x.Name, want.Name)
		}
		if got, err := f.Tensor(want.Name); (err == nil) != x.Supported() || err == nil && got.String() != x.String() {
			t.Errorf("Tensor gives %v and %v, want %v", got, err, x)
		}
		if name := ggml.TensorType(want.Kind).String(); x.DType.String() != name && name != "unknown" {
			t.Errorf("%s, want type %s", x, name)
		}
		if uint64(x.Len()) != want.Elements() || x.Shape[len(x.Shape)-1] != int(want.Shape[0]) {
			t.Errorf("%s, want the reverse of %v", x, want.Shape)
		}
		at := g.Tensors().Offset + want.Offset
		if !bytes.Equal(x.Data, data[at:at+want.Size()]) {
			t.Errorf("%s: other bytes than at offset %d", x, at)
		}
	}
}

// sameMetadata compares the keys and what the getters of fs/ggml can read.
func sameMetadata(t *testing.T, f *File, kv ggml.KV) {
	t.Helper()
	if n := kv.Len() - 1; len(f.Keys()) != n { // Decode adds general.parameter_count
		t.Errorf("%d keys, want %d", len(f.Keys()), n)
	}
	for _, key := range f.Keys() {
		switch want := kv.Value(key).(type) {
		case string:
			if got, err := f.String(key); got != want || err != nil {
				t.Errorf("%s: %q, %v, want %q", key, got, err, want)
			}
		case uint32:
			if got, err := f.Uint(key); got != int(want) || err != nil {
				t.Errorf("%s: %d, %v, want %d", key, got, err, want)
			}
		case float32:
			if got, err := f.Float(key); got != float64(want) || err != nil {
				t.Errorf("%s: %v, %v, want %v", key, got, err, want)
			}
		}
	}
	tokens, err := f.Strings("tokenizer.ggml.tokens")
	if want := kv.Strings("tokenizer.ggml.tokens"); err != nil || len(want) == 0 || !slices.Equal(tokens, want) {
		t.Errorf("%d tokens, %v, want the %d of fs/ggml", len(tokens), err, len(want))
	}
	kinds, err := f.Ints("tokenizer.ggml.token_type")
	want := kv.Ints("tokenizer.ggml.token_type")
	if err != nil || len(kinds) != len(want) || len(want) == 0 {
		t.Fatalf("%d token types, %v, want %d", len(kinds), err, len(want))
	}
	for i := range want {
		if kinds[i] != int(want[i]) {
			t.Fatalf("token type %d is %d, want %d", i, kinds[i], want[i])
		}
	}
}

// TestStories pins what is known of one real model.
func TestStories(t *testing.T) {
	good(t)
	f, err := Open("../../shared/data/models/stories260K.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if arch, err := f.Architecture(); arch != "llama" || err != nil {
		t.Errorf("architecture %q, %v", arch, err)
	}
	if n, err := f.Uint("llama.block_count"); n != 5 || err != nil {
		t.Errorf("block count %d, %v, want 5", n, err)
	}
	x, err := f.Expect("token_embd.weight", 512, 64)
	if err != nil || x.DType != device.F32 || len(x.Data) != 512*64*4 {
		t.Errorf("%v of %d bytes, %v", x, len(x.Data), err)
	}
}

// TestHugeFile opens a file of 5 GB (a hole on disk) without reading or
// allocating it.
func TestHugeFile(t *testing.T) {
	const rows, row = 131072, 10240
	path := filepath.Join(t.TempDir(), "huge.gguf")
	file := head(2, 0).tensor("a", f32num, 0, row, rows).tensor("z", f32num, rows*row*4, 1).data(32, 0)
	size := int64(len(*file)) + rows*row*4 + 4
	if err := os.WriteFile(path, *file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Skipf("no room for a sparse file: %v", err)
	}
	before := allocated()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if took := allocated() - before; took > 2<<20 {
		t.Errorf("allocated %d bytes", took)
	}
	a, err := f.Expect("a", rows, row)
	if err != nil || len(a.Data) != rows*row*4 || a.Data[len(a.Data)-1] != 0 {
		t.Errorf("%v of %d bytes, %v", a, len(a.Data), err)
	}
	if f.Size() != size {
		t.Errorf("Size %d, want %d", f.Size(), size)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestNoFile covers what a path can lead to besides a file.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "none.gguf"))
	wantError(t, err, "none.gguf", "no such file")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
	_, err = Open(dir)
	wantError(t, err, dir, "a directory", "want a GGUF file")
	_, err = Open(os.DevNull)
	wantError(t, err, os.DevNull, "a device", "want a GGUF file")
	locked := filepath.Join(dir, "locked.gguf")
	if err := os.WriteFile(locked, *head(0, 0), 0); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(locked); err == nil {
		f.Close()
		t.Skip("this user may read every file")
	}
	_, err = Open(locked)
	wantError(t, err, locked, "permission denied")
}

// TestMissing asks a model for what it does not have.
func TestMissing(t *testing.T) {
	file, err := small().Bytes()
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse("small.gguf", file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Tensor("output.weight")
	wantError(t, err, "small.gguf", `no tensor "output.weight"`, "among its 16 tensors")
	_, err = f.Expect("output.weight", 4, 8)
	wantError(t, err, "small.gguf", `no tensor "output.weight"`, "want shape [4 8]")
	_, err = f.Expect("blk.0.F32", 2, 3)
	wantError(t, err, "small.gguf", `tensor "blk.0.F32" is F32 [3 2]`, "want shape [2 3]")
	_, err = f.Expect("blk.0.F32", 6)
	wantError(t, err, "F32 [3 2]", "want shape [6]")
	if f.HasTensor("output.weight") || !f.HasTensor("blk.0.F32") {
		t.Error("HasTensor is wrong")
	}
}

// TestHash changes what Hash covers, and what it does not.
func TestHash(t *testing.T) {
	w := small()
	w.Add("big", device.I32, make([]byte, 64<<10), 16<<10)
	file, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	hash := func(change func(data []byte) []byte) string {
		t.Helper()
		f, err := Parse("hash.gguf", change(bytes.Clone(file)))
		if err != nil {
			t.Fatal(err)
		}
		return f.Hash()
	}
	flip := func(fromEnd int) func([]byte) []byte {
		return func(data []byte) []byte { data[len(data)-fromEnd] ^= 1; return data }
	}
	same := hash(bytes.Clone)
	if len(same) != 64 || same != hash(bytes.Clone) {
		t.Errorf("hash %q is not the same twice", same)
	}
	for name, c := range map[string]struct {
		change func([]byte) []byte
		seen   bool
	}{
		"first byte of tensor": {flip(64 << 10), true},
		"last byte of tensor":  {flip(1), true},
		"middle of tensor":     {flip(32 << 10), true},
		"quarter of tensor":    {flip(16 << 10), false},
		"size":                 {func(data []byte) []byte { return append(data, 0) }, true},
		"metadata":             {func(data []byte) []byte { return bytes.Replace(data, []byte("llama"), []byte("lhama"), 1) }, true},
	} {
		if seen := hash(c.change) != same; seen != c.seen {
			t.Errorf("%s: change seen %v, want %v", name, seen, c.seen)
		}
	}
}

// BenchmarkOpen opens each good file. For a vocabulary, the time is that of
// decoding its strings.
func BenchmarkOpen(b *testing.B) {
	for _, path := range good(b) {
		b.Run("file="+filepath.Base(path), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				f.Close()
			}
		})
	}
}

// BenchmarkGuard walks the header of each good file, the part of Open that is
// not fs/ggml.
func BenchmarkGuard(b *testing.B) {
	for _, path := range good(b) {
		b.Run("file="+filepath.Base(path), func(b *testing.B) {
			data, err := os.ReadFile(path)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := guard(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
