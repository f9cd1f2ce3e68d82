package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Tiled product with AVX2: 32 rows × up to 6 tokens × 256 elements.
//
//	acc[t][r] += Σ_k w[r][k]·x[t][k], arithmetic as in dot.go
//
// Shapes: panel as in layout.go, packed by avx2pack.go; act: actBlock
// [tiles·tokens]; acc: f32 [tiles·tokens][32], read and written.
//
// Lanes are rows, 8 at a time. VPMADDUBSW multiplies each token's four bytes,
// broadcast, with the weights of the rows. Its sums of two (at most 2·255·|w|)
// are added in 16 bits for as many steps of four elements as fit: 8 with
// weights of −8 to 7, 4 with 0 to 15, 2 with 0 to 31. VPMADDWD multiplies with
// the scales, or ones, and adds in 32 bits. Weights of 8 bits are split into
// 16·high + low, high from −8 to 7 and low from 0 to 15, in two passes. Registers
// for 6 tokens: 6 sums of 32 bits or float, 6 of 16, 1 weight, 1 broadcast.
// Vector instructions for 8 rows, one token and 32 elements: 18 (Q4_K, 8 of
// them products) to 38 (Q8_0, 16), on three ports.
//
// The init values take back what the +128 of the activations adds: one for all
// 256 elements, or one for each block of 32. Defined by dotBlock.
func gemmAVX2() {
	for tokens := 1; tokens <= 6; tokens++ {
		for _, k := range tileKinds {
			t := &tileAVX2{tileKind: k, tokens: tokens}
			if k.group > 0 {
				t.super()
			} else {
				t.blocks()
			}
		}
	}
}

// tileKind is what the loops of a type differ in.
type tileKind struct {
	name  string
	group int // elements under one integer scale; 0: none, blocks of 32
	mins  bool
	steps int  // steps of four elements that are added in 16 bits
	split bool // weights are in two parts
}

var tileKinds = []tileKind{
	{"32Min4", 32, true, 4, false},
	{"32Min2", 32, true, 2, false},
	{"16By2", 16, false, 2, false},
	{"16By4", 16, false, 4, false},
	{"16Min4", 16, true, 4, false},
	{"32Split", 32, false, 4, true},
	{"Block8", 0, false, 8, false},
	{"Block4", 0, false, 4, false},
	{"BlockMin4", 0, true, 4, false},
	{"BlockMin2", 0, true, 2, false},
	{"BlockSplit", 0, false, 4, true},
}

// tileAVX2 is the state of a loop.
type tileAVX2 struct {
	tileKind
	tokens int
	acc    Register // f32 [tokens][32], of the current rows
	panel  Register // start of the panel, at the current rows
	act    Register // actBlock [tokens]
	tiles  Register // to do
	part   Register // 8 rows, to do
	sum    []VecVirtual
	words  []VecVirtual // sums in 16 bits
}

func (t *tileAVX2) begin(extra string) {
	function(fmt.Sprintf("gemm%sT%dAVX2", t.name, t.tokens), "func(acc *float32, panel *panel, act *actBlock, tiles int"+extra+")",
		fmt.Sprintf("adds the product of a panel with tiles of %d tokens to acc.", t.tokens))
	t.acc = Load(Param("acc"), GP64())
	t.panel = Load(Param("panel"), GP64())
	t.act = Load(Param("act"), GP64())
	t.tiles = Load(Param("tiles"), GP64())
	t.part = GP64()
	t.sum, t.words = ymms(t.tokens), ymms(t.tokens)
}

// parts emits the loops over tiles and over 8 rows of them.
func (t *tileAVX2) parts(body func()) {
	Label("tile")
	MOVQ(U32(4), t.part)
	Label("part")
	body()
	ADDQ(U32(32), t.acc)
	ADDQ(U32(32), t.panel)
	DECQ(t.part)
	JNZ(LabelRef("part"))
	SUBQ(U32(panelRow), t.panel)
	ADDQ(U32((t.tokens-1)*panelRow), t.acc)
	ADDQ(U32(t.tokens*actSize), t.act)
	DECQ(t.tiles)
	JNZ(LabelRef("tile"))
	end()
}

// out is the sums of token i.
func (t *tileAVX2) out(i int) Mem { return Mem{Base: t.acc, Disp: i * panelRow} }

// products sums w·q over n elements at w and act into t.words, and passes
// them on whenever they are full; high tells which part of the weights.
func (t *tileAVX2) products(act, w Register, n, actDisp, wDisp int, full func(high, last bool)) {
	if t.split {
		t.pass(act, w, n, 8, actDisp, wDisp, func(bool) { full(true, false) })
		wDisp += panelLow
	}
	t.pass(act, w, n, t.steps, actDisp, wDisp, func(last bool) { full(false, last) })
}

func (t *tileAVX2) pass(act, w Register, n, steps, actDisp, wDisp int, full func(last bool)) {
	v, q := YMM(), YMM()
	for k := range n / 4 {
		VMOVDQU(Mem{Base: w, Disp: wDisp + panelRow*k}, v)
		for i, sum := range t.words {
			if k%steps == 0 {
				VPBROADCASTD(token(act, i, actDisp+4*k), sum)
				VPMADDUBSW(v, sum, sum)
				continue
			}
			VPBROADCASTD(token(act, i, actDisp+4*k), q)
			VPMADDUBSW(v, q, q)
			VPADDW(q, sum, sum)
		}
		if k%steps == steps-1 {
			full(k == n/4-1)
		}
	}
}

