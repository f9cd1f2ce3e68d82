package vec

import (
	"math/bits"
	"unsafe"

	"github.com/gollm/gollm/cpu/kernel"
	"golang.org/x/sys/cpu"
)

//go:generate go -C ../kernel/gen run ./vec -isa avx512 -out ../../vec/vec_avx512_amd64.s -stubs ../../vec/vec_avx512_amd64.go -pkg vec
//go:generate go -C ../kernel/gen run ./vec -isa avx2 -out ../../vec/vec_avx2_amd64.s -stubs ../../vec/vec_avx2_amd64.go -pkg vec

// assembly is the loops of one instruction set. Loops count in registers, and the portable
// definition computes the remainder; those with exponentials count in elements and mask the
// remainder, so that a result does not depend on its place.
type assembly struct {
	isa          kernel.ISA
	lanes        int // f32 in a register
	add          func(dst, x *float32, n int)
	addScaled    func(dst, x *float32, scale float32, n int)
	exps         func(dst, x *float32, top float32, n int) float64
	sumSquares   func(x *float32, n int) float64
	scaleMul     func(dst, x, w *float32, scale float32, n int)
	swiGLU       func(dst, gate, up *float32, n int)
	rotateHalves func(x, y, cos, sin *float32, n int)
	rotatePairs  func(x, cos, sin *float32, n int)
	toHalf       func(dst *uint16, x *float32, n int)
	fromHalf     func(dst *float32, x *uint16, n int)
	logTop       func(top, x *float32, scale, shift float32, n int)
	logSum       func(sum, top, x *float32, scale, shift float32, n int)
	softmax      func(s, top, sum, scale *float32, rows int)
	columns      func(dst *float32, k *uint16, dim, blocks int)
	tiles        []strip     // widest first
	scores       [2][3]score // of f16 and f32; of 1, 2 and 4 heads
	wide         int         // columns of gather
	gather       [2][3]gathering
	gatherOne    [2][3]gathering // one register of columns

	weightedSoftmax func(s, w, top, sum, scale *float32, rows int)
	scoresAt        [2][3]scoreAt
	gatherAt        [2][3]gatheringAt
	gatherOneAt     [2][3]gatheringAt
	mirror          [2][3]mirrorScore // of 8 and 4 bits; of 1, 2 and 4 heads
	atLeast         func(bits *uint64, x *float32, bound float32, words int)
	writeTile       func(dst, x *float32, scale float32, stride, heads int)
	largest         func(x *float32, n int) float32
	largestOfRows   func(dst, x *float32, stride, rows, n int)
	count           func(x *float32, bound float32, n int) int
	between         func(dst, x *float32, low, high float32, length int) (n, above int) // nil: the definition
	masses          func(x *float32, top, high float32, n int) (all, above float64)
	labels          func(dst, q *float32, k, ahead *uint16, n int)
	signs           [5]func(dst *float32, q, k *int32)                                        // by words; nil: the definition
	positions       func(dst *int32, set *uint64, words int) int                              // nil: the definition
	places          func(at *int, positions *int32, starts *int, lo, span, head, dim int) int // nil: the definition
}

type (
	// strip is a product of TileRows rows with some columns.
	strip struct {
		cols int
		do   func(c, a, b, scale *float32, n, ldc, lda, ldb int)
	}
	score     = func(dst, q *float32, k, ahead *byte, dim, chunks, blocks int)
	gathering = func(acc, p, scale *float32, v, ahead *byte, dim, n int)

	mirrorScore = func(dst *float32, q *int32, unit *float32, k, ahead *int32, words int)

	scoreAt     = func(dst, q *float32, k *byte, at, next *int, dim, chunks, blocks int)
	gatheringAt = func(acc, p, scale *float32, v *byte, at, next *int, dim, n int)
)

