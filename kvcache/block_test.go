package kvcache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

// keptBlock is a block and the stamps that its positions should hold, by layer.
type keptBlock struct {
	Block
	stamps model
}

// TestBlocksOutliveSequences runs random operations on two caches of the same pages, in
// which sequences of either begin with blocks of the other: what is read is what was
// written, and the accounts stay true.
func TestBlocksOutliveSequences(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 2))
		conf := Config{Layers: 3, KVHeads: 1, HeadDim: 4, MaxLen: 300, Slots: 4, Pages: 3 * 9, DType: device.F32}
		one := newCache(t, conf)
		two, err := one.Sibling()
		if err != nil {
			t.Fatal(err)
		}
		caches, seqs := []*Cache{one, two}, []map[*Seq]model{{}, {}}
		var blocks []keptBlock // in turn the beginning of sequences
		var stamp uint32
		for range 300 {
			i := r.IntN(2)
			switch r.IntN(6) {
			case 0:
				blocks = keepSome(r, seqs[i], blocks)
			case 1:
				if n := len(blocks); n > 0 {
					caches[r.IntN(2)].Drop(blocks[n-1].Block)
					blocks = blocks[:n-1]
				}
			case 2:
				beginWith(caches[i], seqs[i], blocks[:min(len(blocks), 4)])
			default:
				step(t, r, caches[i], seqs[i], &stamp)
			}
			if err := caches[i].Check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			checkContents(t, seqs[0])
			checkContents(t, seqs[1])
		}
		for _, all := range seqs {
			for s := range all {
				s.Close()
			}
		}
		for _, b := range blocks {
			one.Drop(b.Block)
		}
		if got := two.FreePages(); got != conf.Pages {
			t.Errorf("seed %d: %d pages are free in the end, want %d", seed, got, conf.Pages)
		}
	}
}

// keepSome keeps the first block of a sequence.
func keepSome(r *rand.Rand, seqs map[*Seq]model, blocks []keptBlock) []keptBlock {
	s := pick(r, seqs)
	if s == nil || s.Len() < device.PageLen {
		return blocks
	}
	b := keptBlock{Block: s.Keep(0)}
	for _, stamps := range seqs[s] {
		b.stamps = append(b.stamps, slices.Clone(stamps[:device.PageLen]))
	}
	return append(blocks, b)
}

// beginWith opens a sequence that begins with blocks, where a slot is free.
func beginWith(c *Cache, seqs map[*Seq]model, blocks []keptBlock) {
	s, err := c.Open()
	if err != nil {
		return
	}
	var begin []Block
	m := make(model, 3)
	for _, b := range blocks {
		begin = append(begin, b.Block)
		for l := range m {
			m[l] = append(m[l], b.stamps[l]...)
		}
	}
	s.Begin(begin)
	seqs[s] = m
}
