package main

import (
	"fmt"
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Matrix-vector product of the types with blocks of 32: 4 rows × 1 or 2
// tokens, the whole row, 4 blocks of each row at a time.
//
//	out[t][r] = Σ_k w[r][k]·x[t][k], arithmetic as in dot.go
//
// Shapes: w: 4 rows, stride bytes apart, as in the file; act: the blocks of
// the tokens, [supers] step bytes apart, [tokens]; out: f32 [tokens][4].
//
// The products of 4 rows × 4 blocks are eight vectors of partial sums; 21
// instructions make one vector [block][row] of them, which is scaled as a whole
// and added block after block. Vector instructions on ports 0 and 5 for 4 rows
// of 128 elements, and what a second token adds:
//
//	Q8_0  16 unpack + 8 products + 21 + 4 bias + 19 scales and sums = 68, +45
//	Q4_0  8 more                                                    = 76, +45
//	Q5_0  16 more                                                   = 92, +45
//	with a constant m: less 4 for the bias, 11 more                 = 83, +49
//
// which at 2.9 GHz is 45 GB/s of Q8_0 and 22 of Q4_0. Defined by computeGo.
func gemvBlock() {
	for _, f := range blockFormats {
		for tokens := 1; tokens <= 2; tokens++ {
			gemvBlockFormat(f, tokens)
		}
	}
}

// gemvB is the state of one loop.
type gemvB struct {
	*unpacker
	tokens int
	*rows
	act    Register   // actBlock [tokens]
	step   Register   // bytes from one 256 to the next
	index  VecVirtual // offsets of d: i32 [4 blocks][4 rows]
	spread VecVirtual // i32 0 0 0 0 1 1 1 1 ...: from blocks to [block][row]
	zero   VecVirtual
	result []Register // by token: f32 [4 rows], XMM
}

func gemvBlockFormat(f *blockFormat, tokens int) {
	g := &gemvB{tokens: tokens}
	function(fmt.Sprintf("gemv%sT%d", f.name, tokens),
		"func(out *float32, w *byte, stride uintptr, act *actBlock, step uintptr, supers int)",
		fmt.Sprintf("multiplies 4 rows with %d tokens.", tokens))
	g.unpacker = newUnpacker(f)
	g.rows = newRows(8*f.size, "supers")
	g.act = Load(Param("act"), GP64())
	g.step = Load(Param("step"), GP64())
	g.offsets()
	g.zero = ZMM()
	VPXORD(g.zero, g.zero, g.zero)
	for range tokens {
		x := XMM()
		VPXORD(x, x, x)
		g.result = append(g.result, x)
	}
	g.loop(func() {
		g.fourBlocks(0)
		g.fourBlocks(1)
		ADDQ(g.step, g.act)
	})
	out := Load(Param("out"), GP64())
	for t, x := range g.result {
		VMOVUPS(x, Mem{Base: out, Disp: 16 * t})
	}
	VZEROUPPER()
	RET()
}

// offsets loads the offsets of d.
func (g *gemvB) offsets() {
	g.index, g.spread = ZMM(), ZMM()
	block := ZMM()
	VPBROADCASTD(NewParamAddr("stride", 16), g.index)
	VPMULLD(repeat(0, 1, 2, 3), g.index, g.index)
	VMOVDQU32(dwords(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), g.spread)
	s := uint32(g.blockFormat.size)
	VMOVDQU32(dwords(0, 0, 0, 0, s, s, s, s, 2*s, 2*s, 2*s, 2*s, 3*s, 3*s, 3*s, 3*s), block)
	VPADDD(block, g.index, g.index)
}

// fourBlocks adds blocks 4h to 4h+3 of the eight of each row.
func (g *gemvB) fourBlocks(h int) {
	var acts [2][2]VecVirtual // by token and pair of blocks
	var signs [2][2]OpmaskVirtual
	for t := range g.tokens {
		for i := range 2 {
			a := ZMM()
			VPXORD_BCST(dwords(0x80808080), g.zero, a)
			VPXORD(token(g.act, t, 128*h+64*i), a, a)
			if g.signed {
				signs[t][i] = K()
				VPMOVB2M(a, signs[t][i])
				VPABSB(a, a)
			}
			acts[t][i] = a
		}
	}
	var dots [2][2][4]VecVirtual // by token, pair of blocks and row
	for r, p := range g.row {
		g.prefetch(r, 4*h*g.blockFormat.size, 4*(h+1)*g.blockFormat.size)
		for i := range 2 {
			w := g.pair(g.unpacker, p, (4*h+2*i)*g.blockFormat.size)
			for t := range g.tokens {
				dots[t][i][r] = ZMM()
				VMOVDQA32(g.zero, dots[t][i][r])
				if g.signed {
					v := ZMM()
					VMOVDQA32(w, v)
					VPSUBB(w, g.zero, signs[t][i], v)
					VPDPBUSD(v, acts[t][i], dots[t][i][r])
					continue
				}
				VPDPBUSD(acts[t][i], w, dots[t][i][r])
			}
		}
	}
	d, m := g.scales(h)
	for t := range g.tokens {
		g.add(t, h, g.reduce(t, h, dots[t]), d, m)
	}
}

// scales loads d and m of 4 blocks of 4 rows: f32 [block][row].
func (g *gemvB) scales(h int) (d, m VecVirtual) {
	both, all := ZMM(), K()
	KXNORW(all, all, all)
	VPXORD(both, both, both)
	VPGATHERDD(Mem{Base: g.row[0], Index: g.index, Scale: 1, Disp: 4 * h * g.blockFormat.size}, all, both)
	d = ZMM()
	VPMOVDW(both, d.AsY())
	VCVTPH2PS(d.AsY(), d)
	if g.mins {
		m = ZMM()
		VPSRLD(U8(16), both, both)
		VPMOVDW(both, m.AsY())
		VCVTPH2PS(m.AsY(), m)
	}
	return d, m
}

// reduce adds up the dots: f32 [block][row].
func (g *gemvB) reduce(t, h int, dots [2][4]VecVirtual) VecVirtual {
	a, b := reduceLanes(dots[0], add), reduceLanes(dots[1], add)
	sum, other := ZMM(), ZMM()
	VSHUFI32X4(U8(0x88), b, a, sum)
	VSHUFI32X4(U8(0xdd), b, a, other)
	VPADDD(other, sum, sum)
	if g.bias > 0 {
		VPMOVSXWD(token(g.act, t, actSum32+8*h), other.AsX())
		VPSLLD(U8(bits.TrailingZeros(uint(g.bias))), other.AsX(), other.AsX())
		VPERMD(other, g.spread, other)
		VPSUBD(other, sum, sum)
	}
	VCVTDQ2PS(sum, sum)
	return sum
}

// add adds the scaled sums to the result, block after block.
func (g *gemvB) add(t, h int, sum, d, m VecVirtual) {
	dx, p := ZMM(), ZMM()
	VMOVUPS(token(g.act, t, actScale+16*h), dx.AsX())
	VPERMPS(dx, g.spread, dx)
	VMULPS(d, dx, p)
	for b := range 4 {
		VFMADD231PS(lane(p, b), lane(sum, b), g.result[t])
		if g.mins {
			dsum := XMM()
			VBROADCASTSS(token(g.act, t, actDsum+16*h+4*b), dsum)
			VFMADD231PS(lane(m, b), dsum, g.result[t])
		}
	}
}

// lane is lane b of v, 4 floats.
func lane(v VecVirtual, b int) Register {
	if b == 0 {
		return v.AsX()
	}
	x := XMM()
	VEXTRACTF32X4(U8(b), v, x)
	return x
}
