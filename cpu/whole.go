package cpu

import "github.com/gollm/gollm/device"

// A list that leaves nothing out is no list: its rows are computed as those of a
// plan without one, so that a selection of everything gives the bits of dense
// attention and not only its numbers.

// whole reports whether a list of positions has all that the rows at positions
// first to last see between the plan's edges, each with weight one.
func (v *reach) whole(l list, first, last int) bool {
	p := &v.plan
	if p.Selected != device.Tokens || p.Mixture || first != last && p.Span != (device.Span{}) {
		return false
	}
	next := 0
	for _, seen := range seen(p.Span, last) {
		lo, hi := max(seen.lo, p.Sink), min(seen.hi, recent(*p, last))
		for j := lo; j < hi; j, next = j+1, next+1 {
			if next == len(l.index) || int(l.index[next]) != j || l.weights != nil && l.weights[next] != 1 {
				return false
			}
		}
	}
	return true
}

// without is what rows see of a plan when its list leaves nothing out.
func (v *reach) without() reach { return reach{device.Plan{Span: v.plan.Span}} }
