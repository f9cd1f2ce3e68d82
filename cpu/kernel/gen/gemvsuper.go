package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Matrix-vector product of the types with blocks of 256: 4 rows × 1 or 2
// tokens, the whole row.
//
//	out[t][r] = Σ_k w[r][k]·x[t][k], arithmetic as in dot.go
//
// Shapes: w: 4 rows, stride bytes apart, as in the file; act: the blocks of
// the tokens, [supers] step bytes apart, [tokens]; out: f32 [tokens][4].
//
// A block of a row is four vectors of 64 unsigned weights. VPMADDUBSW with the
// activations gives sums of two in 16 bits (at most 2·63·127), VPDPWSSD
// multiplies them with the scales and adds them in 32 (dotPairs has another
// way for types of four and five bits). Sums of 4 rows are reduced together, so
// that scales, mins and the last float steps are done for 4 rows at once.
// Registers for 2 tokens: 8 activations, 8 sums, 2 results, constants, and the
// row at hand. Vector instructions on ports 0 and 5 for a block of one row and
// one token, and what a second token adds:
//
//	Q4_K  6 unpack + 2 scales + 8 products + 12 shared by 4 rows = 28, +16
//	Q5_K  8 more for the fifth bits                              = 36, +16
//	Q6_K  14 + 5 + 8 + 2 bias + 6                                = 35, +15
//
// At 2.9 GHz 28 instructions on two ports pass 30 GB/s of Q4_K, more than a
// core reads from memory. Defined by computeGo.
func gemvSuper() {
	for _, f := range formats {
		for tokens := 1; tokens <= 2; tokens++ {
			if tokens == 1 || !f.signed {
				gemvFormat(f, tokens)
			}
		}
	}
}

// gemv is the state of one loop.
type gemv struct {
	*format
	constants
	tokens int
	*rows
	act    Register         // actBlock [tokens]
	step   Register         // bytes from one 256 to the next
	acts   [2][4]VecVirtual // by token and vector, signed
	zero   VecVirtual
	signs  [4]OpmaskVirtual // of acts, for signed weights
	sums   [2][4]VecVirtual // by token and row
	result []Register       // by token: f32 [4 rows], XMM
	d      Register         // f32 [4 rows], XMM
	dmin   Register         // likewise
	minSum [2]Register      // by token: Σ min·Σq, i32 [4 rows], XMM
	// by token and row: parts of Σ min·Σq, for groups of 16
	rowMins [2][4]VecVirtual
	stack   Mem // 64 bytes
}

func gemvFormat(f *format, tokens int) {
	g := &gemv{format: f, tokens: tokens}
	function(fmt.Sprintf("gemv%sT%d", f.name, tokens),
		"func(out *float32, w *byte, stride uintptr, act *actBlock, step uintptr, supers int)",
		fmt.Sprintf("multiplies 4 rows with %d tokens.", tokens))
	g.stack = AllocLocal(64)
	g.rows = newRows(f.size, "supers")
	g.act = Load(Param("act"), GP64())
	g.step = Load(Param("step"), GP64())
	g.constants = loadConstants(f.masks...)
	for range tokens {
		x := XMM()
		VPXORD(x, x, x)
		g.result = append(g.result, x)
	}
	if f.signed || f.group == 32 || f.bias > 0 {
		g.zero = ZMM()
		VPXORD(g.zero, g.zero, g.zero)
	}
	g.loop(func() {
		g.loadActs()
		scales := g.scales()
		for r := range g.row {
			g.dotRow(r, scales(r))
		}
		g.finish()
		ADDQ(g.step, g.act)
	})
	out := Load(Param("out"), GP64())
	for t, x := range g.result {
		VMOVUPS(x, Mem{Base: out, Disp: 16 * t})
	}
	VZEROUPPER()
	RET()
}

// loadActs puts the activations in the order of the weights.
func (g *gemv) loadActs() {
	for t := range g.tokens {
		for i, half := range g.halves {
			a := ZMM()
			if half[1] == half[0]+32 {
				VMOVDQU32(token(g.act, t, half[0]), a)
			} else {
				VMOVDQU32(token(g.act, t, half[0]), a.AsY())
				VINSERTI64X4(U8(1), token(g.act, t, half[1]), a, a)
			}
			VPXORD_BCST(dwords(0x80808080), a, a)
			if g.signed {
				g.signs[i] = K()
				VPMOVB2M(a, g.signs[i])
				VPABSB(a, a)
			}
			g.acts[t][i] = a
		}
	}
}

