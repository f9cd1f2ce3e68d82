package kvcache

import (
	"encoding/binary"
	"fmt"

	"github.com/gollm/gollm/device"
)

// Config is the size of a cache.
type Config struct {
	Layers, KVHeads, HeadDim int
	MaxLen                   int          // maximum positions of a sequence
	Slots                    int          // maximum number of sequences
	Pages                    int          // pages in all; 0 is enough for every slot to reach MaxLen
	DType                    device.DType // F16 or F32
}

// pagesPerLayer is the number of pages that hold n positions of one layer.
func pagesPerLayer(n int) int { return (n + device.PageLen - 1) / device.PageLen }

// withDefaults fills in Pages and checks the sizes.
func (c Config) withDefaults() (Config, error) {
	if c.Layers < 1 || c.KVHeads < 1 || c.HeadDim < 1 || c.MaxLen < 1 || c.Slots < 1 {
		return c, fmt.Errorf("kvcache: %+v: every size must be at least 1", c)
	}
	if c.DType != device.F16 && c.DType != device.F32 {
		return c, fmt.Errorf("kvcache: type %v, want F16 or F32", c.DType)
	}
	if c.Pages == 0 {
		c.Pages = c.Layers * c.Slots * pagesPerLayer(c.MaxLen)
	}
	return c, nil
}

// PageSize is the size of a page in bytes, K and V.
func (c Config) PageSize() int {
	return 2 * c.KVHeads * device.PageLen * c.DType.RowSize(c.HeadDim)
}

// Size is the number of bytes of all pages.
func (c Config) Size() (int, error) {
	c, err := c.withDefaults()
	return c.Pages * c.PageSize(), err
}

// Cache is the paged KV cache of one model on one device.
type Cache struct {
	dev  device.Device
	conf Config
	*pool

	tables []table       // by layer
	pages  []int32       // all page tables, [layers, slots, maxpages]
	paged  device.Tensor // all page tables on the device, i32 [layers·slots, maxpages]
	dirty  []bool        // [layers·slots]: changed since the last Flush
	len    device.Tensor // i32 [slots]
	lens   []byte        // what Flush writes to len
	seqs   []*Seq        // by slot; nil is free
}

// pool is the pages of a cache and of its siblings.
type pool struct {
	k, v   device.Tensor   // [pages, kvheads, PageLen, dim]
	beside []device.Tensor // [pages, ...]: state per page of the attention methods

	free   []int32  // pages without references, a stack
	refs   []int32  // by page: number of page table entries and blocks with it
	kept   []int32  // by page: of these, the blocks
	caches []*Cache // whose page tables refer to the pages
}

// table is one layer's page tables, on the host and on the device: parts of those of all
// layers.
type table struct {
	host  []int32       // [slots, maxpages]
	dev   device.Tensor // i32 [slots, maxpages]
	dirty []bool        // by slot
}

// New allocates a cache on dev.
func New(dev device.Device, conf Config) (*Cache, error) {
	conf, err := conf.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &pool{refs: make([]int32, conf.Pages), kept: make([]int32, conf.Pages)}
	for i := conf.Pages - 1; i >= 0; i-- {
		p.free = append(p.free, int32(i))
	}
	for _, t := range []*device.Tensor{&p.k, &p.v} {
		if *t, err = dev.Alloc(conf.DType, conf.Pages, conf.KVHeads, device.PageLen, conf.HeadDim); err != nil {
			return nil, fmt.Errorf("kvcache: %d pages of %d bytes: %w", conf.Pages, conf.PageSize(), err)
		}
	}
	return p.open(dev, conf)
}

// Sibling is a cache with as many slots of its own over the same pages.
func (c *Cache) Sibling() (*Cache, error) { return c.pool.open(c.dev, c.conf) }

// open makes a cache over the pages.
func (p *pool) open(dev device.Device, conf Config) (*Cache, error) {
	c := &Cache{dev: dev, conf: conf, pool: p, seqs: make([]*Seq, conf.Slots)}
	if err := c.alloc(); err != nil {
		return nil, fmt.Errorf("kvcache: page tables of %d slots: %w", conf.Slots, err)
	}
	p.caches = append(p.caches, c)
	return c, nil
}

