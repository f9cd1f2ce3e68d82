package engine

import (
	"errors"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/kvcache"
)

// Blocks is the size of the cache in blocks of [device.PageLen] positions of a sequence,
// one page for each layer, and how many are free. Runners that share their pages
// ([Engine.NewRunners]) have the same.
func (r *Runner) Blocks() (all, free int) {
	layers := r.config.layers
	return r.cache.Config().Pages / layers, r.cache.FreePages() / layers
}

// Slots is the number of sequences that may be open at once.
func (r *Runner) Slots() int { return r.config.slots }

// Keep refers to block i of the sequence's positions, so that another sequence of a runner
// with these pages may begin with it, until [Runner.Drop].
func (s *Sequence) Keep(i int) kvcache.Block { return s.kv.Keep(i) }

// Begin makes blocks, whose tokens are ids, the beginning of an empty sequence, as if it
// had prefilled them. That holds where the blocks end at a multiple of
// [sparse.Spec.PrefixUnit] and are of a prompt of the same spec.
func (s *Sequence) Begin(blocks []kvcache.Block, ids []int32) {
	s.kv.Begin(blocks)
	s.tokens, s.row = slices.Clone(ids[:len(blocks)*device.PageLen]), -1
}

// Drop ends a block of Keep.
func (r *Runner) Drop(b kvcache.Block) { r.cache.Drop(b) }

// Slot is the sequence's row in a decode step, which has as many rows as its highest slot
// plus 1.
func (s *Sequence) Slot() int { return s.kv.Slot() }

// Lower moves the sequence to the lowest free slot if that is below its own, so that
// decode steps have fewer rows. The logits stay.
func (s *Sequence) Lower() error {
	moved, err := s.Fork()
	if errors.Is(err, kvcache.ErrNoSlot) {
		return nil
	}
	if err != nil {
		return err
	}
	if moved.Slot() > s.Slot() {
		moved.Close()
		return nil
	}
	s.Close()
	*s = *moved
	return nil
}

// CheckPages verifies the accounts of the cache: see [kvcache.Cache.Check].
func (r *Runner) CheckPages() error { return r.cache.Check() }
