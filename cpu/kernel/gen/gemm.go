package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Tiled product: 32 rows × up to 6 tokens × 256 elements.
//
//	acc[t][r] += Σ_k w[r][k]·x[t][k], arithmetic as in dot.go
//
// Shapes: panel as in layout.go; act: actBlock [tiles·tokens]; acc: f32
// [tiles·tokens][32], read and written.
//
// Lanes are rows. The two vectors of a tile's 32 rows are multiplied with each
// token's four bytes, broadcast, by VPDPBUSD (activations unsigned, weights signed); the
// init values of the panel take back what the +128 of the activations adds.
// Registers for 6 tokens: 12 int32 sums, 12 float sums, 2 weights, 1 broadcast:
// 12 chains cover the latency of VPDPBUSD. Vector instructions on ports 0 and 5
// for 16 rows, one token and 256 elements: 64 VPDPBUSD and, by kind,
//
//	group of 32   8·2 (convert, scale) + 2          = 82
//	with mins     + 4 VPDPWSSD + 3                  = 89
//	group of 16   16·2 + 2                          = 98
//	with mins     + 8 VPDPWSSD + 3                  = 109
//	block of 32   8·3 (convert, d·dx, sum)          = 88
//	with mins     + 8                               = 96
//
// so that 59 to 78 % of them are products. Defined by dotBlock.
func gemm() {
	for tokens := 1; tokens <= 6; tokens++ {
		for _, mins := range []bool{false, true} {
			gemmSuper(tokens, 32, mins)
			gemmSuper(tokens, 16, mins)
			gemmBlocks(tokens, mins)
		}
	}
}

// tile is the state that the loops of this file share.
type tile struct {
	tokens int
	acc    Register     // f32 [tokens][32]
	panel  Register     // start of the panel
	w      Register     // weights of the current group
	act    Register     // actBlock [tokens]
	tiles  Register     // to do
	sum    []VecVirtual // float sums, [tokens][2]
	ints   []VecVirtual // int32 sums, [tokens][2]
}

func (t *tile) begin(name, extra string) {
	function(name, "func(acc *float32, panel *panel, act *actBlock, tiles int"+extra+")", fmt.Sprintf("adds the product of a panel with tiles of %d tokens to acc.", t.tokens))
	t.acc = Load(Param("acc"), GP64())
	t.panel = Load(Param("panel"), GP64())
	t.act = Load(Param("act"), GP64())
	t.tiles = Load(Param("tiles"), GP64())
	t.w = GP64()
	for range 2 * t.tokens {
		t.sum = append(t.sum, ZMM())
		t.ints = append(t.ints, ZMM())
	}
}

// next ends the loop over tiles.
func (t *tile) next() {
	ADDQ(U32(t.tokens*actSize), t.act)
	ADDQ(U32(t.tokens*panelRow), t.acc)
	DECQ(t.tiles)
	JNZ(LabelRef("tile"))
	VZEROUPPER()
	RET()
}

// token addresses byte disp of token i's block, from a base for token 0.
func token(base Register, i, disp int) Mem { return Mem{Base: base, Disp: i*actSize + disp} }

// at is the vector of rows of half h at byte disp from base.
func at(base Register, disp, h int) Mem { return Mem{Base: base, Disp: disp + 64*h} }

// dotGroup sums w·q over n elements into t.ints, starting from the init values.
func (t *tile) dotGroup(act, init Register, n, actDisp, wDisp, initDisp int) {
	w, q := [2]VecVirtual{ZMM(), ZMM()}, ZMM()
	for i := range t.ints {
		VMOVDQU32(at(init, initDisp, i%2), t.ints[i])
	}
	for k := range n / 4 {
		for h := range w {
			VMOVDQU32(at(t.w, wDisp+panelRow*k, h), w[h])
		}
		for i := range t.tokens {
			VPBROADCASTD(token(act, i, actDisp+4*k), q)
			for h := range w {
				VPDPBUSD(w[h], q, t.ints[2*i+h])
			}
		}
	}
}

