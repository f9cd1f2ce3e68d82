package serve

import (
	"testing"

	"github.com/gollm/gollm/engine"
)

// TestReadsOfReplays has a device that counts nothing, as one that replays captured steps: what dense
// attention reads is known all the same, in each phase, and what others read is said to be unknown.
func TestReadsOfReplays(t *testing.T) {
	e := testModel(t)
	s := start(t, e, Config{NoPrefix: true}, engine.Config{Context: 256, Slots: 2, Blocks: 12}, testSpecs...)
	prompt := story(t, 90)
	for i, spec := range s.Specs() {
		r := Request{Attn: i, Prompt: prompt, MaxTokens: 9, Draw: 5}
		_, counted, err := s.Do(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		s.lanes[i].meter.Meter, s.lanes[i].meter.watch = nil, nil
		_, got, err := s.Do(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		prefill, decode := spec.DenseIn()
		if got.PrefillUnknown == prefill || got.DecodeUnknown == decode || counted.PrefillUnknown || counted.DecodeUnknown {
			t.Errorf("%s: prompt unknown %v, steps %v", spec, got.PrefillUnknown, got.DecodeUnknown)
		}
		if prefill && got.PrefillReads != counted.PrefillReads || decode && got.DecodeReads != counted.DecodeReads {
			t.Errorf("%s: %+v and %+v without counting, %+v and %+v counted", spec, got.PrefillReads, got.DecodeReads, counted.PrefillReads, counted.DecodeReads)
		}
	}
}
