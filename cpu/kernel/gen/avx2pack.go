package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Packing for the tiled product with AVX2: 16 unpacked rows become one half of
// a panel, 8 at a time.
//
// Shapes: as in pack.go, but for what a panel of AVX2 holds otherwise: scales
// are pairs of equal 16-bit integers, init has one value for all 256 elements
// of a row where they have scales, and split weights have their low halves in
// low. Each 32 bytes of 8 rows are 8 × 8 dwords, transposed with 24 shuffles.
// Defined by dotBlock, through the product.
func packAVX2() {
	for _, split := range []bool{false, true} {
		packSuperAVX2(32, split)
		packBlocksAVX2(split)
	}
	packSuperAVX2(16, false)
}

// packerAVX2 is the state of a loop.
type packerAVX2 struct {
	packing
	split bool
}

// eachEight emits the loop over twice 8 rows.
func (p *packerAVX2) eachEight(name string, body func()) {
	if p.split {
		name += "Split"
	}
	p.begin(name + "AVX2")
	n := GP64()
	MOVQ(U32(2), n)
	Label("eight")
	body()
	ADDQ(U32(32), p.dst)
	ADDQ(U32(8*blockSize), p.rows)
	DECQ(n)
	JNZ(LabelRef("eight"))
	end()
}

// transposeAVX2 loads 32 bytes at disp from each of 8 rows and returns their
// dwords, column by column.
func (p *packerAVX2) transposeAVX2(disp int) []VecVirtual {
	var quad [8]VecVirtual // lane l of quad[4h+j]: column 4l+j of rows 4h to 4h+3
	for h := range 2 {
		row, pair := ymms(4), ymms(4)
		for r := range row {
			VMOVDQU(Mem{Base: p.rows, Disp: disp + (4*h+r)*blockSize}, row[r])
		}
		for i := range 2 {
			VPUNPCKLDQ(row[2*i+1], row[2*i], pair[2*i])
			VPUNPCKHDQ(row[2*i+1], row[2*i], pair[2*i+1])
		}
		for j := range 2 {
			quad[4*h+2*j], quad[4*h+2*j+1] = YMM(), YMM()
			VPUNPCKLQDQ(pair[2+j], pair[j], quad[4*h+2*j])
			VPUNPCKHQDQ(pair[2+j], pair[j], quad[4*h+2*j+1])
		}
	}
	col := ymms(8)
	for j := range 4 {
		VPERM2I128(U8(0x20), quad[4+j], quad[j], col[j])
		VPERM2I128(U8(0x31), quad[4+j], quad[j], col[4+j])
	}
	return col
}

// to addresses the current 8 rows of line i of a field of the panel.
func (p *packerAVX2) to(field, i int) Mem { return Mem{Base: p.dst, Disp: field + i*panelRow} }

// weights packs the weights; group gets Σw of each n, as pairs of words.
func (p *packerAVX2) weights(n int, group func(g int, sum VecVirtual)) {
	sum := YMM()
	for c := range 8 {
		for j, v := range p.transposeAVX2(blockW + 32*c) {
			k, x := 8*c+j, YMM()
			VMOVDQU(bytes32(1), x)
			VPMADDUBSW(v, x, x)
			if k%(n/4) == 0 {
				VMOVDQA(x, sum)
			} else {
				VPADDW(x, sum, sum)
			}
			if k%(n/4) == n/4-1 {
				group(k/(n/4), sum)
			}
			if p.split {
				VPAND(bytes32(15), v, x)
				VMOVDQU(x, p.to(panelW+panelLow, k))
				VPSRLW(U8(4), v, v)
				VPAND(bytes32(15), v, v)
				VPXOR(bytes32(8), v, v)
				VPSUBB(bytes32(8), v, v)
			}
			VMOVDQU(v, p.to(panelW, k))
		}
	}
}

// negated stores −128·v.
func negated(v VecVirtual, to Mem) {
	zero := YMM()
	clearYMM(zero)
	VPSUBD(v, zero, v)
	VPSLLD(U8(7), v, v)
	VMOVDQU(v, to)
}

// packSuperAVX2 emits packing for blocks of 256 in groups of n.
func packSuperAVX2(n int, split bool) {
	p := &packerAVX2{split: split}
	p.eachEight(map[int]string{16: "pack16", 32: "pack32"}[n], func() {
		col := p.transposeAVX2(blockScale)
		v, hi := YMM(), YMM()
		for i := range 256 / n / 4 {
			for j := range 4 {
				VPSLLD(U8(24-8*j), col[i], v)
				VPSRAD(U8(24), v, v)
				VPSLLD(U8(16), v, hi)
				VPBLENDW(U8(0xaa), hi, v, v)
				VMOVDQU(v, p.to(panelScale, 4*i+j))
			}
			for h := range 2 {
				VBROADCASTI128(minWords(h), v)
				VPSHUFB(v, col[4+i], v)
				VMOVDQU(v, p.to(panelMin, 2*i+h))
			}
		}
		col = p.transposeAVX2(blockD)
		VMOVUPS(col[0], p.to(panelD, 0))
		VMOVUPS(col[1], p.to(panelDmin, 0))
		total := YMM()
		clearYMM(total)
		p.weights(n, func(g int, sum VecVirtual) {
			VPMADDWD(p.to(panelScale, g), sum, sum)
			VPADDD(sum, total, total)
		})
		negated(total, p.to(panelInit, 0))
	})
}

// packBlocksAVX2 emits packing for blocks of 32.
func packBlocksAVX2(split bool) {
	p := &packerAVX2{split: split}
	p.eachEight("packBlock", func() {
		for i, v := range p.transposeAVX2(blockBD) {
			VMOVUPS(v, p.to(panelScale, i))
		}
		for i, v := range p.transposeAVX2(blockBM) {
			VMOVUPS(v, p.to(panelMin, i))
		}
		p.weights(32, func(g int, sum VecVirtual) {
			VPMADDWD(bytePairs(1, 0), sum, sum)
			negated(sum, p.to(panelInit, g))
		})
	})
}
