package devtest

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
	"github.com/gollm/gollm/device/sampling"
)

// The stages, for short.
const (
	stagePenalties = sampling.StagePenalties
	stageTopK      = sampling.StageTopK
	stageTopP      = sampling.StageTopP
	stageMinP      = sampling.StageMinP
	stageTemp      = sampling.StageTemperature
)

// tokensHeadless are the rules here whose tensors have no head dimension, see complete.
var tokensHeadless = []string{"SampleTokens", "MaskTokens"}

// sampleCases sample tokens with every stage, alone and combined.
func sampleCases() []testCase {
	settings := []sampling.Params{
		{},
		{RepeatPenalty: 1.3, RepeatLastN: 6},
		{Temperature: 1},
		{Temperature: 0.7, TopK: 1},
		{Temperature: 0.7, TopK: 5},
		{Temperature: 1.5, TopK: 40, Seed: 7},
		{Temperature: 1, TopP: 0.3},
		{Temperature: 1, TopP: 0.95, Seed: 1 << 40},
		{Temperature: 1, TopP: 1, MinP: 0.2},
		{Temperature: 0.8, MinP: 0.05, RepeatPenalty: 1.1, RepeatLastN: 6},
		{Temperature: 0.8, TopK: 40, TopP: 0.9, MinP: 0.05, RepeatPenalty: 1.1, RepeatLastN: 6, Seed: 42},
		{Temperature: 0.01, TopP: 0.5},
		{Temperature: 100, TopK: 1000000},
		{PresencePenalty: 3, FrequencyPenalty: 1.5, RepeatLastN: 4},
		{Temperature: 1.5, TopK: 4, PresencePenalty: -1, FrequencyPenalty: 0.5, RepeatPenalty: 1.2, RepeatLastN: 3},
		{Temperature: 2, TopP: 0.9, FrequencyPenalty: -0.5, RepeatLastN: 100, Seed: 3},
		{Temperature: 1, RepeatPenalty: 1.3, PresencePenalty: 1},
	}
	var cases []testCase
	for i, s := range settings {
		for _, vocab := range []int{1, 2, 17, 1000} {
			name := fmt.Sprintf("op=SampleTokens/setting=%d/vocab=%d", i, vocab)
			cases = append(cases, testCase{name, func(b *bed) job { return sample(b, 32, vocab, s) }})
		}
	}
	for i, s := range []sampling.Params{
		{RepeatPenalty: 1.3, RepeatLastN: 6},
		{Temperature: 1.5, TopK: 40, Seed: 7},
		{Temperature: 0.8, TopK: 40, TopP: 0.9, MinP: 0.05, RepeatPenalty: 1.1, RepeatLastN: 6, Seed: 42},
		{Temperature: 4, TopK: 40, TopP: 0.5},
		{Temperature: 2, TopK: 300, TopP: 0.7},
		{Temperature: 1, TopP: 0.3},
		{Temperature: 10, TopP: 0.95},
		{Temperature: 1, MinP: 0.05, RepeatPenalty: 1.1, RepeatLastN: 6},
		{Temperature: 3, MinP: 0.2, TopP: 0.6},
		{Temperature: 100, TopK: 1000000},
	} {
		name := fmt.Sprintf("op=SampleTokens/long/setting=%d", i)
		cases = append(cases, testCase{name, func(b *bed) job { return sample(b, 5, 9001, s) }})
	}
	for _, vocab := range []int{1, 31, 32, 33, 1000, 9001} {
		name := fmt.Sprintf("op=MaskTokens/vocab=%d", vocab)
		cases = append(cases, testCase{name, func(b *bed) job { return maskTokens(b, vocab) }})
	}
	return append(cases,
		testCase{"op=MaskTokens/sampled", sampleMasked},
		testCase{"op=SampleTokens/orders", func(b *bed) job { return sampleEach(b, 700, orders()) }},
		testCase{"op=SampleTokens/orders/long", func(b *bed) job { return sampleEach(b, 9001, orders()) }},
		testCase{"op=SampleTokens/each", func(b *bed) job { return sampleEach(b, 300, settings) }},
		testCase{"op=SampleTokens/each/long", func(b *bed) job { return sampleEach(b, 9001, settings) }},
		testCase{"op=SampleTokens/ties", sampleTies},
		testCase{"op=SampleTokens/alike", sampleAlike},
		testCase{"op=SampleTokens/last", sampleLast},
		testCase{"op=SampleTokens/newest", sampleNewest},
		testCase{"op=SampleTokens/notnumbers", sampleNotNumbers})
}

