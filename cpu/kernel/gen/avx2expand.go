package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Unpacking with AVX2: 256 weights of each of some rows become blocks, as
// expand.go does with AVX-512, 32 weights in a register.
//
// Shapes: src: rows, stride bytes apart, as in the file; dst: one block each.
// 12 (Q8_0) to 76 (Q5_0) vector instructions a row. The lines that 256 weights
// four times further start with are prefetched. Defined by expandSuper.
func expandAVX2() {
	for _, f := range formats {
		expandRowsAVX2(f.name, f.size, func(dst, src Register) {
			unpackAVX2[f.name](src, func(k int, w VecVirtual) {
				storeWeights(dst, k, w, f.bias)
			})
			headerAVX2(f.name, dst, src)
		})
	}
	for _, f := range blockFormats {
		expandRowsAVX2(f.name, 8*f.size, func(dst, src Register) {
			for i := range 8 {
				storeWeights(dst, 32*i, blockAVX2(f, src, i*f.size), f.bias)
			}
			blockScalesAVX2(f, dst, src)
		})
	}
}

// expandRowsAVX2 emits a loop over rows of size bytes for 256 weights.
func expandRowsAVX2(name string, size int, row func(dst, src Register)) {
	function("expandRows"+name+"AVX2", "func(dst *block, src *byte, stride uintptr, rows int)", "unpacks 256 weights of each row.")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	stride, n := Load(Param("stride"), GP64()), Load(Param("rows"), GP64())
	Label("row")
	for line := 0; line < size; line += 64 {
		PREFETCHT0(Mem{Base: src, Disp: 4*size + line})
	}
	row(dst, src)
	ADDQ(stride, src)
	ADDQ(U32(blockSize), dst)
	DECQ(n)
	JNZ(LabelRef("row"))
	end()
}

// storeWeights stores weights k to k+31, less bias. Those of 8 bits, whose bias
// would be 128, have their signs as stored.
func storeWeights(dst Register, k int, w VecVirtual, bias int) {
	if bias > 0 && bias < 128 {
		VPSUBB(bytes32(bias), w, w)
	}
	VMOVDQU(w, Mem{Base: dst, Disp: blockW + k})
}

// shifted is x shifted left by n bits of each word, right if n is negative,
// and masked.
func shifted(x VecVirtual, n, mask int) VecVirtual {
	y := YMM()
	switch {
	case n > 0:
		VPSLLW(U8(n), x, y)
	case n < 0:
		VPSRLW(U8(-n), x, y)
	default:
		VPAND(bytes32(mask), x, y)
		return y
	}
	VPAND(bytes32(mask), y, y)
	return y
}

// bytesAt loads 32 bytes.
func bytesAt(p Register, disp int) VecVirtual {
	x := YMM()
	VMOVDQU(Mem{Base: p, Disp: disp}, x)
	return x
}

// unpackAVX2 emits the weights k to k+31 of a block at p, for each k.
var unpackAVX2 = map[string]func(p Register, emit func(k int, w VecVirtual)){
	"Q4_K": func(p Register, emit func(int, VecVirtual)) {
		for i := range 4 {
			x := bytesAt(p, 16+32*i)
			emit(64*i, shifted(x, 0, 15))
			emit(64*i+32, shifted(x, -4, 15))
		}
	},
	"Q5_K": func(p Register, emit func(int, VecVirtual)) {
		high := bytesAt(p, 16)
		for g := range 8 {
			x := bytesAt(p, 48+g/2*32)
			w := shifted(x, -4*(g%2), 15)
			VPOR(shifted(high, 4-g, 16), w, w)
			emit(32*g, w)
		}
	},
	"Q6_K": func(p Register, emit func(int, VecVirtual)) {
		for h := range 2 {
			high := bytesAt(p, 128+32*h)
			for j := range 4 {
				x := bytesAt(p, 64*h+j%2*32)
				w := shifted(x, -4*(j/2), 15)
				VPOR(shifted(high, 4-2*j, 0x30), w, w)
				emit(128*h+32*j, w)
			}
		}
	},
	"Q3_K": func(p Register, emit func(int, VecVirtual)) {
		high := bytesAt(p, 0)
		for g := range 8 {
			x := bytesAt(p, 32+g/4*32)
			w := shifted(x, -2*(g%4), 3)
			VPOR(shifted(high, 2-g, 4), w, w)
			emit(32*g, w)
		}
	},
	"Q2_K": func(p Register, emit func(int, VecVirtual)) {
		for g := range 8 {
			emit(32*g, shifted(bytesAt(p, 16+g/4*32), -2*(g%4), 3))
		}
	},
	"IQ4_XS": func(p Register, emit func(int, VecVirtual)) {
		for g := range 8 {
			emit(32*g, codesAVX2(nibblesAVX2(p, 8+16*g)))
		}
	},
}

