package cpu

import "github.com/gollm/gollm/device"

// callBlock is a block of PageLen positions of a slot that a call works on.
type callBlock struct {
	slot, index int // the slot, and which of its blocks
	page        int
	first       int // position of the slot's first row of the call
	len         int // positions of the slot
}

// positions is how many positions of the block are stored.
func (b callBlock) positions() int { return min(b.len-b.index*device.PageLen, device.PageLen) }

// blocks is how many blocks the slot has.
func (b callBlock) blocks() int { return pagesOf(b.len) }

// group is the number of the block among those that the call's rows lie in.
func (b callBlock) group() int { return b.slot + b.index - b.first/device.PageLen }

// blockRange says which blocks of a slot a call works on.
type blockRange int

const (
	touched   blockRange = iota // those that its newest rows lie in
	completed                   // and the one before them where they start a block
	every                       // all
)

// eachBlock calls f for blocks of each slot, in order; rows is how many of its newest rows
// are of the call.
func (o *ops) eachBlock(op string, kv device.KV, rows int, which blockRange, f func(callBlock)) {
	g := newPages(kv)
	for slot := range g.lengths {
		first, ok := o.first(op, &g, slot, rows)
		if !ok {
			continue
		}
		b := callBlock{slot: slot, index: first / device.PageLen, first: first, len: first + rows}
		switch {
		case which == every:
			b.index = 0
		case which == completed && b.index > 0 && first%device.PageLen == 0:
			b.index--
		}
		for ; b.index < b.blocks(); b.index++ {
			if b.page = o.page(&g, slot, b.index); b.page >= 0 {
				f(b)
			}
		}
	}
}

// pagesOf is how many pages n positions take.
func pagesOf(n int) int { return (n + device.PageLen - 1) / device.PageLen }
