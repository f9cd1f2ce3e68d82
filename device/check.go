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

// CheckEmbed panics unless the arguments of Embed fit together.
func CheckEmbed(dst, table, ids Tensor) {
	const op = "Embed"
	CheckShape(op, "table", table, table.DType, -1, -1)
	CheckShape(op, "ids", ids, I32, -1)
	CheckShape(op, "dst", dst, F32, ids.Dim(0), table.Dim(1))
}

// CheckGather panics unless the arguments of Gather fit together.
func CheckGather(dst, src, rows Tensor) {
	const op = "Gather"
	CheckShape(op, "src", src, F32, -1, -1)
	CheckShape(op, "rows", rows, I32, -1)
	CheckShape(op, "dst", dst, F32, rows.Dim(0), src.Dim(1))
}

// CheckCopy panics unless the arguments of Copy fit together.
func CheckCopy(dst, src Tensor) {
	if dst.DType != src.DType || dst.Len() != src.Len() {
		Check(false, "Copy", "dst %v, want the type and length of src %v", dst, src)
	}
}

// CheckAdd panics unless the arguments of Add fit together.
func CheckAdd(dst, x Tensor) {
	const op = "Add"
	if x.DType != F32 {
		Check(false, op, "x %v, want F32", x)
	}
	CheckLike(op, "dst", dst, x)
}

// CheckRMSNorm panics unless the arguments of RMSNorm fit together.
func CheckRMSNorm(dst, x, w Tensor) {
	const op = "RMSNorm"
	CheckShape(op, "x", x, F32, -1, -1)
	CheckShape(op, "w", w, F32, x.Dim(1))
	CheckShape(op, "dst", dst, F32, x.Dim(0), x.Dim(1))
}

// CheckRope panics unless the arguments of Rope fit together.
func CheckRope(x, pos Tensor, r Rope) {
	const op = "Rope"
	CheckShape(op, "x", x, F32, -1, -1, -1)
	CheckShape(op, "pos", pos, I32, x.Dim(0))
	CheckShape(op, "freqs", r.Freqs, F32, -1)
	if pairs, dim := r.Freqs.Dim(0), x.Dim(2); 2*pairs > dim {
		Check(false, op, "%d pairs, want no more than half of dim %d", pairs, dim)
	}
}

// CheckSwiGLU panics unless the arguments of SwiGLU fit together.
func CheckSwiGLU(dst, gate, up Tensor) {
	const op = "SwiGLU"
	CheckShape(op, "gate", gate, F32, -1, -1)
	CheckLike(op, "up", up, gate)
	CheckLike(op, "dst", dst, gate)
}

// CheckAppend panics unless the arguments of Append fit together.
func CheckAppend(kv KV, k, v Tensor) {
	const op = "Append"
	CheckKV(op, kv)
	CheckShape(op, "k", k, F32, -1, kv.K.Dim(1), kv.K.Dim(3))
	CheckLike(op, "v", v, k)
	RowsPerSlot(op, k.Dim(0), kv)
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

// CheckAttend panics unless the arguments of Attend fit together.
func CheckAttend(dst, q Tensor, kv KV, p Plan) {
	const op = "Attend"
	CheckKV(op, kv)
	CheckShape(op, "q", q, F32, -1, -1, kv.K.Dim(3))
	CheckShape(op, "dst", dst, F32, q.dims[0], q.dims[1], q.dims[2])
	Check(q.Dim(1)%kv.K.Dim(1) == 0, op, "%d heads, want a multiple of the %d kv heads", q.Dim(1), kv.K.Dim(1))
	RowsPerSlot(op, q.Dim(0), kv)
	if p.Middle == Blocks || p.Middle == Tokens {
		CheckShape(op, "list index", p.List.Index, I32, -1, -1, -1)
		CheckShape(op, "list count", p.List.Count, I32, p.List.Index.dims[0], p.List.Index.dims[1])
		Check(q.Dim(1)%p.List.Index.Dim(1) == 0, op, "list for %d heads, want a divisor of %d", p.List.Index.Dim(1), q.Dim(1))
	}
	Check(!p.Mixture || !p.List.Weight.Absent(), op, "a mixture needs weights")
}