// orders are settings that do not have the default order.
func orders() []sampling.Params {
	var all []sampling.Params
	for i, s := range []sampling.Params{
		{Temperature: 2.5, TopK: 30, TopP: 0.8, MinP: 0.1, RepeatPenalty: 1.3, PresencePenalty: 0.7, RepeatLastN: 5},
		{Temperature: 0.4, TopP: 0.9, MinP: 0.01, FrequencyPenalty: 2, RepeatLastN: 6},
		{TopK: 5, TopP: 0.5, PresencePenalty: 9, RepeatLastN: 6},
	} {
		for _, order := range []sampling.Order{
			{stageTemp, stageTopK, stageTopP, stageMinP, stagePenalties},
			{stagePenalties, stageTemp, stageTopP, stageTopK, stageMinP},
			{stagePenalties, stageMinP, stageTopP, stageTopK, stageTemp},
			{stageMinP, stageTemp, stageTopP, stagePenalties, stageTopK},
			{stageTopP, stagePenalties, stageTemp, stageMinP},
			{stageTopK, stagePenalties, stageMinP, stageTopP, stageTemp},
			{stageTemp, stageMinP, stageTopP, stageTopK},
			{stageTopP, stageTemp, stageTopK},
			{stagePenalties, stageTopK, stageTopP},
			{stageTopK, stageTemp},
			{stageTemp, stagePenalties},
			{stageMinP},
			{stagePenalties},
		} {
			s.Order, s.Seed = order, uint64(i)
			all = append(all, s)
		}
	}
	return all
}

// sample is a case of many positions with the same parameters.
func sample(b *bed, rows, vocab int, s sampling.Params) job {
	return sampleEach(b, vocab, repeated(rows, s))
}

// sampleEach has a row for each of the parameters. A random number within rounding of the
// border between two tokens is left out.
func sampleEach(b *bed, vocab int, settings []sampling.Params) job {
	const window = 6
	rows := len(settings)
	logits := b.normal(rows * vocab)
	history, pos := make([]int32, rows*window), make([]int32, rows)
	for i := range logits {
		logits[i] *= 3
	}
	for i := range history {
		history[i] = int32(b.rng.IntN(min(vocab, 40)+1)) - 1
	}
	want := make([]int32, rows)
	for r, s := range settings {
		l, seen := logits[r*vocab:(r+1)*vocab], history[r*window:(r+1)*window]
		for id := range l { // so that what is penalized may be sampled
			if id < 40 && vocab > 40 {
				l[id] += 4
			}
		}
		for range 100 {
			pos[r] = int32(b.rng.IntN(1 << 20))
			id, clear := choose(l, seen, pos[r], s)
			if want[r] = id; clear {
				break
			}
			want[r] = -1
		}
	}
	if slices.Contains(want, -1) {
		b.t.Fatal("devtest: rounding decides every sample of a row")
	}
	return sampleAll(b, logits, history, pos, settings, want)
}

// randomMask allows a third of the tokens of each row, nothing in the first row and everything in
// the second one.
func randomMask(b *bed, rows, vocab int) (mask []int32, allowed func(row, id int) bool) {
	words := (vocab + 31) / 32
	mask = make([]int32, rows*words)
	for i := range mask {
		for bit := range 32 {
			if b.rng.IntN(3) == 0 {
				mask[i] |= 1 << bit
			}
		}
		switch i / words {
		case 0:
			mask[i] = 0
		case 1:
			mask[i] = -1
		}
	}
	return mask, func(row, id int) bool { return mask[row*words+id/32]>>(id%32)&1 == 1 }
}

// maskTokens has rows of logits some of which are not numbers.
func maskTokens(b *bed, vocab int) job {
	const rows = 4
	logits := b.normal(rows * vocab)
	logits[vocab/2] = float32(math.NaN())
	logits[rows*vocab-1] = float32(math.Inf(1))
	mask, allowed := randomMask(b, rows, vocab)
	want := widen(logits)
	for i := range want {
		if !allowed(i/vocab, i%vocab) {
			want[i] = math.Inf(-1)
		}
	}
	l, m := b.f32(logits, rows, vocab), b.i32(mask, rows, len(mask)/rows)
	return job{
		step:   func(ops device.Queue) { device.Do(ops, device.MaskTokens{Logits: l, Allowed: m}) },
		expect: []expectation{{name: "logits", got: l, want: want}},
	}
}