var avx512 = assembly{
	isa: kernel.AVX512, lanes: 16, wide: 64,
	add: addAVX512, addScaled: addScaledAVX512, exps: expsAVX512, sumSquares: sumSquaresAVX512, scaleMul: scaleMulAVX512, swiGLU: swiGLUAVX512,
	rotateHalves: rotateHalvesAVX512, rotatePairs: rotatePairsAVX512, toHalf: toHalfAVX512, fromHalf: fromHalfAVX512,
	logTop: logTopAVX512, logSum: logSumAVX512,
	softmax: softmaxAVX512, columns: columnsAVX512,
	tiles: []strip{{64, tile64AVX512}, {32, tile32AVX512}, {16, tile16AVX512}},
	scores: [2][3]score{
		{scoresHalf1AVX512, scoresHalf2AVX512, scoresHalf4AVX512},
		{scoresFull1AVX512, scoresFull2AVX512, scoresFull4AVX512},
	},
	gather: [2][3]gathering{
		{gatherHalf1x64AVX512, gatherHalf2x64AVX512, gatherHalf4x64AVX512},
		{gatherFull1x64AVX512, gatherFull2x64AVX512, gatherFull4x64AVX512},
	},
	gatherOne: [2][3]gathering{
		{gatherHalf1x16AVX512, gatherHalf2x16AVX512, gatherHalf4x16AVX512},
		{gatherFull1x16AVX512, gatherFull2x16AVX512, gatherFull4x16AVX512},
	},
	weightedSoftmax: weightedSoftmaxAVX512, atLeast: atLeastAVX512, positions: positionsAVX512, places: placesAVX512,
	writeTile: writeTileAVX512, largest: largestAVX512, largestOfRows: largestOfRowsAVX512, count: countAVX512, between: betweenAVX512, masses: massesAVX512, labels: labelsAVX512, signs: [5]func(dst *float32, q, k *int32){1: signs1AVX512, 4: signs4AVX512},
	mirror: [2][3]mirrorScore{
		{mirror8Scores1AVX512, mirror8Scores2AVX512, mirror8Scores4AVX512},
		{mirror4Scores1AVX512, mirror4Scores2AVX512, mirror4Scores4AVX512},
	},
	scoresAt: [2][3]scoreAt{
		{scoresAtHalf1AVX512, scoresAtHalf2AVX512, scoresAtHalf4AVX512},
		{scoresAtFull1AVX512, scoresAtFull2AVX512, scoresAtFull4AVX512},
	},
	gatherAt: [2][3]gatheringAt{
		{gatherAtHalf1x64AVX512, gatherAtHalf2x64AVX512, gatherAtHalf4x64AVX512},
		{gatherAtFull1x64AVX512, gatherAtFull2x64AVX512, gatherAtFull4x64AVX512},
	},
	gatherOneAt: [2][3]gatheringAt{
		{gatherAtHalf1x16AVX512, gatherAtHalf2x16AVX512, gatherAtHalf4x16AVX512},
		{gatherAtFull1x16AVX512, gatherAtFull2x16AVX512, gatherAtFull4x16AVX512},
	},
}

