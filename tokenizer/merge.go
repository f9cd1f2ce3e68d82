package tokenizer

import (
	"math/bits"
	"math/rand/v2"
	"slices"
)

// pair is a merge: the two symbols left and right become id. The lowest rank of a
// word goes first, the leftmost among equal ranks.
type pair struct {
	left, right int32
	rank, id    int32
}

// noRank is the rank of two symbols that do not merge.
const noRank = int32(-1)

// pairTable maps two symbols to their merge: a hash table with linear probing,
// half full at most, because a lookup is the inner step of every merge. Each table
// hashes by numbers of its own, so that no file can hold merges that collide.
type pairTable struct {
	slots      []pair // left is noSymbol in an empty slot
	shift      uint
	seed, mult uint64 // random; mult is odd
}

// noSymbol stands for a character that is in no token: it merges with nothing.
const noSymbol = int32(-1)

func newPairTable(n int) pairTable {
	log := bits.Len(uint(max(16, 2*n) - 1))
	t := pairTable{slots: make([]pair, 1<<log), shift: uint(64 - log), seed: rand.Uint64(), mult: rand.Uint64() | 1}
	for i := range t.slots {
		t.slots[i].left = noSymbol
	}
	return t
}

func (t *pairTable) slot(left, right int32) uint64 {
	high, low := bits.Mul64((uint64(uint32(left))<<32|uint64(uint32(right)))^t.seed, t.mult)
	return (high ^ low) >> t.shift
}

// add enters p unless its symbols are there already: the first rank of a pair is
// its rank.
func (t *pairTable) add(p pair) {
	mask := uint64(len(t.slots) - 1)
	for i := t.slot(p.left, p.right); ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.left == noSymbol {
			*s = p
			return
		}
		if s.left == p.left && s.right == p.right {
			return
		}
	}
}

// find returns the rank and the result of merging left and right, noRank when
// they do not merge.
func (t *pairTable) find(left, right int32) (rank, id int32) {
	if left < 0 || right < 0 {
		return noRank, noSymbol
	}
	mask := uint64(len(t.slots) - 1)
	for i := t.slot(left, right); ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.left == left && s.right == right {
			return s.rank, s.id
		}
		if s.left == noSymbol {
			return noRank, noSymbol
		}
	}
}

// symbol is an element of the list of symbols that one word still consists of.
type symbol struct {
	id         int32 // noSymbol when it merges with nothing
	prev, next int32 // index of the neighbours, -1 at the ends
	rank       int32 // of the merge with next, noRank when there is none
	merged     int32 // id after that merge
}

// merger merges the symbols of one word. Its memory is reused from word to word.
type merger struct {
	pairs *pairTable
	syms  []symbol
	heap  []uint64 // rank<<32 | index of the left symbol; stale entries are skipped
}

// scanLimit is the number of symbols up to which looking at all ranks for each
// merge beats the heap.
const scanLimit = 24

// start begins a word of at most n symbols.
func (m *merger) start(n int) { m.syms = slices.Grow(m.syms[:0], n) }

// push appends a symbol to the word.
func (m *merger) push(id int32) {
	i := int32(len(m.syms))
	m.syms = append(m.syms, symbol{id: id, prev: i - 1, next: i + 1, rank: noRank})
}

// run merges until nothing merges. Afterwards the word is the list that begins at
// index 0 of syms; an element that took part in no merge is still the symbol that
// was pushed at its index.
func (m *merger) run() {
	if len(m.syms) == 0 {
		return
	}
	m.begin()
	if len(m.syms) <= scanLimit {
		m.runScan()
	} else {
		m.runHeap()
	}
}

// begin ends the list and finds the ranks of all pairs.
func (m *merger) begin() {
	m.syms[len(m.syms)-1].next = -1
	for i := range m.syms[:len(m.syms)-1] {
		s := &m.syms[i]
		s.rank, s.merged = m.pairs.find(s.id, m.syms[i+1].id)
	}
}

// runScan takes the leftmost pair of lowest rank until there is none.
func (m *merger) runScan() {
	for {
		best := int32(-1)
		for i := int32(0); i >= 0; i = m.syms[i].next {
			r := m.syms[i].rank
			if r != noRank && (best < 0 || r < m.syms[best].rank) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		m.merge(best)
	}
}

// runHeap gives what runScan gives in n log n steps.
func (m *merger) runHeap() {
	m.heap = slices.Grow(m.heap[:0], len(m.syms))
	for i := range m.syms {
		m.pushHeap(int32(i))
	}
	for len(m.heap) > 0 {
		top := m.popHeap()
		rank, i := int32(top>>32), int32(uint32(top))
		if m.syms[i].rank != rank {
			continue
		}
		m.merge(i)
		m.pushHeap(i)
		if p := m.syms[i].prev; p >= 0 {
			m.pushHeap(p)
		}
	}
}

// merge joins symbol i with its right neighbour and finds the ranks of the two
// pairs that this makes.
func (m *merger) merge(i int32) {
	s := &m.syms[i]
	gone := &m.syms[s.next]
	s.id, s.next = s.merged, gone.next
	gone.rank = noRank
	s.rank = noRank
	if s.next >= 0 {
		next := &m.syms[s.next]
		next.prev = i
		s.rank, s.merged = m.pairs.find(s.id, next.id)
	}
	if s.prev >= 0 {
		p := &m.syms[s.prev]
		p.rank, p.merged = m.pairs.find(p.id, s.id)
	}
}

// pushHeap enters the pair that begins at i, if it merges.
func (m *merger) pushHeap(i int32) {
	if m.syms[i].rank == noRank {
		return
	}
	key := uint64(m.syms[i].rank)<<32 | uint64(uint32(i))
	m.heap = append(m.heap, key)
	h, c := m.heap, len(m.heap)-1
	for c > 0 {
		p := (c - 1) / 4
		if h[p] <= key {
			break
		}
		h[c] = h[p]
		c = p
	}
	h[c] = key
}

func (m *merger) popHeap() uint64 {
	h := m.heap
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	m.heap = h
	if len(h) == 0 {
		return top
	}
	p := 0
	for {
		c := 4*p + 1
		if c >= len(h) {
			break
		}
		for k := c + 1; k < min(c+4, 4*p+5, len(h)); k++ {
			if h[k] < h[c] {
				c = k
			}
		}
		if h[c] >= last {
			break
		}
		h[p] = h[c]
		p = c
	}
	h[p] = last
	return top
}
