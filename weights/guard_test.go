package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// raw builds a GGUF file field by field, right or wrong.
type raw []byte

func (r *raw) bytes(s string) *raw { *r = append(*r, s...); return r }
func (r *raw) u32(v ...uint32) *raw {
	for _, x := range v {
		*r = binary.LittleEndian.AppendUint32(*r, x)
	}
	return r
}
func (r *raw) u64(v ...uint64) *raw {
	for _, x := range v {
		*r = binary.LittleEndian.AppendUint64(*r, x)
	}
	return r
}
func (r *raw) text(s string) *raw { return r.u64(uint64(len(s))).bytes(s) }

// head begins a file of version 3.
func head(tensors, keys uint64) *raw { return new(raw).bytes("GGUF").u32(3).u64(tensors, keys) }

// key appends a key with a u32 value.
func (r *raw) key(name string, v uint32) *raw { return r.text(name).u32(uint32(typeU32), v) }

// tensor appends an entry of the table; dims are GGUF's, fastest first.
func (r *raw) tensor(name string, typ uint32, offset uint64, dims ...uint64) *raw {
	return r.text(name).u32(uint32(len(dims))).u64(dims...).u32(typ).u64(offset)
}

// data pads to a multiple of align and appends n bytes.
func (r *raw) data(align, n int) *raw {
	*r = append(*r, make([]byte, padding(len(*r), align)+n)...)
	return r
}

const (
	f32num  = 0
	q4kNum  = 12
	minus1  = math.MaxUint64
	huge    = 1 << 63
	notEnds = "the file is cut short or damaged; download it again"
)

