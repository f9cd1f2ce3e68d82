package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/bits"
	"os"
	"reflect"
	"slices"

	"github.com/gollm/gollm/device"
)

// Writer collects metadata and tensors and writes them as GGUF:
//
//	var w weights.Writer
//	w.Set("general.architecture", "llama")
//	w.Set("llama.block_count", 2)
//	w.AddF32("output_norm.weight", ones, 64)
//	w.Add("output.weight", device.Q8_0, blocks, 256, 64)
//	err := w.WriteFile("tiny.gguf")
//
// The first mistake sticks: the methods that write return it. The zero Writer
// is ready to use.
type Writer struct {
	Version   int // 2 or 3; 0 means 3
	Alignment int // of the tensor data, in bytes, a power of two from 8; 0 means 32

	keys    []string
	values  map[string]any
	tensors []Tensor
	err     error
}

// Set sets a metadata value: a bool, a string, a number of any sized type, or a
// slice of one of these. An int and an []int become u32 where all of it fits,
// else i32, else i64. Setting a key again changes its value.
func (w *Writer) Set(key string, value any) {
	value = narrow(value)
	if _, _, ok := typeOf(value); !ok {
		w.fail("key %q: value of type %T, want a bool, string, sized number or slice of these", key, value)
		return
	}
	if key == "" || key == keyAlignment {
		w.fail("key %q: want a name; the alignment is the Writer's field", key)
		return
	}
	if _, again := w.values[key]; !again {
		w.keys = append(w.keys, key)
	}
	if w.values == nil {
		w.values = make(map[string]any)
	}
	w.values[key] = value
}

// Add adds a tensor of shape dims, slowest dimension first, whose elements are
// data. The Writer keeps data until it has written.
func (w *Writer) Add(name string, t device.DType, data []byte, dims ...int) {
	if name == "" || len(name) > maxTensorName {
		w.fail("tensor %q: want a name of 1 to %d bytes", name, maxTensorName)
		return
	}
	if slices.ContainsFunc(w.tensors, func(u Tensor) bool { return u.Name == name }) {
		w.fail("tensor %q: added twice", name)
		return
	}
	size, err := dataSize(t, dims)
	if err != nil {
		w.fail("tensor %q: %w", name, err)
		return
	}
	if uint64(len(data)) != size {
		w.fail("tensor %q: %d bytes of data, want %d for %v %v", name, len(data), size, t, dims)
		return
	}
	w.tensors = append(w.tensors, Tensor{Name: name, DType: t, Shape: slices.Clone(dims), Data: data})
}

// dataSize is the number of bytes of a tensor that GGUF can hold.
func dataSize(t device.DType, dims []int) (uint64, error) {
	if !slices.Contains(device.DTypes(), t) {
		return 0, fmt.Errorf("type %v, want one of %v", t, device.DTypes())
	}
	if len(dims) == 0 || len(dims) > maxDims {
		return 0, fmt.Errorf("%d dimensions, want 1 to %d", len(dims), maxDims)
	}
	elements := uint64(1)
	for _, d := range dims {
		if d < 1 || elements > maxElements/uint64(d) {
			return 0, fmt.Errorf("shape %v, want dimensions of at least 1 and at most %d elements", dims, uint64(maxElements))
		}
		elements *= uint64(d)
	}
	row := dims[len(dims)-1]
	if row%t.BlockLen() != 0 {
		return 0, fmt.Errorf("rows of %d elements, want a multiple of %d for %v", row, t.BlockLen(), t)
	}
	return elements / uint64(t.BlockLen()) * uint64(t.BlockSize()), nil
}

// AddF32 adds a tensor of shape dims, slowest dimension first, of type F32.
func (w *Writer) AddF32(name string, x []float32, dims ...int) {
	data := make([]byte, 0, 4*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	w.Add(name, device.F32, data, dims...)
}

// WriteTo writes one GGUF file.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	align := cmp.Or(w.Alignment, plainAlignment)
	if align < minAlignment || bits.OnesCount(uint(align)) != 1 {
		return 0, fmt.Errorf("weights: writer: alignment %d, want a power of two from %d", align, minAlignment)
	}
	version := cmp.Or(w.Version, 3)
	if version != 2 && version != 3 {
		return 0, fmt.Errorf("weights: writer: version %d, want 2 or 3", version)
	}
	written := int64(0)
	for _, b := range w.chunks(uint32(version), align) {
		n, err := out.Write(b)
		written += int64(n)
		if err != nil {
			return written, fmt.Errorf("weights: writer: %w", err)
		}
	}
	return written, nil
}

// Bytes is the GGUF file in memory.
func (w *Writer) Bytes() ([]byte, error) {
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	return b.Bytes(), err
}

// WriteFile writes one GGUF file at path.
func (w *Writer) WriteFile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	_, err = w.WriteTo(f)
	return errors.Join(err, f.Close())
}

