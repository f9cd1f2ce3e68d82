package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// selection writes what selects from a row of scores, x f32 [n] unless it says otherwise. NaN is
// below every bound.
func (m machine) selection() {
	m.writeTile()
	m.largestOfRows()
	m.largest()
	m.count()
	m.between()
	m.masses()
}

// writeTile writes scores to rows that lie apart, and fetches the cache lines behind what it
// writes: a store that waits for its line holds back those behind it.
//
//	dst[h][j] = x[h][j]·scale
//
// Shapes: x f32 [heads][64], at least one; dst rows of 64, stride bytes apart.
func (m machine) writeTile() {
	m.function("writeTile", "func(dst, x *float32, scale float32, stride, heads int)", "writes scores to rows that lie apart.")
	dst, x, scale, stride, heads := m.arg("dst"), m.arg("x"), m.broadcast("scale"), m.arg("stride"), m.arg("heads")
	loop(heads, func() {
		for at := 0; at < 256; at += m.bytes() {
			v := m.reg()
			VMULPS(Mem{Base: x, Disp: at}, scale, v)
			VMOVUPS(v, Mem{Base: dst, Disp: at})
			if at%64 == 0 {
				PREFETCHT0(Mem{Base: dst, Disp: 256 + at})
			}
		}
		ADDQ(U32(256), x)
		ADDQ(stride, dst)
	})
	end()
}

// largestOfRows is the largest of some rows, element by element; what is NaN counts as -Inf.
//
//	dst[j] = max(-Inf, x[0][j], x[1][j], ...)
//
// Shapes: dst f32 [n], x rows of n, stride bytes apart, at least one.
func (m machine) largestOfRows() {
	m.function("largestOfRows", "func(dst, x *float32, stride, rows, n int)", "is the largest of some rows.")
	dst, x, stride, rows, n := m.arg("dst"), m.arg("x"), m.arg("stride"), m.arg("rows"), m.arg("n")
	nothing := m.load(m.constant(float32(math.Inf(-1))))
	m.eachLane(n, func(keep Op) {
		top, from, left := m.reg(), GP64(), GP64()
		VMOVAPS(nothing, top)
		MOVQ(x, from)
		MOVQ(rows, left)
		loop(left, func() {
			v := m.reg()
			m.fetch(Mem{Base: from}, keep, v)
			VMAXPS(top, v, top)
			ADDQ(stride, from)
		})
		m.store(top, keep, Mem{Base: dst})
		m.next(dst, x)
	})
	end()
}

// largest is max(-MaxFloat32, x): VMAX takes its second operand where one is NaN.
func (m machine) largest() {
	m.function("largest", "func(x *float32, n int) float32", "is the largest score.")
	x, top := m.arg("x"), m.reg()
	VMOVUPS(m.load(m.constant(-math.MaxFloat32)), top)
	m.eachLane(m.arg("n"), func(keep Op) {
		v := m.reg()
		m.fetch(Mem{Base: x}, keep, v)
		if keep != nil && m.wide {
			VMAXPS(top, v, keep, top)
		} else if keep != nil {
			t := m.reg()
			VMAXPS(top, v, t)
			VBLENDVPS(keep, t, top, top)
		} else {
			VMAXPS(top, v, top)
		}
		m.next(x)
	})
	Store(m.across(top, func(a Op, b, c Op) { VMAXPS(a, b, c) }), ReturnIndex(0))
	end()
}

// count is how many scores are at least a bound.
func (m machine) count() {
	m.function("count", "func(x *float32, bound float32, n int) int", "counts what is not below a bound.")
	x, bound, sum := m.arg("x"), m.broadcast("bound"), m.reg()
	m.zero(sum)
	one := m.words(1)
	m.eachLane(m.arg("n"), func(keep Op) {
		m.countWhere(m.atMost(bound, Mem{Base: x}, keep), one, sum)
		m.next(x)
	})
	Store(m.total(sum), ReturnIndex(0))
	end()
}

// atMost is the lanes in which a <= x: a mask register with AVX-512, lanes of ones with AVX2.
func (m machine) atMost(a VecVirtual, x Op, keep Op) Op {
	switch {
	case m.wide && keep != nil:
		k := K()
		VCMPPS(U8(2), x, a, keep, k)
		return k
	case m.wide:
		k := K()
		VCMPPS(U8(2), x, a, k)
		return k
	}
	v := m.reg()
	if keep == nil {
		VCMPPS(U8(2), x, a, v)
		return v
	}
	m.fetch(x.(Mem), keep, v)
	VCMPPS(U8(2), v, a, v)
	VANDPS(keep, v, v)
	return v
}

// countWhere adds one to the lanes of sum that are in a mask.
func (m machine) countWhere(mask, one Op, sum VecVirtual) {
	if m.wide {
		VPADDD(one, sum, mask, sum)
		return
	}
	VPSUBD(mask, sum, sum)
}

// total is the sum of the lanes of r, integers that are not negative.
func (m machine) total(r VecVirtual) Register {
	x, n := m.across(r, func(a Op, b, c Op) { VPADDD(a, b, c) }), GP64()
	VMOVD(x, n.As32())
	return n
}