// dotRow adds row r's products to its sums; scale gives the scales of vector
// i as words.
func (g *gemv) dotRow(r int, scale func(i int) VecVirtual) {
	g.prefetch(r, 0, g.format.size)
	if g.group == 32 && g.mins {
		g.dotPairs(r, scale)
		return
	}
	g.unpack(g.constants, g.row[r], func(i int, w VecVirtual) {
		s := scale(i)
		for t := range g.tokens {
			p := ZMM()
			if g.signed { // |activation|·(weight with its sign)
				VPSUBB(w, g.zero, g.signs[i], w)
				VPMADDUBSW(w, g.acts[t][i], p)
			} else {
				VPMADDUBSW(g.acts[t][i], w, p)
			}
			if g.sums[t][r] == nil {
				g.sums[t][r] = ZMM()
				VPMADDWD(s, p, g.sums[t][r])
				continue
			}
			VPDPWSSD(s, p, g.sums[t][r])
		}
	})
}

// dotPairs is dotRow for at most five bits and groups of 32: VPDPBUSD adds four
// products, and the sums of two vectors fit into the words of one, so that a
// scale and VPDPWSSD serve both.
func (g *gemv) dotPairs(r int, scale func(i int) VecVirtual) {
	var quads [2]VecVirtual // by token, of the vector before
	g.unpack(g.constants, g.row[r], func(i int, w VecVirtual) {
		var s VecVirtual
		if i%2 == 1 {
			s = scale(i)
		}
		for t := range g.tokens {
			q := ZMM()
			VPXORD(q, q, q)
			VPDPBUSD(g.acts[t][i], w, q)
			if i%2 == 0 {
				quads[t] = q
				continue
			}
			VPACKSSDW(q, quads[t], q)
			if i == 1 {
				g.sums[t][r] = ZMM()
				VPMADDWD(s, q, g.sums[t][r])
				continue
			}
			VPDPWSSD(s, q, g.sums[t][r])
		}
	})
}

// finish reduces the sums of the 4 rows and adds them to the results.
func (g *gemv) finish() {
	for t := range g.tokens {
		dx, p := XMM(), XMM()
		if g.mins && g.group == 16 {
			g.minSum[t] = reduceRows(g.rowMins[t])
			g.rowMins[t] = [4]VecVirtual{}
		}
		VBROADCASTSS(token(g.act, t, actScale), dx)
		sum := reduceRows(g.sums[t])
		g.sums[t] = [4]VecVirtual{}
		VCVTDQ2PS(sum, sum)
		VMULPS(dx, g.d, p)
		VFMADD231PS(p, sum, g.result[t])
		if g.mins {
			VCVTDQ2PS(g.minSum[t], g.minSum[t])
			VMULPS(dx, g.dmin, p)
			VFNMADD231PS(p, g.minSum[t], g.result[t])
		}
	}
}

// add is the step of a sum.
func add(a, b, dst Op) { VPADDD(a, b, dst) }

// reduceLanes reduces the dwords of four vectors within lanes of 128 bits by
// step: each lane is [4 rows].
func reduceLanes(v [4]VecVirtual, step func(a, b, dst Op)) VecVirtual {
	lo, hi := ZMM(), ZMM()
	var pair [2]VecVirtual
	for i := range pair {
		pair[i] = ZMM()
		VPUNPCKLDQ(v[2*i+1], v[2*i], lo)
		VPUNPCKHDQ(v[2*i+1], v[2*i], hi)
		step(lo, hi, pair[i])
	}
	VPUNPCKLQDQ(pair[1], pair[0], lo)
	VPUNPCKHQDQ(pair[1], pair[0], hi)
	step(lo, hi, lo)
	return lo
}

// reduceRows adds up each of four vectors of dwords: i32 [4 rows].
func reduceRows(v [4]VecVirtual) Register {
	lo, hi := reduceLanes(v, add), ZMM()
	VEXTRACTI64X4(U8(1), lo, hi.AsY())
	VPADDD(lo.AsY(), hi.AsY(), lo.AsY())
	VEXTRACTI32X4(U8(1), lo.AsY(), hi.AsX())
	VPADDD(lo.AsX(), hi.AsX(), lo.AsX())
	return lo.AsX()
}
