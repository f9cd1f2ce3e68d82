package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// Low-bit copies of keys, see device.KeyMirror.

// rotateBlocks is an unnormalized Walsh-Hadamard transform of each block of n elements, n a power
// of two.
func rotateBlocks(x []float32, n int) {
	h := 1
	if n >= 4 { // the first two steps at once
		for i := 0; i+4 <= len(x); i += 4 {
			y := (*[4]float32)(x[i:])
			a, b, c, d := y[0]+y[1], y[0]-y[1], y[2]+y[3], y[2]-y[3]
			y[0], y[1], y[2], y[3] = a+c, b+d, a-c, b-d
		}
		h = 4
	}
	for ; h < n; h *= 2 {
		for i := 0; i < len(x); i += 2 * h {
			lo, hi := x[i:i+h], x[i+h:i+2*h]
			for j, a := range lo {
				b := hi[j]
				lo[j], hi[j] = a+b, a-b
			}
		}
	}
}

// minMirror is the magnitude below which a vector counts as zero, so that levels over it stays
// finite.
const minMirror = 0x1p-100

// mirrorScale is the scale of a vector whose integers are -levels to levels, and the factor that
// makes them. The scale of a vector that is not finite is NaN, and its factor 0.
func mirrorScale(x []float32, levels float32) (scale, factor float32) {
	var largest uint32 // order of the bits of magnitudes: NaN above infinity
	for _, v := range x {
		largest = max(largest, math.Float32bits(v)&0x7fffffff)
	}
	m := math.Float32frombits(largest)
	switch {
	case largest >= 0x7f800000:
		return float32(math.NaN()), 0
	case m < minMirror:
		return 0, 0
	}
	return m / levels, levels / m
}

// mirrorInt is x·factor as an integer, 0 for what is not finite.
func mirrorInt(x, factor float32) int32 {
	if factor == 0 {
		return 0
	}
	return int32(math.RoundToEven(float64(x * factor)))
}

// mirrorKeys is a low-bit copy of the keys of a cache with its tensor looked up.
type mirrorKeys struct {
	words []int32 // [pages, heads, per, PageLen]; nil: there is none
	per   int     // words of a key, the scale included
	bits  int     // of an element
	heads int
	dim   int
	block int // in which vectors are rotated
}

func newMirrorKeys(t device.Tensor, kv device.KV) mirrorKeys {
	if t.Absent() {
		return mirrorKeys{}
	}
	per, dim := t.Dim(2), kv.K.Dim(3)
	return mirrorKeys{words: i32s(t), per: per, bits: device.MirrorBits(dim, per), heads: t.Dim(1), dim: dim, block: device.MirrorBlock(dim)}
}

// page is the keys of a page for a kv head, nil for page -1.
func (m *mirrorKeys) page(page, head int) []int32 {
	if page < 0 {
		return nil
	}
	return row(m.words, page*m.heads+head, m.per*device.PageLen)
}

// store stores a key, which it overwrites, as column i of a page.
func (m *mirrorKeys) store(page []int32, i int, key []float32) {
	rotateBlocks(key, m.block)
	levels := float32(int(1)<<(m.bits-1) - 1)
	scale, factor := mirrorScale(key, levels)
	offset := int32(1) << (m.bits - 1)
	each := 32 / m.bits
	for w := range m.per - 1 {
		word := uint32(0)
		for b, x := range key[w*each : (w+1)*each] {
			word |= uint32(mirrorInt(x, factor)+offset) << mirrorShift(b, m.bits)
		}
		page[w*device.PageLen+i] = int32(word)
	}
	page[(m.per-1)*device.PageLen+i] = int32(math.Float32bits(scale))
}

// mirrorShift is where element b of a word starts: in byte b, or in a half of byte b%4.
func mirrorShift(b, bits int) int {
	if bits == 8 {
		return 8 * b
	}
	return 8*(b%4) + 4*(b/4)
}

// queryLen is the words of a query.
func (m *mirrorKeys) queryLen() int { return m.dim/4 + 1 }

// load makes query i of x [dim], rotated and rounded; buffer, dim or more, is scratch.
func (m *mirrorKeys) load(q vec.MirrorQueries, i int, x, buffer []float32) {
	buffer = buffer[:m.dim]
	copy(buffer, x)
	rotateBlocks(buffer, m.block)
	scale, factor := mirrorScale(buffer, 127)
	words, sum := row(q.Words, i, m.queryLen()), int32(0)
	for w := range m.dim / 4 {
		word := uint32(0)
		for b, x := range buffer[4*w : 4*w+4] {
			n := mirrorInt(x, factor)
			sum += n
			word |= uint32(uint8(n)) << (8 * b)
		}
		words[w] = int32(word)
	}
	words[m.dim/4] = -sum << (m.bits - 1)
	q.Units[i] = scale * float32(1/(float64(m.block)*math.Sqrt(float64(m.dim))))
}

// grownQueries is room for n queries.
func (m *mirrorKeys) grownQueries(q *vec.MirrorQueries, n int) vec.MirrorQueries {
	return vec.MirrorQueries{Words: grown(&q.Words, n*m.queryLen()), Units: grown(&q.Units, n)}
}

// queries is n of q from the first on.
func (m *mirrorKeys) queries(q vec.MirrorQueries, first, n int) vec.MirrorQueries {
	return vec.MirrorQueries{Words: q.Words[first*m.queryLen() : (first+n)*m.queryLen()], Units: q.Units[first : first+n]}
}

// keyMirror stores low-bit copies of the keys of the newest rows of each slot.
func (o *ops) keyMirror(c *device.Summarize) {
	t := &o.tasks.keyMirror
	*t = keyMirrorTask{o: o, pages: newPages(c.KV), mirror: newMirrorKeys(c.Dst, c.KV), blocks: t.blocks[:0], scratch: perWorker(o.pool, t.scratch)}
	o.eachBlock("KeyMirror", c.KV, c.Rows, touched, func(b callBlock) { t.blocks = append(t.blocks, b) })
	for i := range t.scratch {
		grown(&t.scratch[i], t.mirror.dim)
	}
	o.pool.RunChunks(len(t.blocks), 1, t)
}

// keyMirrorTask is KeyMirror: item i is block i of the call.
type keyMirrorTask struct {
	o      *ops
	pages  pages
	mirror mirrorKeys
	blocks []callBlock

	scratch [][]float32 // [dim], by worker
}

// Do stores the keys of blocks lo to hi-1.
func (t *keyMirrorTask) Do(worker, lo, hi int) {
	key := t.scratch[worker][:t.mirror.dim]
	for _, b := range t.blocks[lo:hi] {
		for h := range t.mirror.heads {
			to := t.mirror.page(b.page, h)
			for i := max(b.first-b.index*device.PageLen, 0); i < b.positions(); i++ {
				t.o.load(key, t.pages.k, t.pages.element(b.page, h, i), t.pages.half)
				t.mirror.store(to, i, key)
			}
		}
	}
}
