package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
	"github.com/gollm/gollm/device/sampling"
)

// sampleTokens samples the token that follows each row, and appends it to the row's ring of
// recent tokens. The draw goes over the candidates that are left in the order of their ids. A
// logit that is NaN counts as -Inf.
func (o *ops) sampleTokens(c *device.SampleTokens) {
	next, logits, history, pos, s := c.Next, c.Logits, c.History, c.Pos, c.Params
	rows, vocab := logits.Dim(0), logits.Dim(1)
	x, seen, at, out := f32s(logits), i32s(history), i32s(pos), i32s(next)
	for r := range rows {
		ring := row(seen, r, history.Dim(1))
		out[r] = o.tasks.tokens.sample(row(x, r, vocab), ring, at[r], &s[r])
		if len(ring) > 0 {
			ring[uint32(at[r]+1)%uint32(len(ring))] = out[r]
		}
	}
}

// count counts the tokens of the n newest elements of ring up to position pos.
func (m *tokenSampler) count(ring []int32, pos int32, n int) {
	if m.counts == nil {
		m.counts = map[int32]int{}
	}
	clear(m.counts)
	for p := pos; p >= 0 && int(pos-p) < min(n, len(ring)); p-- {
		if id := ring[int(p)%len(ring)]; id >= 0 {
			m.counts[id]++
		}
	}
}

// penalized is the logit of a token that occurs n times, at least once, in the window of the
// penalties. Each operation is rounded to float32, so that no compiler fuses any two.
func penalized(logit float32, n int, s *sampling.Params) float32 {
	switch p := s.RepeatPenalty; {
	case p == 0:
	case logit > 0:
		logit /= p
	default:
		logit = float32(logit * p)
	}
	return logit - float32(float32(float32(n)*s.FrequencyPenalty)+s.PresencePenalty)
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

// candidate is a token that no sampler stage has left out.
type candidate struct {
	id    int32
	logit float32
	p     float64 // probability, after softmax; relative to the largest, after weigh
}

// byRank orders candidates by falling logit, ties to the lowest id.
func byRank(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
}

// tokenSampler holds the candidates of a row; its memory is reused.
type tokenSampler struct {
	kept        []candidate
	temperature float64       // divides the logits of kept
	counts      map[int32]int // of the tokens in the window of the penalties
}

// sample is the token that follows position pos. ring has the recent tokens.
func (m *tokenSampler) sample(logits []float32, ring []int32, pos int32, s *sampling.Params) int32 {
	list, n := s.Stages()
	stages := list[:n]
	if n > 0 && stages[0] == sampling.StagePenalties {
		m.count(ring, pos, s.RepeatLastN)
		for id, n := range m.counts {
			if int(id) < len(logits) {
				logits[id] = penalized(logits[id], n, s)
			}
		}
		stages = stages[1:]
	}
	if s.Greedy() && !slices.Contains(stages, sampling.StagePenalties) {
		return argmax(logits) // no stage leaves it out
	}
	m.fill(logits)
	for _, stage := range stages {
		m.stage(stage, ring, pos, s)
	}
	m.softmax()
	slices.SortFunc(m.kept, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	u := rng.Address{Seed: s.Seed, Pos: uint32(pos), Purpose: rng.ForToken}.Uniform(0)
	return m.draw(float64(u))
}

// stage applies a sampler stage to the candidates.
func (m *tokenSampler) stage(stage sampling.Stage, ring []int32, pos int32, s *sampling.Params) {
	switch stage {
	case sampling.StagePenalties:
		m.count(ring, pos, s.RepeatLastN)
		m.penalize(s)
	case sampling.StageTopK:
		if s.TopK < len(m.kept) {
			selectRank(m.kept, s.TopK)
			m.kept = m.kept[:s.TopK]
		}
	case sampling.StageTopP:
		m.softmax()
		m.topP(float64(s.TopP))
	case sampling.StageMinP:
		m.minP(min(float64(s.MinP), 1))
	case sampling.StageTemperature:
		if m.temperature = float64(s.Temperature); s.Temperature <= 0 {
			selectRank(m.kept, 1)
			m.kept, m.temperature = m.kept[:1], 1
		}
	}
}

// penalize applies the penalties to what was counted, after dividing by the temperature where
// that stage comes before.
func (m *tokenSampler) penalize(s *sampling.Params) {
	for i := range m.kept {
		c := &m.kept[i]
		c.logit = float32(float64(c.logit) / m.temperature)
		if n := m.counts[c.id]; n > 0 {
			c.logit = penalized(c.logit, n, s)
		}
	}
	m.temperature = 1
}

// fill makes every token a candidate.
func (m *tokenSampler) fill(logits []float32) {
	m.temperature = 1
	m.kept = slices.Grow(m.kept[:0], len(logits))[:len(logits)]
	for id, v := range logits {
		if v != v {
			v = float32(math.Inf(-1))
		}
		m.kept[id] = candidate{id: int32(id), logit: v}
	}
}

// selectRank moves the k first of c by rank to the front, in any order (quickselect).
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

// partition splits c in two parts (Hoare), neither of them empty: nothing in the first ranks
// behind anything in the second.
func partition(c []candidate) int {
	n := len(c)
	three := [3]candidate{c[0], c[n/2], c[n-1]}
	slices.SortFunc(three[:], byRank)
	pivot := three[1]
	for i, j := 0, n-1; ; i, j = i+1, j-1 {
		for ranksBefore(&c[i], &pivot) {
			i++
		}
		for ranksBefore(&pivot, &c[j]) {
			j--
		}
		if i >= j {
			return max(i, 1)
		}
		c[i], c[j] = c[j], c[i]
	}
}

// ranksBefore reports whether a ranks before b.
func ranksBefore(a, b *candidate) bool { return a.logit > b.logit || a.logit == b.logit && a.id < b.id }

// weigh sets p of each candidate to exp((logit - max)/temperature), and returns their sum.
func (m *tokenSampler) weigh() (sum float64) {
	top := math.Inf(-1)
	for _, c := range m.kept {
		top = max(top, float64(c.logit))
	}
	for i := range m.kept {
		p := math.Exp((float64(m.kept[i].logit) - top) / m.temperature)
		if p != p { // both infinite
			p = 1
		}
		m.kept[i].p = p
		sum += p
	}
	return sum
}

// softmax sets p of each candidate to its probability.
func (m *tokenSampler) softmax() {
	sum := m.weigh()
	for i := range m.kept {
		m.kept[i].p /= sum
	}
}

// topP keeps the smallest number of candidates, taken by rank, whose probabilities sum to
// mass. Like selectRank it partitions until few are left.
func (m *tokenSampler) topP(mass float64) {
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

// minP keeps the candidates with at least ratio times the largest probability.
func (m *tokenSampler) minP(ratio float64) {
	m.weigh()
	m.kept = slices.DeleteFunc(m.kept, func(c candidate) bool { return c.p < ratio })
}

// draw is the candidate at u of the cumulative probability.
func (m *tokenSampler) draw(u float64) int32 {
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
