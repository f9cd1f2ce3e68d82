package serve

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
)

// residue lets tokens follow whose ids leave a remainder that depends on all before. Every mask that
// it is late with comes when the step has gone on without it.
type residue struct{ sum, late int32 }

func (r *residue) MaskContext(ctx context.Context) ([]uint32, error) {
	if r.late > 0 && r.sum%r.late == 0 {
		time.Sleep(2 * maskPatience)
	}
	mask := make([]uint32, 16)
	for id := int32(3); id < 512; id++ {
		if id%7 == r.sum%7 {
			mask[id/32] |= 1 << (id % 32)
		}
	}
	return mask, nil
}

func (r *residue) AcceptToken(id int32) error {
	r.sum += id
	return nil
}

// TestConstrainedPreempted has constrained and biased answers lose their pages: what the constraint
// knows of them stays, and they are what they are with room for all, late masks or not.
func TestConstrainedPreempted(t *testing.T) {
	e := testModel(t)
	text := story(t, 120)
	answers := func(blocks int, late int32, patience time.Duration) (all []answer, preempted int) {
		s := start(t, e, Config{}, engine.Config{Context: 256, Slots: 4, Blocks: blocks}, testSpecs...)
		s.patience = patience
		for attn := range testSpecs {
			var requests []Request
			for i := range 3 {
				requests = append(requests, Request{
					Attn: attn, Prompt: text[i : i+60], MaxTokens: 15, Logprobs: true, Top: i, Draw: 3, Stop: []string{"\x00"}, Echo: i == 1,
					Bias: map[int32]float32{int32(300 + i): 5}, Constraint: &residue{int32(i), late},
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
	want, none := answers(60, 0, time.Hour)
	got, some := answers(5, 0, time.Hour)
	if none != 0 || some < len(testSpecs) {
		t.Fatalf("%d and %d preemptions, want none and one for each spec: this shows nothing", none, some)
	}
	late, _ := answers(5, 7, maskPatience)
	for i := range want {
		for what, got := range map[string]answer{"preemptions": got[i], "preemptions and late masks": late[i]} {
			if !got.same(want[i]) {
				t.Errorf("%s, request %d: %q with %s, %q without", testSpecs[i/3], i%3, got.text, what, want[i].text)
			}
		}
	}
}

// TestSlowMask has a mask that takes for ever hold its own request alone: others run beside it, and it is
// the same answer when it comes. When the request is cancelled, or its constraint fails, it ends.
func TestSlowMask(t *testing.T) {
	e := testModel(t)
	s := start(t, e, Config{}, engine.Config{Context: 256, Slots: 4, Blocks: 20}, testSpecs...)
	text := story(t, 120)
	r := Request{Prompt: text[:70], MaxTokens: 6, Sampling: sampling.Params{Temperature: 1, Seed: 3}, Logprobs: true, Bias: map[int32]float32{300: 4}}
	free := r
	alone, err := s.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := read(alone[0])
	for attn := range testSpecs {
		open := make(gate)
		ctx, cancel := context.WithCancel(t.Context())
		r.Constraint, r.Attn = open, 0
		held, err := s.Submit(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		r.Constraint = make(gate) // of which nobody opens
		left, err := s.Submit(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		free.Attn = attn
		for range 3 {
			if _, res, err := s.Do(t.Context(), free); err != nil || res.Generated != 6 {
				t.Fatalf("beside a slow mask: %+v, %v", res, err)
			}
		}
		cancel()
		if _, res, err := read(left[0]); err != nil || res.Stop != engine.StopCancelled {
			t.Errorf("cancelled: %+v, %v", res, err)
		}
		close(open)
		got, _, err := read(held[0])
		if err != nil || !got.same(want) || len(got.tokens) != 6 {
			t.Errorf("%q behind slow masks, %q without, %v", got.text, want.text, err)
		}
	}
	r.Constraint = broken{}
	if _, _, err := s.Do(t.Context(), r); err != errBroken {
		t.Errorf("a constraint that fails: %v", err)
	}
	if _, _, err := s.Do(t.Context(), free); err != nil {
		t.Errorf("after a constraint that failed: %v", err)
	}
}

var errBroken = errors.New("no mask")

// broken is a constraint without a mask.
type broken struct{}

func (broken) MaskContext(context.Context) ([]uint32, error) { return nil, errBroken }

func (broken) AcceptToken(int32) error { return nil }
