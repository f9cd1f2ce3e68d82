package cpu

import (
	"math/bits"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// marginTask is WithinMargin: item i is kv head i%kvheads of list group i/kvheads.
type marginTask struct {
	keyTiles
	outList
	call     *device.Select
	listRows int       // positions of a list group
	top      []float32 // [blocks, heads]
	groups   int       // list groups of a slot
}

// withinMargin lists the positions whose scores lie within the margin of the largest of the
// sinks and the window (AnchorAttention).
func (o *ops) withinMargin(c *device.Select) {
	const op = "WithinMargin"
	slots, blocks := c.KV.Len.Dim(0), c.Q.Dim(0)
	t := &o.tasks.margin
	*t = marginTask{
		keyTiles: t.keyTiles, outList: newOutList(c.List),
		call: c, listRows: max(c.List.Group, 1), top: f32s(c.Scores), groups: 1,
	}
	if slots == 1 {
		if first := int(i32s(c.KV.Len)[0]) - c.Rows; first >= 0 { // below 0 the task fails
			t.groups = device.BlocksOf(first, c.Rows, t.listRows)
		}
	}
	if have := c.List.Index.Dim(0); slots*t.groups > have || slots > blocks {
		o.d.fail("%s: %d groups of rows, want at most %d", op, slots*t.groups, min(blocks, have*t.listRows/c.Block))
		return
	}
	t.reset(o, c.Q, c.KV, c.Plan, min(t.listRows/c.Block, blocks))
	o.pool.RunChunks(slots*t.groups*t.pages.heads, 1, t)
	t.checkOverflow(o, op)
}

// Do lists items lo to hi-1.
func (t *marginTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		g, kvHead := i/t.pages.heads, i%t.pages.heads
		slot := g / t.groups
		if first, ok := t.o.first("WithinMargin", &t.pages, slot, t.call.Rows); ok {
			t.list(&t.scratch[worker], slot, first, g%t.groups, kvHead)
		}
	}
}

// list lists for list group g of a slot.
func (t *marginTask) list(s *keyScratch, slot, first, g, kvHead int) {
	// positions of the group that are rows of the call, and their blocks of queries
	from := max(first, (first/t.listRows+g)*t.listRows)
	to := min(first+t.call.Rows, (first/t.listRows+g+1)*t.listRows)
	block := slot + from/t.call.Block - first/t.call.Block
	blocks := device.BlocksOf(from, to-from, t.call.Block)
	if (block+blocks)*t.heads > len(t.top) {
		t.o.d.fail("WithinMargin: block %d of queries, want 0 to %d", block+blocks-1, len(t.top)/t.heads-1)
		return
	}
	t.load(s, block, blocks, kvHead)
	for i := range blocks {
		copy(row(s.top, i, t.group), row(t.top, block+i, t.heads)[kvHead*t.group:])
	}
	for h := kvHead * t.group; h < (kvHead+1)*t.group; h++ {
		t.count[(slot+g)*t.heads+h] = 0
	}
	lo, hi := t.mask.plan.Sink, min(windowStart(t.mask.plan, from), from+1)
	for b := lo / device.PageLen; b*device.PageLen < hi; b++ {
		seen := between(b, lo, hi) & t.mask.spannedBits(from, b)
		if seen == 0 {
			continue
		}
		page := t.o.page(&t.pages, slot, b)
		if page < 0 {
			return
		}
		t.multiply(s, page, kvHead, min(from+1-b*device.PageLen, device.PageLen), blocks)
		for u := range t.group {
			h := kvHead*t.group + u
			within, before := t.within(s, seen, u, block, blocks), seen&between(b, 0, t.call.Twice)
			t.add((slot+g)*t.heads+h, b, within|before, within&before)
		}
	}
	t.o.d.sawNaNs(&s.nans)
}

// within are the positions seen of a page whose score is within the margin of the top of one
// of the blocks, for head u of the kv head.
func (t *marginTask) within(s *keyScratch, seen uint64, u, block, blocks int) (found uint64) {
	for i := range blocks {
		r := i*t.group + u
		top, scores := s.top[r], row(s.scores, r, vec.Tile)
		for w := seen &^ found; w != 0; w &= w - 1 {
			j := bits.TrailingZeros64(w)
			x := scores[j] * t.scale
			if top-x <= t.call.Below {
				found |= 1 << j
			} else if x != x {
				s.nans++
			}
		}
	}
	return found
}

// add appends positions of a page to list i, those of twice with weight 2.
func (t *marginTask) add(i, page int, found, twice uint64) {
	index, n := row(t.index, i, t.limit), int(t.count[i])
	for ; found != 0; found &= found - 1 {
		if n == t.limit {
			t.overflow.Store(true)
			break
		}
		bit := bits.TrailingZeros64(found)
		index[n] = int32(page*device.PageLen + bit)
		if t.weight != nil {
			t.weight[i*t.limit+n] = float32(1 + twice>>bit&1)
		}
		n++
	}
	t.count[i] = int32(n)
}
