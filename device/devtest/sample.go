package devtest

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/gollm/gollm/device"
)

// sampleCases choose tokens in every way, alone and combined.
func sampleCases() []testCase {
	settings := []device.Sampling{
		{},
		{RepeatPenalty: 1.3},
		{Temperature: 1},
		{Temperature: 0.7, TopK: 1},
		{Temperature: 0.7, TopK: 5},
		{Temperature: 1.5, TopK: 40, Seed: 7},
		{Temperature: 1, TopP: 0.3},
		{Temperature: 1, TopP: 0.95, Seed: 1 << 40},
		{Temperature: 1, TopP: 1, MinP: 0.2},
		{Temperature: 0.8, MinP: 0.05, RepeatPenalty: 1.1},
		{Temperature: 0.8, TopK: 40, TopP: 0.9, MinP: 0.05, RepeatPenalty: 1.1, Seed: 42},
		{Temperature: 0.01, TopP: 0.5},
		{Temperature: 100, TopK: 1000000},
	}
	var cases []testCase
	for i, s := range settings {
		for _, vocab := range []int{1, 2, 17, 1000} {
			name := fmt.Sprintf("op=sample/setting=%d/vocab=%d", i, vocab)
			cases = append(cases, testCase{name, func(b *bed) job { return sample(b, 32, vocab, s) }})
		}
	}
	for i, s := range []device.Sampling{
		{RepeatPenalty: 1.3},
		{Temperature: 1.5, TopK: 40, Seed: 7},
		{Temperature: 0.8, TopK: 40, TopP: 0.9, MinP: 0.05, RepeatPenalty: 1.1, Seed: 42},
		{Temperature: 4, TopK: 40, TopP: 0.5},
		{Temperature: 2, TopK: 300, TopP: 0.7},
		{Temperature: 1, TopP: 0.3},
		{Temperature: 10, TopP: 0.95},
		{Temperature: 1, MinP: 0.05, RepeatPenalty: 1.1},
		{Temperature: 100, TopK: 1000000},
	} {
		name := fmt.Sprintf("op=sample/long/setting=%d", i)
		cases = append(cases, testCase{name, func(b *bed) job { return sample(b, 5, 9001, s) }})
	}
	return append(cases,
		testCase{"op=sample/ties", sampleTies},
		testCase{"op=sample/alike", sampleAlike},
		testCase{"op=sample/last", sampleLast},
		testCase{"op=sample/notnumbers", sampleNotNumbers})
}

// sample draws for many positions. A draw that lies within rounding of the
// border between two tokens is left out.
func sample(b *bed, rows, vocab int, s device.Sampling) job {
	const window = 6
	logits := b.normal(rows * vocab)
	history, pos := make([]int32, rows*window), make([]int32, rows)
	for i := range logits {
		logits[i] *= 3
	}
	for i := range history {
		history[i] = int32(b.rng.IntN(vocab+1)) - 1
	}
	want := make([]int32, rows)
	for r := range rows {
		for range 100 {
			pos[r] = int32(b.rng.IntN(1 << 20))
			id, clear := choose(logits[r*vocab:(r+1)*vocab], history[r*window:(r+1)*window], pos[r], s)
			if want[r] = id; clear {
				break
			}
			want[r] = -1
		}
	}
	if slices.Contains(want, -1) {
		b.t.Fatal("devtest: rounding decides every draw of a row")
	}
	return sampling(b, logits, history, pos, s, want)
}

func sampling(b *bed, logits []float32, history, pos []int32, s device.Sampling, want []int32) job {
	rows := len(pos)
	next := b.i32(make([]int32, rows), rows)
	l := b.f32(logits, rows, len(logits)/rows)
	h, p := b.i32(history, rows, len(history)/rows), b.i32(pos, rows)
	return job{
		step: func(ops device.Ops) { ops.Sample(next, l, h, p, s) },
		expect: []expectation{
			{name: "next", got: next, ids: want},
			{name: "history", got: h, ids: ring(history, pos, want)},
		},
	}
}

