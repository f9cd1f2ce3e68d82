package device

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Memory is an allocation, opaque to all but the device that made it.
type Memory interface {
	Size() int // bytes
}

// Tensor is a typed, contiguous, row-major view of device memory: a value, cheap to copy and
// to slice. The zero Tensor is absent, which is how optional operands are left out.
//
// The last dimension is a row. A quantized type stores each row as whole blocks, so a view may
// slice any dimension but the last.
type Tensor struct {
	DType DType
	dims  [4]int
	rank  int
	mem   Memory
	off   int // bytes into mem
}

// NewTensor makes a view of mem from byte offset off. Backends call it; the rest of the engine
// gets tensors from [Device.Alloc] and [Device.Load].
func NewTensor(mem Memory, off int, dt DType, dims ...int) Tensor {
	if len(dims) == 0 || len(dims) > 4 {
		panic(fmt.Sprintf("device: tensor of rank %d, want 1 to 4", len(dims)))
	}
	t := Tensor{DType: dt, rank: len(dims), mem: mem, off: off}
	copy(t.dims[:], dims)
	if slices.Min(t.dims[:]) < 0 {
		panic(fmt.Sprintf("device: tensor of %v, want no negative dimension", t))
	}
	if need := off + t.Size(); need > mem.Size() {
		panic(fmt.Sprintf("device: %v needs %d bytes, memory has %d", t, need, mem.Size()))
	}
	return t
}

// Absent reports whether t is the zero Tensor.
func (t Tensor) Absent() bool { return t.rank == 0 }

// Rank is the number of dimensions.
func (t Tensor) Rank() int { return t.rank }

// Dim is the length of dimension i, from 0 (slowest) to Rank-1 (the row).
func (t Tensor) Dim(i int) int { return t.dims[:t.rank][i] }

// Len is the number of elements.
func (t Tensor) Len() int {
	if t.rank == 0 {
		return 0
	}
	n := 1
	for _, d := range t.dims[:t.rank] {
		n *= d
	}
	return n
}

// RowLen is the length of the last dimension.
func (t Tensor) RowLen() int { return t.dims[t.rank-1] }

// Size is the number of bytes that the elements take.
func (t Tensor) Size() int {
	if t.rank == 0 {
		return 0
	}
	row := t.dims[t.rank-1]
	if row == 0 {
		return 0
	}
	return t.Len() / row * t.DType.RowSize(row)
}

// Memory is the allocation that t views.
func (t Tensor) Memory() Memory { return t.mem }

// Offset is the start of t in its memory, in bytes.
func (t Tensor) Offset() int { return t.off }

// Overlaps reports whether t and u share a byte of memory.
func (t Tensor) Overlaps(u Tensor) bool {
	return t.mem == u.mem && t.off < u.off+u.Size() && u.off < t.off+t.Size()
}

// Rows is the view of indices [lo, hi) of the first dimension.
func (t Tensor) Rows(lo, hi int) Tensor {
	if t.rank == 0 || lo < 0 || hi < lo || hi > t.dims[0] {
		panic(fmt.Sprintf("device: Rows(%d, %d) of %v", lo, hi, t))
	}
	v := t
	if t.rank == 1 {
		v.off += t.DType.RowSize(lo)
	} else if t.dims[0] > 0 {
		v.off += t.Size() / t.dims[0] * lo
	}
	v.dims[0] = hi - lo
	return v
}

// At is the view of index i of the first dimension, without that dimension.
func (t Tensor) At(i int) Tensor {
	if t.rank < 2 {
		panic(fmt.Sprintf("device: At(%d) of %v, want rank 2 or more", i, t))
	}
	v := t.Rows(i, i+1)
	copy(v.dims[:], t.dims[1:])
	v.dims[t.rank-1] = 0
	v.rank--
	return v
}

// Reshape is the same memory with other dimensions of the same product.
func (t Tensor) Reshape(dims ...int) Tensor {
	v := NewTensor(t.mem, t.off, t.DType, dims...)
	if v.Len() != t.Len() || (t.DType.Quantized() && v.RowLen() != t.RowLen()) {
		// A copy, so that dims stays on the caller's stack.
		panic(fmt.Sprintf("device: Reshape of %v to %v", t, slices.Clone(dims)))
	}
	return v
}

// String is the type and the shape, for example "F16 [8 4096]".
func (t Tensor) String() string {
	if t.rank == 0 {
		return "absent"
	}
	return t.DType.String() + " " + strings.TrimSpace(fmt.Sprint(t.dims[:t.rank]))
}

// SizeOf is the number of bytes of a tensor, or an error for dimensions that are invalid or
// overflow.
func SizeOf(dt DType, dims ...int) (int, error) {
	if len(dims) == 0 || len(dims) > 4 {
		return 0, fmt.Errorf("%v %v has %d dimensions, want 1 to 4", dt, dims, len(dims))
	}
	if row := dims[len(dims)-1]; row%dt.BlockLen() != 0 {
		return 0, fmt.Errorf("%v %v: a row of %d elements, want a multiple of %d", dt, dims, row, dt.BlockLen())
	}
	n := uint64(dt.BlockSize())
	for i, v := range dims {
		if i == len(dims)-1 {
			v /= dt.BlockLen()
		}
		hi, lo := bits.Mul64(n, uint64(max(v, 0)))
		if v < 0 || hi != 0 || lo > 1<<62 {
			return 0, fmt.Errorf("%v %v is no size of memory", dt, dims)
		}
		n = lo
	}
	return int(n), nil
}