// gemmSuper emits the loop for blocks of 256 in groups of 16 or 32.
func gemmSuper(tokens, group int, mins bool) {
	t := &tile{tokens: tokens}
	name := fmt.Sprintf("gemm%d", group)
	if mins {
		name += "Min"
	}
	t.begin(fmt.Sprintf("%sT%d", name, tokens), "")
	Label("tile")
	MOVQ(t.panel, t.w)
	for _, s := range t.sum {
		VPXORD(s, s, s)
	}
	// Two groups of 16 or one of 32 per iteration.
	act, scale, n := GP64(), GP64(), GP64()
	MOVQ(t.act, act)
	MOVQ(t.panel, scale)
	MOVQ(U32(8), n)
	label := "groups"
	Label(label)
	parts := 32 / group
	for g := range parts {
		t.dotGroup(act, scale, group, actQ+g*group, g*group/4*panelRow, panelInit+g*panelRow)
		for i, s := range t.sum {
			VCVTDQ2PS(t.ints[i], t.ints[i])
			VFMADD231PS(at(scale, panelScale+g*panelRow, i%2), t.ints[i], s)
		}
	}
	ADDQ(U32(8*panelRow), t.w)
	ADDQ(U32(parts*panelRow), scale)
	ADDQ(U32(32), act)
	DECQ(n)
	JNZ(LabelRef(label))
	if mins {
		t.dotMins(group)
	}
	t.finish(mins)
	t.next()
}

// dotMins leaves Σ min·Σq in t.ints.
func (t *tile) dotMins(group int) {
	m, q := [2]VecVirtual{ZMM(), ZMM()}, ZMM()
	for _, s := range t.ints {
		VPXORD(s, s, s)
	}
	sums := actSum32
	if group == 16 {
		sums = actSum16
	}
	for pair := range 128 / group {
		for h := range m {
			VMOVDQU32(at(t.panel, panelMin+pair*panelRow, h), m[h])
		}
		for i := range t.tokens {
			VPBROADCASTD(token(t.act, i, sums+4*pair), q)
			for h := range m {
				VPDPWSSD(m[h], q, t.ints[2*i+h])
			}
		}
	}
}

// finish adds sum·(d·dx) − mins·(dmin·dx) to acc.
func (t *tile) finish(mins bool) {
	dx, p, a := ZMM(), ZMM(), ZMM()
	for i, s := range t.sum {
		if i%2 == 0 {
			VBROADCASTSS(token(t.act, i/2, actScale), dx)
		}
		out := Mem{Base: t.acc, Disp: 64 * i}
		VMOVUPS(out, a)
		VMULPS(at(t.panel, panelD, i%2), dx, p)
		VFMADD231PS(p, s, a)
		if mins {
			VCVTDQ2PS(t.ints[i], t.ints[i])
			VMULPS(at(t.panel, panelDmin, i%2), dx, p)
			VFNMADD231PS(p, t.ints[i], a)
		}
		VMOVUPS(a, out)
	}
}

// gemmBlocks emits the loop for blocks of 32.
func gemmBlocks(tokens int, mins bool) {
	t := &tile{tokens: tokens}
	name := "gemmBlock"
	if mins {
		name += "Min"
	}
	t.begin(fmt.Sprintf("%sT%d", name, tokens), ", blocks int")
	blocks, n := Load(Param("blocks"), GP64()), GP64()
	Label("tile")
	MOVQ(t.panel, t.w)
	MOVQ(blocks, n)
	for i, s := range t.sum {
		VMOVUPS(Mem{Base: t.acc, Disp: 64 * i}, s)
	}
	act, scales := GP64(), GP64() // walk over the activations and their scales
	MOVQ(t.act, act)
	MOVQ(t.act, scales)
	rows := GP64() // walks over the rows' values
	MOVQ(t.panel, rows)
	dx, p := ZMM(), ZMM()
	Label("blocks")
	t.dotGroup(act, rows, 32, actQ, 0, panelInit)
	for i, s := range t.sum {
		VCVTDQ2PS(t.ints[i], t.ints[i])
		if i%2 == 0 {
			VBROADCASTSS(token(scales, i/2, actScale), dx)
		}
		VMULPS(at(rows, panelScale, i%2), dx, p)
		VFMADD231PS(p, t.ints[i], s)
	}
	if mins {
		for i, s := range t.sum {
			if i%2 == 0 {
				VBROADCASTSS(token(scales, i/2, actDsum), dx)
			}
			VFMADD231PS(at(rows, panelMin, i%2), dx, s)
		}
	}
	ADDQ(U32(8*panelRow), t.w)
	ADDQ(U32(panelRow), rows)
	ADDQ(U32(32), act)
	ADDQ(U32(4), scales)
	DECQ(n)
	JNZ(LabelRef("blocks"))
	for i, s := range t.sum {
		VMOVUPS(s, Mem{Base: t.acc, Disp: 64 * i})
	}
	t.next()
}
