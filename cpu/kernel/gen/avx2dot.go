package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Products of 4 unpacked rows with one token, 256 elements.
//
//	acc[r] += Σ_k w[r][k]·x[k], arithmetic as in dot.go
//
// Shapes: rows: 4 blocks; act: one actBlock; acc: f32 [4].
//
// VPMADDUBSW takes magnitudes of weights and activations with the weight's
// sign: at most 2·128·127, which fits 16 bits. Types with mins have unsigned
// weights and need no signs. VPMADDWD multiplies with the scales and adds to 32
// bits. Vector instructions for 32 elements of a row: 4 with unsigned weights, 6
// with signed ones, and for 4 rows of 256 about 40 to scale and add the sums.
// Defined by dotBlock.
func dotAVX2() {
	for _, mins := range []bool{false, true} {
		dotSuperAVX2(16, mins)
		dotSuperAVX2(32, mins)
		dotBlocksAVX2(mins)
	}
}

// dotter is the state of one loop.
type dotter struct {
	mins           bool
	acc, rows, act Register
	flip           VecVirtual // 128 in each byte
}

func newDotter(name string, mins bool) *dotter {
	if mins {
		name += "Min"
	}
	function(name+"AVX2", "func(acc *float32, rows *block, act *actBlock)", "multiplies 4 rows with a token.")
	d := &dotter{mins: mins, flip: YMM()}
	d.acc, d.rows, d.act = Load(Param("acc"), GP64()), Load(Param("rows"), GP64()), Load(Param("act"), GP64())
	VMOVDQU(bytes32(128), d.flip)
	return d
}

// row addresses byte disp of row r's block.
func (d *dotter) row(r, disp int) Mem { return Mem{Base: d.rows, Disp: r*blockSize + disp} }

// activations loads activations k to k+31, signed.
func (d *dotter) activations(k int) VecVirtual {
	q := YMM()
	VPXOR(Mem{Base: d.act, Disp: actQ + k}, d.flip, q)
	return q
}

// pairs is the products of 32 weights of row r with q, added in pairs: i16.
func (d *dotter) pairs(r, k int, q VecVirtual) VecVirtual {
	w, p := YMM(), YMM()
	VMOVDQU(d.row(r, blockW+k), w)
	if d.mins {
		VPMADDUBSW(q, w, p)
		return p
	}
	VPSIGNB(w, q, p)
	VPABSB(w, w)
	VPMADDUBSW(p, w, p)
	return p
}

// wordOf repeats word i in both halves of a register.
func wordOf(i int) Mem {
	var b []byte
	for range 16 {
		b = append(b, byte(2*i), byte(2*i+1))
	}
	return table(b)
}

// scales loads the scales of row r as words: half h of word i belongs to
// elements 32i+16h on.
func (d *dotter) scales(group, r int) VecVirtual {
	s := YMM()
	order := []byte{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}
	if group == 32 {
		order = []byte{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}
	}
	VMOVDQU(d.row(r, blockScale), s.AsX())
	VPSHUFB(table(order), s.AsX(), s.AsX())
	VPMOVSXBW(s.AsX(), s)
	return s
}

// dotSuperAVX2 emits the product for blocks of 256 in groups of 16 or 32.
func dotSuperAVX2(group int, mins bool) {
	d := newDotter(fmt.Sprintf("dot%d", group), mins)
	sums := ymms(4)
	var scales []VecVirtual
	for r := range sums {
		scales = append(scales, d.scales(group, r))
	}
	for i := range 8 {
		q := d.activations(32 * i)
		for r, sum := range sums {
			s, p := YMM(), d.pairs(r, 32*i, q)
			VPSHUFB(wordOf(i), scales[r], s)
			if i == 0 {
				VPMADDWD(s, p, sum)
				continue
			}
			VPMADDWD(s, p, p)
			VPADDD(p, sum, sum)
		}
	}
	d.finish(group, sums)
	end()
}

// finish adds the scaled sums, and the mins, to acc.
func (d *dotter) finish(group int, sums []VecVirtual) {
	pairs := [2]Register{XMM(), XMM()} // d d dmin dmin of 2 rows
	x, scale, dmin, dx, acc := XMM(), XMM(), XMM(), XMM(), XMM()
	for h := range pairs {
		VMOVQ(d.row(2*h, blockD), pairs[h])
		VMOVQ(d.row(2*h+1, blockD), x)
		VUNPCKLPS(x, pairs[h], pairs[h])
	}
	VUNPCKLPD(pairs[1], pairs[0], scale)
	VBROADCASTSS(Mem{Base: d.act, Disp: actScale}, dx)
	VMULPS(dx, scale, scale)
	VMOVUPS(Mem{Base: d.acc}, acc)
	sum := reduceRowsAVX2(sums)
	VCVTDQ2PS(sum, sum)
	VFMADD231PS(scale, sum, acc)
	if d.mins {
		VUNPCKHPD(pairs[1], pairs[0], dmin)
		VMULPS(dx, dmin, dmin)
		m := reduceRowsAVX2(d.minSums(group))
		VCVTDQ2PS(m, m)
		VFNMADD231PS(dmin, m, acc)
	}
	VMOVUPS(acc, Mem{Base: d.acc})
}

// minSums is parts of Σ min·Σq for 4 rows.
func (d *dotter) minSums(group int) []VecVirtual {
	m := ymms(4)
	for r, v := range m {
		if group == 16 {
			VPMOVZXBW(d.row(r, blockMin), v)
			VPMADDWD(Mem{Base: d.act, Disp: actSum16}, v, v)
		} else {
			VPMOVZXBW(d.row(r, blockMin), v.AsX())
			VPMADDWD(Mem{Base: d.act, Disp: actSum32}, v.AsX(), v.AsX())
		}
	}
	return m
}

// dotBlocksAVX2 emits the product for blocks of 32.
func dotBlocksAVX2(mins bool) {
	d := newDotter("dotBlocks", mins)
	acc, ones := XMM(), YMM()
	VMOVUPS(Mem{Base: d.acc}, acc)
	VMOVDQU(dwords(0x00010001, 0x00010001, 0x00010001, 0x00010001, 0x00010001, 0x00010001, 0x00010001, 0x00010001), ones)
	for i := range 8 {
		q := d.activations(32 * i)
		var sums []VecVirtual
		for r := range 4 {
			p := d.pairs(r, 32*i, q)
			VPMADDWD(ones, p, p)
			sums = append(sums, p)
		}
		sum := reduceRowsAVX2(sums)
		VCVTDQ2PS(sum, sum)
		dx := XMM()
		VBROADCASTSS(Mem{Base: d.act, Disp: actScale + 4*i}, dx)
		VMULPS(d.column(blockBD+4*i), dx, dx)
		VFMADD231PS(dx, sum, acc)
		if mins {
			VBROADCASTSS(Mem{Base: d.act, Disp: actDsum + 4*i}, dx)
			VFMADD231PS(d.column(blockBM+4*i), dx, acc)
		}
	}
	VMOVUPS(acc, Mem{Base: d.acc})
	end()
}

// column loads the float at disp of 4 rows.
func (d *dotter) column(disp int) Register {
	x := XMM()
	VMOVSS(d.row(0, disp), x)
	for r := 1; r < 4; r++ {
		VINSERTPS(U8(r<<4), d.row(r, disp), x, x)
	}
	return x
}
