package kvcache

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// Block is a reference to the pages of device.PageLen positions that begin at a page
// boundary, one page for each layer, with the state beside them. It keeps them when the
// sequence that filled them is closed, so that another sequence of the cache or of a
// sibling may begin with them: a prefix cache is made of blocks.
type Block struct{ pages []int32 } // by layer

// Keep refers to block i of the sequence, whose positions are all stored. The block lasts
// until [Cache.Drop].
func (s *Seq) Keep(i int) Block {
	if i < 0 || (i+1)*device.PageLen > s.len {
		panic(fmt.Sprintf("kvcache: Keep(%d) of a sequence of %d: a block is %d positions", i, s.len, device.PageLen))
	}
	c := s.cache
	b := Block{pages: make([]int32, len(c.tables))}
	for l := range c.tables {
		page := c.row(l, s.slot)[i]
		b.pages[l] = page
		c.refs[page]++
		c.kept[page]++
	}
	return b
}

// Drop ends a block; its pages are free once no sequence has them.
func (c *Cache) Drop(b Block) {
	for _, page := range b.pages {
		c.kept[page]--
		c.release(page)
	}
}

// Begin makes blocks, in the order of their positions, the beginning of an empty
// sequence. Their pages are shared: only positions behind them are written.
func (s *Seq) Begin(blocks []Block) {
	c := s.cache
	if n := len(blocks) * device.PageLen; s.len != 0 || n > c.conf.MaxLen {
		panic(fmt.Sprintf("kvcache: Begin of a sequence of %d with %d positions, want an empty one and at most %d", s.len, n, c.conf.MaxLen))
	}
	for i, b := range blocks {
		for l, page := range b.pages {
			c.row(l, s.slot)[i] = page
			c.tables[l].dirty[s.slot] = true
			c.refs[page]++
		}
	}
	s.len = len(blocks) * device.PageLen
}