var avx2 = assembly{
	isa: kernel.AVX2, lanes: 8, wide: 16,
	add: addAVX2, addScaled: addScaledAVX2, exps: expsAVX2, sumSquares: sumSquaresAVX2, scaleMul: scaleMulAVX2, swiGLU: swiGLUAVX2,
	rotateHalves: rotateHalvesAVX2, rotatePairs: rotatePairsAVX2, toHalf: toHalfAVX2, fromHalf: fromHalfAVX2,
	logTop: logTopAVX2, logSum: logSumAVX2,
	softmax: softmaxAVX2, columns: columnsAVX2,
	tiles: []strip{{16, tile16AVX2}},
	scores: [2][3]score{
		{scoresHalf1AVX2, scoresHalf2AVX2, scoresHalf4AVX2},
		{scoresFull1AVX2, scoresFull2AVX2, scoresFull4AVX2},
	},
	gather: [2][3]gathering{
		{gatherHalf1x16AVX2, gatherHalf2x16AVX2, gatherHalf4x16AVX2},
		{gatherFull1x16AVX2, gatherFull2x16AVX2, gatherFull4x16AVX2},
	},
	gatherOne: [2][3]gathering{
		{gatherHalf1x8AVX2, gatherHalf2x8AVX2, gatherHalf4x8AVX2},
		{gatherFull1x8AVX2, gatherFull2x8AVX2, gatherFull4x8AVX2},
	},
	weightedSoftmax: weightedSoftmaxAVX2, atLeast: atLeastAVX2,
	writeTile: writeTileAVX2, largest: largestAVX2, largestOfRows: largestOfRowsAVX2, count: countAVX2, masses: massesAVX2, labels: labelsAVX2,
	mirror: [2][3]mirrorScore{
		{mirror8Scores1AVX2, mirror8Scores2AVX2, mirror8Scores4AVX2},
		{mirror4Scores1AVX2, mirror4Scores2AVX2, mirror4Scores4AVX2},
	},
	scoresAt: [2][3]scoreAt{
		{scoresAtHalf1AVX2, scoresAtHalf2AVX2, scoresAtHalf4AVX2},
		{scoresAtFull1AVX2, scoresAtFull2AVX2, scoresAtFull4AVX2},
	},
	gatherAt: [2][3]gatheringAt{
		{gatherAtHalf1x16AVX2, gatherAtHalf2x16AVX2, gatherAtHalf4x16AVX2},
		{gatherAtFull1x16AVX2, gatherAtFull2x16AVX2, gatherAtFull4x16AVX2},
	},
	gatherOneAt: [2][3]gatheringAt{
		{gatherAtHalf1x8AVX2, gatherAtHalf2x8AVX2, gatherAtHalf4x8AVX2},
		{gatherAtFull1x8AVX2, gatherAtFull2x8AVX2, gatherAtFull4x8AVX2},
	},
}

// native is the sets beyond the definition that this processor runs.
func native() []*Kernels {
	x := &cpu.X86
	var all []*Kernels
	if x.HasAVX2 && x.HasFMA && x.HasF16C {
		all = append(all, avx2.kernels())
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI {
			all = append(all, avx512.kernels())
		}
	}
	return all
}

// kernels is the set made of these loops.
func (a *assembly) kernels() *Kernels {
	return &Kernels{
		ISA:          a.isa,
		Add:          a.Add,
		AddScaled:    a.AddScaled,
		Exps:         a.Exps,
		SumSquares:   a.SumSquares,
		ScaleMul:     a.ScaleMul,
		SwiGLU:       a.SwiGLU,
		RotateHalves: a.RotateHalves,
		RotatePairs:  a.RotatePairs,
		ToHalf:       a.ToHalf,
		FromHalf:     a.FromHalf,
		LogTop:       a.LogTop,
		LogSum:       a.LogSum,
		Softmax:      a.Softmax,
		Multiply:     a.Multiply,
		Columns:      a.Columns,
		Scores:       a.Scores,
		WriteTile:    a.WriteTile,
		Gather:       a.Gather,

		WeightedSoftmax: a.WeightedSoftmax,
		ScoresAt:        a.ScoresAt,
		GatherAt:        a.GatherAt,
		MirrorScores:    a.MirrorScores,
		AtLeast:         a.AtLeast,
		Largest:         a.Largest,
		LargestOfRows:   a.LargestOfRows,
		Count:           a.Count,
		Between:         a.Between,
		Masses:          a.Masses,
		Labels:          a.Labels,
		Signs:           a.Signs,
		Positions:       a.Positions,
		Places:          a.Places,
	}
}

// whole is how many of n elements fill registers.
func (a *assembly) whole(n int) int { return n &^ (a.lanes - 1) }

func (a *assembly) Add(dst, x []float32) {
	x = x[:len(dst)]
	n := a.whole(len(dst))
	a.add(at(dst), at(x), n/a.lanes)
	add(dst[n:], x[n:])
}

