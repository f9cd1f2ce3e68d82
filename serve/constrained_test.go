package serve

import (
	"testing"

	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
)

// residue lets tokens follow whose ids leave a remainder that depends on all before.
type residue struct{ sum int32 }

func (r *residue) Mask() []uint32 {
	mask := make([]uint32, 16)
	for id := int32(3); id < 512; id++ {
		if id%7 == r.sum%7 {
			mask[id/32] |= 1 << (id % 32)
		}
	}
	return mask
}

func (r *residue) AcceptToken(id int32) error {
	r.sum += id
	return nil
}

// TestConstrainedPreempted has constrained and biased answers lose their pages: what the constraint
// knows of them stays, and they are what they are with room for all.
func TestConstrainedPreempted(t *testing.T) {
	e := testModel(t)
	text := story(t, 120)
	answers := func(blocks int) (all []answer, preempted int) {
		s := start(t, e, Config{}, engine.Config{Context: 256, Slots: 4, Blocks: blocks}, testSpecs...)
		for attn := range testSpecs {
			var requests []Request
			for i := range 3 {
				requests = append(requests, Request{
					Attn: attn, Prompt: text[i : i+60], MaxTokens: 15, Logprobs: true, Top: i, Draw: 3, Stop: []string{"\x00"}, Echo: i == 1,
					Bias: map[int32]float32{int32(300 + i): 5}, Constraint: &residue{int32(i)},
					Sampling: sampling.Params{Temperature: float32(i), Seed: 7, RepeatPenalty: 1.3, RepeatLastN: 9},
				})
			}
			submitted, err := s.Submit(t.Context(), requests...)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range submitted {
				got, res, err := read(a)
				if err != nil {
					t.Fatal(err)
				}
				all, preempted = append(all, got), preempted+res.Preempted
			}
		}
		return all, preempted
	}
	want, none := answers(60)
	got, some := answers(5)
	if none != 0 || some < len(testSpecs) {
		t.Fatalf("%d and %d preemptions, want none and one for each spec: this shows nothing", none, some)
	}
	for i := range want {
		if !got[i].same(want[i]) {
			t.Errorf("%s, request %d: %q with preemptions, %q without", testSpecs[i/3], i%3, got[i].text, want[i].text)
		}
	}
}