// badFiles are files that must be refused, each with what its error must say
// besides the name of the file.
func badFiles() map[string]struct {
	file *raw
	want []string
} {
	type bad = struct {
		file *raw
		want []string
	}
	files := map[string]bad{
		"empty":         {new(raw), []string{"empty", "want a GGUF file"}},
		"magic cut":     {new(raw).bytes("GG"), []string{`begins with "GG"`, `want "GGUF"`}},
		"magic lower":   {new(raw).bytes("gguf").u32(3).u64(0, 0), []string{`begins with "gguf"`, `want "GGUF"`}},
		"magic only":    {new(raw).bytes("GGUF"), []string{"the version", "0 are left", "cut short"}},
		"version 0":     {new(raw).bytes("GGUF").u32(0).u64(0, 0), []string{"version 0", "want 2 or 3"}},
		"version 1":     {new(raw).bytes("GGUF").u32(1).u64(0, 0), []string{"version 1", "want 2 or 3", "convert"}},
		"version 99":    {new(raw).bytes("GGUF").u32(99).u64(0, 0), []string{"version 99", "want 2 or 3"}},
		"version 2^32":  {new(raw).bytes("GGUF").u32(math.MaxUint32).u64(0, 0), []string{"version 4294967295", "want 2 or 3"}},
		"big endian 3":  {new(raw).bytes("GGUF\x00\x00\x00\x03").u64(0, 0), []string{"big-endian GGUF version 3", "want little-endian"}},
		"big endian":    {new(raw).bytes("FUGG\x00\x00\x00\x03").u64(0, 0), []string{"big-endian GGUF", "little-endian"}},
		"many keys":     {head(0, 70000).data(1, 2_000_000), []string{"70000 keys", "at most 65536"}},
		"many tensors":  {head(70000, 0).data(1, 3_000_000), []string{"70000 tensors", "at most 65536"}},
		"key empty":     {head(0, 1).key("", 1), []string{"key number 1", "name is empty"}},
		"key long":      {head(0, 1).text(strings.Repeat("k", 70000)).u32(4, 1), []string{"key number 1", "70000 bytes", "at most 65536"}},
		"key twice":     {head(0, 2).key("a.b", 1).key("a.b", 2), []string{`key "a.b"`, "twice", "unique"}},
		"key long, 13":  {head(0, 1).text(strings.Repeat("\x1b", 40_000)).u32(13).u64(0), []string{`key "\x1b\x1b`, `\x1b"... (40000 bytes)`, "type 13"}},
		"type 13":       {head(0, 1).text("a.b").u32(13).u64(0), []string{`key "a.b"`, "type 13", "want 0 to 12"}},
		"type 2^32-1":   {head(0, 1).text("a.b").u32(math.MaxUint32).u64(0), []string{`key "a.b"`, "type 4294967295", "want 0 to 12"}},
		"elem 13":       {head(0, 1).text("a.b").u32(9, 13).u64(0), []string{`key "a.b"`, "elements are of type 13", "want 0 to 12"}},
		"nested":        {head(0, 1).text("a.b").u32(9, 9).u64(1).u32(9, 4).u64(1).u32(7), []string{`key "a.b"`, "array of arrays", "want an array of numbers"}},
		"align 0":       {head(0, 1).key(keyAlignment, 0), []string{`key "general.alignment"`, "alignment is 0", "power of two"}},
		"align 3":       {head(0, 1).key(keyAlignment, 3), []string{`key "general.alignment"`, "alignment is 3", "power of two"}},
		"align 4":       {head(0, 1).key(keyAlignment, 4), []string{`key "general.alignment"`, "alignment is 4", "power of two from 8"}},
		"align 2^32-1":  {head(0, 1).key(keyAlignment, math.MaxUint32), []string{`key "general.alignment"`, "alignment is 4294967295", "power of two"}},
		"align i64":     {head(0, 1).text(keyAlignment).u32(uint32(typeI64)).u64(64), []string{`key "general.alignment"`, "type i64", "want u32"}},
		"align text":    {head(0, 1).text(keyAlignment).u32(uint32(typeString)).text("64"), []string{`key "general.alignment"`, "type string", "want u32"}},
		"tensor empty":  {head(1, 0).tensor("", f32num, 0, 8).data(32, 32), []string{"tensor number 1", "name is empty"}},
		"tensor long":   {head(1, 0).tensor(strings.Repeat("t", 257), f32num, 0, 8).data(32, 32), []string{"tensor number 1", "257 bytes", "at most 256"}},
		"tensor twice":  {head(2, 0).tensor("t.w", f32num, 0, 8).tensor("t.w", f32num, 32, 8).data(32, 64), []string{`tensor "t.w"`, "twice", "unique"}},
		"no dims":       {head(1, 0).tensor("t.w", f32num, 0).data(32, 32), []string{`tensor "t.w"`, "0 dimensions", "want 1 to 4"}},
		"5 dims":        {head(1, 0).tensor("t.w", f32num, 0, 1, 1, 1, 1, 1).data(32, 32), []string{`tensor "t.w"`, "5 dimensions", "want 1 to 4"}},
		"2^32-1 dims":   {head(1, 0).text("t.w").u32(math.MaxUint32).data(1, 100), []string{`tensor "t.w"`, "4294967295 dimensions", "want 1 to 4"}},
		"zero dim":      {head(1, 0).tensor("t.w", f32num, 0, 8, 0).data(32, 32), []string{`tensor "t.w"`, "[8 0]", "at least 1"}},
		"dim -1":        {head(1, 0).tensor("t.w", f32num, 0, minus1).data(32, 32), []string{`tensor "t.w"`, "18446744073709551615", "product of at most"}},
		"dims wrap":     {head(1, 0).tensor("t.w", f32num, 0, 1<<32, 1<<32).data(32, 32), []string{`tensor "t.w"`, "[4294967296 4294967296]", "product of at most"}},
		"dims wrap 0":   {head(1, 0).tensor("t.w", f32num, 0, 1<<16, 1<<16, 1<<16, 1<<16).data(32, 32), []string{`tensor "t.w"`, "product of at most"}},
		"dims 2^49":     {head(1, 0).tensor("t.w", f32num, 0, 1<<49).data(32, 32), []string{`tensor "t.w"`, "[562949953421312]", "at most 281474976710656"}},
		"ragged row":    {head(1, 0).tensor("t.w", q4kNum, 0, 100).data(32, 144), []string{`tensor "t.w"`, "100 elements", "multiple of 256", "Q4_K"}},
		"misaligned":    {head(1, 0).tensor("t.w", f32num, 4, 8).data(32, 64), []string{`tensor "t.w"`, "offset 4", "multiple of the alignment 32"}},
		"misaligned 64": {head(1, 1).key(keyAlignment, 64).tensor("t.w", f32num, 32, 8).data(64, 64), []string{`tensor "t.w"`, "offset 32", "multiple of the alignment 64"}},
		"past the end":  {head(1, 0).tensor("t.w", f32num, 64, 8).data(32, 64), []string{`tensor "t.w"`, "32 bytes at offset 64", "has 64 bytes", notEnds}},
		"end by 1":      {head(1, 0).tensor("t.w", f32num, 0, 8).data(32, 31), []string{`tensor "t.w"`, "32 bytes at offset 0", "has 31 bytes", notEnds}},
		"offset wraps":  {head(1, 0).tensor("t.w", f32num, minus1-127, 32).data(32, 128), []string{`tensor "t.w"`, "18446744073709551488", "has 128 bytes", notEnds}},
		"offset 2^63":   {head(1, 0).tensor("t.w", f32num, huge, 8).data(32, 32), []string{`tensor "t.w"`, "9223372036854775808", "has 32 bytes", notEnds}},
		"no data":       {head(1, 0).tensor("t.w", f32num, 0, 8), []string{`tensor "t.w"`, "has 0 bytes", notEnds}},
		"overlap":       {head(2, 0).tensor("t.b", f32num, 32, 8).tensor("t.a", f32num, 0, 9).data(32, 96), []string{`tensor "t.b"`, `overlaps that of tensor "t.a"`, "36 bytes at offset 0"}},
		"same place":    {head(2, 0).tensor("t.a", f32num, 0, 8).tensor("t.b", f32num, 0, 8).data(32, 64), []string{"overlaps that of", `"t.a"`, `"t.b"`}},
		"part of many":  {head(0, 2).key(keySplitCount, 3).key(keySplitNo, 0), []string{`key "split.count"`, "3 parts", "want a whole model"}},
		"split text":    {head(0, 1).text(keySplitCount).u32(uint32(typeString)).text("3"), []string{`key "split.count"`, `string "3"`, "want a non-negative integer"}},
	}
	for _, n := range []uint64{1 << 20, 1 << 32, 1 << 40, 1 << 62, 1 << 63, minus1} {
		at := fmt.Sprint(n)
		files["tensors "+at] = bad{head(n, 0), []string{at + " tensors", "room for at most 0", "cut short"}}
		files["keys "+at] = bad{head(0, n).key("a", 1), []string{at + " keys", "room for at most 1", "cut short"}}
		files["key length "+at] = bad{head(0, 1).u64(n).bytes("a.b").u32(4, 1), []string{"key number 1", "its name takes " + at, "only 11 are left", notEnds}}
		files["string length "+at] = bad{head(0, 1).text("a.b").u32(8).u64(n).bytes("xyz"), []string{`key "a.b"`, "its value takes " + at, "only 3 are left", notEnds}}
		files["name length "+at] = bad{head(1, 0).u64(n).data(1, 40), []string{"tensor number 1", "its name takes " + at, "only 40 are left", notEnds}}
		files["element length "+at] = bad{head(0, 1).text("a.b").u32(9, 8).u64(2).text("ok").u64(n).bytes("xyz"),
			[]string{`key "a.b"`, "a string of its array takes " + at, "only 3 are left", notEnds}}
		for _, elem := range []valueType{typeU8, typeU32, typeF64, typeBool, typeString} {
			files[fmt.Sprintf("array of %s %v", at, elem)] = bad{head(0, 1).text("a.b").u32(9, uint32(elem)).u64(n).data(1, 40),
				[]string{`key "a.b"`, at + " " + elem.String(), fmt.Sprintf("room for at most %d", 40/elem.minSize()), "cut short"}}
		}
	}
	return files
}

