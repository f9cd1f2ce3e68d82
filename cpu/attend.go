package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// pages is one layer of the cache with its tensors looked up.
type pages struct {
	k, v    []byte // [count, heads, PageLen, dim]
	half    bool   // elements are f16, otherwise f32
	count   int
	heads   int
	dim     int
	table   []int32 // [slots, width]
	width   int
	lengths []int32 // [slots]
}

func newPages(kv device.KV) pages {
	return pages{
		k: bytesOf(kv.K), v: bytesOf(kv.V),
		half:  kv.K.DType == device.F16,
		count: kv.K.Dim(0), heads: kv.K.Dim(1), dim: kv.K.Dim(3),
		table: i32s(kv.Pages), width: kv.Pages.Dim(1),
		lengths: i32s(kv.Len),
	}
}

// page is the number of the page of block b of a slot; -1 is a failure.
func (o *ops) page(g *pages, slot, b int) int {
	if b >= g.width {
		o.d.fail("page table of %d pages, position %d needs %d", g.width, b*device.PageLen, b+1)
		return -1
	}
	n := int(g.table[slot*g.width+b])
	if n < 0 || n >= g.count {
		o.d.fail("page %d in block %d of slot %d, want 0 to %d", n, b, slot, g.count-1)
		return -1
	}
	return n
}

// rows is position index i and the n-1 after it of a page and a kv head, of k or v.
func (g *pages) rows(cache []byte, page, head, i, n int) vec.Rows {
	at := g.element(page, head, i)
	if g.half {
		return vec.Rows{Half: as[uint16](cache)[at : at+n*g.dim]}
	}
	return vec.Rows{Full: as[float32](cache)[at : at+n*g.dim]}
}

// element is where position index i of a page starts for a kv head, in elements.
func (g *pages) element(page, head, i int) int {
	return ((page*g.heads+head)*device.PageLen + i) * g.dim
}

// first is the position of the first row of a slot, and ok whether the slot has
// any: with rows of its own, the last is at its length less one.
func (o *ops) first(op string, g *pages, slot, rows int) (pos int, ok bool) {
	n := int(g.lengths[slot])
	if n == 0 {
		return 0, false
	}
	if n < rows || n > g.width*device.PageLen {
		o.d.fail("%s: slot %d has length %d, want %d to %d for %d rows", op, slot, n, rows, g.width*device.PageLen, rows)
		return 0, false
	}
	return n - rows, true
}

// append stores the keys and values of the call's rows at their positions. In
// an f16 cache they are rounded to even; what f16 cannot hold becomes an infinity.
func (o *ops) append(c *device.Append) {
	kv, k, v := c.KV, c.K, c.V
	const op = "Append"
	perSlot := device.RowsPerSlot(op, k.Dim(0), kv)
	g := newPages(kv)
	for r := range k.Dim(0) {
		slot := r / max(perSlot, 1)
		first, ok := o.first(op, &g, slot, perSlot)
		if !ok {
			continue
		}
		p := first + r%perSlot
		page := o.page(&g, slot, p/device.PageLen)
		if page < 0 {
			continue
		}
		for h := range g.heads {
			at := g.element(page, h, p%device.PageLen)
			o.store(g.k, at, row(f32s(k), r*g.heads+h, g.dim), g.half)
			o.store(g.v, at, row(f32s(v), r*g.heads+h, g.dim), g.half)
		}
	}
}

// store writes a row of a cache from element at on.
func (o *ops) store(cache []byte, at int, x []float32, half bool) {
	if half {
		o.vec.ToHalf(as[uint16](cache)[at:at+len(x)], x)
		return
	}
	copy(as[float32](cache)[at:], x)
}

// load reads a row of a cache from element at on.
func (o *ops) load(x []float32, cache []byte, at int, half bool) {
	if half {
		o.vec.FromHalf(x, as[uint16](cache)[at:at+len(x)])
		return
	}
	copy(x, as[float32](cache)[at:])
}

