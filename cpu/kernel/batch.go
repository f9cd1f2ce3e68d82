package kernel

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/gollm/gollm/device"
)

// Batch is the activations of some tokens, prepared for products: as float32
// for float matrices, and as int8 with float32 scales for quantized ones, in
// the form that the matrices need.
//
// The owner calls Reset, then Need for each matrix, then Prepare for all
// tokens; ranges of tokens may be prepared in parallel.
type Batch struct {
	X      Floats // [Tokens, Cols]
	Tokens int
	Cols   int

	supers int           // actBlocks of a token
	forms  [2][]actBlock // [supers, Tokens]; by scaling
	need   [2]bool
}

// scaling says how many activations share a scale.
type scaling int

const (
	scale32  scaling = iota // 32: for types with blocks of 32
	scale256                // 256: for types with blocks of 256
)

// scalingOf is the scaling that matrices of type dt are multiplied with.
func scalingOf(dt device.DType) scaling {
	if dt.BlockLen() == superLen {
		return scale256
	}
	return scale32
}

// actBlock is 256 activations of a token: x[k] ≈ scale[k/32]·(q[k]−128). Under
// scale256 all eight scales are equal. The vector loops know the offsets.
type actBlock struct {
	q     [256]uint8 // integer in -127..127, plus 128
	scale [8]float32 // largest magnitude / 127
	dsum  [8]float32 // scale·sum32
	sum16 [16]int16  // sums of the integers, groups of 16
	sum32 [8]int16   // sums of the integers, groups of 32
	_     [16]byte   // six cache lines
}

// actSize is the size of an actBlock in bytes.
const actSize = int(unsafe.Sizeof(actBlock{}))

// Reset starts a batch: tokens rows of cols activations. No form is needed yet.
func (b *Batch) Reset(x Floats, tokens, cols int) {
	if tokens > 0 && len(x.Data) < (tokens-1)*x.Stride+cols {
		panic(fmt.Sprintf("kernel: Batch: %d activations for [%d %d] with stride %d", len(x.Data), tokens, cols, x.Stride))
	}
	b.X, b.Tokens, b.Cols = x, tokens, cols
	b.supers = (cols + superLen - 1) / superLen
	b.need = [2]bool{}
}

// Need asks for what products with matrices of type dt read.
func (b *Batch) Need(dt device.DType) {
	if !dt.Quantized() {
		return
	}
	s := scalingOf(dt)
	b.need[s] = true
	if n := b.Tokens * b.supers; cap(b.forms[s]) < n && n > 0 {
		memory := alignedFloats(n * actSize / 4)
		b.forms[s] = unsafe.Slice((*actBlock)(unsafe.Pointer(&memory[0])), n)
	} else {
		b.forms[s] = b.forms[s][:n]
	}
}

// Quantizes reports whether Prepare has any work.
func (b *Batch) Quantizes() bool { return b.need[scale32] || b.need[scale256] }

// Prepare makes the needed forms of tokens lo to hi-1.
func (b *Batch) Prepare(lo, hi int) {
	for s, need := range b.need {
		if !need {
			continue
		}
		for t := lo; t < hi; t++ {
			current.quantize(b.forms[s][t:], b.Tokens, b.X.Row(t, b.Cols), scaling(s))
		}
	}
}

// at is activations 256·i on of token t. The tokens' blocks lie side by side,
// so that a tiled product reads memory in order.
func (b *Batch) at(s scaling, i, t int) *actBlock { return &b.forms[s][i*b.Tokens+t] }

// quantizeGo is the definition of the activations' rounding: q is x/scale
// rounded to the nearest integer, ties to even. The blocks are dst[0],
// dst[step], dst[2·step] and so on.
func quantizeGo(dst []actBlock, step int, x []float32, s scaling) {
	for i := 0; len(x) > 0; i += step {
		n := min(superLen, len(x))
		quantizeSuper(&dst[i], x[:n], s)
		x = x[n:]
	}
}

// quantizeSuper fills one block; activations beyond x are zero.
func quantizeSuper(a *actBlock, x []float32, s scaling) {
	var padded [superLen]float32
	copy(padded[:], x)
	n := superLen
	if s == scale32 {
		n = 32
	}
	for lo := 0; lo < superLen; lo += n {
		scale, inverse := actScale(padded[lo : lo+n])
		for g := lo / 32; g < (lo+n)/32; g++ {
			a.scale[g] = scale
		}
		for k := lo; k < lo+n; k++ {
			a.q[k] = uint8(int32(math.RoundToEven(float64(padded[k]*inverse))) + 128)
		}
	}
	for g := range a.sum32 {
		a.sum16[2*g] = sumActs(a.q[g*32:][:16])
		a.sum16[2*g+1] = sumActs(a.q[g*32+16:][:16])
		a.sum32[g] = a.sum16[2*g] + a.sum16[2*g+1]
		a.dsum[g] = a.scale[g] * float32(a.sum32[g])
	}
}

// smallestAct is the magnitude below which a group counts as zero, so that
// 127 divided by it stays finite.
const smallestAct = 0x1p-100

// actScale is the scale of a group of activations and the factor that maps it
// to -127..127. A group with an infinity or a NaN has scale NaN, which makes
// every product with it NaN.
func actScale(x []float32) (scale, inverse float32) {
	var largest uint32 // order of the bits of magnitudes: NaN above infinity
	for _, v := range x {
		largest = max(largest, math.Float32bits(v)&0x7fffffff)
	}
	m := math.Float32frombits(largest)
	switch {
	case largest >= 0x7f800000:
		return float32(math.NaN()), 0
	case m < smallestAct:
		return 0, 0
	}
	return m / 127, 127 / m
}

func sumActs(q []uint8) (sum int16) {
	for _, v := range q {
		sum += int16(v) - 128
	}
	return sum
}

// The layout that the vector loops are generated for.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(actBlock{}.scale)-256]
	_ = [1]struct{}{}[unsafe.Offsetof(actBlock{}.dsum)-288]
	_ = [1]struct{}{}[unsafe.Offsetof(actBlock{}.sum16)-320]
	_ = [1]struct{}{}[unsafe.Offsetof(actBlock{}.sum32)-352]
	_ = [1]struct{}{}[unsafe.Sizeof(actBlock{})-384]
)