// nibblesAVX2 is the low nibbles of 16 bytes, then the high ones.
func nibblesAVX2(p Register, disp int) VecVirtual {
	w := YMM()
	VBROADCASTI128(Mem{Base: p, Disp: disp}, w)
	VPSRLVD(dwords(0, 0, 0, 0, 4, 4, 4, 4), w, w)
	VPAND(bytes32(15), w, w)
	return w
}

// codesAVX2 looks nibbles up in the codebook.
func codesAVX2(w VecVirtual) VecVirtual {
	b := make([]byte, 32)
	for i := range b {
		b[i] = byte(codebook[i%16])
	}
	book := YMM()
	VMOVDQU(table(b), book)
	VPSHUFB(w, book, w)
	return w
}

// blockAVX2 is the weights of the block of 32 at p+disp.
func blockAVX2(f *blockFormat, p Register, disp int) VecVirtual {
	switch f.name {
	case "Q8_0":
		return bytesAt(p, disp+2)
	case "IQ4_NL":
		return codesAVX2(nibblesAVX2(p, disp+2))
	case "Q5_0":
		return fivesAVX2(p, disp+2)
	case "Q5_1":
		return fivesAVX2(p, disp+4)
	case "Q4_1":
		return nibblesAVX2(p, disp+4)
	}
	return nibblesAVX2(p, disp+2)
}

// fivesAVX2 is nibbles with the fifth bits that lie before them.
func fivesAVX2(p Register, disp int) VecVirtual {
	w, fifth := nibblesAVX2(p, disp+4), YMM()
	var spread, bit []byte
	for i := range 32 {
		spread = append(spread, byte(i/8))
		bit = append(bit, 1<<(i%8))
	}
	VPBROADCASTD(Mem{Base: p, Disp: disp}, fifth)
	VPSHUFB(table(spread), fifth, fifth)
	VPAND(table(bit), fifth, fifth)
	VPCMPEQB(table(bit), fifth, fifth)
	VPAND(bytes32(16), fifth, fifth)
	VPOR(fifth, w, w)
	return w
}

// blockScalesAVX2 converts d and m of eight blocks of 32.
func blockScalesAVX2(f *blockFormat, dst, src Register) {
	d, m, v := XMM(), XMM(), YMM()
	VPXOR(d, d, d)
	VPXOR(m, m, m)
	for i := range 8 {
		VPINSRW(U8(i), Mem{Base: src, Disp: i * f.size}, d, d)
		if f.mins {
			VPINSRW(U8(i), Mem{Base: src, Disp: i*f.size + 2}, m, m)
		}
	}
	VCVTPH2PS(d, v)
	VMOVUPS(v, Mem{Base: dst, Disp: blockBD})
	VCVTPH2PS(m, v)
	VMOVUPS(v, Mem{Base: dst, Disp: blockBM})
}

