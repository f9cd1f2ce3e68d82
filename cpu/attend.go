package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// attend computes softmax(q·k/√dim + ln weight)·v over the plan, causal. The output of a
// row that reads nothing is zero; rows of an idle slot are not written.
func (o *ops) attend(c *device.Attend) {
	a := &o.tasks.attention
	a.o, a.out, a.in = o, f32s(c.Dst), f32s(c.Q)
	a.rows, a.heads, a.dim = c.Q.Dim(0), c.Q.Dim(1), c.Q.Dim(2)
	if a.rows == 0 {
		return
	}
	a.perSlot = device.RowsPerSlot("Attend", a.rows, c.KV)
	a.pages, a.mask = newPages(c.KV), mask{c.Plan}
	a.dense = a.mask.dense()
	a.group = a.heads / a.pages.heads
	a.run = a.group
	if l := c.Plan.List.Index; !l.Absent() {
		a.run = gcd(a.run, a.heads/l.Dim(1))
	}
	a.known = knownScores{}
	switch {
	case a.dim%vec.Multiple != 0:
		a.runTasks(a.rows, (*attendReference)(a))
	case a.perSlot == 1:
		a.known = o.scored.of(c.Q, c.KV, c.Plan)
		a.decode()
	default:
		a.prefill()
	}
}

// attention is the call of Attend that runs. Its scratch memory is reused.
type attention struct {
	o                         *ops
	out, in                   []float32 // [rows, heads, dim]
	rows, heads, dim, perSlot int
	pages                     pages
	mask                      mask
	dense                     mask // of rows whose list is covered
	group                     int  // query heads of a kv head (GQA)
	run                       int  // adjacent heads of a group that read the same list
	workers                   []worker

	tileRows, firstTile, tiles int // of prefill, see there
	splits, listSplits         int // of decode, see there
	partials                   []float32
	lists                      []positionList // [slots, runs of heads]
	covered                    []bool         // of each list: see mask.covered
	starts                     []int          // [slots, width]: where pages start, see locatePages
	known                      knownScores    // of a decode step
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// minParallelScores is how many q·k one thread computes in less time than it takes to wake
// the others.
const minParallelScores = 1 << 10

// runTasks runs n items, on all threads where that pays.
func (a *attention) runTasks(n int, t Task) {
	longest := 0
	for _, l := range a.pages.lengths {
		longest = max(longest, int(l))
	}
	chunk := 1
	if a.rows*a.heads*longest < minParallelScores {
		chunk = n
	}
	a.o.pool.RunChunks(n, chunk, t)
}

// attendReference runs the definition: item i is row i.
type attendReference attention

// Do computes rows lo to hi-1.
func (a *attendReference) Do(_, lo, hi int) {
	for r := lo; r < hi; r++ {
		slot := r / a.perSlot
		first, ok := a.o.first("Attend", &a.pages, slot, a.perSlot)
		if !ok {
			continue
		}
		pos := first + r%a.perSlot
		plan := &a.mask.plan
		for h := range a.heads {
			l := a.o.list(plan.List, listGroup(plan.List, slot, first, pos), h, a.heads)
			at := r*a.heads + h
			a.o.attendRow(row(a.out, at, a.dim), row(a.in, at, a.dim), &a.pages, &a.mask, l, slot, pos, h*a.pages.heads/a.heads)
		}
	}
}

// attendRow is the definition of attention, for one head of the row at position p, in
// float64: every weight, every score, then the weighted sum of the values.
func (o *ops) attendRow(dst, q []float32, g *pages, v *mask, l positionList, slot, p, kvHead int) {
	weights := make([]float64, p+1) // of each position
	at := make([]int, p+1)          // where its row is in the cache
	for j := range weights {
		weights[j] = float64(v.weight(p, j, l))
		if weights[j] != 0 {
			page := o.page(g, slot, j/device.PageLen)
			at[j] = g.element(max(page, 0), kvHead, j%device.PageLen)
			if page < 0 {
				weights[j] = 0
			}
		}
	}
	x := make([]float32, len(q))
	if !v.plan.Mixture {
		o.referenceSoftmax(weights, at, q, x, g)
	}
	sum := make([]float64, len(q))
	for j, w := range weights {
		if w == 0 {
			continue
		}
		o.load(x, g.v, at[j], g.half)
		for i := range sum {
			sum[i] += w * float64(x[i])
		}
	}
	for i := range dst {
		dst[i] = float32(sum[i])
	}
}

// referenceSoftmax replaces weights w by w·exp(q·k/√dim) / Σ w·exp(q·k/√dim). k is scratch.
func (o *ops) referenceSoftmax(weights []float64, at []int, q, k []float32, g *pages) {
	scores := make([]float64, len(weights))
	top := math.Inf(-1)
	for j, w := range weights {
		if w > 0 {
			o.load(k, g.k, at[j], g.half)
			scores[j] = dot(q, k)/math.Sqrt(float64(len(q))) + math.Log(w)
			top = max(top, scores[j])
		}
	}
	var sum float64
	for j, w := range weights {
		weights[j] = 0
		if w > 0 {
			weights[j] = math.Exp(scores[j] - top)
			sum += weights[j]
		}
	}
	for j := range weights {
		if weights[j] > 0 {
			weights[j] /= sum
		}
	}
}

// dot is a·b in float64.
func dot(a, b []float32) float64 {
	var sum float64
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}
