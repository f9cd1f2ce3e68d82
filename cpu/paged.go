package cpu

import (
	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// pages is one layer of the paged KV cache with its tensors looked up.
type pages struct {
	k, v    []byte // [count, heads, PageLen, dim]
	half    bool   // elements are f16, otherwise f32
	count   int
	heads   int // kv heads
	dim     int
	table   []int32 // [slots, width]: the page table
	width   int
	lengths []int32 // [slots]
}

func newPages(kv device.KV) pages {
	return pages{
		k: bytesOf(kv.K), v: bytesOf(kv.V),
		half:  kv.K.DType == device.F16,
		count: kv.K.Dim(0), heads: kv.K.Dim(1), dim: kv.K.Dim(3),
		table: i32s(kv.Pages), width: kv.Pages.Dim(1),
		lengths: i32s(kv.Len),
	}
}

// page is the page number of block b of a slot; -1 is a failure.
func (o *ops) page(g *pages, slot, b int) int {
	if b >= g.width {
		o.d.fail("page table of %d pages, position %d needs %d", g.width, b*device.PageLen, b+1)
		return -1
	}
	n := int(g.table[slot*g.width+b])
	if n < 0 || n >= g.count {
		o.d.fail("page %d in block %d of slot %d, want 0 to %d", n, b, slot, g.count-1)
		return -1
	}
	return n
}

// hasPages reports whether the page table has pages of the cache for the first n positions
// of a slot. Kernels that read rows by address rely on it.
func (o *ops) hasPages(g *pages, slot, n int) bool {
	for b := range pagesOf(n) {
		if o.page(g, slot, b) < 0 {
			return false
		}
	}
	return true
}

// knownPage is the page number of block b of a slot that hasPages.
func (g *pages) knownPage(slot, b int) int { return int(g.table[slot*g.width+b]) }

// element is where index i of a page starts for a kv head, in elements of K and V.
func (g *pages) element(page, head, i int) int {
	return ((page*g.heads+head)*device.PageLen + i) * g.dim
}

// locate is where the row of position j of a slot that hasPages starts for a kv head.
func (g *pages) locate(slot, kvHead, j int) int {
	return g.element(g.knownPage(slot, j/device.PageLen), kvHead, j%device.PageLen)
}

// locateTile is locate for the first vec.Tile positions of index, padded with the last of
// them. Of an empty index it is 0.
func (g *pages) locateTile(at *[vec.Tile]int, slot, kvHead int, index []int32) {
	last := 0
	for i := range at {
		if i < len(index) {
			last = g.locate(slot, kvHead, int(index[i]))
		}
		at[i] = last
	}
}

// rows is n rows of K or V for a kv head, from index i of a page on.
func (g *pages) rows(cache []byte, page, head, i, n int) vec.Rows {
	at := g.element(page, head, i)
	if g.half {
		return vec.Rows{Half: as[uint16](cache)[at : at+n*g.dim]}
	}
	return vec.Rows{Full: as[float32](cache)[at : at+n*g.dim]}
}

// all is all rows of K or V.
func (g *pages) all(cache []byte) vec.Rows {
	if g.half {
		return vec.Rows{Half: as[uint16](cache)}
	}
	return vec.Rows{Full: as[float32](cache)}
}

// append stores the keys and values of the call's rows at their positions. F16 rounds to
// nearest even; what it cannot hold becomes an infinity.
func (o *ops) append(c *device.Append) {
	g, k, v := newPages(c.KV), f32s(c.K), f32s(c.V)
	o.eachRow("Append", c.KV, c.K.Dim(0), func(r, slot, _, p int) {
		page := o.page(&g, slot, p/device.PageLen)
		if page < 0 {
			return
		}
		for h := range g.heads {
			at := g.element(page, h, p%device.PageLen)
			o.store(g.k, at, row(k, r*g.heads+h, g.dim), g.half)
			o.store(g.v, at, row(v, r*g.heads+h, g.dim), g.half)
		}
	})
}

// store writes a row of a cache from element at on.
func (o *ops) store(cache []byte, at int, x []float32, half bool) {
	if half {
		o.vec.ToHalf(as[uint16](cache)[at:at+len(x)], x)
		return
	}
	copy(as[float32](cache)[at:], x)
}

// load reads a row of a cache from element at on.
func (o *ops) load(x []float32, cache []byte, at int, half bool) {
	if half {
		o.vec.FromHalf(x, as[uint16](cache)[at:at+len(x)])
		return
	}
	copy(x, as[float32](cache)[at:])
}
