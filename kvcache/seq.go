package kvcache

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
)

// ErrNoSlot is returned by Open and Fork when every slot is taken.
var ErrNoSlot = errors.New("kvcache: every slot is taken; close a sequence or make the cache with more slots")

// FullError is returned by Extend when the positions do not fit.
type FullError struct {
	Asked int // length of the sequence that does not fit
	Fit   int // length that fits
	Max   int // Config.MaxLen
}

// Error says how many tokens do not fit, and how many would.
func (e *FullError) Error() string {
	why := "the context of one sequence"
	if e.Fit < e.Max {
		why = "the free pages of the cache"
	}
	return fmt.Sprintf("kvcache: %d tokens asked for, %d fit (limited by %s); use a longer context or a shorter prompt", e.Asked, e.Fit, why)
}

// Seq is one sequence: a slot and its page tables.
type Seq struct {
	cache *Cache
	slot  int
	len   int // positions
}

// Open opens an empty sequence in a free slot.
func (c *Cache) Open() (*Seq, error) {
	for slot, s := range c.seqs {
		if s == nil {
			c.seqs[slot] = &Seq{cache: c, slot: slot}
			return c.seqs[slot], nil
		}
	}
	return nil, ErrNoSlot
}

// Slot is the sequence's row in device tensors.
func (s *Seq) Slot() int { return s.slot }

// Len is the number of positions.
func (s *Seq) Len() int { return s.len }

// Extend allocates pages for n more positions. Where aliased(l) is [from, to), new pages
// of layer l that are inside it are shared with layer l-1, and layer l may not store to
// them; aliased may be nil. When the positions do not fit nothing changes and the error
// is a *FullError.
func (s *Seq) Extend(n int, aliased func(layer int) (from, to int)) error {
	c := s.cache
	if want, fit := s.len+n, s.fit(aliased, s.len+n); fit < want {
		return &FullError{Asked: want, Fit: fit, Max: c.conf.MaxLen}
	}
	s.own()
	from, to := pagesPerLayer(s.len), pagesPerLayer(s.len+n)
	for l := range c.tables {
		row := c.row(l, s.slot)
		for i := from; i < to; i++ {
			c.tables[l].dirty[s.slot] = true
			if shares(l, i, aliased) {
				row[i] = c.row(l-1, s.slot)[i]
				c.refs[row[i]]++
			} else {
				row[i] = c.take()
			}
		}
	}
	s.len += n
	return nil
}

// Repeat extends the sequence by n positions that are copies of its pages, cyclically, in
// every layer. The sequence must be whole pages. It is for benchmarks, which need a cache
// of a length and not of a text.
func (s *Seq) Repeat(n int) error {
	if s.len == 0 || s.len%device.PageLen != 0 {
		return fmt.Errorf("kvcache: Repeat of a sequence of %d, want a multiple of %d above 0", s.len, device.PageLen)
	}
	from := pagesPerLayer(s.len)
	if err := s.Extend(n, nil); err != nil {
		return err
	}
	for l := range s.cache.tables {
		row := s.cache.row(l, s.slot)
		for i := from; i < pagesPerLayer(s.len); i++ {
			s.cache.copyPage(row[i], row[i-from])
		}
	}
	return nil
}

// shares reports whether page i of a layer is shared with the layer below.
func shares(layer, i int, aliased func(layer int) (from, to int)) bool {
	if aliased == nil || layer == 0 {
		return false
	}
	from, to := aliased(layer)
	return i*device.PageLen >= from && (i+1)*device.PageLen <= to
}

// Shared is the number of bytes that the sequence's layers save by sharing
// pages with the layer below.
func (s *Seq) Shared() int {
	n := 0
	for l := 1; l < len(s.cache.tables); l++ {
		below, row := s.cache.row(l-1, s.slot), s.cache.row(l, s.slot)
		for i := range pagesPerLayer(s.len) {
			if row[i] == below[i] {
				n++
			}
		}
	}
	return n * s.cache.conf.PageSize()
}

// own copies a partly filled last page that is shared, because the next positions are
// written to it.
func (s *Seq) own() {
	if s.len%device.PageLen == 0 {
		return
	}
	c, i := s.cache, s.len/device.PageLen
	for l := range c.tables {
		if page := c.row(l, s.slot)[i]; c.refs[page] > 1 {
			copied := c.take()
			c.copyPage(copied, page)
			c.row(l, s.slot)[i] = copied
			c.tables[l].dirty[s.slot] = true
			c.release(page)
		}
	}
}

// fit is the largest length up to want that the free pages allow.
func (s *Seq) fit(aliased func(layer int) (from, to int), want int) int {
	c := s.cache
	free := len(c.free)
	if s.len%device.PageLen != 0 {
		for l := range c.tables {
			if c.refs[c.row(l, s.slot)[s.len/device.PageLen]] > 1 {
				free--
			}
		}
		if free < 0 {
			return s.len
		}
	}
	pages := pagesPerLayer(s.len)
	for ; pages < pagesPerLayer(min(want, c.conf.MaxLen)); pages++ {
		for l := range c.tables {
			if !shares(l, pages, aliased) {
				free--
			}
		}
		if free < 0 {
			return pages * device.PageLen
		}
	}
	return min(want, c.conf.MaxLen)
}

// Fork opens a sequence with the same positions. All pages are shared until
// one of the two writes to its last page.
func (s *Seq) Fork() (*Seq, error) {
	c := s.cache
	f, err := c.Open()
	if err != nil {
		return nil, err
	}
	f.len = s.len
	for l := range c.tables {
		c.tables[l].dirty[f.slot] = true
		row := c.row(l, f.slot)
		copy(row, c.row(l, s.slot)[:pagesPerLayer(s.len)])
		for _, p := range row[:pagesPerLayer(s.len)] {
			c.refs[p]++
		}
	}
	return f, nil
}

// Truncate drops the positions from n on.
func (s *Seq) Truncate(n int) {
	c := s.cache
	if n < 0 || n > s.len {
		panic(fmt.Sprintf("kvcache: Truncate(%d) of a sequence of %d", n, s.len))
	}
	for l := range c.tables {
		for _, p := range c.row(l, s.slot)[pagesPerLayer(n):pagesPerLayer(s.len)] {
			c.release(p)
		}
	}
	s.len = n
}

// Close frees the pages and the slot. Closing twice does nothing.
func (s *Seq) Close() {
	if s.cache.seqs[s.slot] != s {
		return
	}
	s.Truncate(0)
	s.cache.seqs[s.slot] = nil
}