// headerAVX2 unpacks the scales and mins of a block of 256.
func headerAVX2(name string, dst, src Register) {
	s, x := XMM(), XMM()
	switch name {
	case "Q4_K", "Q5_K":
		VMOVDQU(Mem{Base: src}, x)
		scales := sixBitsAVX2(x)
		VMOVDQU(scales, s)
		VMOVQ(s, Mem{Base: dst, Disp: blockScale})
		VPSRLDQ(U8(8), s, s)
		VMOVQ(s, Mem{Base: dst, Disp: blockMin})
		VCVTPH2PS(x, x)
		VMOVQ(x, Mem{Base: dst, Disp: blockD})
	case "Q6_K":
		VMOVDQU(Mem{Base: src, Disp: 192}, s)
		VMOVDQU(s, Mem{Base: dst, Disp: blockScale})
		halfTo(dst, src, 208)
	case "Q3_K":
		VMOVDQU(Mem{Base: src, Disp: 94}, x)
		VMOVDQU(sixBitsQ3AVX2(x), Mem{Base: dst, Disp: blockScale})
		halfTo(dst, src, 108)
	case "Q2_K":
		VMOVDQU(Mem{Base: src}, s)
		VPSRLW(U8(4), s, x)
		VPAND(bytes32(15), s, s)
		VPAND(bytes32(15), x, x)
		VMOVDQU(s, Mem{Base: dst, Disp: blockScale})
		VMOVDQU(x, Mem{Base: dst, Disp: blockMin})
		VMOVD(Mem{Base: src, Disp: 80}, x)
		VCVTPH2PS(x, x)
		VMOVQ(x, Mem{Base: dst, Disp: blockD})
	case "IQ4_XS":
		VMOVQ(scalesIQ4AVX2(src), Mem{Base: dst, Disp: blockScale})
		halfTo(dst, src, 0)
	}
}

// sixBitsAVX2 is sixBits: 8 bytes of scales, then 8 of mins.
func sixBitsAVX2(header Register) Register {
	low, high := XMM(), XMM()
	VPSHUFD(U8(1|3<<2|2<<4|3<<6), header, low)
	VPSRLVD(repeat(0, 0, 0, 4), low, low)
	VPAND(repeat(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f), low, low)
	VPSHUFD(U8(0|1<<2|0<<4|2<<6), header, high)
	VPSRLD(U8(2), high, high)
	VPAND(repeat(0, 0x30303030, 0, 0x30303030), high, high)
	VPOR(high, low, low)
	return low
}

// sixBitsQ3AVX2 is sixBitsQ3: the 16 scales of Q3_K.
func sixBitsQ3AVX2(tail Register) Register {
	low, high := XMM(), XMM()
	VPSHUFB(repeat(0x05040302, 0x09080706, 0x05040302, 0x09080706), tail, low)
	VPSRLVD(repeat(0, 0, 4, 4), low, low)
	VPAND(bytes32(15), low, low)
	VPSHUFB(repeat(0x0d0c0b0a, 0x0d0c0b0a, 0x0d0c0b0a, 0x0d0c0b0a), tail, high)
	VPSLLVD(repeat(4, 2, 0, 0), high, high)
	VPSRLVD(repeat(0, 0, 0, 2), high, high)
	VPAND(bytes32(0x30), high, high)
	VPOR(high, low, low)
	VPSUBB(bytes32(0x20), low, low)
	return low
}

// scalesIQ4AVX2 is the eight scales of IQ4_XS, as bytes.
func scalesIQ4AVX2(src Register) Register {
	s, high := YMM(), YMM()
	VPBROADCASTD(Mem{Base: src, Disp: 4}, s)
	VPSRLVD(dwords(0, 4, 8, 12, 16, 20, 24, 28), s, s)
	VPAND(repeat(15, 15, 15, 15), s, s)
	VPBROADCASTD(Mem{Base: src}, high)
	VPSRLVD(dwords(12, 14, 16, 18, 20, 22, 24, 26), high, high)
	VPAND(repeat(0x30, 0x30, 0x30, 0x30), high, high)
	VPOR(high, s, s)
	VPSUBD(repeat(32, 32, 32, 32), s, s)
	hi := XMM()
	VEXTRACTI128(U8(1), s, hi)
	VPACKSSDW(hi, s.AsX(), hi)
	VPACKSSWB(hi, hi, hi)
	return hi
}
