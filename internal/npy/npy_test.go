package npy_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/internal/npy"
)

// file is a .npy file of version 1 with a header and data given.
func file(header string, data []byte) []byte {
	b := append([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil, uint16(len(header)))...)
	return append(append(b, header...), data...)
}

func read(b []byte) (*npy.Array, error) { return npy.Read(bytes.NewReader(b), int64(len(b))) }

func TestRoundTrip(t *testing.T) {
	for _, shape := range [][]int{{}, {0}, {1}, {7}, {2, 3}, {3, 0, 4}, {2, 3, 4, 5}, {9000}} {
		a := &npy.Array{Shape: shape}
		n := 1
		for _, d := range shape {
			n *= d
		}
		for i := range n {
			a.Data = append(a.Data, float32(i)*0.37-1)
		}
		var b bytes.Buffer
		if err := npy.Write(&b, a); err != nil {
			t.Fatal(err)
		}
		if at := bytes.IndexByte(b.Bytes(), '\n') + 1; at%64 != 0 || b.Len() != at+4*n {
			t.Errorf("shape %v: data begin at byte %d of %d", shape, at, b.Len())
		}
		back, err := read(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(back.Shape, shape) || !slices.Equal(back.Data, a.Data) {
			t.Errorf("shape %v comes back as %v", shape, back.Shape)
		}
	}
}

// TestNumPysBytes reads np.save of np.array([[1, -2.5]], '<f4') as NumPy 1.26
// wrote it, and writes the same.
func TestNumPysBytes(t *testing.T) {
	header := "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }"
	want := file(header+strings.Repeat(" ", 118-len(header)-1)+"\n", []byte{0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0})
	a, err := read(want)
	if err != nil || !slices.Equal(a.Data, []float32{1, -2.5}) || !slices.Equal(a.Shape, []int{1, 2}) {
		t.Fatalf("%+v, %v", a, err)
	}
	var b bytes.Buffer
	if err := npy.Write(&b, a); err != nil || !bytes.Equal(b.Bytes(), want) {
		t.Errorf("wrote\n%swant\n%s", hex.Dump(b.Bytes()), hex.Dump(want))
	}
}

func TestHalves(t *testing.T) {
	var data []byte
	bits := []uint16{0, 0x8000, 1, 0x03ff, 0x0400, 0x3c00, 0xbc01, 0x7bff, 0x7c00, 0xfc00, 0x3555}
	for _, h := range bits {
		data = binary.LittleEndian.AppendUint16(data, h)
	}
	a, err := read(file("{'shape': (11,), 'fortran_order': False, 'descr': '<f2'}", data))
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{0, math.Copysign(0, -1), 0x1p-24, 1023 * 0x1p-24, 0x1p-14, 1, -1 - 0x1p-10, 65504, math.Inf(1), math.Inf(-1), 0.333251953125}
	for i, v := range a.Data {
		if float64(v) != want[i] || math.Signbit(float64(v)) != math.Signbit(want[i]) {
			t.Errorf("%#04x is %v, want %v", bits[i], v, want[i])
		}
	}
}

func TestBadFiles(t *testing.T) {
	const good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
	data := make([]byte, 8)
	long := file(good, data)
	long[6] = 2 // the length is then four bytes, of which two are of the header
	tests := []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "not a .npy file"},
		{"other", []byte("PK\x03\x04 and so on"), "not a .npy file"},
		{"version", append([]byte("\x93NUMPY\x09\x00"), long[8:]...), "version 9.0"},
		{"huge header", long, "header of"},
		{"cut in header", file(good, nil)[:30], "ends inside its header"},
		{"cut in length", []byte("\x93NUMPY\x01\x00\x10"), "ends inside its header"},
		{"cut in data", file(good, data[:7]), "needs 8 bytes after the header, there are 7"},
		{"too long", file(good, make([]byte, 9)), "there are 9"},
		{"huge shape", file(strings.Replace(good, "2,", "99999999999, 99999999999", 1), data), "the file is cut"},
		{"no number", file(strings.Replace(good, "2,", "-2,", 1), data), "want a dimension"},
		{"overflow", file(strings.Replace(good, "2,", "99999999999999999999,", 1), data), "want a dimension"},
		{"rank", file(strings.Replace(good, "2,", strings.Repeat("1, ", 40), 1), data), "more than 32 dimensions"},
		{"float64", file(strings.Replace(good, "f4", "f8", 1), data), "astype"},
		{"big endian", file(strings.Replace(good, "<f4", ">f4", 1), data), "little-endian"},
		{"int", file(strings.Replace(good, "<f4", "<i4", 1), data), "float32 or float16"},
		{"records", file(strings.Replace(good, "'<f4'", "[('a', '<f4')]", 1), data), "records"},
		{"fortran", file(strings.Replace(good, "False", "True", 1), data), "ascontiguousarray"},
		{"missing key", file("{'descr': '<f4', 'shape': (2,)}", data), "missing"},
		{"key twice", file("{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}", data), "twice"},
		{"foreign key", file("{'descr': '<f4', 'order': 'C'}", data), `"order"`},
		{"no dictionary", file("nothing", data), `want "{"`},
		{"more text", file(good+" x", data), "after the dictionary"},
		{"open string", file("{'descr", data), "does not end"},
	}
	for _, tt := range tests {
		_, err := read(tt.file)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want it to contain %q", tt.name, err, tt.want)
		}
	}
}

func TestReadFileNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.npy")
	if err := os.WriteFile(path, []byte("no"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, filepath.Dir(path), path + "x"} {
		if _, err := npy.ReadFile(p); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("ReadFile(%s): %v", p, err)
		}
	}
}

// FuzzRead: no panic, nothing larger than the file is allocated, and what is
// read is written back as it was.
func FuzzRead(f *testing.F) {
	f.Add(file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", make([]byte, 8)))
	f.Add(file("{'descr': '<f2', 'fortran_order': False, 'shape': (1,2,), }\n", make([]byte, 4)))
	f.Add(file("{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999,0), }", nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := read(b)
		if err != nil {
			return
		}
		if len(a.Data)*2 > len(b) {
			t.Fatalf("%d elements from %d bytes", len(a.Data), len(b))
		}
		var out bytes.Buffer
		if err := npy.Write(&out, a); err != nil {
			t.Fatal(err)
		}
		again, err := read(out.Bytes())
		if err != nil || !slices.Equal(again.Shape, a.Shape) {
			t.Fatalf("shape %v comes back as %+v, %v", a.Shape, again, err)
		}
		for i, v := range a.Data {
			if v != again.Data[i] && v == v {
				t.Fatalf("element %d: %v comes back as %v", i, v, again.Data[i])
			}
		}
	})
}
