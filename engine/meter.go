package engine

import (
	"math/bits"
	"runtime"
	"slices"
	"sync"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/sparse"
)

// Reads is what attention was to read, and what it read, added up over layers and rows.
type Reads struct {
	Pairs, Selected int64 // of a query and a position: those of causal attention, and those that were selected
	Past, K, V      int64 // stored rows of kv heads: those of the past, and those whose keys and values were read, to select included
}

// Add adds other reads.
func (r *Reads) Add(o Reads) {
	r.Pairs, r.Selected = r.Pairs+o.Pairs, r.Selected+o.Selected
	r.Past, r.K, r.V = r.Past+o.Past, r.K+o.K, r.V+o.V
}

// Meter counts what the attention of every pass reads. It reads the lists of plans back, so
// that it costs little where calls return when they are done, as on the CPU, and makes
// captured steps eager where they are replayed.
type Meter struct {
	dev   device.Device
	shape sparse.Shape
	scans []scan
	slots []Reads
	parts []meterPart // scratch memory, of each goroutine
}

// meterPart counts some of the rows of a pass.
type meterPart struct {
	*Meter
	sum            Reads
	head           bitset // of a query head
	keys, values   bitset // of a kv head
	shared         int    // the list that head is of, -1 for none
	sharedSelected int64
}

// partRows is the number of rows that are worth a goroutine.
const partRows = 16

// Meter begins to count.
func (p *passes) Meter() *Meter {
	m := &Meter{dev: p.dev, shape: p.shape, slots: make([]Reads, p.shape.Slots)}
	p.watch(m)
	return m
}

// Take returns what was counted of a slot since the last time.
func (m *Meter) Take(slot int) Reads {
	r := m.slots[slot]
	m.slots[slot] = Reads{}
	return r
}

// Begin makes the queue of a pass one that records which keys are read to select.
func (m *Meter) Begin(p *sparse.Pass, _ int, _, _ device.Tensor) {
	m.scans = m.scans[:0]
	if _, ok := p.Queue.(*keyReads); !ok {
		p.Queue = &keyReads{Queue: p.Queue, dev: m.dev, scans: &m.scans, read: readFilled}
	}
}

// Planned does nothing.
func (*Meter) Planned(*sparse.Pass, int, device.Plan) {}

// Attended counts the rows of a pass, or of a tile of one.
func (m *Meter) Attended(p *sparse.Pass, layer int, _, _ device.Tensor, plan device.Plan) {
	kv, rows := p.KV(layer), p.Rows()
	sel := Selection{plan: plan, Heads: m.shape.Heads}
	if plan.Dense() {
		sel.Pos = rowPositions(m.dev, kv, rows)
	} else {
		sel = readFilled(m.dev, kv, rows, plan)
		sel.Heads = m.shape.Heads
	}
	if p.Decode {
		for row := range sel.Pos {
			m.slots[row].Add(m.rows(&sel, row, row+1))
		}
	} else {
		m.slots[p.Slot].Add(m.rows(&sel, 0, len(sel.Pos)))
	}
	m.scans = slices.DeleteFunc(m.scans, func(s scan) bool { return !s.pass })
}

// rows counts some rows.
func (m *Meter) rows(sel *Selection, from, to int) (sum Reads) {
	n := 1
	if !sel.Dense() {
		n = max(1, min(runtime.GOMAXPROCS(0), (to-from)/partRows))
	}
	for len(m.parts) < n {
		m.parts = append(m.parts, meterPart{Meter: m})
	}
	var all sync.WaitGroup
	for i := range m.parts[:n] {
		part := &m.parts[i]
		part.sum = Reads{}
		lo, hi := from+(to-from)*i/n, from+(to-from)*(i+1)/n
		count := func() {
			for row := lo; row < hi; row++ {
				if pos := sel.Pos[row]; pos >= 0 {
					part.row(sel, row, pos)
				}
			}
		}
		if n == 1 {
			count()
			continue
		}
		all.Go(count)
	}
	all.Wait()
	for _, part := range m.parts[:n] {
		sum.Add(part.sum)
	}
	return sum
}

