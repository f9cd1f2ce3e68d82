package main

import (
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// scales emits the unpacking of the scales of 4 rows: it sets d, and dmin and
// the sums of the mins where the type has them, and returns for each row what
// gives the scales of vector i, a word for two weights.
func (g *gemv) scales() func(r int) func(i int) VecVirtual {
	switch g.name {
	case "Q4_K", "Q5_K":
		return g.scalesQ4()
	case "IQ4_XS":
		g.halfAt(0)
		return g.scalesIQ4
	}
	var neg []Register // −Σq of groups of 16, by token
	for t := range g.tokens {
		if g.bias > 0 {
			neg = append(neg, YMM())
			VPSUBW(token(g.act, t, actSum16), g.zero.AsY(), neg[t])
		}
	}
	switch g.name {
	case "Q6_K":
		g.halfAt(208)
	case "Q3_K":
		g.scalesQ3()
	case "Q2_K":
		g.halvesQ2()
	}
	return func(r int) func(i int) VecVirtual {
		s := ZMM() // words: the 16 scales of the row
		switch g.name {
		case "Q6_K":
			VPMOVSXBW(Mem{Base: g.row[r], Disp: 192}, s.AsY())
		case "Q3_K":
			VPMOVSXBW(g.stack.Offset(16*r), s.AsY())
		case "Q2_K":
			g.scalesQ2(r, s)
		}
		for t := range neg { // the bias starts the sum: −bias·Σ scale·Σq
			g.sums[t][r] = ZMM()
			VPMADDWD(neg[t], s.AsY(), g.sums[t][r].AsY())
			VPSLLD(U8(bits.TrailingZeros(uint(g.bias))), g.sums[t][r].AsY(), g.sums[t][r].AsY())
		}
		return func(i int) VecVirtual {
			var index []int
			for lane := range 4 {
				for range 8 {
					index = append(index, g.halves[i][lane/2]/16+lane%2)
				}
			}
			return permuteWords(s, index)
		}
	}
}

// permuteWords is the words of s that index names.
func permuteWords(s VecVirtual, index []int) VecVirtual {
	v := ZMM()
	VMOVDQU32(words(index...), v)
	VPERMW(s, v, v)
	return v
}

// halfAt loads the half-precision d of 4 rows from byte disp of each.
func (g *gemv) halfAt(disp int) {
	x := XMM()
	VPXORD(x, x, x)
	for r, p := range g.row {
		VPINSRW(U8(r), Mem{Base: p, Disp: disp}, x, x)
	}
	g.d = XMM()
	VCVTPH2PS(x, g.d)
}

// setHalves converts h, eight half-precision numbers: d and dmin of 4 rows.
func (g *gemv) setHalves(h Register) {
	f := YMM()
	VCVTPH2PS(h, f)
	g.d, g.dmin = f.AsX(), XMM()
	VEXTRACTF32X4(U8(1), f, g.dmin)
}

// repeat is four copies of four dwords.
func repeat(v ...uint32) Mem {
	var all []uint32
	for range 4 {
		all = append(all, v...)
	}
	return dwords(all...)
}

// sixBits unpacks the scales and mins of Q4_K: of each 16 bytes that open a
// block, the last 12 become 8 bytes of scales and 8 of mins.
//
// With dwords u0 u1 u2: scales u0&3f, u2&0f | u0>>2&30; mins likewise from u1
// and u2>>4.
func sixBits(header Register, low, high Register) {
	VPSHUFD(U8(1|3<<2|2<<4|3<<6), header, low)
	VPSRLVD(repeat(0, 0, 0, 4), low, low)
	VPANDD(repeat(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f), low, low)
	VPSHUFD(U8(0|1<<2|0<<4|2<<6), header, high)
	VPSRLD(U8(2), high, high)
	VPTERNLOGD(U8(0xf8), repeat(0, 0x30303030, 0, 0x30303030), high, low)
}

// scalesQ4 handles Q4_K and Q5_K: a row to each lane of 128 bits.
func (g *gemv) scalesQ4() func(r int) func(i int) VecVirtual {
	header, s, high := ZMM(), ZMM(), ZMM()
	VMOVDQU32(Mem{Base: g.row[0]}, header.AsX())
	for r := 1; r < 4; r++ {
		VINSERTI32X4(U8(r), Mem{Base: g.row[r]}, header, header)
	}
	h := permuteWords(header, []int{0, 8, 16, 24, 1, 9, 17, 25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	g.setHalves(h.AsX())
	sixBits(header, s, high)
	mins := ZMM()
	VPUNPCKHBW(g.zero, s, mins)
	VPUNPCKLBW(g.zero, s, s)
	for t := range g.tokens {
		sum, x := ZMM(), ZMM()
		VBROADCASTI32X4(token(g.act, t, actSum32), sum)
		VPMADDWD(sum, mins, sum)
		VPSHUFD(U8(0x4e), sum, x)
		VPADDD(x, sum, sum)
		VPSHUFD(U8(0xb1), sum, x)
		VPADDD(x, sum, sum)
		VMOVDQU32(repeat(0, 4, 8, 12), x)
		VPERMD(sum, x, x)
		g.minSum[t] = x.AsX()
	}
	// Dwords of twice a scale: VPERMD is one step, VPERMW two.
	VPUNPCKHWD(s, s, high)
	VPUNPCKLWD(s, s, s)
	fours := [2]VecVirtual{s, high}
	return func(r int) func(i int) VecVirtual {
		return func(i int) VecVirtual { return g.pairScales(fours[i/2], r, i) }
	}
}

// pairScales is the scales of row r for the packed sums of vectors i-1 and i:
// four words for each half of the one, then of the other, in a lane of 128 bits.
// fours holds twice four scales of each row.
func (g *gemv) pairScales(fours VecVirtual, r, i int) VecVirtual {
	var index []uint32
	for lane := range 4 {
		for dword := range 4 {
			group := g.halves[i-1+dword/2][lane/2] / g.group
			index = append(index, uint32(4*r+group%4))
		}
	}
	v := ZMM()
	VMOVDQU32(dwords(index...), v)
	VPERMD(fours, v, v)
	return v
}

// scalesQ3 leaves the 16 scales of each row in a lane of the stack. The 16
// bytes that end a block hold them in bytes 2 to 13: nibbles in 8, then 4 with
// two high bits of four scales each.
func (g *gemv) scalesQ3() {
	tail, low, high := ZMM(), ZMM(), ZMM()
	VMOVDQU32(Mem{Base: g.row[0], Disp: 94}, tail.AsX())
	for r := 1; r < 4; r++ {
		VINSERTI32X4(U8(r), Mem{Base: g.row[r], Disp: 94}, tail, tail)
	}
	h := permuteWords(tail, []int{7, 15, 23, 31, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	g.d = XMM()
	VCVTPH2PS(h.AsX(), g.d)
	sixBitsQ3(tail, low, high)
	VMOVDQU32(low, g.stack)
}

// sixBitsQ3 unpacks the scales of Q3_K from the 16 bytes that end a block.
func sixBitsQ3(tail, low, high Register) {
	VPSHUFB(repeat(0x05040302, 0x09080706, 0x05040302, 0x09080706), tail, low)
	VPSRLVD(repeat(0, 0, 4, 4), low, low)
	VPANDD(repeat(0x0f0f0f0f, 0x0f0f0f0f, 0x0f0f0f0f, 0x0f0f0f0f), low, low)
	VPSHUFB(repeat(0x0d0c0b0a, 0x0d0c0b0a, 0x0d0c0b0a, 0x0d0c0b0a), tail, high)
	VPROLVD(repeat(4, 2, 0, 30), high, high)
	VPTERNLOGD(U8(0xf8), repeat(0x30303030, 0x30303030, 0x30303030, 0x30303030), high, low)
	VPSUBB(repeat(0x20202020, 0x20202020, 0x20202020, 0x20202020), low, low)
}

// halvesQ2 loads d and dmin of 4 rows.
func (g *gemv) halvesQ2() {
	x := XMM()
	VPXORD(x, x, x)
	for r, p := range g.row {
		VPINSRD(U8(r), Mem{Base: p, Disp: 80}, x, x)
	}
	VPSHUFB(dwords(0x05040100, 0x0d0c0908, 0x07060302, 0x0f0e0b0a), x, x)
	g.setHalves(x)
}

// scalesQ2 leaves the scales of row r as words in s, and adds up its mins.
func (g *gemv) scalesQ2(r int, s VecVirtual) {
	mins := YMM()
	VPMOVZXBW(Mem{Base: g.row[r]}, s.AsY())
	VPSRLW(U8(4), s.AsY(), mins)
	VPANDD(repeat(0x000f000f, 0x000f000f, 0x000f000f, 0x000f000f), s.AsY(), s.AsY())
	for t := range g.tokens {
		g.rowMins[t][r] = ZMM()
		VPMADDWD(token(g.act, t, actSum16), mins, g.rowMins[t][r].AsY())
	}
}

// scaleDwords leaves the eight scales of IQ4_XS in s: nibbles in bytes 4 to 7
// and two high bits each in bytes 2 and 3, less 32.
func scaleDwords(row, s Register) {
	high := YMM()
	VPBROADCASTD(Mem{Base: row, Disp: 4}, s)
	VPSRLVD(dwords(0, 4, 8, 12, 16, 20, 24, 28), s, s)
	VPANDD(repeat(15, 15, 15, 15), s, s)
	VPBROADCASTD(Mem{Base: row}, high)
	VPRORVD(dwords(12, 14, 16, 18, 20, 22, 24, 26), high, high)
	VPTERNLOGD(U8(0xf8), repeat(0x30, 0x30, 0x30, 0x30), high, s)
	VPSUBD(repeat(32, 32, 32, 32), s, s)
}

// scalesIQ4 gives the scales of row r of IQ4_XS.
func (g *gemv) scalesIQ4(r int) func(i int) VecVirtual {
	s := ZMM()
	scaleDwords(g.row[r], s.AsY())
	return func(i int) VecVirtual {
		var index []int
		for half := range 2 {
			for range 16 {
				index = append(index, 2*(2*i+half))
			}
		}
		return permuteWords(s, index)
	}
}
