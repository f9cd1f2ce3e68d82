package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// Sample chooses the token that follows each row, and writes it to the ring of
// the newest tokens. The draw walks over the tokens that are kept in the order
// of their ids. A logit that is not a number counts as the smallest.
func (o *ops) Sample(next, logits, history, pos device.Tensor, s device.Sampling) {
	device.CheckSample(next, logits, history, pos)
	rows, vocab := logits.Dim(0), logits.Dim(1)
	x, seen, at, out := f32s(logits), i32s(history), i32s(pos), i32s(next)
	for r := range rows {
		l := row(x, r, vocab)
		ring := row(seen, r, history.Dim(1))
		penalize(l, ring, s.RepeatPenalty)
		out[r] = o.sampler.choose(l, at[r], s)
		if len(ring) > 0 {
			ring[uint32(at[r]+1)%uint32(len(ring))] = out[r]
		}
	}
}

// penalize makes each token of history less likely, once however often it is
// there: a positive logit is divided by penalty, a negative one multiplied.
func penalize(logits []float32, history []int32, penalty float32) {
	if penalty == 0 || penalty == 1 {
		return
	}
	for i, id := range history {
		if id < 0 || int(id) >= len(logits) || slices.Contains(history[:i], id) {
			continue
		}
		if logits[id] > 0 {
			logits[id] /= penalty
		} else {
			logits[id] *= penalty
		}
	}
}

// argmax is the id of the largest logit, the lowest among equals.
func argmax(logits []float32) int32 {
	best, at := float32(math.Inf(-1)), int32(0)
	for id, v := range logits {
		if v > best {
			best, at = v, int32(id)
		}
	}
	return at
}

// candidate is a token that may be chosen.
type candidate struct {
	id    int32
	logit float32
	p     float64 // its share, once softmax has run
}

// byRank orders candidates from the most likely, the lowest id among equals.
func byRank(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
}

// sampler holds the candidates of a row; its memory is reused.
type sampler struct{ kept []candidate }

// choose is the token that follows position pos.
func (m *sampler) choose(logits []float32, pos int32, s device.Sampling) int32 {
	if s.Temperature <= 0 {
		return argmax(logits)
	}
	u := device.Draw{Seed: s.Seed, Pos: uint32(pos), Purpose: device.ForToken}.Uniform(0)
	return m.draw(logits, s, float64(u))
}

// draw chooses a token with the uniform number u in [0, 1).
func (m *sampler) draw(logits []float32, s device.Sampling, u float64) int32 {
	m.fill(logits)
	if s.TopK > 0 && s.TopK < len(m.kept) {
		selectRank(m.kept, s.TopK)
		m.kept = m.kept[:s.TopK]
	}
	m.softmax(float64(s.Temperature))
	if s.TopP > 0 && s.TopP < 1 {
		m.topP(float64(s.TopP))
	}
	if s.MinP > 0 {
		m.minP(float64(s.MinP))
	}
	slices.SortFunc(m.kept, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	return m.pick(u)
}

// fill makes every token a candidate.
func (m *sampler) fill(logits []float32) {
	m.kept = slices.Grow(m.kept[:0], len(logits))[:len(logits)]
	for id, v := range logits {
		if v != v {
			v = float32(math.Inf(-1))
		}
		m.kept[id] = candidate{id: int32(id), logit: v}
	}
}

// selectRank moves the k first of c by rank to the front, in any order: it cuts
// the part that the border lies in at a pivot until few are left, and sorts those.
func selectRank(c []candidate, k int) {
	const few = 16
	for len(c) > few {
		cut := partition(c)
		if k <= cut {
			c = c[:cut]
		} else {
			c, k = c[cut:], k-cut
		}
	}
	slices.SortFunc(c, byRank)
}

// partition cuts c in two, neither of them empty: nothing in the first part
// ranks behind anything in the second.
func partition(c []candidate) int {
	n := len(c)
	three := [3]candidate{c[0], c[n/2], c[n-1]}
	slices.SortFunc(three[:], byRank)
	pivot := three[1]
	for i, j := 0, n-1; ; i, j = i+1, j-1 {
		for ahead(&c[i], &pivot) {
			i++
		}
		for ahead(&pivot, &c[j]) {
			j--
		}
		if i >= j {
			return max(i, 1)
		}
		c[i], c[j] = c[j], c[i]
	}
}

// ahead reports whether a ranks before b.
func ahead(a, b *candidate) bool { return a.logit > b.logit || a.logit == b.logit && a.id < b.id }

// softmax fills in the shares.
func (m *sampler) softmax(temperature float64) {
	top := math.Inf(-1)
	for _, c := range m.kept {
		top = max(top, float64(c.logit))
	}
	var sum float64
	for i := range m.kept {
		p := math.Exp((float64(m.kept[i].logit) - top) / temperature)
		if p != p { // both infinite
			p = 1
		}
		m.kept[i].p = p
		sum += p
	}
	for i := range m.kept {
		m.kept[i].p /= sum
	}
}

// topP keeps the fewest candidates, taken by rank, whose shares reach mass. Like
// selectRank it cuts the part that the border lies in until few are left.
func (m *sampler) topP(mass float64) {
	const few = 16
	c, before := m.kept, 0
	for len(c) > few {
		cut := partition(c)
		var sum float64
		for i := range c[:cut] {
			sum += c[i].p
		}
		if sum >= mass {
			c = c[:cut]
		} else {
			c, before, mass = c[cut:], before+cut, mass-sum
		}
	}
	slices.SortFunc(c, byRank)
	n := 0
	for n < len(c) && mass > 0 {
		mass -= c[n].p
		n++
	}
	m.kept = m.kept[:before+n]
}

// minP keeps the candidates with at least this share of the largest.
func (m *sampler) minP(share float64) {
	var top float64
	for _, c := range m.kept {
		top = max(top, c.p)
	}
	m.kept = slices.DeleteFunc(m.kept, func(c candidate) bool { return c.p < share*top })
}

// pick is the candidate at u of the way through the shares.
func (m *sampler) pick(u float64) int32 {
	var sum float64
	for _, c := range m.kept {
		sum += c.p
	}
	u *= sum
	sum = 0
	last := int32(0)
	for _, c := range m.kept {
		if c.p > 0 {
			last = c.id
		}
		if sum += c.p; sum > u {
			break
		}
	}
	return last
}
