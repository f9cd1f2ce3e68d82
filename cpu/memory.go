package cpu

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/gollm/gollm/device"
)

const (
	alignment = 64      // bytes: a cache line and a vector register
	mapped    = 1 << 20 // bytes: allocations from this size on are memory mappings
)

// memory is an allocation, or the bytes that Load was given.
type memory struct {
	data  []byte
	unmap func([]byte) error // nil: from the Go heap, or not ours
	whole []byte             // what unmap takes
}

// Size is the number of bytes.
func (m *memory) Size() int { return len(m.data) }

// free gives mapped memory back to the system.
func (m *memory) free() error {
	if m.unmap == nil {
		m.data = nil
		return nil
	}
	whole := m.whole
	m.data, m.whole = nil, nil
	return m.unmap(whole)
}

// Alloc returns zeroed memory that starts on a cache line. More than the system has left is an
// error here, rather than an out-of-memory kill at first use.
func (d *dev) Alloc(dt device.DType, dims ...int) (device.Tensor, error) {
	size, err := device.SizeOf(dt, dims...)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cpu: Alloc: %w", err)
	}
	if left := d.left(); d.free > 0 && uint64(size) > left {
		return device.Tensor{}, fmt.Errorf("cpu: Alloc: %v %v needs %d bytes, %d are available", dt, dims, size, left)
	}
	m, err := newMemory(size)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cpu: Alloc: %v %v needs %d bytes: %w", dt, dims, size, err)
	}
	d.used += uint64(size)
	d.mems = append(d.mems, m)
	return device.NewTensor(m, 0, dt, dims...), nil
}

// Scope runs f and returns a function that frees what it allocated.
func (d *dev) Scope(f func() error) (free func() error, err error) {
	before, used := len(d.mems), d.used
	err = f()
	d.ops.Flush()
	mine, size := slices.Clone(d.mems[before:]), d.used-used
	free = func() error {
		if d.mems == nil { // closed
			return nil
		}
		d.ops.Flush()
		d.mems = slices.DeleteFunc(d.mems, func(m *memory) bool { return slices.Contains(mine, m) })
		d.used -= size
		mems := mine
		mine, size = nil, 0
		return freeAll(mems)
	}
	if err != nil {
		return nil, errors.Join(err, free())
	}
	return free, nil
}

// freeAll frees memory and returns the first error.
func freeAll(mems []*memory) error {
	var first error
	for _, m := range mems {
		if err := m.free(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// left is how many bytes Alloc may still allocate: no more than the system has now, and no
// more than it had at the start less what was allocated since, because memory that was
// allocated but never touched still counts as available.
func (d *dev) left() uint64 {
	left := uint64(0)
	if d.used < d.free {
		left = d.free - d.used
	}
	return min(left, availableMemory())
}

// Load returns a tensor over src itself, or over a copy if src is not aligned for the type.
func (d *dev) Load(src []byte, dt device.DType, dims ...int) (device.Tensor, error) {
	size, err := device.SizeOf(dt, dims...)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cpu: Load: %w", err)
	}
	if size != len(src) {
		return device.Tensor{}, fmt.Errorf("cpu: Load: %v %v takes %d bytes, got %d", dt, dims, size, len(src))
	}
	m := &memory{data: src}
	if len(src) > 0 && uintptr(unsafe.Pointer(&src[0]))%elementAlign(dt) != 0 {
		if m, err = newMemory(size); err != nil {
			return device.Tensor{}, fmt.Errorf("cpu: Load: %v %v needs %d bytes: %w", dt, dims, size, err)
		}
		copy(m.data, src)
	}
	d.mems = append(d.mems, m)
	return device.NewTensor(m, 0, dt, dims...), nil
}

// elementAlign is the alignment of the elements of a type, in bytes.
func elementAlign(dt device.DType) uintptr {
	switch dt {
	case device.F32, device.I32:
		return 4
	case device.F16, device.BF16:
		return 2
	}
	return 1
}

// newMemory allocates size zeroed bytes that start on a cache line.
func newMemory(size int) (*memory, error) {
	if size >= mapped {
		if m, err := mapMemory(size); m != nil || err != nil {
			return m, err
		}
	}
	buf := make([]byte, size+alignment)
	skip := int(-uintptr(unsafe.Pointer(&buf[0])) % alignment)
	return &memory{data: buf[skip : skip+size]}, nil
}

// bytesOf is the contents of t.
func bytesOf(t device.Tensor) []byte {
	m, ok := t.Memory().(*memory)
	if !ok { // a call of Check with t costs an allocation
		device.Check(ok, "tensor", "%v is not of this device", t)
	}
	return m.data[t.Offset() : t.Offset()+t.Size()]
}

// f32s is the contents of an F32 tensor.
func f32s(t device.Tensor) []float32 { return elements[float32](t) }

// i32s is the contents of an I32 tensor.
func i32s(t device.Tensor) []int32 { return elements[int32](t) }

// elements is the contents of t as elements of another type.
func elements[T float32 | int32 | uint16 | float64](t device.Tensor) []T { return as[T](bytesOf(t)) }

// as is the same memory as elements of another type.
func as[T float32 | int32 | uint16 | float64](b []byte) []T {
	var v T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(v)))
}