// alloc allocates the page tables.
func (c *Cache) alloc() (err error) {
	alloc := func(dt device.DType, dims ...int) (t device.Tensor) {
		if err == nil {
			t, err = c.dev.Alloc(dt, dims...)
		}
		return t
	}
	conf := c.conf
	c.len = alloc(device.I32, conf.Slots)
	c.lens = make([]byte, 4*conf.Slots)
	width := pagesPerLayer(conf.MaxLen)
	rows := conf.Layers * conf.Slots
	c.pages, c.dirty, c.paged = make([]int32, rows*width), make([]bool, rows), alloc(device.I32, rows, width)
	if err != nil {
		return err
	}
	c.tables = make([]table, conf.Layers)
	for l := range c.tables {
		lo, hi := l*conf.Slots, (l+1)*conf.Slots
		c.tables[l] = table{host: c.pages[lo*width : hi*width], dev: c.paged.Rows(lo, hi), dirty: c.dirty[lo:hi]}
	}
	return nil
}

// Attach registers tensors [pages, ...] of state per page, which are copied with the pages.
func (c *Cache) Attach(t ...device.Tensor) { c.beside = append(c.beside, t...) }

// Config is the configuration with its defaults filled in.
func (c *Cache) Config() Config { return c.conf }

// FreePages is the number of pages without references.
func (c *Cache) FreePages() int { return len(c.free) }

// Used is the size of the pages with references, in bytes; a page shared by several
// sequences or layers counts once.
func (c *Cache) Used() int { return (c.conf.Pages - len(c.free)) * c.conf.PageSize() }

// Layer is layer l with all slots.
func (c *Cache) Layer(l int) device.KV {
	return device.KV{K: c.k, V: c.v, Pages: c.tables[l].dev, Len: c.len}
}

// Slot is layer l with one slot only, for a prefill.
func (c *Cache) Slot(l, slot int) device.KV {
	kv := c.Layer(l)
	kv.Pages = kv.Pages.Rows(slot, slot+1)
	kv.Len = kv.Len.Rows(slot, slot+1)
	return kv
}

// Slots is layer l with its first n slots, for a decode step.
func (c *Cache) Slots(l, n int) device.KV {
	kv := c.Layer(l)
	kv.Pages = kv.Pages.Rows(0, n)
	kv.Len = kv.Len.Rows(0, n)
	kv.Short = true
	for _, s := range c.seqs[:n] {
		kv.Short = kv.Short && (s == nil || s.len <= device.ShortLen)
	}
	return kv
}

// Flush queues the changed page tables and the lengths to the device. In a
// decode step only the active sequences have rows: others get length 0.
func (c *Cache) Flush(active ...*Seq) {
	clear(c.lens)
	for _, s := range active {
		binary.LittleEndian.PutUint32(c.lens[4*s.slot:], uint32(s.len))
	}
	c.dev.Write(c.len, c.lens)
	width := pagesPerLayer(c.conf.MaxLen)
	for lo := 0; lo < len(c.dirty); lo++ {
		if !c.dirty[lo] {
			continue
		}
		hi := lo // adjacent tables are written at once
		for ; hi < len(c.dirty) && c.dirty[hi]; hi++ {
			c.dirty[hi] = false
		}
		c.dev.Write(c.paged.Rows(lo, hi), bytesOf(c.pages[lo*width:hi*width]))
		lo = hi
	}
}

// bytesOf is the little-endian form of page numbers.
func bytesOf(pages []int32) []byte {
	b := make([]byte, 0, 4*len(pages))
	for _, p := range pages {
		b = binary.LittleEndian.AppendUint32(b, uint32(p))
	}
	return b
}

// row is the page table of one layer of one slot; a caller that changes it sets the
// dirty flag.
func (c *Cache) row(layer, slot int) []int32 {
	width := pagesPerLayer(c.conf.MaxLen)
	return c.tables[layer].host[slot*width : (slot+1)*width]
}

// take allocates a free page, with one reference.
func (p *pool) take() int32 {
	page := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.refs[page] = 1
	return page
}

// release drops a reference; the last one frees the page.
func (p *pool) release(page int32) {
	if p.refs[page]--; p.refs[page] == 0 {
		p.free = append(p.free, page)
	}
}

// copyPage copies page src and its attached state to page dst.
func (c *Cache) copyPage(dst, src int32) {
	d, s := int(dst), int(src)
	ops := c.dev.Queue()
	device.Do(ops, device.Copy{Dst: c.k.Rows(d, d+1), Src: c.k.Rows(s, s+1)})
	device.Do(ops, device.Copy{Dst: c.v.Rows(d, d+1), Src: c.v.Rows(s, s+1)})
	for _, t := range c.beside {
		device.Do(ops, device.Copy{Dst: t.Rows(d, d+1), Src: t.Rows(s, s+1)})
	}
}
