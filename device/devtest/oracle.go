package devtest

import (
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// attention is a case of Attend in plain Go, and its definition.
type attention struct {
	heads, kvHeads, dim int
	lens                []int // stored positions of each slot, the rows included
	rows                int   // query rows of the only slot; 0: one row for each slot
	full                bool  // the cache is f32, otherwise f16
	spread              float64
	rise                float64 // of scores from key to key, beside one that dominates; see dominated.go
	rest                float32 // what the cache holds where nothing is stored; 0: NaN

	back, spanSink int     // Span
	drop           float64 // Span
	sink, recent   int
	align          int
	selected       device.Selection
	listHeads      int
	group          int
	weighted       bool
	mixture        bool
	requests       []int32 // of the slots, for random numbers; nil: one for all

	q, k, v []float32 // q [rows, heads, dim]; k, v [slots, positions, kvheads, dim] as the cache keeps them
	lists   [][]entry // [groups·listHeads]
}

// entry is an element of a list.
type entry struct {
	index  int
	weight float32
}

// queryRows is the number of rows of the call.
func (a *attention) queryRows() int {
	if a.rows > 0 {
		return a.rows
	}
	return len(a.lens)
}

// place is the slot and the position of a row.
func (a *attention) place(r int) (slot, p int) {
	if a.rows > 0 {
		return 0, a.lens[0] - a.rows + r
	}
	return r, a.lens[r] - 1
}

// numbered gives slots requests of their own, where there are several.
func (a *attention) numbered() {
	for s := range a.lens {
		if len(a.lens) > 1 {
			a.requests = append(a.requests, int32(7*s+1))
		}
	}
}

// of is the tensor of the requests, absent where there are none.
func (b *bed) of(a *attention) device.Tensor {
	if a.requests == nil {
		return device.Tensor{}
	}
	return b.i32(a.requests, len(a.requests))
}

// address is the address of random numbers for a slot.
func (a *attention) address(d rng.Address, slot int) rng.Address {
	if a.requests != nil {
		d.Request = uint32(a.requests[slot])
	}
	return d
}

// longest is the largest of lens.
func (a *attention) longest() int {
	n := 0
	for _, l := range a.lens {
		n = max(n, l)
	}
	return n
}

// listOf is the list of a row and a head.
func (a *attention) listOf(r, head int) []entry {
	if a.listHeads == 0 {
		return nil
	}
	g := r
	if a.rows > 0 {
		_, p := a.place(r)
		n := max(a.group, 1)
		g = p/n - (a.lens[0]-a.rows)/n
	}
	return a.lists[g*a.listHeads+head*a.listHeads/a.heads]
}

// weight says whether the row at p reads position j of a slot, and with what
// weight: this is what a Plan means.
func (a *attention) weight(p, j int, l []entry) float64 {
	bound := 0
	if a.drop > 0 {
		bound = int(math.Floor(a.drop*float64(p+1)+1e-9)) - 1
	}
	if j > p || a.back > 0 && p-j >= a.back || j >= a.spanSink && j < bound {
		return 0
	}
	newest := p
	if a.align > 0 {
		newest = p/a.align*a.align - 1
	}
	if a.selected == device.All || j < a.sink || newest-j < a.recent {
		return 1
	}
	for _, e := range l {
		if a.selected == device.Tokens && e.index == j || a.selected == device.Blocks && e.index == j/device.PageLen {
			return float64(e.weight)
		}
	}
	return 0
}

// at is the row of x for a position and a kv head.
func (a *attention) at(x []float32, slot, j, kvHead int) []float32 {
	return x[((slot*a.longest()+j)*a.kvHeads+kvHead)*a.dim:][:a.dim]
}

// want is the result in float64; rows of idle slots keep the number before.
func (a *attention) want(before float64) []float64 {
	out := make([]float64, a.queryRows()*a.heads*a.dim)
	for r := range a.queryRows() {
		slot, p := a.place(r)
		for h := range a.heads {
			y := out[(r*a.heads+h)*a.dim:][:a.dim]
			if a.lens[slot] == 0 {
				for i := range y {
					y[i] = before
				}
				continue
			}
			a.attend(y, r, h, slot, p)
		}
	}
	return out
}

// attend is softmax(q·k/√dim + ln weight)·v for one row and head.
func (a *attention) attend(y []float64, r, h, slot, p int) {
	q := a.q[(r*a.heads+h)*a.dim:][:a.dim]
	kvHead := h / (a.heads / a.kvHeads)
	l := a.listOf(r, h)
	share := make([]float64, p+1)
	top, sum := math.Inf(-1), 0.0
	for j := range share {
		w := a.weight(p, j, l)
		if share[j] = w; a.mixture {
			continue
		}
		share[j] = math.Inf(-1)
		if w > 0 {
			var s float64
			for i, k := range a.at(a.k, slot, j, kvHead) {
				s += float64(q[i]) * float64(k)
			}
			share[j] = s/math.Sqrt(float64(a.dim)) + math.Log(w)
		}
		top = max(top, share[j])
	}
	if !a.mixture {
		for j, s := range share {
			share[j] = 0
			if !math.IsInf(top, -1) {
				share[j] = math.Exp(s - top)
			}
			sum += share[j]
		}
	}
	for j, w := range share {
		if w == 0 {
			continue
		}
		if !a.mixture {
			w /= sum
		}
		for i, v := range a.at(a.v, slot, j, kvHead) {
			y[i] += w * float64(v)
		}
	}
}