// TestBadFiles opens each bad file from disk and from memory: the same clear
// error, and no more than a little memory.
func TestBadFiles(t *testing.T) {
	for name, bad := range badFiles() {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.gguf")
			if err := os.WriteFile(path, *bad.file, 0o600); err != nil {
				t.Fatal(err)
			}
			opens := map[string]func() (*File, error){
				"Open":  func() (*File, error) { return Open(path) },
				"Parse": func() (*File, error) { return Parse(path, *bad.file) },
			}
			if strings.HasPrefix(name, "part of") {
				delete(opens, "Open") // split_test.go has the parts on disk
			}
			for how, open := range opens {
				before := allocated()
				f, err := open()
				if took := allocated() - before; took > 2<<20 {
					t.Errorf("%s allocated %d bytes for a file of %d", how, took, len(*bad.file))
				}
				if f != nil {
					t.Fatalf("%s gave a file", how)
				}
				wantError(t, err, append(bad.want, "weights: ", path)...)
				if n := len(err.Error()); n > 1000 {
					t.Errorf("%s: an error of %d bytes", how, n)
				}
			}
		})
	}
}

// TestForeignTypesAreListed opens files with a tensor of a type that gollm does
// not compute with, between two that it does: all are listed, and only asking
// for the one fails.
func TestForeignTypesAreListed(t *testing.T) {
	for n, want := range map[uint32]struct {
		name string
		size int // of 256 elements
	}{
		9: {"Q8_1", 288}, 15: {"Q8_K", 292}, 16: {"IQ2_XXS", 66}, 17: {"IQ2_XS", 74}, 18: {"IQ3_XXS", 98}, 19: {"IQ1_S", 50}, 21: {"IQ3_S", 110},
		22: {"IQ2_S", 82}, 24: {"I8", 256}, 25: {"I16", 512}, 27: {"I64", 2048}, 28: {"F64", 2048}, 29: {"IQ1_M", 56}, 39: {"MXFP4", 136},
		34: {"TQ1_0", 0}, 40: {"NVFP4", 0}, 999: {"type 999", 0},
	} {
		file := head(3, 0).tensor("t.a", f32num, 0, 8).tensor("t.w", n, 32, 256).tensor("t.z", f32num, 4096, 8).data(32, 5000)
		f, err := Parse("foreign.gguf", *file)
		if err != nil {
			t.Fatalf("%s: %v", want.name, err)
		}
		all := f.Tensors()
		if len(all) != 3 || !all[0].Supported() || all[1].Supported() || !all[2].Supported() {
			t.Fatalf("%s: %v", want.name, all)
		}
		x := all[1]
		if x.Name != "t.w" || x.Type() != want.name || x.Len() != 256 || len(x.Data) != want.size || x.String() != "t.w "+want.name+" [256]" {
			t.Errorf("%v with %d bytes, want %+v", x, len(x.Data), want)
		}
		named := want.name
		if n == 999 {
			named = "unknown to gollm"
		}
		_, err = f.Tensor("t.w")
		wantError(t, err, "foreign.gguf", `tensor "t.w"`, fmt.Sprintf("type %d (%s) is not supported", n, named), "F32 F16 BF16", "Q4_K", "IQ4_XS")
		_, err = f.Expect("t.w", 256)
		wantError(t, err, "is not supported", "[256]")
		if _, err := f.Expect("t.z", 8); err != nil {
			t.Error(err)
		}
	}
	overlap := head(2, 0).tensor("t.a", f32num, 0, 8).tensor("t.w", 28, 0, 8).data(32, 64)
	_, err := Parse("foreign.gguf", *overlap)
	wantError(t, err, "overlaps")
	for _, short := range []*raw{
		head(1, 0).tensor("t.w", 28, 0, 256).data(32, 64),
		head(1, 0).tensor("t.w", 999, 0, 256), // nothing, and not where the data begins
	} {
		_, err = Parse("foreign.gguf", *short)
		wantError(t, err, "cut short")
	}
}

