package kernel

import "unsafe"

// panelRows is the number of rows of a panel.
const panelRows = 32

// panel is 256 weights of 32 rows, rows side by side: what the tiled loops
// read. It holds what block says of each row, with two differences: scales are
// float32, and init[g][r] = −128·Σ w over group g undoes that the activations
// are stored with 128 added. The vector loops know the offsets of the fields.
//
// With AVX2 integer scales are pairs of equal int16, and init[0][r] is
// −128·Σ scale·w over all groups.
type panel struct {
	w     [64][panelRows][4]int8 // [k/4][row][k%4]
	init  [16][panelRows]int32   // by group
	scale [16][panelRows]float32 // by group, or blockD by block of 32
	min   [8][panelRows][2]int16 // by pair of groups; float32 blockM by block of 32
	d     [panelRows]float32
	dmin  [panelRows]float32

	low [64][panelRows][4]int8 // AVX2: weights of 8 bits are 16·w + low
}

// The layout that the vector loops are generated for.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(panel{}.init)-8192]
	_ = [1]struct{}{}[unsafe.Offsetof(panel{}.scale)-10240]
	_ = [1]struct{}{}[unsafe.Offsetof(panel{}.min)-12288]
	_ = [1]struct{}{}[unsafe.Offsetof(panel{}.d)-13312]
	_ = [1]struct{}{}[unsafe.Offsetof(panel{}.dmin)-13440]
	_ = [1]struct{}{}[unsafe.Offsetof(panel{}.low)-13568]
)

// half is the panel seen from row 16h on, for loops that fill 16 rows.
func (p *panel) half(h int) *panel {
	return (*panel)(unsafe.Add(unsafe.Pointer(p), 64*h))
}