// between moves what lies between two bounds together, with AVX-512 alone, and counts what is
// above both:
//
//	dst = the x with low <= x <= high, in order; n of them; above = how many x > high
//
// Shapes: dst f32 [n+16], of which what is behind the n numbers is overwritten.
func (m machine) between() {
	if !m.wide {
		return
	}
	m.function("between", "func(dst, x *float32, low, high float32, length int) (n, above int)", "moves what lies between two bounds together.")
	dst, x, low, high := m.arg("dst"), m.arg("x"), m.broadcast("low"), m.broadcast("high")
	start, sum, one := GP64(), m.reg(), m.words(1)
	MOVQ(dst, start)
	m.zero(sum)
	m.eachLane(m.arg("length"), func(keep Op) {
		v, more, some, n := m.reg(), K(), K(), GP32()
		m.fetch(Mem{Base: x}, keep, v)
		enough := m.atMost(low, v, keep)
		VCMPPS(U8(1), v, high, enough, more) // high < v
		m.countWhere(more, one, sum)
		KANDNW(enough, more, some)
		VCOMPRESSPS_Z(v, some, v)
		KMOVW(some, n)
		POPCNTL(n, n)
		VMOVUPS(v, Mem{Base: dst})
		LEAQ(Mem{Base: dst, Index: n.As64(), Scale: 4}, dst)
		m.next(x)
	})
	SUBQ(start, dst)
	SHRQ(U8(2), dst)
	Store(dst, ReturnIndex(0))
	Store(m.total(sum), ReturnIndex(1))
	end()
}

// masses adds exponentials of scores in float64, of all and of those above a bound:
//
//	all = Σ e^(x - top)      above = Σ over x > high
//
// n counts registers of float64, half as many lanes as of f32. A score that is NaN, or below top by
// more than 700, adds nothing. e^d is 2^k·e^f with |f| <= ln 2 / 2; k and the bias of the exponent
// are in the low bits of d·log2(e) + 1.5·2^52 + 1023, and e^f is its series up to f^11/11!, which
// is exact to 1e-14.
func (m machine) masses() {
	m.function("masses", "func(x *float32, top, high float32, n int) (all, above float64)", "adds exponentials in float64.")
	x, n := m.arg("x"), m.arg("n")
	top, high := m.broadcast64("top"), m.broadcast64("high")
	magic, log2e, hi, lo, low := m.double(0x1.8p52+1023), m.double(math.Log2E), m.double(0x1.62e42fefa3800p-1), m.double(0x1.ef35793c76730p-45), m.double(-700)
	var c []Op
	for i := 11; i >= 0; i-- {
		c = append(c, m.double(1/math.Gamma(float64(i+1))))
	}
	all, above := m.reg(), m.reg()
	m.zero(all)
	m.zero(above)
	loop(n, func() {
		v, d, k, f, p := m.reg(), m.reg(), m.reg(), m.reg(), m.reg()
		VCVTPS2PD(Mem{Base: x}, v)
		VSUBPD(top, v, d)
		seen, more := m.mask64(13, low, d), m.mask64(14, high, v) // d >= low, v > high
		VMAXPD(m.load(low), d, d)
		VMOVUPD(m.load(magic), k)
		VFMADD231PD(log2e, d, k)
		VSUBPD(magic, k, f) // the whole number
		VFNMADD231PD(hi, f, d)
		VFNMADD231PD(lo, f, d)
		VPSLLQ(U8(52), k, k)
		VMOVUPD(c[0], p)
		for _, a := range c[1:] {
			VFMADD213PD(a, d, p)
		}
		VMULPD(k, p, p)
		m.addWhere64(seen, p, all)
		m.addWhere64(more, p, above)
		ADDQ(U32(m.bytes()/2), x)
	})
	Store(m.across64(all), ReturnIndex(0))
	Store(m.across64(above), ReturnIndex(1))
	end()
}

// double is a register full of v, or as much memory where registers are few.
func (m machine) double(v float64) Op {
	b := math.Float64bits(v)
	return m.full(fmt.Sprintf("f64_%016x", b), U64(b), VBROADCASTSD)
}

// broadcast64 is a register full of an f32 parameter, as float64.
func (m machine) broadcast64(name string) VecVirtual {
	x, r := XMM(), m.reg()
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	VCVTSS2SD(p.Addr, x, x)
	VBROADCASTSD(x, r)
	return r
}

// mask64 is the lanes in which b and a are as VCMPPD's predicate of that number says.
func (m machine) mask64(predicate uint8, a Op, b VecVirtual) Op {
	if m.wide {
		k := K()
		VCMPPD(U8(predicate), a, b, k)
		return k
	}
	v := m.reg()
	VCMPPD(U8(predicate), a, b, v)
	return v
}

// addWhere64 adds the lanes of x that are in a mask.
func (m machine) addWhere64(mask Op, x, sum VecVirtual) {
	if m.wide {
		VADDPD(x, sum, mask, sum)
		return
	}
	t := m.reg()
	VANDPD(mask, x, t)
	VADDPD(t, sum, sum)
}

// across64 is the sum of the lanes of r.
func (m machine) across64(r VecVirtual) VecVirtual {
	y, x := YMM(), XMM()
	if m.wide {
		VEXTRACTF64X4(U8(1), r, y)
		VADDPD(y, r.AsY(), y)
	} else {
		VMOVAPD(r, y)
	}
	VEXTRACTF128(U8(1), y, x)
	VADDPD(x, y.AsX(), x)
	VHADDPD(x, x, x)
	return x
}
