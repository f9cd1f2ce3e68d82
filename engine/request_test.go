package engine_test

import (
	"slices"
	"testing"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// Sequences of one text draw alike with one number and independently with two,
// in one batch and each alone.
func TestRequestsOfABatch(t *testing.T) {
	e, story := stories(t)
	all := append(slices.Clone(story.IDs), story.Greedy...)
	prompt := all[:40]
	spec, err := sparse.Parse("santa(samples=4)")
	if err != nil {
		t.Fatal(err)
	}
	run := func(requests ...uint32) (last [][]float32) {
		r := runner(t, e, engine.Config{Context: 128, Slots: len(requests), Attn: spec, KV: stepCache})
		var seqs []*engine.Sequence
		for _, n := range requests {
			s := sequence(t, r)
			s.SetRequest(n)
			prefill(t, s, prompt)
			seqs = append(seqs, s)
		}
		for n := range 4 {
			for _, s := range seqs {
				if err := s.Push(all[len(prompt)+n]); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Step(seqs...); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range seqs {
			last = append(last, logits(t, e, s))
		}
		return last
	}
	batch := run(0, 5, 0)
	alike := func(a, b []float32) bool { return distance(a, b) <= batchDistance }
	if !slices.Equal(batch[0], batch[2]) || !alike(batch[0], run(0)[0]) || !alike(batch[1], run(5)[0]) {
		t.Error("one number draws differently in a batch, or in another slot")
	}
	if alike(batch[0], batch[1]) {
		t.Error("requests 0 and 5 draw the same")
	}
}
