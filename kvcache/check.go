package kvcache

import (
	"fmt"
	"slices"
)

// Check verifies the invariants: every page is either free or referenced, and its
// reference count is the number of page table entries and blocks with it, those of
// siblings included. Tests call it after every operation.
func (c *Cache) Check() error {
	refs := slices.Clone(c.kept)
	for _, one := range c.caches {
		one.count(refs)
	}
	for p, n := range refs {
		if n != c.refs[p] {
			return fmt.Errorf("kvcache: page %d has %d references, counted %d", p, n, c.refs[p])
		}
	}
	return c.checkFree(refs)
}

// count counts the page table entries of each page.
func (c *Cache) count(refs []int32) {
	for slot, s := range c.seqs {
		if s == nil {
			continue
		}
		for l := range c.tables {
			for _, p := range c.row(l, slot)[:pagesPerLayer(s.len)] {
				refs[p]++
			}
		}
	}
}

// checkFree verifies that the free list is the pages without references, each once.
func (c *Cache) checkFree(refs []int32) error {
	seen := make([]bool, len(refs))
	for _, p := range c.free {
		if seen[p] || refs[p] != 0 {
			return fmt.Errorf("kvcache: page %d is free with %d references (listed before: %v)", p, refs[p], seen[p])
		}
		seen[p] = true
	}
	for p, n := range refs {
		if n == 0 && !seen[p] {
			return fmt.Errorf("kvcache: page %d is lost: neither free nor referred to", p)
		}
	}
	return nil
}