// sampleMasked samples from what a mask leaves: the likeliest token, and a random one of two.
func sampleMasked(b *bed) job {
	const vocab, rows = 700, 8
	logits := b.normal(rows * vocab)
	mask := make([]int32, rows*((vocab+31)/32))
	pos, want := make([]int32, rows), make([]int32, rows)
	settings := make([]sampling.Params, rows)
	for r := range rows {
		for n := range 2 {
			id := r*37 + n*300
			mask[r*((vocab+31)/32)+id/32] |= 1 << (id % 32)
		}
		settings[r] = sampling.Params{Temperature: float32(r % 2 * 3), Seed: uint64(r)}
		left := slices.Repeat([]float32{float32(math.Inf(-1))}, vocab)
		for n := range 2 {
			left[r*37+n*300] = logits[r*vocab+r*37+n*300]
		}
		for clear := false; !clear; {
			pos[r] = int32(b.rng.IntN(1 << 20))
			want[r], clear = choose(left, nil, pos[r], settings[r])
		}
	}
	l, m := b.f32(logits, rows, vocab), b.i32(mask, rows, len(mask)/rows)
	next, h, p := b.i32(make([]int32, rows), rows), b.i32(slices.Repeat([]int32{-1}, rows), rows, 1), b.i32(pos, rows)
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.MaskTokens{Logits: l, Allowed: m})
			device.Do(ops, device.SampleTokens{Next: next, Logits: l, History: h, Pos: p, Params: settings})
		},
		expect: []expectation{{name: "next", got: next, ids: want}},
	}
}

func sampleAll(b *bed, logits []float32, history, pos []int32, s []sampling.Params, want []int32) job {
	rows := len(pos)
	next := b.i32(make([]int32, rows), rows)
	l := b.f32(logits, rows, len(logits)/rows)
	h, p := b.i32(history, rows, len(history)/rows), b.i32(pos, rows)
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.SampleTokens{Next: next, Logits: l, History: h, Pos: p, Params: s})
		},
		expect: []expectation{
			{name: "next", got: next, ids: want},
			{name: "history", got: h, ids: ring(history, pos, want)},
		},
	}
}

// token is a candidate.
type token struct {
	id int32
	l  float64 // logit
	p  float64
}

// border is the distance within which rounding may decide a comparison.
const border = 1e-6

// choose is the reference of sampling. clear is false where rounding decides.
func choose(logits []float32, history []int32, pos int32, s sampling.Params) (id int32, clear bool) {
	var left []token
	for i, v := range logits {
		left = append(left, token{id: int32(i), l: float64(v)})
	}
	order := s.Order
	if order == (sampling.Order{}) {
		order = sampling.DefaultOrder
	}
	clear = true
	for _, stage := range order {
		rank(left)
		switch {
		case stage == stagePenalties && s.RepeatLastN > 0:
			penalize(left, history, pos, s)
			rank(left)
		case stage == stageTopK && s.TopK > 0:
			left = left[:min(s.TopK, len(left))]
		case stage == stageTopP && s.TopP > 0 && s.TopP < 1:
			sum, mass := softmax(left), 0.0
			for n := range left {
				if mass += left[n].p / sum; mass >= float64(s.TopP)-border {
					clear = clear && mass > float64(s.TopP)+border
					left = left[:n+1]
					break
				}
			}
		case stage == stageMinP && s.MinP > 0:
			softmax(left)
			n := sort.Search(len(left), func(i int) bool { return left[i].p < float64(s.MinP) })
			clear = clear && left[n-1].p > float64(s.MinP)+border && (n == len(left) || left[n].p < float64(s.MinP)-border)
			left = left[:n]
		case stage == stageTemp && s.Temperature <= 0:
			left = left[:1]
		case stage == stageTemp:
			for i := range left {
				left[i].l /= float64(s.Temperature)
			}
		}
	}
	if len(left) == 1 {
		return left[0].id, clear
	}
	rank(left)
	sum := softmax(left)
	sort.Slice(left, func(i, j int) bool { return left[i].id < left[j].id })
	u := float64(rng.Address{Seed: s.Seed, Pos: uint32(pos), Purpose: rng.ForToken}.Uniform(0))
	for _, t := range left {
		id = t.id
		clear = clear && math.Abs(u-t.p/sum) > border
		if u -= t.p / sum; u < 0 {
			break
		}
	}
	return id, clear
}

// rank puts the likeliest first, the lowest id among equals.
func rank(left []token) {
	sort.Slice(left, func(i, j int) bool {
		return left[i].l > left[j].l || left[i].l == left[j].l && left[i].id < left[j].id
	})
}

// softmax gives what is ranked its weights, that of the first being 1, and their sum.
func softmax(left []token) (sum float64) {
	for i := range left {
		left[i].p = math.Exp(left[i].l - left[0].l)
		sum += left[i].p
	}
	return sum
}