func (a *assembly) AddScaled(dst, x []float32, scale float32) {
	x = x[:len(dst)]
	n := a.whole(len(dst))
	a.addScaled(at(dst), at(x), scale, n/a.lanes)
	addScaled(dst[n:], x[n:], scale)
}

func (a *assembly) Exps(dst, x []float32, top float32) float64 {
	x = x[:len(dst)]
	return a.exps(at(dst), at(x), top, len(dst))
}

func (a *assembly) SumSquares(x []float32) float64 {
	n := a.whole(len(x))
	return a.sumSquares(at(x), n/a.lanes) + sumSquares(x[n:])
}

func (a *assembly) ScaleMul(dst, x, w []float32, scale float32) {
	x, w = x[:len(dst)], w[:len(dst)]
	n := a.whole(len(dst))
	a.scaleMul(at(dst), at(x), at(w), scale, n/a.lanes)
	scaleMul(dst[n:], x[n:], w[n:], scale)
}

func (a *assembly) SwiGLU(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	a.swiGLU(at(dst), at(gate), at(up), len(dst))
}

func (a *assembly) RotateHalves(x, cos, sin []float32) {
	pairs := len(cos)
	lo, hi, sin := x[:pairs], x[pairs:2*pairs], sin[:pairs]
	n := a.whole(pairs)
	a.rotateHalves(at(lo), at(hi), at(cos), at(sin), n/a.lanes)
	rotate(lo[n:], hi[n:], cos[n:], sin[n:])
}

func (a *assembly) RotatePairs(x, cos, sin []float32) {
	x, sin = x[:2*len(cos)], sin[:len(cos)]
	n := a.whole(len(x))
	a.rotatePairs(at(x), at(cos), at(sin), n/a.lanes)
	rotatePairs(x[n:], cos[n/2:], sin[n/2:])
}

func (a *assembly) ToHalf(dst []uint16, x []float32) {
	x = x[:len(dst)]
	n := a.whole(len(dst))
	a.toHalf(at(dst), at(x), n/a.lanes)
	toHalf(dst[n:], x[n:])
}

func (a *assembly) FromHalf(dst []float32, x []uint16) {
	x = x[:len(dst)]
	n := a.whole(len(dst))
	a.fromHalf(at(dst), at(x), n/a.lanes)
	fromHalf(dst[n:], x[n:])
}

func (a *assembly) LogTop(top, x []float32, scale, shift float32) {
	top = top[:len(x)]
	a.logTop(at(top), at(x), scale, shift, len(x))
}

func (a *assembly) LogSum(sum, top, x []float32, scale, shift float32) {
	sum, top = sum[:len(x)], top[:len(x)]
	a.logSum(at(sum), at(top), at(x), scale, shift, len(x))
}

func (a *assembly) Softmax(s, top, sum, scale []float32) {
	rows := len(top)
	s, sum, scale = s[:rows*Tile], sum[:rows], scale[:rows]
	a.softmax(at(s), at(top), at(sum), at(scale), rows)
}

func (a *assembly) Multiply(c, x, b Matrix, scale []float32, n, cols int) {
	_ = c.Data[(TileRows-1)*c.Stride+cols-1]
	_ = x.Data[(TileRows-1)*x.Stride+n-1]
	_ = b.Data[(n-1)*b.Stride+cols-1]
	for _, s := range a.tiles {
		for ; cols >= s.cols; cols -= s.cols {
			s.do(at(c.Data), at(x.Data), at(b.Data), at(scale), n, 4*c.Stride, 4*x.Stride, 4*b.Stride)
			if cols > s.cols {
				c, b = c.From(0, s.cols), b.From(0, s.cols)
			}
		}
	}
}

