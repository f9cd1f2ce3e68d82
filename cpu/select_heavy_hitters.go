package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
)

// heavyHitters lists the heavy hitters and the recent positions before the newest of each
// slot, and evicts the others (H2O).
func (o *ops) heavyHitters(c *device.Select) {
	const op = "HeavyHitters"
	t, width := &o.tasks.heavyHitters, c.Scores.Dim(2)
	*t = heavyHitterTask{
		outList: newOutList(c.List), call: c, span: c.Plan.Span, since: i32s(c.Since),
		mass: f32s(c.Scores), width: width, kvHeads: c.KV.K.Dim(1),
		pos: o.newestPositions(op, c.KV, width, t.pos), candidates: perWorker(o.pool, t.candidates),
	}
	for i, r := range t.candidates {
		if cap(r) < t.width {
			t.candidates[i] = make([]uint64, 0, t.width)
		}
	}
	o.pool.RunChunks(len(t.pos)*t.kvHeads, 1, t)
	t.checkOverflow(o, op)
}

// heavyHitterTask is HeavyHitters: item i is kv head i%kvheads of slot i/kvheads.
type heavyHitterTask struct {
	outList
	call    *device.Select
	span    device.Span
	since   []int32   // [slots]
	mass    []float32 // [slots, kvheads, width]: accumulated; -Inf is evicted
	width   int
	kvHeads int
	pos     []int // by slot; -1 is skipped

	candidates [][]uint64 // by worker: see sortable
}

// Do lists items lo to hi-1.
func (t *heavyHitterTask) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		slot := i / t.kvHeads
		if p := t.pos[slot]; p >= 0 {
			t.list(worker, i, p, int(t.since[slot]))
		}
	}
}

// list lists what is kept of the positions before p, and evicts the rest.
func (t *heavyHitterTask) list(worker, i, p, since int) {
	mass, out := row(t.mass, i, t.width)[:p], row(t.index, i, t.limit)
	heavy, recent := t.call.KeptOf(p, since)
	candidates := t.candidates[worker][:0]
	for _, v := range spanIntervals(t.span, p) {
		for j := v.lo; j < min(v.hi, p-recent); j++ {
			if mass[j] > negInf {
				candidates = append(candidates, sortable(mass[j], j))
			}
		}
	}
	t.candidates[worker] = candidates
	heavy = min(heavy, len(candidates))
	largest(candidates, heavy)
	threshold := uint64(math.MaxUint64)
	for _, r := range candidates[:heavy] {
		threshold = min(threshold, r)
	}
	n := 0
	for j, x := range mass {
		kept := x > negInf && t.span.Sees(p, j) && (j >= p-recent || sortable(x, j) >= threshold)
		switch {
		case !kept:
			mass[j] = negInf
		case n == len(out):
			t.overflow.Store(true)
		default:
			out[n] = int32(j)
			n++
		}
	}
	t.count[i] = int32(n)
}
