package tokenizer

import "hash/maphash"

// Bounds of a wordCache: slots, of which at most half are in use, the bytes of the
// words and their ids. All of it is 4 MB.
const (
	firstSlots   = 1 << 11
	cacheSlots   = 1 << 17
	cacheBytes   = 1 << 20
	cacheIDs     = 1 << 18
	maxCacheWord = 64
)

// wordCache remembers the ids of short words. It holds no pointers, so the garbage
// collector does not look into it. It grows with its use, up to its bounds, and then
// starts over.
type wordCache struct {
	slots []cachedWord // a power of two of them, none before the first word
	used  int
	text  []byte
	ids   []int32
}

// cachedWord is a slot; a word has at least one id, so ids is 0 in an empty slot.
type cachedWord struct {
	hash          uint32
	text, first   uint32 // offsets into the text and the ids of the cache
	length, count uint16
}

// wordSeed keys the hash of words: no text can be made of words that collide.
var wordSeed = maphash.MakeSeed()

// hash mixes the bytes of a word.
func hash(word string) uint32 { return uint32(maphash.String(wordSeed, word)) }

// find returns the ids of word, valid until the next add.
func (c *wordCache) find(h uint32, word string) (ids []int32, ok bool) {
	if len(c.slots) == 0 {
		return nil, false
	}
	mask := uint32(len(c.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &c.slots[i]
		if s.count == 0 {
			return nil, false
		}
		if s.hash == h && string(c.text[s.text:s.text+uint32(s.length)]) == word {
			return c.ids[s.first : s.first+uint32(s.count)], true
		}
	}
}

// add remembers the ids of a word that find did not find.
func (c *wordCache) add(h uint32, word string, ids []int32) {
	if len(word) > maxCacheWord || len(ids) == 0 {
		return
	}
	if 2*c.used >= len(c.slots) || len(c.text)+len(word) > cacheBytes || len(c.ids)+len(ids) > cacheIDs {
		c.makeRoom()
	}
	c.place(cachedWord{h, uint32(len(c.text)), uint32(len(c.ids)), uint16(len(word)), uint16(len(ids))})
	c.text = append(c.text, word...)
	c.ids = append(c.ids, ids...)
	c.used++
}

// place puts an entry into a free slot.
func (c *wordCache) place(w cachedWord) {
	mask := uint32(len(c.slots) - 1)
	i := w.hash & mask
	for c.slots[i].count != 0 {
		i = (i + 1) & mask
	}
	c.slots[i] = w
}

// makeRoom grows the cache, or empties it when it is as large as it may be.
func (c *wordCache) makeRoom() {
	if 2*c.used < len(c.slots) || len(c.slots) == cacheSlots {
		clear(c.slots)
		c.used, c.text, c.ids = 0, c.text[:0], c.ids[:0]
		return
	}
	old := c.slots
	c.slots = make([]cachedWord, max(firstSlots, 4*len(old)))
	for _, w := range old {
		if w.count != 0 {
			c.place(w)
		}
	}
}