// penalize is the definition of the penalties.
func penalize(left []token, history []int32, pos int32, s sampling.Params) {
	counts := map[int32]float64{}
	for i := range min(s.RepeatLastN, len(history), int(pos)+1) {
		counts[history[(int(pos)-i)%len(history)]]++
	}
	for i := range left {
		t := &left[i]
		n, seen := counts[t.id]
		if !seen {
			continue
		}
		if p := float64(s.RepeatPenalty); p != 0 && t.l > 0 {
			t.l /= p
		} else if p != 0 {
			t.l *= p
		}
		t.l -= n*float64(s.FrequencyPenalty) + float64(s.PresencePenalty)
	}
}

// ring is the history after the sampled tokens have been written.
func ring(history, pos, next []int32) []int32 {
	after, window := slices.Clone(history), len(history)/len(pos)
	for r, p := range pos {
		after[r*window+(int(p)+1)%window] = next[r]
	}
	return after
}

// sampleTies: among equal logits the lowest ids are kept and sampled.
func sampleTies(b *bed) job {
	logits := []float32{1, 5, 5, 5, 0, 5, 5, 2}
	pos := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	var all []float32
	var want []int32
	for _, p := range pos {
		all = append(all, logits...)
		u := rng.Address{Pos: uint32(p), Purpose: rng.ForToken}.Uniform(0)
		want = append(want, 1+int32(u*2)) // ids 1 and 2, half each
	}
	return sampleAll(b, all, filledI32(len(pos), -1), pos, repeated(len(pos), sampling.Params{Temperature: 1, TopK: 2}), want)
}

// sampleAlike: of a large vocabulary that is all alike the lowest ids are kept,
// by top-k and by top-p.
func sampleAlike(b *bed) job {
	const vocab, kept = 1000, 250
	pos := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	var want []int32
	for _, p := range pos {
		u := rng.Address{Pos: uint32(p), Purpose: rng.ForToken}.Uniform(0)
		want = append(want, int32(float64(u)*kept))
	}
	logits := filled(len(pos)*vocab, 1.5)
	j := sampleAll(b, logits, filledI32(len(pos), -1), pos, repeated(len(pos), sampling.Params{Temperature: 1, TopK: kept}), want)
	k := sampleAll(b, logits, filledI32(len(pos), -1), pos, repeated(len(pos), sampling.Params{Temperature: 1, TopP: (kept - 0.5) / vocab}), want)
	return job{
		step:   func(ops device.Queue) { j.step(ops); k.step(ops) },
		expect: append(j.expect, k.expect...),
	}
}

// sampleLast: the last token of the last row is the best, and all others are less likely
// than what is kept.
func sampleLast(b *bed) job {
	const vocab = 8192
	pos := []int32{1, 2}
	logits := filled(len(pos)*vocab, 0)
	logits[vocab-1], logits[2*vocab-1] = 1, 1
	return sampleAll(b, logits, filledI32(len(pos), -1), pos, repeated(2, sampling.Params{Temperature: 1, MinP: 0.5}), []int32{vocab - 1, vocab - 1})
}

// sampleNewest: the penalties see the newest tokens of the ring and no others, none before
// the first position, and one that is there twice counts twice.
func sampleNewest(b *bed) job {
	greedy := func(n int) sampling.Params { return sampling.Params{FrequencyPenalty: 1, RepeatLastN: n} }
	settings := []sampling.Params{greedy(1), greedy(2), greedy(3), greedy(4), greedy(5), greedy(3), greedy(50)}
	// Tokens 0 to 4 with logits 4.5, 3.9, 3.5, 3, 2.5, and at positions 5 to 9 tokens 0, 0, 1, 2, 0.
	pos := []int32{9, 9, 9, 9, 9, 1, 1}
	var logits []float32
	var history []int32
	for range 5 {
		history = append(history, 0, 0, 1, 2, 0)
	}
	// At positions 0 and 1 tokens 0, 0, and what a ring has besides is older than the text.
	history = append(history, 0, 0, 1, 1, 2, 0, 0, 1, 1, 2)
	for range settings {
		logits = append(logits, 4.5, 3.9, 3.5, 3, 2.5)
	}
	return sampleAll(b, logits, history, pos, settings, []int32{1, 1, 0, 3, 3, 1, 1})
}

// repeated is one setting for each of n rows.
func repeated(n int, s sampling.Params) []sampling.Params {
	return slices.Repeat([]sampling.Params{s}, n)
}

// sampleNotNumbers: a NaN logit is never sampled.
func sampleNotNumbers(b *bed) job {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	logits := []float32{nan, 1, nan, 3, -inf, 2, nan, 3, nan, -inf, -inf, -1}
	return sampleAll(b, logits, filledI32(3, -1), []int32{0, 0, 0}, make([]sampling.Params, 3), []int32{3, 3, 3})
}

func filledI32(n int, v int32) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = v
	}
	return x
}
