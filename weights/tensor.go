package weights

import (
	"fmt"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/internal/quote"
	"github.com/ollama/ollama/fs/ggml"
)

// Tensor is a named array in a file.
type Tensor struct {
	Name  string
	DType device.DType // 0 for a type that gollm does not know the layout of
	Shape []int        // row-major: slowest dimension first, the row last
	Data  []byte       // the elements, in the file's read-only mapping; none of a type whose size is not known

	kind uint32 // GGUF's number of the type
	file string // path of the file that holds it
}

// Supported reports whether gollm computes with weights of the tensor's type. One of
// another type can be listed; [File.Tensor] and [File.Expect] refuse it.
func (t Tensor) Supported() bool { return t.DType.IsWeight() }

// Type is the name that GGUF gives the tensor's type, supported or not.
func (t Tensor) Type() string {
	if t.DType != 0 {
		return t.DType.String()
	}
	return foreignName(t.kind)
}

// Len is the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// String is the name, the type and the shape, for example
// "output.weight Q6_K [128256 4096]".
func (t Tensor) String() string { return fmt.Sprintf("%s %s %v", t.Name, t.Type(), t.Shape) }

// tensor makes the view of an entry of the part's tensor table, which the guard
// has checked. The place comes from the guard's data offset.
func (p *part) tensor(entry *ggml.Tensor) Tensor {
	t := Tensor{Name: entry.Name, DType: tensorTypes[entry.Kind], kind: entry.Kind, file: p.path}
	for _, d := range slices.Backward(entry.Shape) {
		t.Shape = append(t.Shape, int(d))
	}
	size := foreignSize(entry.Kind, uint64(t.Len()))
	if row := t.Shape[len(t.Shape)-1]; t.DType != 0 {
		size = uint64(t.Len() / row * t.DType.RowSize(row))
	}
	begin := p.head.dataOffset + entry.Offset
	t.Data = p.data[begin : begin+size : begin+size]
	return t
}

// Tensors lists all tensors in file order, of any type. The caller must not change it.
func (f *File) Tensors() []Tensor { return f.tensors }

// HasTensor reports whether the model has a tensor of that name.
func (f *File) HasTensor(name string) bool {
	_, ok := f.index[name]
	return ok
}

// Tensor returns the tensor of that name, of a type that a weight may have.
func (f *File) Tensor(name string) (Tensor, error) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, fmt.Errorf("weights: %s: no tensor %s among its %d tensors; the model is of another architecture or incomplete",
			f.path, quote.Short(name), len(f.tensors))
	}
	t := f.tensors[i]
	if !t.Supported() {
		return Tensor{}, fmt.Errorf("weights: %s: tensor %s: %w", t.file, quote.Short(name), t.unsupported())
	}
	return t, nil
}

// Expect returns the tensor of that name, which must have the shape dims,
// slowest dimension first.
func (f *File) Expect(name string, dims ...int) (Tensor, error) {
	t, err := f.Tensor(name)
	if err != nil {
		return Tensor{}, fmt.Errorf("%w (want shape %v)", err, dims)
	}
	if !slices.Equal(t.Shape, dims) {
		return Tensor{}, fmt.Errorf("weights: %s: tensor %s is %v %v, want shape %v", t.file, quote.Short(name), t.DType, t.Shape, dims)
	}
	return t, nil
}
