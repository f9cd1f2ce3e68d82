package device

import (
	"fmt"
	"slices"
)

// The checks of this file are called by every backend at the head of an op, so
// that misuse panics with the same words everywhere:
// "device: MatMul: dst F32 [8 4096], want F32 [8 11008]".

// CheckShape panics unless t has the type and dimensions wanted; a dimension of
// -1 is any.
func CheckShape(op, name string, t Tensor, dt DType, dims ...int) {
	ok := t.DType == dt && t.rank == len(dims)
	for i := 0; ok && i < len(dims); i++ {
		ok = dims[i] == -1 || t.dims[i] == dims[i]
	}
	if !ok {
		// A copy, so that dims stays on the caller's stack.
		panic(fmt.Sprintf("device: %s: %s %v, want %v %v", op, name, t, dt, slices.Clone(dims)))
	}
}

// Check panics with the op and the message unless ok. Tensors and numbers among
// its arguments cost an allocation even so: the ops of a decode step call it
// inside an if.
func Check(ok bool, op, format string, args ...any) {
	if !ok {
		panic("device: " + op + ": " + fmt.Sprintf(format, args...))
	}
}

// CheckLike panics unless t has the type and shape of want.
func CheckLike(op, name string, t, want Tensor) {
	if t.DType != want.DType || t.rank != want.rank || t.dims != want.dims {
		CheckShape(op, name, t, want.DType, want.dims[:want.rank]...)
	}
}

// RowsPerSlot is the number of rows of a call that belong to each slot of kv:
// all of them when kv has one slot, one when it has as many slots as rows.
// Any other pair panics.
func RowsPerSlot(op string, rows int, kv KV) int {
	slots := kv.Len.Dim(0)
	switch slots {
	case 1:
		return rows
	case rows:
		return 1
	}
	panic(fmt.Sprintf("device: %s: %d rows for %d slots, want 1 slot or as many as rows", op, rows, slots))
}

// CheckKV panics unless the four tensors of kv belong together.
func CheckKV(op string, kv KV) {
	slots := kv.Pages.Dim(0)
	CheckShape(op, "pages", kv.Pages, I32, slots, -1)
	CheckShape(op, "len", kv.Len, I32, slots)
	if !(kv.K.DType == F16 || kv.K.DType == F32) {
		Check(false, op, "k %v, want F16 or F32", kv.K)
	}
	CheckShape(op, "k", kv.K, kv.K.DType, -1, -1, PageLen, -1)
	CheckShape(op, "v", kv.V, kv.K.DType, kv.K.dims[:kv.K.rank]...)
}
