package engine_test

import (
	"slices"
	"testing"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// TestDecodePolicies answers a prompt under several specs, each in a fork of the prompt
// in the second slot: each time the logits of the prompt are there, and those of the
// steps are the spec's own, also where steps are replayed, and in any order.
func TestDecodePolicies(t *testing.T) {
	e, story := stories(t)
	all := append(slices.Clone(story.IDs), story.Greedy...)
	const prompt, steps = 90, 3
	texts := []string{"dense", "streaming(sink=2,window=20)", "cis(k=10,sink=2,local=8,s=4)", "santa(samples=8)"}
	var specs []*sparse.Spec
	var want [][]float32 // of the prompt, then after the steps of each spec
	for i, text := range texts {
		spec, err := sparse.Parse("prefill=dense decode=" + text)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, spec)
		r := runner(t, e, engine.Config{Context: 128, Attn: spec})
		s := sequence(t, r)
		prefill(t, s, all[:prompt])
		if i == 0 {
			want = append(want, logits(t, e, s))
		}
		stepEach(t, r, s, all[prompt:prompt+steps])
		want = append(want, logits(t, e, s))
	}
	r := runner(t, e, engine.Config{Context: 128, Slots: 2, Attn: specs[0], Also: specs[1:]})
	first := sequence(t, r)
	prefill(t, first, all[:prompt])
	prompted, err := first.Fork()
	if err != nil {
		t.Fatal(err)
	}
	defer prompted.Close()
	first.Close()
	for _, i := range []int{2, 0, 3, 1, 2} {
		s, err := prompted.Fork()
		if err != nil {
			t.Fatal(err)
		}
		if got := logits(t, e, s); !slices.Equal(got, want[0]) {
			t.Errorf("%s: the logits of the prompt differ by %g", texts[i], distance(got, want[0]))
		}
		r.SetDecodePolicy(i)
		if got := r.Attn(); got != specs[i].String() {
			t.Errorf("decode steps are planned by %s, want %s", got, specs[i])
		}
		stepEach(t, r, s, all[prompt:prompt+steps])
		if got := logits(t, e, s); !slices.Equal(got, want[1+i]) {
			t.Errorf("%s: logits after steps differ by %g", texts[i], distance(got, want[1+i]))
		}
		s.Close()
	}
	for i, a := range want {
		for _, b := range want[:i] {
			if slices.Equal(a, b) {
				t.Error("two specs give the same logits: this shows nothing")
			}
		}
	}
	other, err := sparse.Parse("streaming(sink=2,window=20)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.NewRunner(engine.Config{Attn: specs[0], Also: []*sparse.Spec{other}}); err == nil {
		t.Error("specs that read prompts in different ways share a runner")
	}
}
