package weights

import (
	"bytes"
	"testing"

	"github.com/ollama/ollama/fs/ggml"
)

// FuzzGGUF reads any bytes as a file. Whatever they are, nothing panics or
// takes memory out of proportion; what the guard accepts, the decoder accepts;
// and every key and tensor can be read. Run it with -fuzzminimizetime 20x: by
// default the fuzzer spends a minute on shrinking each input that it keeps.
func FuzzGGUF(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := allocated()
		m, err := Parse("fuzz.gguf", data)
		if took, most := allocated()-before, uint64(64*len(data)+4<<20); took > most {
			t.Errorf("allocated %d bytes for a file of %d, want at most %d", took, len(data), most)
		}
		if head, refused := guard(data); refused == nil {
			if _, err := ggml.Decode(bytes.NewReader(data), -1); err != nil {
				t.Fatalf("the guard accepts %+v, the decoder does not: %v", head, err)
			}
		}
		if err != nil {
			return
		}
		readAll(t, m, data)
	})
}

// readAll reads every key with every getter and every tensor to its ends.
func readAll(t *testing.T, m *File, data []byte) {
	t.Helper()
	for _, key := range m.Keys() {
		for name := range wants {
			call(m, name, key)
		}
	}
	begin := m.parts[0].head.dataOffset
	for _, x := range m.Tensors() {
		if !x.Supported() {
			if _, err := m.Tensor(x.Name); err == nil || cap(x.Data) != len(x.Data) {
				t.Errorf("%v: no error, or %d bytes of %d", x, len(x.Data), cap(x.Data))
			}
			continue
		}
		if got, err := m.Expect(x.Name, x.Shape...); err != nil || got.Len() < 1 {
			t.Errorf("%v: %v", x, err)
		}
		row := x.Shape[len(x.Shape)-1]
		if want := x.Len() / row * x.DType.RowSize(row); len(x.Data) != want || cap(x.Data) != want {
			t.Errorf("%v: %d bytes, cap %d, want %d", x, len(x.Data), cap(x.Data), want)
		}
		if !bytes.Contains(data[begin:], x.Data) {
			t.Errorf("%v: outside the tensor data", x)
		}
	}
	m.Hash()
}

// seeds are small good files and all small bad files.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	var all [][]byte
	for _, align := range []int{0, 64} {
		w := small()
		w.Alignment = align
		file, err := w.Bytes()
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, file)
	}
	for _, v := range values {
		w := new(Writer)
		w.Set("k", v.set)
		w.AddF32("t", []float32{1, 2, 3, 4, 5, 6}, 1, 2, 3)
		file, err := w.Bytes()
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, file)
	}
	for _, bad := range badFiles() {
		if len(*bad.file) < 2_000 {
			all = append(all, *bad.file)
		}
	}
	return all
}