func (a *assembly) Columns(dst []float32, k Rows, n, dim int) {
	if k.Half == nil || dim%a.lanes != 0 {
		columns(dst, k, n, dim)
		return
	}
	dst = dst[:dim*Tile]
	j := 0
	for ; j < n; j += a.lanes { // keys beyond n are there, and made zero below
		rows := k.Half[j*dim : (j+a.lanes)*dim]
		a.columns(at(dst[j:]), at(rows), dim, dim/a.lanes)
	}
	if n == Tile {
		return
	}
	for i := 0; i < len(dst); i += Tile {
		clear(dst[i+n : i+Tile])
	}
}

// kind is 0 for rows of f16 and 1 for rows of f32.
func kind(r Rows) int {
	if r.Half != nil {
		return 0
	}
	return 1
}

// fetch is what a kernel prefetches: ahead, or k itself where that is absent.
func fetch(k, ahead Rows) *byte {
	if p := ahead.pointer(); p != nil {
		return (*byte)(p)
	}
	return (*byte)(k.pointer())
}

// group is the largest number of heads up to n that has a loop, by its index.
func group(n int) (heads, index int) {
	switch {
	case n >= 4:
		return 4, 2
	case n >= 2:
		return 2, 1
	}
	return 1, 0
}

func (a *assembly) Scores(dst, q []float32, k, ahead Rows, heads, n, dim int) {
	_, _, _ = dst[heads*Tile-1], q[heads*dim-1], k.Slice(0, Tile*dim)
	next := fetch(k, ahead)
	for h := 0; h < heads; {
		g, i := group(heads - h)
		keys := a.lanes / g
		a.scores[kind(k)][i](at(dst[h*Tile:]), at(q[h*dim:]), (*byte)(k.pointer()), next, dim, dim/a.lanes, (n+keys-1)/keys)
		h += g
	}
}

func (a *assembly) Gather(acc, p, scale []float32, v, ahead Rows, heads, n, dim int) {
	_, _, _, _ = acc[heads*dim-1], p[heads*Tile-1], scale[heads-1], v.Slice(0, n*dim)
	next := fetch(v, ahead)
	size := 2 + 2*kind(v) // bytes
	for h := 0; h < heads; {
		g, i := group(heads - h)
		for c := 0; c < dim; {
			do, cols := a.gather[kind(v)][i], a.wide
			if dim-c < cols {
				do, cols = a.gatherOne[kind(v)][i], a.lanes
			}
			from := (*byte)(unsafe.Add(v.pointer(), c*size))
			do(at(acc[h*dim+c:]), at(p[h*Tile:]), at(scale[h:]), from, (*byte)(unsafe.Add(unsafe.Pointer(next), c*size)), dim, n)
			c += cols
		}
		h += g
	}
}

func (a *assembly) WeightedSoftmax(s, w, top, sum, scale []float32) {
	rows := len(top)
	s, w, sum, scale = s[:rows*Tile], w[:Tile], sum[:rows], scale[:rows]
	a.weightedSoftmax(at(s), at(w), at(top), at(sum), at(scale), rows)
}

func (a *assembly) ScoresAt(dst, q []float32, k Rows, from, next *[Tile]int, heads, n, dim int) {
	_, _ = dst[heads*Tile-1], q[heads*dim-1]
	for h := 0; h < heads; {
		g, i := group(heads - h)
		keys := a.lanes / g
		a.scoresAt[kind(k)][i](at(dst[h*Tile:]), at(q[h*dim:]), (*byte)(k.pointer()), &from[0], &next[0], dim, dim/a.lanes, (n+keys-1)/keys)
		h += g
	}
}

func (a *assembly) GatherAt(acc, p, scale []float32, v Rows, from, next *[Tile]int, heads, n, dim int) {
	_, _, _, _ = acc[heads*dim-1], p[heads*Tile-1], scale[heads-1], from[n-1]
	size := 2 + 2*kind(v) // bytes
	for h := 0; h < heads; {
		g, i := group(heads - h)
		for c := 0; c < dim; {
			do, cols := a.gatherAt[kind(v)][i], a.wide
			if dim-c < cols {
				do, cols = a.gatherOneAt[kind(v)][i], a.lanes
			}
			do(at(acc[h*dim+c:]), at(p[h*Tile:]), at(scale[h:]), (*byte)(unsafe.Add(v.pointer(), c*size)), &from[0], &next[0], dim, n)
			c += cols
		}
		h += g
	}
}