// super emits the loop for blocks of 256.
func (t *tileAVX2) super() {
	t.begin("")
	w, act, scale, n := GP64(), GP64(), GP64(), GP64()
	t.parts(func() {
		MOVQ(t.panel, w)
		MOVQ(t.panel, scale)
		MOVQ(t.act, act)
		for _, s := range t.sum {
			VMOVDQU(Mem{Base: t.panel, Disp: panelInit}, s)
		}
		// Two groups of 16 or one of 32 per iteration.
		MOVQ(U32(8), n)
		Label("groups")
		parts := 32 / t.group
		for g := range parts {
			t.products(act, w, t.group, actQ+g*t.group, panelW+g*t.group/4*panelRow, func(high, last bool) {
				s := YMM()
				VMOVDQU(Mem{Base: scale, Disp: panelScale + g*panelRow}, s)
				if high {
					VPSLLW(U8(4), s, s)
				}
				for i, words := range t.words {
					VPMADDWD(s, words, words)
					VPADDD(words, t.sum[i], t.sum[i])
				}
			})
		}
		ADDQ(U32(8*panelRow), w)
		ADDQ(U32(parts*panelRow), scale)
		ADDQ(U32(32), act)
		DECQ(n)
		JNZ(LabelRef("groups"))
		t.finish()
	})
}

// finish adds sum·(d·dx) − mins·(dmin·dx) to acc.
func (t *tileAVX2) finish() {
	if t.mins {
		t.dotMins()
	}
	dx, p, a := YMM(), YMM(), YMM()
	for i, s := range t.sum {
		VBROADCASTSS(token(t.act, i, actScale), dx)
		VMOVUPS(t.out(i), a)
		VCVTDQ2PS(s, s)
		VMULPS(Mem{Base: t.panel, Disp: panelD}, dx, p)
		VFMADD231PS(p, s, a)
		if t.mins {
			VCVTDQ2PS(t.words[i], t.words[i])
			VMULPS(Mem{Base: t.panel, Disp: panelDmin}, dx, p)
			VFNMADD231PS(p, t.words[i], a)
		}
		VMOVUPS(a, t.out(i))
	}
}

// dotMins leaves Σ min·Σq in t.words.
func (t *tileAVX2) dotMins() {
	m, q := YMM(), YMM()
	sums := actSum32
	if t.group == 16 {
		sums = actSum16
	}
	for pair := range 128 / t.group {
		VMOVDQU(Mem{Base: t.panel, Disp: panelMin + pair*panelRow}, m)
		for i, sum := range t.words {
			VPBROADCASTD(token(t.act, i, sums+4*pair), q)
			if pair == 0 {
				VPMADDWD(m, q, sum)
				continue
			}
			VPMADDWD(m, q, q)
			VPADDD(q, sum, sum)
		}
	}
}

// blocks emits the loop for blocks of 32. Sums that are not complete wait on
// the stack.
func (t *tileAVX2) blocks() {
	t.begin(", blocks int")
	stack := AllocLocal(32 * t.tokens)
	w, act, scales, rows, n := GP64(), GP64(), GP64(), GP64(), GP64()
	t.parts(func() {
		MOVQ(t.panel, w)
		MOVQ(t.panel, rows)
		MOVQ(t.act, act)
		MOVQ(t.act, scales)
		for i, s := range t.sum {
			VMOVUPS(t.out(i), s)
		}
		Load(Param("blocks"), n)
		Label("blocks")
		first := true
		t.products(act, w, 32, actQ, panelW, func(high, last bool) {
			ones := bytePairs(1, 0)
			if high {
				ones = bytePairs(16, 0)
			}
			for i, words := range t.words {
				VPMADDWD(ones, words, words)
				if !first {
					VPADDD(stack.Offset(32*i), words, words)
				}
				if !last {
					VMOVDQU(words, stack.Offset(32*i))
				}
			}
			first = false
		})
		t.addBlock(rows, scales)
		ADDQ(U32(8*panelRow), w)
		ADDQ(U32(panelRow), rows)
		ADDQ(U32(32), act)
		ADDQ(U32(4), scales)
		DECQ(n)
		JNZ(LabelRef("blocks"))
		for i, s := range t.sum {
			VMOVUPS(s, t.out(i))
		}
	})
}

// addBlock adds the scaled sums of a block, and its constant, to t.sum.
func (t *tileAVX2) addBlock(rows, scales Register) {
	x := YMM()
	for i, ints := range t.words {
		VPADDD(Mem{Base: rows, Disp: panelInit}, ints, ints)
		VCVTDQ2PS(ints, ints)
		VBROADCASTSS(token(scales, i, actScale), x)
		VMULPS(Mem{Base: rows, Disp: panelScale}, x, x)
		VFMADD231PS(x, ints, t.sum[i])
		if t.mins {
			VBROADCASTSS(token(scales, i, actDsum), x)
			VFMADD231PS(Mem{Base: rows, Disp: panelMin}, x, t.sum[i])
		}
	}
}