// allocated is the number of bytes that this process has ever allocated.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// wantError fails unless err says all of want, and names the package once.
func wantError(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q, want %q in it", err, w)
		}
	}
	if n := strings.Count(err.Error(), "weights: "); n != 1 {
		t.Errorf("error %q names the package %d times, want once", err, n)
	}
}

// small is a model with a key and a tensor of each kind.
func small() *Writer {
	w := new(Writer)
	w.Set("general.architecture", "llama")
	w.Set("llama.block_count", 2)
	w.Set("tokenizer.ggml.tokens", []string{"a", "", "ccc"})
	w.Set("tokenizer.ggml.scores", []float32{0, -1, -2})
	for i, t := range device.DTypes() {
		row := max(2, t.BlockLen())
		data := make([]byte, 3*t.RowSize(row))
		for k := range data {
			data[k] = byte(k + i)
		}
		w.Add(fmt.Sprintf("blk.%d.%v", i, t), t, data, 3, row)
	}
	return w
}

// TestHugeHeader refuses a header that is really there but larger than any
// model needs.
func TestHugeHeader(t *testing.T) {
	for name, c := range map[string]struct {
		file *raw
		want []string
	}{
		"string":  {head(0, 1).text("a.b").u32(8).u64(70 << 20), []string{`key "a.b"`, "takes 73400320 bytes", "at most 67108864 bytes"}},
		"array":   {head(0, 1).text("a.b").u32(9, 0).u64(70 << 20), []string{`key "a.b"`, "array of 73400320 u8", "room for at most 671088"}},
		"numbers": {head(0, 1).text("a.b").u32(9, 0).u64(9 << 20), []string{`key "a.b"`, "array of 9437184 u8", "want at most 8388608"}},
		"arrays": {head(0, 2).text("a.b").u32(9, 0).u64(5<<20).data(1, 5<<20).text("a.c").u32(9, 4).u64(5 << 20),
			[]string{`key "a.c"`, "array of 5242880 u32", "10485760 elements", "want at most 8388608"}},
		"strings": {head(0, 1).text("a.b").u32(9, 8).u64(9 << 20), []string{`key "a.b"`, "array of 9437184 string", "room for at most 83886"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "huge.gguf")
			if err := os.WriteFile(path, *c.file, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, 100<<20); err != nil {
				t.Skipf("no room for a sparse file: %v", err)
			}
			before := allocated()
			_, err := Open(path)
			if took := allocated() - before; took > 2<<20 {
				t.Errorf("allocated %d bytes", took)
			}
			wantError(t, err, append(c.want, path)...)
		})
	}
}

