package weights

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ollama/ollama/fs/ggml"

	"github.com/gollm/gollm/device"
)

// TestWriter writes in each version and alignment, and reads back both with
// this package and with fs/ggml.
func TestWriter(t *testing.T) {
	for _, version := range []int{0, 2, 3} {
		for _, align := range []int{0, 8, 32, 64, 128} {
			w := small()
			w.Version, w.Alignment = version, align
			file, err := w.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			if n, err := w.WriteTo(new(bytes.Buffer)); n != int64(len(file)) || err != nil {
				t.Errorf("WriteTo: %d, %v, want %d", n, err, len(file))
			}
			f, err := Parse("written.gguf", file)
			if err != nil {
				t.Fatal(err)
			}
			g, err := ggml.Decode(bytes.NewReader(file), -1)
			if err != nil {
				t.Fatal(err)
			}
			sameTensors(t, f, g, file)
			for i, want := range w.tensors {
				got := f.Tensors()[i]
				if got.String() != want.String() || !bytes.Equal(got.Data, want.Data) {
					t.Errorf("version %d alignment %d: tensor %d is %v, want %v", version, align, i, got, want)
				}
			}
			if s := g.KV().Strings("tokenizer.ggml.tokens"); strings.Join(s, "|") != "a||ccc" {
				t.Errorf("tokens %q", s)
			}
			if n := g.KV().Uint("block_count"); n != 2 {
				t.Errorf("block count %d, want 2", n)
			}
		}
	}
}

// TestWriterMistakes makes each mistake once; the methods that write return the
// first.
func TestWriterMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *Writer)
		want []string
	}{
		"no value":     {func(w *Writer) { w.Set("k", nil) }, []string{`key "k"`, "type <nil>", "want a bool"}},
		"uint":         {func(w *Writer) { w.Set("k", uint(1)) }, []string{`key "k"`, "type uint", "sized number"}},
		"map":          {func(w *Writer) { w.Set("k", map[string]int{}) }, []string{`key "k"`, "type map[string]int"}},
		"nested":       {func(w *Writer) { w.Set("k", [][]int32{}) }, []string{`key "k"`, "type [][]int32"}},
		"empty key":    {func(w *Writer) { w.Set("", true) }, []string{`key ""`}},
		"alignment":    {func(w *Writer) { w.Set(keyAlignment, uint32(64)) }, []string{`key "general.alignment"`, "Writer's field"}},
		"align 3":      {func(w *Writer) { w.Alignment = 3 }, []string{"alignment 3", "power of two from 8"}},
		"align -8":     {func(w *Writer) { w.Alignment = -8 }, []string{"alignment -8", "power of two from 8"}},
		"version":      {func(w *Writer) { w.Version = 1 }, []string{"version 1", "want 2 or 3"}},
		"no dims":      {func(w *Writer) { w.AddF32("t", nil) }, []string{`tensor "t"`, "0 dimensions", "want 1 to 4"}},
		"5 dims":       {func(w *Writer) { w.AddF32("t", []float32{1}, 1, 1, 1, 1, 1) }, []string{`tensor "t"`, "5 dimensions"}},
		"zero dim":     {func(w *Writer) { w.AddF32("t", nil, 0) }, []string{`tensor "t"`, "shape [0]"}},
		"huge":         {func(w *Writer) { w.AddF32("t", nil, 1<<40, 1<<40) }, []string{`tensor "t"`, "shape [1099511627776 1099511627776]"}},
		"data":         {func(w *Writer) { w.AddF32("t", []float32{1}, 2) }, []string{`tensor "t"`, "4 bytes of data, want 8 for F32 [2]"}},
		"row":          {func(w *Writer) { w.Add("t", device.Q8_0, nil, 31) }, []string{`tensor "t"`, "31 elements", "multiple of 32"}},
		"type":         {func(w *Writer) { w.Add("t", 99, nil, 1) }, []string{`tensor "t"`, "type DType(99)"}},
		"no type":      {func(w *Writer) { w.Add("t", 0, nil, 1) }, []string{`tensor "t"`, "type none"}},
		"no name":      {func(w *Writer) { w.AddF32("", []float32{1}, 1) }, []string{`tensor ""`, "want a name"}},
		"long name":    {func(w *Writer) { w.AddF32(strings.Repeat("t", 257), []float32{1}, 1) }, []string{"want a name of 1 to 256 bytes"}},
		"twice":        {func(w *Writer) { w.AddF32("t", []float32{1}, 1); w.AddF32("t", []float32{1}, 1) }, []string{`tensor "t"`, "twice"}},
		"first sticks": {func(w *Writer) { w.Set("k", nil); w.Set("l", nil) }, []string{`key "k"`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := new(Writer)
			c.do(w)
			_, err := w.Bytes()
			wantError(t, err, c.want...)
			_, err = w.WriteSplit(t.TempDir()+"/m", 2)
			wantError(t, err, c.want...)
		})
	}
}

// TestSetAgain replaces a value and keeps its place.
func TestSetAgain(t *testing.T) {
	w := new(Writer)
	w.Set("a", 1)
	w.Set("b", 2)
	w.Set("a", "one")
	file, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse("again.gguf", file)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := f.String("a"); s != "one" || err != nil || strings.Join(f.Keys(), " ") != "a b" {
		t.Errorf("a is %q, %v; keys %v", s, err, f.Keys())
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestWriterFullDisk(t *testing.T) {
	_, err := small().WriteTo(full{})
	wantError(t, err, "no space left")
	err = small().WriteFile(t.TempDir() + "/none/m.gguf")
	wantError(t, err, "none/m.gguf", "no such file")
	_, err = small().WriteSplit(t.TempDir()+"/m", 0)
	wantError(t, err, "0 parts", "want 1 to 99999")
}