// choose is the definition of sampling. clear is false where rounding decides.
func choose(logits []float32, history []int32, pos int32, s device.Sampling) (id int32, clear bool) {
	type token struct {
		id int32
		l  float64 // logit
		p  float64
	}
	seen := map[int32]bool{}
	for _, h := range history {
		seen[h] = true
	}
	var all []token
	for i, v := range logits {
		if seen[int32(i)] && s.RepeatPenalty != 0 {
			if v > 0 {
				v /= s.RepeatPenalty
			} else {
				v *= s.RepeatPenalty
			}
		}
		all = append(all, token{id: int32(i), l: float64(v)})
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].l > all[j].l })
	if s.Temperature == 0 {
		return all[0].id, true
	}
	if s.TopK > 0 {
		all = all[:min(s.TopK, len(all))]
	}
	var sum float64
	for i := range all {
		all[i].p = math.Exp((all[i].l - all[0].l) / float64(s.Temperature))
		sum += all[i].p
	}
	const border = 1e-6
	clear = true
	kept, mass := all[:0:0], 0.0
	for _, t := range all {
		t.p /= sum
		if s.TopP > 0 && s.TopP < 1 {
			if mass >= float64(s.TopP) {
				break
			}
			mass += t.p
			clear = clear && math.Abs(mass-float64(s.TopP)) > border
		}
		kept = append(kept, t)
	}
	mass = 0
	last := kept[:0:0]
	for _, t := range kept {
		limit := float64(s.MinP) * kept[0].p
		clear = clear && (limit == 0 || math.Abs(t.p-limit) > border)
		if t.p >= limit {
			last = append(last, t)
			mass += t.p
		}
	}
	sort.Slice(last, func(i, j int) bool { return last[i].id < last[j].id })
	u := mass * float64(device.Draw{Seed: s.Seed, Pos: uint32(pos), Purpose: device.ForToken}.Uniform(0))
	for _, t := range last {
		id = t.id
		clear = clear && math.Abs(u-t.p) > border
		if u -= t.p; u < 0 {
			break
		}
	}
	return id, clear
}

// ring is the history after the tokens chosen have been written to it.
func ring(history, pos, next []int32) []int32 {
	after, window := slices.Clone(history), len(history)/len(pos)
	for r, p := range pos {
		after[r*window+(int(p)+1)%window] = next[r]
	}
	return after
}

// sampleTies: among equal logits the lowest ids are kept and chosen.
func sampleTies(b *bed) job {
	logits := []float32{1, 5, 5, 5, 0, 5, 5, 2}
	pos := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	var all []float32
	var want []int32
	for _, p := range pos {
		all = append(all, logits...)
		u := device.Draw{Pos: uint32(p), Purpose: device.ForToken}.Uniform(0)
		want = append(want, 1+int32(u*2)) // ids 1 and 2, half each
	}
	return sampling(b, all, filledI32(len(pos), -1), pos, device.Sampling{Temperature: 1, TopK: 2}, want)
}

// sampleAlike: of a large vocabulary that is all alike the lowest ids are kept,
// by top-k and by top-p.
func sampleAlike(b *bed) job {
	const vocab, kept = 1000, 250
	pos := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	var want []int32
	for _, p := range pos {
		u := device.Draw{Pos: uint32(p), Purpose: device.ForToken}.Uniform(0)
		want = append(want, int32(float64(u)*kept))
	}
	logits := filled(len(pos)*vocab, 1.5)
	j := sampling(b, logits, filledI32(len(pos), -1), pos, device.Sampling{Temperature: 1, TopK: kept}, want)
	k := sampling(b, logits, filledI32(len(pos), -1), pos, device.Sampling{Temperature: 1, TopP: (kept - 0.5) / vocab}, want)
	return job{
		step:   func(ops device.Ops) { j.step(ops); k.step(ops) },
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
	return sampling(b, logits, filledI32(len(pos), -1), pos, device.Sampling{Temperature: 1, MinP: 0.5}, []int32{vocab - 1, vocab - 1})
}

// sampleNotNumbers: a logit that is not a number is never chosen.
func sampleNotNumbers(b *bed) job {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	logits := []float32{nan, 1, nan, 3, -inf, 2, nan, 3, nan, -inf, -inf, -1}
	return sampling(b, logits, filledI32(3, -1), []int32{0, 0, 0}, device.Sampling{}, []int32{3, 3, 3})
}

func filledI32(n int, v int32) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = v
	}
	return x
}
