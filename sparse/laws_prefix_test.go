package sparse_test

import (
	"testing"

	"github.com/gollm/gollm/sparse"
)

// A prompt that begins with the pages of another, which begins alike and goes on
// otherwise, is the prompt alone: in the positions that the two share, in the rest, and in
// the decode steps. Specs for which it is not say so.
func TestLawPrefix(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		spec, err := sparse.Parse(s.spec)
		must(t, err)
		if unit := spec.Unit(); unit%max(s.unit, 1) != 0 && !s.future {
			t.Errorf("prompts may be cut at multiples of %d, want multiples of %d", unit, s.unit)
		}
		unit, why := spec.PrefixUnit()
		if (unit == 0) != (why != "") || unit > 0 && (s.prompt || s.future) {
			t.Fatalf("PrefixUnit: %d, %q", unit, why)
		}
		if unit == 0 {
			return
		}
		shared := 128 / unit * unit
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		want, b := alone(t, s.spec, s.len), openBench(t, s.spec, s.len, nil)
		other := b.open(changed(lawTensors(1, s.len), s.len, shared))
		must(t, other.Prefill(s.len-20, 0))
		for range 5 {
			must(t, b.Step(other))
		}
		same(t, "before the cut", rowsOf(outputs(other), s.len, 0, shared), rowsOf(want, s.len, 0, shared))
		got := b.open(layers)
		got.Begin(other, shared)
		other.Close()
		must(t, got.Prefill(prompt-shared, 0))
		b.steps(got)
		same(t, "behind it", rowsOf(outputs(got), s.len, shared, s.len), rowsOf(want, s.len, shared, s.len))
	})
}
