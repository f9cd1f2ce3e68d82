package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Packing: 16 unpacked rows become one half of a panel.
//
//	panel.w[k/4][r][k%4] = rows[r].w[k], likewise scales and mins
//
// Shapes: rows: 16 blocks; dst: a panel, or 64 bytes further for its rows 16
// to 31. Columns of 64 bytes of the rows are 16 × 16 dwords, which four rounds
// of shuffles transpose: 64 instructions on port 5 for 16 rows, four columns of
// weights and one of scales, so 20 a row of 256; VPDPBUSD then sums the weights
// of a group for the init values.
func pack() {
	packSuper(16)
	packSuper(32)
	packBlocks()
}

type packing struct {
	dst, rows Register
}

func (p *packing) begin(name string) {
	function(name, "func(dst *panel, rows *block)", "packs 16 unpacked rows into one half of a panel.")
	p.dst = Load(Param("dst"), GP64())
	p.rows = Load(Param("rows"), GP64())
}

// transpose loads 64 bytes at disp from each row and returns the dwords of the
// 16 rows, column by column.
func (p *packing) transpose(disp int) []VecVirtual {
	row, pair, quad, col := vectors(), vectors(), vectors(), vectors()
	for i := range row {
		VMOVDQU32(Mem{Base: p.rows, Disp: disp + i*blockSize}, row[i])
		if i%2 == 1 {
			VPUNPCKLDQ(row[i], row[i-1], pair[i-1])
			VPUNPCKHDQ(row[i], row[i-1], pair[i])
		}
		if i%4 == 3 {
			q := i - 3
			VPUNPCKLQDQ(pair[q+2], pair[q], quad[q])
			VPUNPCKHQDQ(pair[q+2], pair[q], quad[q+1])
			VPUNPCKLQDQ(pair[q+3], pair[q+1], quad[q+2])
			VPUNPCKHQDQ(pair[q+3], pair[q+1], quad[q+3])
		}
	}
	// Lane l of quad[4q+j] is column 4l+j of rows 4q to 4q+3.
	for j := range 4 {
		even, odd := [2]VecVirtual{ZMM(), ZMM()}, [2]VecVirtual{ZMM(), ZMM()}
		for h := range 2 {
			a, b := quad[8*h+j], quad[8*h+4+j]
			VSHUFI32X4(U8(0x88), b, a, even[h])
			VSHUFI32X4(U8(0xdd), b, a, odd[h])
		}
		VSHUFI32X4(U8(0x88), even[1], even[0], col[j])
		VSHUFI32X4(U8(0xdd), even[1], even[0], col[8+j])
		VSHUFI32X4(U8(0x88), odd[1], odd[0], col[4+j])
		VSHUFI32X4(U8(0xdd), odd[1], odd[0], col[12+j])
	}
	return col
}

func vectors() []VecVirtual {
	v := make([]VecVirtual, 16)
	for i := range v {
		v[i] = ZMM()
	}
	return v
}

// weights packs the weights and the init values of groups of n.
func (p *packing) weights(n int) {
	offset, zero, sum := ZMM(), ZMM(), ZMM()
	VPXORD(zero, zero, zero)
	VPBROADCASTB(table([]byte{128}), offset)
	for c := range 4 {
		col := p.transpose(blockW + 64*c)
		for i, v := range col {
			k := 16*c + i
			VMOVDQU32(v, Mem{Base: p.dst, Disp: panelW + k*panelRow})
			if k%(n/4) == 0 {
				VMOVDQA32(zero, sum)
			}
			VPDPBUSD(v, offset, sum)
			if k%(n/4) == n/4-1 {
				VPSUBD(sum, zero, sum)
				VMOVDQU32(sum, Mem{Base: p.dst, Disp: panelInit + k/(n/4)*panelRow})
			}
		}
	}
}

// packSuper emits packing for blocks of 256 in groups of n.
func packSuper(n int) {
	p := &packing{}
	p.begin(map[int]string{16: "pack16", 32: "pack32"}[n])
	p.weights(n)
	col := p.transpose(blockScale)
	shuffle := [2]VecVirtual{ZMM(), ZMM()} // bytes 0,1 and 2,3 to words
	for h := range shuffle {
		VBROADCASTI32X4(minWords(h), shuffle[h])
	}
	v := ZMM()
	for i := range 256 / n / 4 {
		for j := range 4 {
			VPSLLD(U8(24-8*j), col[i], v)
			VPSRAD(U8(24), v, v)
			VCVTDQ2PS(v, v)
			VMOVUPS(v, Mem{Base: p.dst, Disp: panelScale + (4*i+j)*panelRow})
		}
		for h := range shuffle {
			VPSHUFB(shuffle[h], col[4+i], v)
			VMOVDQU32(v, Mem{Base: p.dst, Disp: panelMin + (2*i+h)*panelRow})
		}
	}
	VMOVUPS(col[8], Mem{Base: p.dst, Disp: panelD})
	VMOVUPS(col[9], Mem{Base: p.dst, Disp: panelDmin})
	VZEROUPPER()
	RET()
}

// packBlocks emits packing for blocks of 32.
func packBlocks() {
	p := &packing{}
	p.begin("packBlock")
	p.weights(32)
	for i, v := range p.transpose(blockBD) {
		disp := panelScale + i*panelRow
		if i >= 8 {
			disp = panelMin + (i-8)*panelRow
		}
		VMOVUPS(v, Mem{Base: p.dst, Disp: disp})
	}
	VZEROUPPER()
	RET()
}