// attend computes softmax(q·k/√dim + ln weight)·v over the plan, causal. A row
// that sees nothing becomes zero, and the row of an idle slot stays as it is.
func (o *ops) attend(c *device.Attend) {
	dst, q, kv, p := c.Dst, c.Q, c.KV, c.Plan
	const op = "Attend"
	a := &o.attention
	a.o, a.out, a.in = o, f32s(dst), f32s(q)
	a.rows, a.heads, a.dim = q.Dim(0), q.Dim(1), q.Dim(2)
	if a.rows == 0 {
		return
	}
	a.perSlot = device.RowsPerSlot(op, a.rows, kv)
	a.pages, a.reach = newPages(kv), reach{p}
	a.everything = a.reach.without()
	a.fit()
	switch {
	case a.dim%vec.Multiple != 0:
		a.runTasks(a.rows, (*attendSlow)(a))
	case a.perSlot == 1:
		a.decode()
	default:
		a.prefill()
	}
}

// attention is the call of Attend that runs. Its memory is reused.
type attention struct {
	o                         *ops
	out, in                   []float32 // [rows, heads, dim]
	rows, heads, dim, perSlot int
	pages                     pages
	reach                     reach
	everything                reach // for rows whose list leaves nothing out
	group                     int   // heads of a kv head
	run                       int   // neighbouring heads of those that share a list
	workers                   []worker

	tileRows, firstTile, tiles int // of prefill, see there
	units, listUnits           int // of decode, see there
	parts                      []float32
	lists                      []list // [slots, runs of heads]
	whole                      []bool // of each: it leaves nothing out
	starts                     []int  // [slots, width]: where pages start, see findPages
}

// fit finds how many neighbouring heads can be computed together.
func (a *attention) fit() {
	a.group = a.heads / a.pages.heads
	a.run = a.group
	if l := a.reach.plan.List.Index; !l.Absent() {
		a.run = gcd(a.run, a.heads/l.Dim(1))
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// soloScores is how many products of a key and a query one thread computes sooner
// than others can be woken.
const soloScores = 1 << 10

// runTasks runs n tasks, on other threads too if that pays.
func (a *attention) runTasks(n int, t Task) {
	longest := 0
	for _, l := range a.pages.lengths {
		longest = max(longest, int(l))
	}
	chunk := 1
	if a.rows*a.heads*longest < soloScores {
		chunk = n
	}
	a.o.pool.RunChunks(n, chunk, t)
}

// attendSlow runs the definition, a row for an item.
type attendSlow attention

// Do computes rows lo to hi-1.
func (a *attendSlow) Do(_, lo, hi int) {
	for r := lo; r < hi; r++ {
		slot := r / a.perSlot
		first, ok := a.o.first("Attend", &a.pages, slot, a.perSlot)
		if !ok {
			continue
		}
		pos := first + r%a.perSlot
		plan := &a.reach.plan
		for h := range a.heads {
			l := a.o.list(plan.List, group(plan.List, slot, first, pos), h, a.heads)
			at := r*a.heads + h
			a.o.attendRow(row(a.out, at, a.dim), row(a.in, at, a.dim), &a.pages, &a.reach, l, slot, pos, h*a.pages.heads/a.heads)
		}
	}
}

// attendRow is the definition of attention for the row at position p and one
// head: every weight, every score, then the sum.
func (o *ops) attendRow(dst, q []float32, g *pages, v *reach, l list, slot, p, kvHead int) {
	weights := make([]float64, p+1) // of each position
	at := make([]int, p+1)
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
		o.softmax(weights, at, q, x, g)
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

// softmax replaces the weights by their share of Σ w·exp(q·k/√dim).
func (o *ops) softmax(weights []float64, at []int, q, k []float32, g *pages) {
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

func dot(a, b []float32) float64 {
	var sum float64
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}
