package device

import (
	"strings"
	"testing"
)

type bytesMemory []byte

func (b bytesMemory) Size() int { return len(b) }

func TestTensorViews(t *testing.T) {
	a := NewTensor(make(bytesMemory, 4*24), 0, F32, 2, 3, 4)
	tests := []struct {
		name   string
		view   Tensor
		want   string
		offset int
	}{
		{"rows", a.Rows(1, 2), "F32 [1 3 4]", 48},
		{"at", a.At(1), "F32 [3 4]", 48},
		{"rows of at", a.At(1).Rows(2, 3), "F32 [1 4]", 80},
		{"reshape", a.At(1).Reshape(12).Rows(5, 7), "F32 [2]", 68},
		{"empty", a.Rows(2, 2), "F32 [0 3 4]", 96},
	}
	for _, tt := range tests {
		if tt.view.String() != tt.want || tt.view.Offset() != tt.offset {
			t.Errorf("%s: %v at %d, want %s at %d", tt.name, tt.view, tt.view.Offset(), tt.want, tt.offset)
		}
	}
}

func TestQuantizedRows(t *testing.T) {
	w := NewTensor(make(bytesMemory, 3*2*144), 0, Q4_K, 3, 512)
	if w.Size() != 3*2*144 || w.Rows(1, 3).Offset() != 2*144 {
		t.Errorf("size %d, row offset %d", w.Size(), w.Rows(1, 3).Offset())
	}
	wantPanic(t, "Q4_K: row of 100", func() { Q4_K.RowSize(100) })
}

func TestMisusePanics(t *testing.T) {
	a := NewTensor(make(bytesMemory, 64), 0, F32, 4, 4)
	wantPanic(t, "Rows(1, 5)", func() { a.Rows(1, 5) })
	wantPanic(t, "At(0)", func() { a.At(0).At(0) })
	wantPanic(t, "Reshape", func() { a.Reshape(3, 5) })
	wantPanic(t, "needs 128 bytes", func() { NewTensor(make(bytesMemory, 64), 0, F32, 8, 4) })
	wantPanic(t, "device: Add: dst F32 [4 4], want F32 [4 5]", func() { CheckShape("Add", "dst", a, F32, 4, 5) })
}

func TestOpenUnknown(t *testing.T) {
	if _, err := Open("tpu", Config{}); err == nil || !strings.Contains(err.Error(), `"tpu" is not in this build`) {
		t.Errorf("err = %v", err)
	}
}

func wantPanic(t *testing.T, text string, f func()) {
	t.Helper()
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, text) {
			t.Errorf("panic %q, want it to contain %q", s, text)
		}
	}()
	f()
}