func (a *assembly) MirrorScores(dst []float32, q MirrorQueries, k, ahead []int32) {
	heads, words, loops := len(q.Units), len(k)/Tile-1, &a.mirror[0]
	if mirrorBits(q, k) == 4 {
		loops = &a.mirror[1]
	}
	_ = dst[heads*Tile-1]
	if ahead == nil {
		ahead = k
	}
	for h := 0; h < heads; {
		g, i := group(heads - h)
		from := q.From(h)
		loops[i](at(dst[h*Tile:]), at(from.Words), at(from.Units), at(k), at(ahead), words)
		h += g
	}
}

func (a *assembly) AtLeast(bits []uint64, x []float32, bound float32) {
	n := len(x) / 64
	if n > 0 {
		_ = bits[n-1]
		a.atLeast(at(bits), at(x), bound, n)
	}
	atLeast(bits[n:], x[64*n:], bound)
}

func (a *assembly) WriteTile(dst []float32, stride int, x []float32, scale float32) {
	heads := len(x) / Tile
	if heads == 0 {
		return
	}
	_ = dst[(heads-1)*stride : (heads-1)*stride+Tile]
	a.writeTile(at(dst), at(x), scale, 4*stride, heads)
}

func (a *assembly) Largest(x []float32) float32 { return a.largest(at(x), len(x)) }

func (a *assembly) LargestOfRows(dst, x []float32, stride, rows int) {
	if rows > 0 {
		_ = x[(rows-1)*stride : (rows-1)*stride+len(dst)]
	}
	a.largestOfRows(at(dst), at(x), 4*stride, rows, len(dst))
}

func (a *assembly) Count(x []float32, bound float32) int { return a.count(at(x), bound, len(x)) }

func (a *assembly) Between(dst, x []float32, low, high float32) (n, above int) {
	if a.between == nil {
		return between(dst, x, low, high)
	}
	_ = dst[:len(x)+BetweenSlack]
	return a.between(at(dst), at(x), low, high, len(x))
}

func (a *assembly) Masses(x []float32, top, high float32) (all, above float64) {
	n := len(x) &^ (a.lanes/2 - 1)
	all, above = a.masses(at(x), top, high, n/(a.lanes/2))
	restAll, restAbove := masses(x[n:], top, high)
	return all + restAll, above + restAbove
}

func (a *assembly) Labels(dst, q []float32, k, ahead []uint16) {
	_, _ = dst[Tile-1], k[len(q)*Tile-1]
	if ahead == nil {
		ahead = k
	}
	a.labels(at(dst), at(q), at(k), at(ahead), len(q))
}

func (a *assembly) Signs(dst []float32, q, k []int32) {
	if len(q) >= len(a.signs) || a.signs[len(q)] == nil {
		signs(dst, q, k)
		return
	}
	_, _ = dst[Tile-1], k[Tile*len(q)-1]
	a.signs[len(q)](at(dst), at(q), at(k))
}

func (a *assembly) Positions(dst []int32, set []uint64) int {
	if a.positions == nil {
		return positions(dst, set)
	}
	n := 0
	for _, w := range set {
		n += bits.OnesCount64(w)
	}
	dst = dst[:n]
	return a.positions(at(dst), at(set), len(set))
}

func (a *assembly) Places(to *[Tile]int, positions []int32, x *Index) bool {
	if a.places == nil || x.Lo < 0 || x.Hi <= x.Lo || x.Hi > len(x.Starts)*Tile {
		return places(to, positions, x)
	}
	_ = positions[Tile-1]
	return a.places(&to[0], at(positions), at(x.Starts), x.Lo, x.Hi-x.Lo, x.Head, x.Dim) == 0
}

// at is where s starts.
func at[T any](s []T) *T { return unsafe.SliceData(s) }