// row adds a row.
func (m *meterPart) row(sel *Selection, row, pos int) {
	r := &m.sum
	heads, kvHeads, past := int64(m.shape.Heads), int64(m.shape.KVHeads), int64(pos+1)
	r.Pairs += heads * past
	r.Past += kvHeads * past
	if sel.Dense() {
		r.Selected += heads * past
		r.K += kvHeads * past
		r.V += kvHeads * past
		return
	}
	m.shared = -1
	for g := range m.shape.KVHeads {
		m.values.clear(pos)
		for h := g * m.shape.Group(); h < (g+1)*m.shape.Group(); h++ {
			r.Selected += m.selected(sel, row, pos, h)
			m.values.join(m.head)
		}
		m.keys.clear(pos)
		if !sel.plan.Mixture {
			m.keys.join(m.values)
		}
		for h := g * m.shape.Group(); h < (g+1)*m.shape.Group(); h++ {
			for i := range m.scans {
				m.scanned(&m.scans[i], row, pos, h)
			}
		}
		r.V += m.values.count()
		r.K += m.keys.count()
	}
}

// selected makes head what a query head reads, and counts it. Heads with one list are
// looked at once.
func (m *meterPart) selected(sel *Selection, row, pos, head int) int64 {
	list := 0
	if sel.index != nil {
		list = head * sel.plan.List.Index.Dim(1) / sel.Heads
	}
	if list != m.shared {
		m.head.clear(pos)
		m.head.mark(sel, row, head)
		m.shared, m.sharedSelected = list, m.head.count()
	}
	return m.sharedSelected
}

// scanned adds to keys those that were read to select for a query head.
func (m *meterPart) scanned(s *scan, row, pos, head int) {
	if row = s.row(row, pos, head); row < 0 {
		return
	}
	if s.Dense() {
		m.keys.set(0, pos+1, true)
		return
	}
	m.head.clear(pos)
	m.head.mark(&s.Selection, row, min(head, s.Heads-1))
	m.shared = -1
	m.keys.join(m.head)
}

// bitset is positions of a past.
type bitset struct {
	words []uint64
	past  int
}

// clear empties the set, for the row at pos.
func (b *bitset) clear(pos int) {
	b.past = pos + 1
	n := (b.past + 63) / 64
	b.words = slices.Grow(b.words[:0], n)[:n]
	clear(b.words)
}

func (b *bitset) join(o bitset) {
	for i, w := range o.words {
		b.words[i] |= w
	}
}

func (b *bitset) count() (n int64) {
	for _, w := range b.words {
		n += int64(bits.OnesCount64(w))
	}
	return n
}

// set adds the positions of [lo, hi), or takes them out.
func (b *bitset) set(lo, hi int, in bool) {
	lo, hi = max(lo, 0), min(hi, b.past)
	for lo < hi {
		end := min(hi, lo/64*64+64)
		mask := ^uint64(0) << (lo % 64)
		if end%64 != 0 {
			mask &= 1<<(end%64) - 1
		}
		if in {
			b.words[lo/64] |= mask
		} else {
			b.words[lo/64] &^= mask
		}
		lo = end
	}
}

// mark adds what a row and head of a selection read; Selection.Keys is the definition.
func (b *bitset) mark(s *Selection, row, head int) {
	p, plan := s.Pos[row], &s.plan
	if plan.Selected == device.All {
		b.set(0, p+1, true)
	} else {
		b.list(s, row, head)
		b.set(0, plan.Sink, true)
		b.set(recentFrom(plan, p), p+1, true)
	}
	b.set(p+1, b.past, false)
	if plan.Span.Back > 0 {
		b.set(0, p-plan.Span.Back+1, false)
	}
	b.set(plan.Span.Sink, plan.Span.Bound(p), false)
}

// list adds the entries of a list that have a weight.
func (b *bitset) list(s *Selection, row, head int) {
	if s.plan.Selected == device.None {
		return
	}
	index, weights := s.List(row, head)
	for i, at := range index {
		switch {
		case weights != nil && weights[i] == 0:
		case s.plan.Selected == device.Blocks:
			b.set(int(at)*device.PageLen, (int(at)+1)*device.PageLen, true)
		case uint32(at) < uint32(b.past):
			b.words[at/64] |= 1 << (at % 64)
		}
	}
}
