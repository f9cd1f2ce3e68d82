package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// rows reads 4 rows side by side, size bytes of each an iteration, and prefetches
// what comes after. The rows of consecutive calls follow each other in memory,
// so that each of the 4 is one long stream: the end of a row prefetches the
// start of the next.
type rows struct {
	row  [4]Register
	size int
	left Register // turns
}

// fetchAhead is how many bytes of each stream are on their way.
const fetchAhead = 2048

// newRows loads the pointers from parameters w and stride and the number of
// turns from the parameter of the given name.
func newRows(size int, turns string) *rows {
	w := &rows{size: size}
	w.row[0] = Load(Param("w"), GP64())
	stride := Load(Param("stride"), GP64())
	for r := 1; r < 4; r++ {
		w.row[r] = GP64()
		LEAQ(Mem{Base: w.row[r-1], Index: stride, Scale: 1}, w.row[r])
	}
	w.left = Load(Param(turns), GP64())
	return w
}

// loop emits the turns.
func (w *rows) loop(turn func()) {
	Label("turn")
	turn()
	for _, p := range w.row {
		ADDQ(U32(w.size), p)
	}
	DECQ(w.left)
	JNZ(LabelRef("turn"))
}

// prefetch fetches bytes lo to hi-1 of a later iteration of row r.
func (w *rows) prefetch(r, lo, hi int) {
	for ; lo < hi; lo += 64 {
		PREFETCHT0(Mem{Base: w.row[r], Disp: fetchAhead + lo})
	}
}
