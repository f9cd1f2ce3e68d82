package serve

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/kvcache"
)

// prefixCache keeps the full blocks of prompts after their requests. A block is found by
// the hash of its tokens, of the spec, and of the block before it: equal hashes are equal
// beginnings of prompts. It keeps what was prefilled, not what was decoded, because only
// that has the bits of a prompt that is computed again.
type prefixCache struct {
	runner *engine.Runner // any of those that share the pages
	blocks map[hash]*list.Element
	used   *list.List // of *cachedBlock, the least recently used last
	idle   int        // blocks that no sequence has

	queries, hits int // tokens looked up and found
}

// hash identifies the beginning of a prompt that ends with a block.
type hash [sha256.Size]byte

// cachedBlock is a block and its name.
type cachedBlock struct {
	hash
	kvcache.Block
	users int // sequences that have it
}

// use notes that a sequence has a block.
func (c *prefixCache) use(t *task, b *cachedBlock) {
	if b.users == 0 {
		c.idle--
	}
	b.users++
	t.cached = append(t.cached, b)
}

// leave notes that a sequence is closed.
func (c *prefixCache) leave(t *task) {
	for _, b := range t.cached {
		if b.users--; b.users == 0 {
			c.idle++
		}
	}
	t.cached = nil
}

func newPrefixCache(r *engine.Runner) *prefixCache {
	return &prefixCache{runner: r, blocks: map[hash]*list.Element{}, used: list.New()}
}

// root is the hash before the first block: what but its tokens a prompt depends on.
func (t *task) root() hash {
	var b [8]byte
	binary.LittleEndian.PutUint32(b[:], uint32(t.lane.attn))
	if t.lane.draws {
		binary.LittleEndian.PutUint32(b[4:], t.Draw)
	}
	return sha256.Sum256(b[:])
}

// chain calls block with the hash of each full block of the prompt, until it says no.
func (t *task) chain(block func(i int, h hash) bool) {
	h := t.root()
	buffer := make([]byte, 0, len(h)+4*blockLen)
	for i := range len(t.Prompt) / blockLen {
		buffer = append(buffer[:0], h[:]...)
		for _, id := range t.Prompt[i*blockLen : (i+1)*blockLen] {
			buffer = binary.LittleEndian.AppendUint32(buffer, uint32(id))
		}
		if h = sha256.Sum256(buffer); !block(i, h) {
			return
		}
	}
}

// begin makes the blocks that are there the beginning of a sequence, and returns how many
// positions that are.
func (c *prefixCache) begin(t *task) int {
	if t.lane.reuse == 0 {
		return 0
	}
	c.queries += len(t.Prompt)
	var found []*list.Element
	t.chain(func(_ int, h hash) bool {
		e, ok := c.blocks[h]
		if ok {
			found = append(found, e)
		}
		return ok
	})
	n := t.reusable(len(found) * blockLen)
	found = found[:n/blockLen]
	blocks := make([]kvcache.Block, len(found))
	for i, e := range found {
		b := e.Value.(*cachedBlock)
		blocks[i] = b.Block
		c.use(t, b)
	}
	for i := len(found) - 1; i >= 0; i-- { // a block is used after those behind it
		c.used.MoveToFront(found[i])
	}
	if n > 0 {
		t.seq.Begin(blocks, t.Prompt)
	}
	c.hits += n
	return n
}

// reusable is how many of n positions that were found may begin the prompt: the last row
// is always computed, and not alone, as it would not be without the cache.
func (t *task) reusable(n int) int {
	unit := t.lane.reuse
	n = min(n, len(t.Prompt)-1) / unit * unit
	if n > 0 && len(t.Prompt)-n == 1 {
		n -= unit
	}
	return n
}

// add keeps the blocks of a prompt that was read.
func (c *prefixCache) add(t *task) {
	if t.lane.reuse == 0 {
		return
	}
	var kept []*list.Element
	t.chain(func(i int, h hash) bool {
		e, ok := c.blocks[h]
		if !ok {
			b := &cachedBlock{hash: h, Block: t.seq.Keep(i)}
			e = c.used.PushFront(b)
			c.blocks[h] = e
			c.idle++
			c.use(t, b)
		}
		kept = append(kept, e)
		return true
	})
	for i := len(kept) - 1; i >= 0; i-- {
		c.used.MoveToFront(kept[i])
	}
}

// evict frees idle blocks, the least recently used first, until so many blocks are free.
func (c *prefixCache) evict(want int) {
	for e := c.used.Back(); e != nil; {
		if _, free := c.runner.Blocks(); free >= want {
			return
		}
		before := e.Prev()
		if e.Value.(*cachedBlock).users == 0 {
			c.drop(e)
		}
		e = before
	}
}

// clear drops all blocks.
func (c *prefixCache) clear() {
	for c.used.Len() > 0 {
		c.drop(c.used.Back())
	}
}

func (c *prefixCache) drop(e *list.Element) {
	b := c.used.Remove(e).(*cachedBlock)
	delete(c.blocks, b.hash)
	c.idle--
	c.runner.Drop(b.Block)
}
