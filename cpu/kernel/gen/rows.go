package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// rows walks over 4 rows side by side, size bytes of each a turn. It
// prefetches 2 KB ahead of each row; near the ends of the rows that is the
// start of the next 4.
type rows struct {
	row   [4]Register
	size  int
	left  Register // turns
	ahead Register // turns that are prefetched
	fetch Register // bytes from a row's pointer to what is prefetched
	wrap  Register // bytes from the end of a row to its successor in the next 4
}

// fetchAhead is how many bytes of each row are on their way.
const fetchAhead = 2048

// newRows loads the pointers from parameters w and stride and the number of
// turns from the parameter of the given name.
func newRows(size int, turns string) *rows {
	w := &rows{size: size, ahead: GP64(), fetch: GP64(), wrap: GP64()}
	w.row[0] = Load(Param("w"), GP64())
	stride := Load(Param("stride"), GP64())
	for r := 1; r < 4; r++ {
		w.row[r] = GP64()
		LEAQ(Mem{Base: w.row[r-1], Index: stride, Scale: 1}, w.row[r])
	}
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, w.wrap)
	w.left = Load(Param(turns), GP64())
	MOVQ(U32((fetchAhead+size-1)/size), w.ahead)
	CMPQ(w.ahead, w.left)
	CMOVQGT(w.left, w.ahead)
	IMUL3Q(U32(size), w.ahead, w.fetch)
	return w
}

// loop emits the turns.
func (w *rows) loop(turn func()) {
	Label("turn")
	CMPQ(w.left, w.ahead)
	JNE(LabelRef("near"))
	ADDQ(w.wrap, w.fetch)
	Label("near")
	turn()
	for _, p := range w.row {
		ADDQ(U32(w.size), p)
	}
	DECQ(w.left)
	JNZ(LabelRef("turn"))
}

// prefetch fetches bytes lo to hi-1 of a later turn of row r.
func (w *rows) prefetch(r, lo, hi int) {
	for ; lo < hi; lo += 64 {
		PREFETCHT0(Mem{Base: w.row[r], Index: w.fetch, Scale: 1, Disp: lo})
	}
}