// TestEveryCut cuts a good file at every byte of its header and at bytes of
// each tensor. Only the padding at the end may be missing.
func TestEveryCut(t *testing.T) {
	w := small()
	w.AddF32("last", []float32{1, 2, 3}, 3) // 12 bytes and 20 of padding
	file, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	head, err := guard(file)
	if err != nil {
		t.Fatal(err)
	}
	end := len(file) - 20
	for n := 0; n < len(file); n++ {
		if n > int(head.dataOffset) && n < end-100 {
			n += 37
		}
		_, err := Parse("cut.gguf", file[:n])
		if n >= end {
			if err != nil {
				t.Errorf("%d of %d bytes: %v", n, len(file), err)
			}
			continue
		}
		if err == nil {
			t.Fatalf("%d of %d bytes: no error", n, len(file))
		}
		want := "cut short"
		if n < 4 {
			want = "want"
		}
		wantError(t, err, "cut.gguf", want)
	}
}

// TestLegalEdges accepts what is unusual but right.
func TestLegalEdges(t *testing.T) {
	for name, file := range map[string]*raw{
		"no keys, no tensors": head(0, 0),
		"version 2":           new(raw).bytes("GGUF").u32(2).u64(0, 0),
		"data not padded":     head(1, 0).tensor("t", f32num, 0, 1).data(32, 4),
		"gap between tensors": head(2, 0).tensor("t", f32num, 0, 1).tensor("u", f32num, 1024, 1).data(32, 1028),
		"any order":           head(2, 0).tensor("t", f32num, 32, 8).tensor("u", f32num, 0, 8).data(32, 64),
		"tail":                head(1, 0).tensor("t", f32num, 0, 1).data(32, 5000),
		"name of 256 bytes":   head(1, 0).tensor(strings.Repeat("t", 256), f32num, 0, 1).data(32, 4),
		"4 dims":              head(1, 0).tensor("t", f32num, 0, 1, 2, 3, 4).data(32, 96),
		"empty arrays":        head(0, 2).text("a").u32(9, 8).u64(0).text("b").u32(9, 4).u64(0),
		"alignment 8":         head(1, 1).key(keyAlignment, 8).tensor("t", f32num, 8, 1).data(8, 12),
		"alignment 2^31":      head(0, 1).key(keyAlignment, 1<<31),
		"one part":            head(0, 1).key(keySplitCount, 1),
	} {
		if _, err := Parse(name, *file); err != nil {
			t.Error(err)
		}
	}
}

// TestAlignment reads the right bytes whatever the alignment is.
func TestAlignment(t *testing.T) {
	for _, align := range []int{8, 16, 32, 64, 128, 4096} {
		file := head(1, 1).key(keyAlignment, uint32(align)).tensor("t", f32num, uint64(align), 2).data(align, align+8)
		copy((*file)[len(*file)-8:], "thetruth")
		f, err := Parse("align.gguf", *file)
		if err != nil {
			t.Fatal(err)
		}
		if x, err := f.Tensor("t"); err != nil || string(x.Data) != "thetruth" {
			t.Errorf("alignment %d: %q, %v", align, x.Data, err)
		}
	}
}