// WriteSplit writes the model in n files, stem-00001-of-0000N.gguf and so on,
// with the metadata in the first and the tensors cut into n runs of about equal
// count, and returns their paths.
func (w *Writer) WriteSplit(stem string, n int) ([]string, error) {
	if n < 1 || n > 99999 {
		return nil, fmt.Errorf("weights: writer: %d parts, want 1 to 99999", n)
	}
	var paths []string
	for i := range n {
		part := &Writer{Version: w.Version, Alignment: w.Alignment, err: w.err}
		if i == 0 {
			part.keys, part.values = slices.Clone(w.keys), maps.Clone(w.values)
		}
		part.tensors = w.tensors[len(w.tensors)*i/n : len(w.tensors)*(i+1)/n]
		part.Set(keySplitNo, uint16(i))
		part.Set(keySplitCount, uint16(n))
		part.Set(keySplitTensors, int32(len(w.tensors)))
		paths = append(paths, partPath(stem, i, n))
		if err := part.WriteFile(paths[i]); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// fail records the first mistake.
func (w *Writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("weights: writer: "+format, args...)
	}
}

// chunks is the file in order: the header, then each tensor's data, all of them
// padded to the alignment.
func (w *Writer) chunks(version uint32, align int) [][]byte {
	head := binary.LittleEndian.AppendUint32([]byte(magic), version)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(w.tensors)))
	keys := w.keys
	if align != plainAlignment {
		keys = append(slices.Clone(keys), keyAlignment)
	}
	head = binary.LittleEndian.AppendUint64(head, uint64(len(keys)))
	for _, key := range keys {
		value, ok := w.values[key]
		if !ok {
			value = uint32(align) // only the alignment has no value of its own
		}
		head = appendValue(appendText(head, key), value)
	}
	offset := 0
	for _, t := range w.tensors {
		head = appendEntry(head, t, offset)
		offset += len(t.Data) + padding(len(t.Data), align)
	}
	all := [][]byte{head, make([]byte, padding(len(head), align))}
	for _, t := range w.tensors {
		all = append(all, t.Data, make([]byte, padding(len(t.Data), align)))
	}
	return all
}

// padding is the number of bytes from n to the next multiple of align.
func padding(n, align int) int { return -n & (align - 1) }

// appendText appends a string with its length before it.
func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// appendEntry appends a tensor's entry in the table.
func appendEntry(b []byte, t Tensor, offset int) []byte {
	b = appendText(b, t.Name)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
	for _, d := range slices.Backward(t.Shape) {
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	b = binary.LittleEndian.AppendUint32(b, typeNumber(t.DType))
	return binary.LittleEndian.AppendUint64(b, uint64(offset))
}

// appendValue appends a value that typeOf accepts, with its type before it.
func appendValue(b []byte, v any) []byte {
	typ, elem, _ := typeOf(v)
	b = binary.LittleEndian.AppendUint32(b, uint32(typ))
	x := reflect.ValueOf(v)
	if typ == typeArray {
		b = binary.LittleEndian.AppendUint32(b, uint32(elem))
		b = binary.LittleEndian.AppendUint64(b, uint64(x.Len()))
	}
	switch {
	case typ == typeString:
		return appendText(b, x.String())
	case elem == typeString && typ == typeArray:
		for i := range x.Len() {
			b = appendText(b, x.Index(i).String())
		}
		return b
	}
	b, err := binary.Append(b, binary.LittleEndian, v)
	if err != nil {
		panic(err) // typeOf has let an unsized type through
	}
	return b
}

// kinds maps the Go kinds of metadata values to GGUF's types.
var kinds = map[reflect.Kind]valueType{
	reflect.Uint8: typeU8, reflect.Int8: typeI8, reflect.Uint16: typeU16, reflect.Int16: typeI16,
	reflect.Uint32: typeU32, reflect.Int32: typeI32, reflect.Uint64: typeU64, reflect.Int64: typeI64,
	reflect.Float32: typeF32, reflect.Float64: typeF64, reflect.Bool: typeBool, reflect.String: typeString,
}

// typeOf is the GGUF type of a Go value, and of the elements of an array.
func typeOf(v any) (typ, elem valueType, ok bool) {
	t := reflect.TypeOf(v)
	if t == nil {
		return 0, 0, false
	}
	if t.Kind() == reflect.Slice {
		elem, ok = kinds[t.Elem().Kind()]
		return typeArray, elem, ok
	}
	typ, ok = kinds[t.Kind()]
	return typ, 0, ok
}

// narrow turns an int or []int into the first of u32, i32 and i64 that holds
// it, and leaves other values alone.
func narrow(value any) any {
	switch v := value.(type) {
	case int:
		switch narrowest(v, v) {
		case typeU32:
			return uint32(v)
		case typeI32:
			return int32(v)
		}
		return int64(v)
	case []int:
		if len(v) == 0 {
			return []int32{}
		}
		switch narrowest(slices.Min(v), slices.Max(v)) {
		case typeU32:
			return convertAll[uint32](v)
		case typeI32:
			return convertAll[int32](v)
		}
		return convertAll[int64](v)
	}
	return value
}

// narrowest is the first of u32, i32 and i64 that holds lo to hi.
func narrowest(lo, hi int) valueType {
	switch {
	case lo >= 0 && uint64(hi) <= math.MaxUint32:
		return typeU32
	case lo >= math.MinInt32 && hi <= math.MaxInt32:
		return typeI32
	}
	return typeI64
}

// convertAll converts each element.
func convertAll[T uint32 | int32 | int64](all []int) []T {
	out := make([]T, len(all))
	for i, n := range all {
		out[i] = T(n)
	}
	return out
}
